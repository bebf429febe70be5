"""Who does the work of an iteration: a script, the model of the stage, or a real command."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, cast

import msgspec

from offbook.errors import (
    DeadlineExceeded,
    ScriptExhausted,
    ScriptMismatch,
    UsageError,
    did_you_mean,
)
from offbook.exchange.messages import History, user
from offbook.exchange.model import Reply, Request
from offbook.exchange.providers import client_env
from offbook.exchange.tool_aliases import AliasedSource, ToolAliases
from offbook.runs.wiring import serve_source
from offbook.subjects.clis.cli import CliAgent
from offbook.subjects.process import isolated_env, run_process
from offbook.subjects.subject import RunContext
from offbook.trace.events import Verdict
from offbook.trace.instrument import TracedSource
from offbook.trace.text_patterns import LiteralPattern, UserPattern, compile_pattern

if TYPE_CHECKING:
    from offbook.exchange.model import ModelSource
    from offbook.trace.hub import Hub


# --- Who does the work of an iteration: a script, the model of the stage, or a real command.

PROMPT_PREVIEW = 80


class BackendResult(msgspec.Struct, frozen=True):
    """What an agent said in one iteration, and how it ended."""

    output: str
    exit_code: int = 0
    stderr: str = ""
    cost_usd: float | None = None
    tokens: int = 0
    told: frozenset[str] = frozenset()
    timed_out: bool = False


class Backend(Protocol):
    """Does the work of an iteration."""

    async def act(self, hat: str, prompt: str, seconds: float) -> BackendResult:
        """What comes of this prompt, under this hat; a TimeoutError after these seconds.

        What the backend told the hub itself it names in `told`: `output`, `cost`. An agent that was
        ended because its time was over has `timed_out`, and what it had said until then.
        """
        ...


class MockResponse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One scripted answer, for any iteration or only for those that fit."""

    output: str
    hat: str | None = None
    trigger_pattern: str | None = None
    exit_code: int = 0
    delay_ms: Annotated[int, msgspec.Meta(ge=0)] = 0


class MockBackend:
    """Scripted answers: each iteration takes the first that fits and is not used."""

    def __init__(self, responses: Sequence[MockResponse | Mapping[str, Any] | str]) -> None:
        self._left = {
            at: _read_response(raw, at) for at, raw in enumerate(_require_list(responses), 1)
        }
        self._patterns: dict[str, UserPattern | LiteralPattern] = {}
        for at, response in self._left.items():
            if response.trigger_pattern is not None:
                source = response.trigger_pattern
                where = f"mock_responses[{at}].trigger_pattern"
                self._patterns[source] = compile_pattern(source, where)
        self.consumed = 0

    @property
    def remaining(self) -> int:
        """How many were not used."""
        return len(self._left)

    async def act(self, hat: str, prompt: str, seconds: float) -> BackendResult:
        """The next answer that fits."""
        for at, response in self._left.items():
            if self._fits(response, hat, prompt):
                del self._left[at]
                self.consumed += 1
                if response.delay_ms:
                    await asyncio.wait_for(asyncio.sleep(response.delay_ms / 1000), seconds)
                return BackendResult(response.output, response.exit_code)
        if not self._left:
            raise ScriptExhausted(
                f"mock_exhausted: all {self.consumed} mock responses are used",
                where=f"hat {hat!r}",
                hint="add a response, or let the last one keep the completion promise",
            )
        numbers = ", ".join(
            f"{at}{f' (hat {r.hat})' if r.hat else ''}" for at, r in self._left.items()
        )
        raise ScriptMismatch(
            f"no mock response fits: {len(self._left)} left, numbers {numbers}",
            where=f"hat {hat!r}",
            hint=f'the prompt begins "{prompt[:PROMPT_PREVIEW]}"',
        )

    def _fits(self, response: MockResponse, hat: str, prompt: str) -> bool:
        if response.hat is not None and response.hat != hat:
            return False
        source = response.trigger_pattern
        return source is None or self._patterns[source].search(prompt) is not None


def _require_list(responses: Any) -> Sequence[Any]:
    if isinstance(responses, (str, Mapping)) or not isinstance(responses, Sequence):
        raise UsageError("mock_responses is a list", hint='[{"output": "…\\nLOOP_COMPLETE"}]')
    return cast("Sequence[Any]", responses)


def _read_response(raw: MockResponse | Mapping[str, Any] | str, number: int) -> MockResponse:
    if isinstance(raw, str):
        return MockResponse(raw)
    if isinstance(raw, MockResponse):
        return raw
    try:
        return msgspec.convert(raw, MockResponse)
    except msgspec.ValidationError as error:
        known = ", ".join(MockResponse.__struct_fields__)
        raise UsageError(f"mock_responses[{number}]: {error}", hint=f"it takes {known}") from error


