"""Builds a judge from its name: a file, a provider, a client or a command.

    judge = JudgeConfig("judge.yaml").build(folder)            # a playbook, mocks or a cassette
    judge = JudgeConfig("anthropic", model="…", env=keys).build(folder)
    judge = JudgeConfig(backend="claude", judge="judge.yaml").build(folder)

Each is a `ModelSource`, so a judge can be traced, recorded and replayed like any model.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from offbook.checks.judge import Judge
from offbook.errors import ModelError, UsageError, did_you_mean
from offbook.exchange.messages import Text
from offbook.exchange.model import Reply
from offbook.runs.agents import CLIENTS, BackendConfig, NullSource, open_backend
from offbook.runs.wiring import Wiring
from offbook.sources.live import PROVIDERS, Live
from offbook.subjects.process import ProcessResult
from offbook.trace.hub import Hub

if TYPE_CHECKING:
    from offbook.exchange.model import ModelSource, Request
    from offbook.subjects.clis.cli import CliAgent

JUDGE_TIMEOUT = 300.0


class JudgeConfig(msgspec.Struct, frozen=True):
    """A judge by name, with its options.

    `judge` is a file (a playbook, mocks, a cassette) or a provider (`anthropic`, `openai-chat`,
    `openai-responses`, `gemini`). With `backend`, a client answers, and `judge` is the file of its
    model; `command` is any command that reads the question from stdin. `reasoned` requires the
    reasoning before the score.
    """

    judge: str = ""
    backend: str = ""
    command: Sequence[str] = ()
    model: str = ""
    env: Mapping[str, str] = {}
    instructions: str = ""
    reasoned: bool = True

    def build(self, folder: Path) -> Judge:
        """Return the judge; a name without a suffix may be a cassette in `folder`."""
        dialect = ""
        if self.backend or self.command:
            source: ModelSource = _AgentSource(self._backend_config(folder))
        elif self.judge in PROVIDERS:
            dialect = self.judge
            source = self._provider()
        elif self.judge:
            from offbook.sources.loading import open_source  # needed for files only

            source = open_source(self._find_file(folder))()
        else:
            raise UsageError(
                "evaluate needs a judge, a judge_backend or a judge_command",
                hint="judge is the path of a playbook, mocks or a cassette, or a provider",
            )
        return Judge(source, self.model, dialect, self.instructions, self.reasoned)

    def _provider(self) -> ModelSource:
        if not self.env:
            raise UsageError(
                f"the judge {self.judge!r} is a real model",
                hint='allow it with its key: env={"…_API_KEY": …}',
            )
        if not self.model:
            raise UsageError("missing model name of the judge", hint='judge_model="…"')
        return Live(environment=self.env)

    def _backend_config(self, folder: Path) -> BackendConfig:
        name = self.backend or "command"
        if name not in CLIENTS and name != "command":
            raise UsageError(
                f"unknown judge_backend {name!r}", hint=did_you_mean(name, [*CLIENTS, "command"])
            )
        if bool(self.command) is not (name == "command"):
            raise UsageError("judge_command requires the judge_backend 'command'")
        playbook = str(self._find_file(folder)) if self.judge else ""
        return BackendConfig(name, tuple(self.command), dict(self.env), playbook)

    def _find_file(self, folder: Path) -> Path:
        path = Path(self.judge)
        if path.is_file() or path.suffix:
            return path  # a missing file with a suffix is reported by its reader
        cassette = folder / f"{self.judge}.yaml"
        if cassette.is_file():
            return cassette
        names = [*PROVIDERS, *(file.stem for file in folder.glob("*.yaml"))]
        raise UsageError(f"unknown judge {self.judge!r}", hint=did_you_mean(self.judge, names))


class _AgentSource:
    """An agent as a model: it receives the question as its prompt, in a temporary folder.

    Its events go to a separate hub: they are not part of the run that it judges.
    """

    def __init__(self, config: BackendConfig) -> None:
        self._config = config

    async def reply(self, request: Request, /) -> Reply:
        with tempfile.TemporaryDirectory(prefix="offbook-judge-") as folder:
            agent, source = open_backend(self._config, Path(folder))
            wiring = Wiring(agent, source or NullSource(), Hub())
            context = wiring.connect(Path(folder))
            try:
                await agent.open(msgspec.structs.replace(context, deadline=JUDGE_TIMEOUT))
                answer = await agent.prompt(f"{request.system}\n\n{request.prompt}")
            finally:
                await agent.close()
                wiring.close()
        if wiring.failure is not None:
            raise wiring.failure
        process: ProcessResult = cast("CliAgent", agent).process_result or ProcessResult(0, "", "")
        if process.code:
            output = (process.stderr or process.stdout).strip()[-200:]
            raise ModelError(f"the judge failed with exit code {process.code}: {output}")
        return Reply((Text(str(answer or "")),))
