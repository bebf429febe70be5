"""Who does the work of a loop: a command, a client of others, or a source of replies itself.

A client's model is always a source of ours, at an address of its own: a script, a recording, or
the real provider. So what it was asked and answered is in the trace, and the keys stay here.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from offbook.errors import DeadlineExceeded, UsageError, nearest
from offbook.exchange.names import Names, Translated
from offbook.exchange.reply import Reply
from offbook.exchange.variables import list_variables
from offbook.runs.rehearsals.endpoints import serve
from offbook.subjects.clis.cli import Cli
from offbook.subjects.loop.backend import Acted, Backend, CommandBackend, SourceBackend
from offbook.subjects.subject import Stage
from offbook.trace.observe import Observed
from offbook.trace.verdicts import Verdict

if TYPE_CHECKING:
    from offbook.exchange.request import Request
    from offbook.exchange.source import ModelSource

CLIENTS = {
    "claude": "claude_code:ClaudeCode",
    "codex": "codex:Codex",
    "gemini": "gemini:GeminiCli",
    "kiro": "kiro:Kiro",
    "pi": "pi:Pi",
}
ELSEWHERE = {"kiro"}  # whose model is at a service of its own
AGENTS = ("command", "playbook", *CLIENTS)
EVERY_CODE = range(-64, 256)
CONSUMED = "playbook consumed"


class Choice(msgspec.Struct, frozen=True):
    """An agent by name, and what it is given.

    `playbook` is the file in which its model is: a playbook, mocks or a cassette. Without one the
    real model is meant, and its keys are in `env`, which has to be given for that.
    """

    backend: str
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}
    playbook: str = ""


class Agent:
    """An agent that is chosen; the stage makes a backend of it."""

    def __init__(self, choice: Choice, folder: Path) -> None:
        _refuse_wrong(choice, folder)
        self._choice = choice
        self._home = folder / ".agent" / "home"
        self._source = _open_source(choice)

    def __call__(self, stage: Stage) -> Backend:
        """The backend, on its stage."""
        if self._source is None:
            return self._start(stage)
        if self._choice.backend == "playbook":
            return SourceBackend(Observed(self._source, stage.hub))
        return _Served(self._source, stage, self._start, self._names())

    def _names(self) -> Names:
        """What a client calls the tools that every script may call."""
        name = self._choice.backend
        return getattr(find_client(name), "names", {}) if name in CLIENTS else {}

    def _start(self, stage: Stage) -> Backend:
        found = list_variables(stage.endpoint) if stage.endpoint else {}
        own = {name: value for name, value in self._choice.env.items() if name not in found}
        if self._choice.backend == "command":
            env = {**found, **own}
            return CommandBackend(self._choice.command, stage.cwd, self._home, env, stage.hub)
        return _ClientBackend(find_client(self._choice.backend), stage, own)

    def verdict(self) -> Verdict | None:
        """Whether the script was played to its end, where there is one that can be."""
        unfinished = getattr(self._source, "unfinished", None)
        left = unfinished() if unfinished is not None else None
        return None if left is None else Verdict(CONSUMED, "fail", str(left))


class _Worn:
    """A source that hears which hat is worn, and counts what its replies took."""

    def __init__(self, source: ModelSource, hat: str) -> None:
        self._source = source
        self._hat = hat
        self.tokens = 0

    async def reply(self, request: Request, /) -> Reply:
        known = msgspec.structs.replace(request, metadata={**request.metadata, "hat": self._hat})
        reply = await self._source.reply(known)
        self.tokens += reply.usage.input + reply.usage.output
        return reply


class _Served:
    """A backend whose agent finds its model at an address, in every iteration another."""

    def __init__(
        self, source: ModelSource, stage: Stage, start: Callable[[Stage], Backend], names: Names
    ) -> None:
        self._source = source
        self._stage = stage
        self._start = start
        self._names = names
        self._told = Observed(source, stage.hub, tools=True)  # one for all, so that names differ
        self._called: set[str] = getattr(source, "called", set[str]())

    async def act(self, hat: str, prompt: str, seconds: float) -> Acted:
        endpoint = serve(self._source, self._stage.hub, tools=True)
        worn = _Worn(self._told, hat)
        endpoint.source = words = Translated(worn, given={}, known=self._names)
        words.expect(self._called)
        try:
            stage = msgspec.structs.replace(self._stage, endpoint=endpoint.url, told=words.told)
            acted = await self._start(stage).act(hat, prompt, seconds)
        finally:
            endpoint.close()
        if endpoint.failure is not None:
            raise endpoint.failure
        return msgspec.structs.replace(acted, tokens=worn.tokens)


class _ClientBackend:
    """A client of others, started anew for every iteration, with a new home."""

    def __init__(self, client: type[Cli], stage: Stage, env: dict[str, str]) -> None:
        self._client = client
        self._stage = stage
        self._env = env

    async def act(self, hat: str, prompt: str, seconds: float) -> Acted:
        env = {**self._env, "OFFBOOK_HAT": hat}
        cli = self._client(env=env, deadline=seconds, codes=EVERY_CODE)
        try:
            await cli.open(self._stage)
            await cli.prompt(prompt)
        except DeadlineExceeded:
            pass  # what it had said until then is told, and `ended` knows
        finally:
            await cli.close()
        if cli.ended is None:
            raise UsageError(f"{cli.name} was not run")
        printed = type(cli).read is Cli.read  # one that prints no JSON has told its words already
        cost = _find_cost(cli.ended.stdout)
        told = [*(["output"] if printed else []), *(["cost"] if cost is not None else [])]
        return Acted(
            cli.said.text,
            cli.ended.code,
            cost_usd=cost,
            told=frozenset(told),
            timed_out=cli.ended.timed_out,
        )


def find_client(name: str) -> type[Cli]:
    """The recipe of a client."""
    module, _, kind = CLIENTS[name].partition(":")
    return getattr(import_module(f"offbook.subjects.clis.{module}"), kind)


def _refuse_wrong(choice: Choice, folder: Path) -> None:
    name = choice.backend
    if name not in AGENTS:
        raise UsageError(
            f"there is no backend {name!r}", hint=nearest(name, ["mock", "replay", *AGENTS])
        )
    if name == "command" and not choice.command:
        raise UsageError("the backend 'command' needs a command", hint='command=["my-agent"]')
    if name == "command" and _find(choice.command[0], folder) is None:
        raise UsageError(
            f"backend_not_found: there is no command {choice.command[0]!r}",
            hint="install it, or give its whole path",
        )
    if name == "playbook" and not choice.playbook:
        raise UsageError("the backend 'playbook' needs a playbook", hint='playbook="shop.yaml"')
    if name in CLIENTS:
        _refuse_client(choice)


def _refuse_client(choice: Choice) -> None:
    name = choice.backend
    client = find_client(name).client
    if client is not None and client.find() is None:
        raise UsageError(
            f"backend_not_found: {client.title} is not installed: "
            f"there is no {client.program!r} on the PATH",
            hint=f"do: {client.mend}",
        )
    if choice.playbook and name in ELSEWHERE:
        raise UsageError(
            f"the backend {name!r} has a model of its own, and no playbook can be it",
            hint=f"use one of {', '.join(sorted(CLIENTS.keys() - ELSEWHERE))}",
        )
    if not choice.playbook and not choice.env:
        raise UsageError(
            f"the backend {name!r} would ask a real model",
            hint='script it: playbook="shop.yaml"; or allow it, with its key: env={"…_API_KEY": …}',
        )


def _find(program: str, folder: Path) -> str | None:
    return shutil.which(program) or shutil.which(str(folder / program))


def _open_source(choice: Choice) -> ModelSource | None:
    if choice.playbook:
        from offbook.sources.stored import open_source

        return open_source(Path(choice.playbook))()
    if choice.backend in CLIENTS and choice.backend not in ELSEWHERE:
        from offbook.sources.live import Live  # and the HTTP of the standard library with it

        return Live(environment=choice.env)
    return None


def _find_cost(stdout: str) -> float | None:
    """What a client says that it cost, in the last line that says so."""
    for line in reversed(stdout.split("\n")):
        if line.startswith("{") and '"total_cost_usd"' in line:
            try:
                found = msgspec.json.decode(line, type=_Priced)
            except msgspec.DecodeError:
                continue
            return found.total_cost_usd
    return None


class _Priced(msgspec.Struct, frozen=True):
    total_cost_usd: float | None = None
