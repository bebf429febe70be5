"""Who judges: a file, a provider, a client or a command, each as a source of replies."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from offbook.checks.judge import JUDGE_HAT, Judge
from offbook.errors import ModelError, UsageError, did_you_mean
from offbook.exchange.messages import Text
from offbook.exchange.model import Reply
from offbook.runs.backends import CLIENTS, BackendConfig, BackendFactory
from offbook.sources.live import PROVIDERS, Live
from offbook.subjects.subject import RunContext
from offbook.trace.hub import Hub
from offbook.workflows.presets import read_preset

if TYPE_CHECKING:
    from offbook.exchange.model import ModelSource, Request

JUDGE_TIMEOUT = 300.0


class JudgeConfig(msgspec.Struct, frozen=True):
    """How a user names a judge.

    `judge` is a file (a playbook, mocks, a cassette) or a provider (`anthropic`, `openai-chat`,
    `openai-responses`, `gemini`); `backend` is a client whose model that is, `command` any
    command. `preset` is a preset whose hat `judge` has instructions.
    """

    judge: str = ""
    backend: str = ""
    command: Sequence[str] = ()
    preset: str = JUDGE_HAT
    model: str = ""
    env: Mapping[str, str] = {}
    reasoned: bool = True

    def seat(self, folder: Path) -> Judge:
        """The judge; a name that is no file is a cassette's in `folder`."""
        dialect = self.judge if self.judge in PROVIDERS and not self.backend else ""
        source = self._live() if dialect else self._open(folder)
        return Judge(source, self.model, dialect, self._instructions(), self.reasoned)

    def _live(self) -> ModelSource:
        if not self.env:
            raise UsageError(
                f"the judge {self.judge!r} is a real model",
                hint='allow it, with its key: env={"…_API_KEY": …}',
            )
        if not self.model:
            raise UsageError("a real model needs a name", hint='judge_model="…"')
        return Live(environment=self.env)

    def _open(self, folder: Path) -> ModelSource:
        if self.backend or self.command:
            return _BackendSource(self._choose(folder))
        if not self.judge:
            raise UsageError(
                "evaluate needs a judge, a judge_backend or a judge_command",
                hint="judge is the path of a playbook, mocks or a cassette, or a provider",
            )
        from offbook.sources.loading import open_source

        return open_source(self._find(folder))()

    def _choose(self, folder: Path) -> BackendConfig:
        name = self.backend or "command"
        if name not in CLIENTS and name != "command":
            raise UsageError(
                f"there is no judge_backend {name!r}",
                hint=did_you_mean(name, [*CLIENTS, "command"]),
            )
        if bool(self.command) is not (name == "command"):
            raise UsageError("a judge_command is for the judge_backend 'command'")
        playbook = str(self._find(folder)) if self.judge else ""
        return BackendConfig(name, tuple(self.command), dict(self.env), playbook)

    def _find(self, folder: Path) -> Path:
        path = Path(self.judge)
        kept = folder / f"{self.judge}.yaml"
        if not path.is_file() and not path.suffix and kept.is_file():
            return kept
        if not path.is_file() and not path.suffix:
            there = [*PROVIDERS, *(one.stem for one in folder.glob("*.yaml"))]
            raise UsageError(
                f"there is no judge {self.judge!r}", hint=did_you_mean(self.judge, there)
            )
        return path

    def _instructions(self) -> str:
        if self.preset == JUDGE_HAT:
            return ""
        hats = read_preset(self.preset).hats or {}
        if JUDGE_HAT not in hats:
            raise UsageError(
                f"the preset has no hat {JUDGE_HAT!r}",
                where=self.preset,
                hint=did_you_mean(JUDGE_HAT, hats),
            )
        return hats[JUDGE_HAT].instructions or hats[JUDGE_HAT].description


class _BackendSource:
    """An agent as a model: it is given the question as its prompt, in a folder of its own.

    What it does to find the answer is no part of the run that it judges.
    """

    def __init__(self, choice: BackendConfig) -> None:
        self._choice = choice

    async def reply(self, request: Request, /) -> Reply:
        asked = f"{request.system}\n\n{request.prompt}"
        with tempfile.TemporaryDirectory(prefix="offbook-judge-") as folder:
            agent = BackendFactory(self._choice, Path(folder))
            backend = agent(RunContext(self, Hub(), Path(folder)))
            acted = await backend.act(JUDGE_HAT, asked, JUDGE_TIMEOUT)
        if acted.exit_code:
            told = (acted.stderr or acted.output).strip()[-200:]
            raise ModelError(f"the judge failed with exit code {acted.exit_code}: {told}")
        return Reply((Text(acted.output),))