class SourceBackend:
    """The stage's own model: a playbook, mocks, a cassette, a live provider."""

    def __init__(self, source: ModelSource) -> None:
        self._source = source

    async def act(self, hat: str, prompt: str, seconds: float) -> BackendResult:
        """What the model answers."""
        request = Request(History([user(prompt)]), metadata={"hat": hat})
        reply = await asyncio.wait_for(self._source.reply(request), seconds)
        return BackendResult(reply.text, tokens=reply.usage.input + reply.usage.output)


class CommandBackend:
    """A real command: the prompt comes in at its standard input, or where `{prompt}` stands."""

    def __init__(
        self, command: Sequence[str], cwd: Path, home: Path, env: Mapping[str, str], hub: Hub
    ) -> None:
        self._command = list(command)
        self._cwd = cwd
        self._env = isolated_env(home, env)
        self._hub = hub

    async def act(self, hat: str, prompt: str, seconds: float) -> BackendResult:
        """What the command prints."""
        command = [part.replace("{prompt}", prompt) for part in self._command]
        stdin = b"" if command != self._command else prompt.encode()
        env = {**self._env, "OFFBOOK_HAT": hat}
        ended = await run_process(
            command, cwd=self._cwd, env=env, deadline=seconds, stdin=stdin, hub=self._hub
        )
        told = frozenset({"output"})
        return BackendResult(
            ended.stdout, ended.code, ended.stderr, told=told, timed_out=ended.timed_out
        )


# --- Who does the work of a loop: a command, a client of others, or a source of replies itself.

CLIENTS = {
    "claude": "claude_code:ClaudeCode",
    "codex": "codex:Codex",
    "gemini": "gemini:GeminiCli",
    "kiro": "command:Kiro",
    "pi": "pi:Pi",
}
HOSTED_CLIENTS = {"kiro"}  # whose model is at a service of its own
BACKENDS = ("command", "playbook", *CLIENTS)
ANY_EXIT_CODE = range(-64, 256)
PLAYBOOK_CONSUMED = "playbook consumed"


class BackendConfig(msgspec.Struct, frozen=True):
    """An agent by name, and what it is given.

    `playbook` is the file in which its model is: a playbook, mocks or a cassette. Without one the
    real model is meant, and its keys are in `env`, which has to be given for that.
    """

    backend: str
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}
    playbook: str = ""


class BackendFactory:
    """An agent that is chosen; the stage makes a backend of it."""

    def __init__(self, choice: BackendConfig, folder: Path) -> None:
        _validate_config(choice, folder)
        self._choice = choice
        self._home = folder / ".agent" / "home"
        self._source = _open_source(choice)

    def __call__(self, stage: RunContext) -> Backend:
        """The backend, on its stage."""
        if self._source is None:
            return self._start(stage)
        if self._choice.backend == "playbook":
            return SourceBackend(TracedSource(self._source, stage.hub))
        return _ServedBackend(self._source, stage, self._start, self._names())

    def _names(self) -> ToolAliases:
        """What a client calls the tools that every script may call."""
        name = self._choice.backend
        return getattr(find_client(name), "tool_aliases", {}) if name in CLIENTS else {}

    def _start(self, stage: RunContext) -> Backend:
        found = client_env(stage.endpoint) if stage.endpoint else {}
        own = {name: value for name, value in self._choice.env.items() if name not in found}
        if self._choice.backend == "command":
            env = {**found, **own}
            return CommandBackend(self._choice.command, stage.cwd, self._home, env, stage.hub)
        return _ClientBackend(find_client(self._choice.backend), stage, own)

    def verdict(self) -> Verdict | None:
        """Whether the script was played to its end, where there is one that can be."""
        unfinished = getattr(self._source, "unfinished", None)
        left = unfinished() if unfinished is not None else None
        return None if left is None else Verdict(PLAYBOOK_CONSUMED, "fail", str(left))


class _HatSource:
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


