"""Agents by name: the backends of a loop or a judge, as subjects with their model.

    agent, model = open_backend(BackendConfig("claude", playbook="shop.yaml"), folder)
    Rehearsal(HatLoop(agent=agent), source=model)

The model of a client is always a `ModelSource` behind its own URL: a playbook, a cassette or the
real provider. So the trace contains every request, and API keys do not reach the client.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import (
    ModelError,
    OffbookError,
    ScriptError,
    UsageError,
    did_you_mean,
    require_known,
)
from offbook.exchange.messages import History, Text, user
from offbook.exchange.model import Reply, Request
from offbook.secrets import excerpt
from offbook.subjects.subject import PlainSubject

if TYPE_CHECKING:
    from offbook.checks.judge import Judge
    from offbook.exchange.model import ModelSource
    from offbook.subjects.clis.cli import CliAgent
    from offbook.subjects.subject import ModelAccess, Subject


# Clients by the name of their backend; their modules are imported when they are used.
CLIENTS = {
    "claude": "clients:ClaudeCode",
    "codex": "clients:Codex",
    "gemini": "clients:GeminiCli",
    "kiro": "clients:Kiro",
    "pi": "pi:Pi",
}
# A turn is a new process, which prints its answer and exits.
CLIENT_OPTIONS: dict[str, dict[str, Any]] = {"pi": {"mode": "json"}}
HOSTED_CLIENTS = {"kiro"}  # their model cannot be replaced: it is behind the vendor's service
BACKENDS = ("command", "playbook", *CLIENTS)
ANY_EXIT_CODE = range(-64, 256)  # for a failed command that is a result, not an error of the run


class ModelAgent(PlainSubject):
    """A subject that is the model itself: each prompt is one request, each reply an answer."""

    name = "model"
    model_access: ModelAccess = "call"
    emits_tool_calls = True  # it runs no tools

    async def prompt(self, text: str, /) -> str:
        """Return the model's reply."""
        reply = self.context.source.reply(Request(History([user(text)])))
        return (await asyncio.wait_for(reply, self.context.deadline)).text


class NoModel(msgspec.Struct, frozen=True):
    """The model of a run whose agent needs none: any request is an error, this one if given."""

    error: OffbookError | None = None

    async def reply(self, request: Request, /) -> Reply:
        """Raise the error."""
        missing = f"no reply is scripted for {excerpt(request.prompt, 60)!r}"
        raise self.error or ScriptError(missing)


class BackendConfig(msgspec.Struct, frozen=True):
    """A backend by name, with its options.

    `playbook` is the file of its model: a playbook, mocks or a cassette. Without one the backend
    calls its real model; `env` must then contain the API key.
    """

    backend: str
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}
    playbook: str = ""


def open_backend(config: BackendConfig, folder: Path) -> tuple[Subject, ModelSource | None]:
    """Return the agent and its model; None is a model that is not replaced.

    A config that cannot work is rejected before anything is started. `folder` is where a command
    is looked for, and where it keeps its home from one prompt to the next.
    """
    _validate_config(config, folder)
    name = config.backend
    source: ModelSource | None = None
    # Both imports are late: a command without a model needs neither, and `live` loads HTTP.
    if config.playbook:
        from offbook.sources.loading import open_source

        source = open_source(Path(config.playbook))()
    elif name in CLIENTS and name not in HOSTED_CLIENTS:
        from offbook.sources.live import Live

        source = Live(environment=config.env)
    if name == "playbook":
        return ModelAgent(), source
    env = config.env
    if source is not None:
        from offbook.exchange.providers import client_env

        # The real key and base URL stay here: they belong to `Live`, which calls the provider.
        env = {key: value for key, value in env.items() if key not in client_env("", env)}
    if name == "command":
        from offbook.subjects.clis.clients import Command

        home = folder / ".agent" / "home"
        own = {"HOME": home, "TMPDIR": home / "tmp", "XDG_CONFIG_HOME": home / ".config"}
        env = {**{key: str(path) for key, path in own.items()}, **env}
        agent: CliAgent = Command(config.command, env=env, codes=ANY_EXIT_CODE)
        agent.prints_events = False
    else:
        agent = find_client(name)(env=env, codes=ANY_EXIT_CODE, **CLIENT_OPTIONS.get(name, {}))
    if source is None:
        agent.model_access = "call"  # it needs no server
    return agent, source


def find_client(name: str) -> type[CliAgent]:
    """Return the class of a client."""
    module, _, class_name = CLIENTS[name].partition(":")
    return getattr(import_module(f"offbook.subjects.clis.{module}"), class_name)