class _ServedBackend:
    """A backend whose agent finds its model at an address, in every iteration another."""

    def __init__(
        self,
        source: ModelSource,
        stage: RunContext,
        start: Callable[[RunContext], Backend],
        names: ToolAliases,
    ) -> None:
        self._source = source
        self._stage = stage
        self._start = start
        self._names = names
        self._told = TracedSource(
            source, stage.hub, tools=True
        )  # one for all, so that names differ
        self._called: set[str] = getattr(source, "called", set[str]())

    async def act(self, hat: str, prompt: str, seconds: float) -> BackendResult:
        endpoint = serve_source(self._source, self._stage.hub, tools=True)
        worn = _HatSource(self._told, hat)
        endpoint.source = words = AliasedSource(worn, given={}, known=self._names)
        words.activate(self._called)
        try:
            stage = msgspec.structs.replace(
                self._stage, endpoint=endpoint.url, to_script_call=words.original_call
            )
            acted = await self._start(stage).act(hat, prompt, seconds)
        finally:
            endpoint.close()
        if endpoint.failure is not None:
            raise endpoint.failure
        return msgspec.structs.replace(acted, tokens=worn.tokens)


class _ClientBackend:
    """A client of others, started anew for every iteration, with a new home."""

    def __init__(self, client: type[CliAgent], stage: RunContext, env: dict[str, str]) -> None:
        self._client = client
        self._stage = stage
        self._env = env

    async def act(self, hat: str, prompt: str, seconds: float) -> BackendResult:
        env = {**self._env, "OFFBOOK_HAT": hat}
        cli = self._client(env=env, deadline=seconds, codes=ANY_EXIT_CODE)
        try:
            await cli.open(self._stage)
            await cli.prompt(prompt)
        except DeadlineExceeded:
            pass  # what it had said until then is told, and `ended` knows
        finally:
            await cli.close()
        if cli.process_result is None:
            raise UsageError(f"{cli.name} was not run")
        printed = (
            type(cli).parse_output is CliAgent.parse_output
        )  # one that prints no JSON has told its words already
        cost = _find_cost(cli.process_result.stdout)
        told = [*(["output"] if printed else []), *(["cost"] if cost is not None else [])]
        return BackendResult(
            cli.output.text,
            cli.process_result.code,
            cost_usd=cost,
            told=frozenset(told),
            timed_out=cli.process_result.timed_out,
        )


def find_client(name: str) -> type[CliAgent]:
    """The recipe of a client."""
    module, _, kind = CLIENTS[name].partition(":")
    return getattr(import_module(f"offbook.subjects.clis.{module}"), kind)


def _validate_config(choice: BackendConfig, folder: Path) -> None:
    name = choice.backend
    if name not in BACKENDS:
        raise UsageError(
            f"there is no backend {name!r}", hint=did_you_mean(name, ["mock", "replay", *BACKENDS])
        )
    if name == "command" and not choice.command:
        raise UsageError("the backend 'command' needs a command", hint='command=["my-agent"]')
    if name == "command" and _find_program(choice.command[0], folder) is None:
        raise UsageError(
            f"backend_not_found: there is no command {choice.command[0]!r}",
            hint="install it, or give its whole path",
        )
    if name == "playbook" and not choice.playbook:
        raise UsageError("the backend 'playbook' needs a playbook", hint='playbook="shop.yaml"')
    if name in CLIENTS:
        _validate_client(choice)


def _validate_client(choice: BackendConfig) -> None:
    name = choice.backend
    client = find_client(name).client
    if client is not None and client.find() is None:
        raise UsageError(
            f"backend_not_found: {client.title} is not installed: "
            f"there is no {client.program!r} on the PATH",
            hint=f"do: {client.install_command}",
        )
    if choice.playbook and name in HOSTED_CLIENTS:
        raise UsageError(
            f"the backend {name!r} has a model of its own, and no playbook can be it",
            hint=f"use one of {', '.join(sorted(CLIENTS.keys() - HOSTED_CLIENTS))}",
        )
    if not choice.playbook and not choice.env:
        raise UsageError(
            f"the backend {name!r} would ask a real model",
            hint='script it: playbook="shop.yaml"; or allow it, with its key: env={"…_API_KEY": …}',
        )


def _find_program(program: str, folder: Path) -> str | None:
    return shutil.which(program) or shutil.which(str(folder / program))


def _open_source(choice: BackendConfig) -> ModelSource | None:
    if choice.playbook:
        from offbook.sources.loading import open_source

        return open_source(Path(choice.playbook))()
    if choice.backend in CLIENTS and choice.backend not in HOSTED_CLIENTS:
        from offbook.sources.live import Live  # and the HTTP of the standard library with it

        return Live(environment=choice.env)
    return None


def _find_cost(stdout: str) -> float | None:
    """What a client says that it cost, in the last line that says so."""
    for line in reversed(stdout.split("\n")):
        if line.startswith("{") and '"total_cost_usd"' in line:
            try:
                found = msgspec.json.decode(line, type=_CostLine)
            except msgspec.DecodeError:
                continue
            return found.total_cost_usd
    return None


class _CostLine(msgspec.Struct, frozen=True):
    total_cost_usd: float | None = None