def _validate_config(config: BackendConfig, folder: Path) -> None:
    """Reject a config that cannot work."""
    name = config.backend
    if name not in BACKENDS:
        raise UsageError(
            f"unknown backend {name!r}", hint=did_you_mean(name, ["mock", "replay", *BACKENDS])
        )
    if name == "command":
        if not config.command:
            raise UsageError("the backend 'command' needs a command", hint='command=["my-agent"]')
        program = config.command[0]
        if shutil.which(program) is None and shutil.which(str(folder / program)) is None:
            raise UsageError(
                f"backend_not_found: command {program!r} not found",
                hint="fix: install it, or use its full path",
            )
    if name == "playbook" and not config.playbook:
        raise UsageError("the backend 'playbook' needs a playbook", hint='playbook="shop.yaml"')
    if name not in CLIENTS:
        return
    client = find_client(name).client
    if client is not None and client.find() is None:
        raise UsageError(
            f"backend_not_found: {client.title} is not installed: "
            f"{client.program!r} is not on the PATH",
            hint=f"fix: {client.install_command}",
        )
    if config.playbook and name in HOSTED_CLIENTS:
        raise UsageError(
            f"the backend {name!r} cannot use a playbook: its model is a hosted service",
            hint=f"use one of {', '.join(sorted(CLIENTS.keys() - HOSTED_CLIENTS))}",
        )
    if not config.playbook and not config.env:
        raise UsageError(
            f"the backend {name!r} would call a real model",
            hint='script it: playbook="shop.yaml"; or allow it with its key: env={"…_API_KEY": …}',
        )


# --- Judges by name. Most loops have none: its imports are late.

JUDGE_TIMEOUT = 300.0


class JudgeConfig(msgspec.Struct, frozen=True):
    """A judge by name, with its options.

    `judge` is a file (a playbook, mocks, a cassette) or a provider (`anthropic`, `openai-chat`,
    `openai-responses`, `gemini`). With `backend`, a client answers, and `judge` is the file of its
    model; `command` is any command that reads the question from stdin. `reasoned` requires the
    reasoning before the score. `temperature` and `seed` are refused where they have no effect.
    """

    judge: str = ""
    backend: str = ""
    command: Sequence[str] = ()
    model: str = ""
    env: Mapping[str, str] = {}
    instructions: str = ""
    reasoned: bool = True
    temperature: float | None = None
    seed: int | None = None

    def build(self, folder: Path) -> Judge:
        """Return the judge; a name without a suffix may be a cassette in `folder`."""
        from offbook.checks.judge import Judge
        from offbook.sources.live import PROVIDERS

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
        parameters = self._sampling(dialect)
        return Judge(source, self.model, dialect, self.instructions, self.reasoned, parameters)

    def _sampling(self, dialect: str) -> dict[str, Any]:
        """Return the parameters of requests; a script gets them under their common names."""
        from offbook.exchange.providers import all_providers

        providers = all_providers()
        places = {"temperature": "temperature", "seed": "seed"}
        name = self.backend or ("command" if self.command else dialect)
        if name:
            places = dict(providers[name].sampling) if name in providers else dict[str, str]()
        parameters: dict[str, Any] = {}
        for key, value in (("temperature", self.temperature), ("seed", self.seed)):
            if value is None:
                continue
            if key not in places:
                able = [each.name for each in providers.values() if key in each.sampling]
                hint = f"leave it out, or use {', '.join(able)}"
                raise UsageError(f"the judge {name!r} has no {key}", hint=hint)
            *parents, last = places[key].split(".")
            target = parameters
            for parent in parents:
                target = target.setdefault(parent, {})
            target[last] = value
        return parameters

    def _provider(self) -> ModelSource:
        if not self.env:
            raise UsageError(
                f"the judge {self.judge!r} is a real model",
                hint='allow it with its key: env={"…_API_KEY": …}',
            )
        if not self.model:
            raise UsageError("missing model name of the judge", hint='judge_model="…"')
        from offbook.sources.live import Live

        return Live(environment=self.env)

    def _backend_config(self, folder: Path) -> BackendConfig:
        name = self.backend or "command"
        require_known("unknown judge_backend", name, (*CLIENTS, "command"))
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
        from offbook.sources.live import PROVIDERS

        names = [*PROVIDERS, *(file.stem for file in folder.glob("*.yaml"))]
        raise UsageError(f"unknown judge {self.judge!r}", hint=did_you_mean(self.judge, names))


class _AgentSource:
    """An agent as a model: it receives the question as its prompt, in a temporary folder.

    Its events go to a separate hub: they are not part of the run that it judges.
    """

    def __init__(self, config: BackendConfig) -> None:
        self._config = config

    async def reply(self, request: Request, /) -> Reply:
        from offbook.runs.wiring import Wiring
        from offbook.trace.hub import Hub

        with tempfile.TemporaryDirectory(prefix="offbook-judge-") as folder:
            agent, source = open_backend(self._config, Path(folder))
            wiring = Wiring(agent, source or NoModel(), Hub())
            context = wiring.connect(Path(folder))
            try:
                await agent.open(msgspec.structs.replace(context, deadline=JUDGE_TIMEOUT))
                answer = await agent.prompt(f"{request.system}\n\n{request.prompt}")
            finally:
                await agent.close()
                wiring.close()
        if wiring.failure is not None:
            raise wiring.failure
        process = cast("CliAgent", agent).process_result
        if process is not None and process.code:
            output = (process.stderr or process.stdout).strip()[-200:]
            raise ModelError(f"the judge failed with exit code {process.code}: {output}")
        return Reply((Text(str(answer or "")),))
