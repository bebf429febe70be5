"""Backends: a prompt in, an answer out. The agents that a loop or a judge calls by name.

    config = BackendConfig("claude", playbook="shop.yaml")
    factory = BackendFactory(config, folder)
    backend = factory(context)                               # for one run
    result = await backend.run_turn("planner", "Plan the work.", 300.0)

The model of a client is always a `ModelSource` behind its own URL: a playbook, a cassette or the
real provider. So the trace contains every request, and API keys do not reach the client.
"""

from __future__ import annotations

import asyncio
import codecs
import shutil
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from offbook.errors import DeadlineExceeded, RunError, UsageError, did_you_mean
from offbook.exchange.messages import History, user
from offbook.exchange.model import Reply, Request
from offbook.runs.wiring import serve_source
from offbook.trace.events import Verdict
from offbook.trace.hub import current_faults
from offbook.trace.instrument import TracedSource

if TYPE_CHECKING:
    from offbook.exchange.model import ModelSource
    from offbook.exchange.tool_aliases import ToolAliases
    from offbook.subjects.clis.cli import CliAgent
    from offbook.subjects.subject import RunContext
    from offbook.trace.agent_output import OutputScanner
    from offbook.trace.hub import Hub

# Clients by the name of their backend; their modules are imported when they are used.
CLIENTS = {
    "claude": "claude_code:ClaudeCode",
    "codex": "codex:Codex",
    "gemini": "gemini:GeminiCli",
    "kiro": "command:Kiro",
    "pi": "pi:Pi",
}
# A turn is a new process, which prints its answer and exits.
CLIENT_OPTIONS: dict[str, dict[str, Any]] = {"pi": {"mode": "json"}}
HOSTED_CLIENTS = {"kiro"}  # their model cannot be replaced: it is behind the vendor's service
BACKENDS = ("command", "playbook", *CLIENTS)
ANY_EXIT_CODE = range(-64, 256)  # a failed turn is a result of the loop, not an error of the run
PLAYBOOK_CONSUMED = "playbook consumed"


class BackendResult(msgspec.Struct, frozen=True):
    """The answer of an agent to one prompt.

    `emitted` names what the backend has already emitted to the hub itself: `output`, `cost`.
    `scanned` has the events of the whole output, if `output` is only the beginning of it.
    """

    output: str
    exit_code: int = 0
    stderr: str = ""
    cost_usd: float | None = None
    tokens: int = 0
    emitted: frozenset[str] = frozenset()
    timed_out: bool = False
    scanned: OutputScanner | None = None


class Backend(Protocol):
    """An agent that answers prompts."""

    async def run_turn(self, hat: str, prompt: str, deadline: float) -> BackendResult:
        """Return the answer to this prompt under this hat.

        After `deadline` seconds a backend raises TimeoutError, or stops its agent and returns the
        output until then with `timed_out` set.
        """
        ...


class SourceBackend:
    """A model without an agent: a playbook, mocks, a cassette or a live provider."""

    def __init__(self, source: ModelSource) -> None:
        self._source = source

    async def run_turn(self, hat: str, prompt: str, deadline: float) -> BackendResult:
        """Return the model's reply."""
        request = Request(History([user(prompt)]), metadata={"hat": hat})
        reply = await asyncio.wait_for(self._source.reply(request), deadline)
        return BackendResult(reply.text, tokens=reply.usage.input + reply.usage.output)


class CommandBackend:
    """A command that reads the prompt from stdin, or as the argument `{prompt}`."""

    def __init__(
        self, command: Sequence[str], cwd: Path, home: Path, env: Mapping[str, str], hub: Hub
    ) -> None:
        from offbook.subjects.process import isolated_env

        self._command = list(command)
        self._cwd = cwd
        self._env = isolated_env(home, {**hub.variables, **env})
        self._hub = hub

    async def run_turn(self, hat: str, prompt: str, deadline: float) -> BackendResult:
        """Return the command's output."""
        from offbook.subjects.process import MAX_OUTPUT, run_process
        from offbook.trace.agent_output import OutputScanner

        command = [word.replace("{prompt}", prompt) for word in self._command]
        stdin = b"" if command != self._command else prompt.encode()
        env = {**self._env, "OFFBOOK_HAT": hat}
        # Only the beginning of a large output is kept, but all of it is searched for events.
        scanner = OutputScanner(max_payload=MAX_OUTPUT)
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode

        def watch(stream: str, data: bytes) -> None:
            if stream == "stdout":
                scanner.feed(decode(data))

        process = await run_process(
            command,
            cwd=self._cwd,
            env=env,
            deadline=deadline,
            stdin=stdin,
            hub=self._hub,
            watch=watch,
        )
        return BackendResult(
            process.stdout,
            process.code,
            process.stderr,
            emitted=frozenset({"output"}),
            timed_out=process.timed_out,
            scanned=scanner if process.truncated else None,
        )


class _ClientBackend:
    """A command-line client such as Claude Code: a new process and a new home for each turn."""

    def __init__(self, client: type[CliAgent], context: RunContext, env: dict[str, str]) -> None:
        self._client = client
        self._context = context
        self._env = env

    async def run_turn(self, hat: str, prompt: str, deadline: float) -> BackendResult:
        from offbook.subjects.clis.cli import CliAgent

        env = {**self._env, "OFFBOOK_HAT": hat}
        options = CLIENT_OPTIONS.get(self._client.name, {})
        cli = self._client(env=env, deadline=deadline, codes=ANY_EXIT_CODE, **options)
        try:
            await cli.open(self._context)
            await cli.prompt(prompt)
        except DeadlineExceeded:
            pass  # the output until then is emitted, and `process_result.timed_out` is set
        finally:
            await cli.close()
        process = cli.process_result
        if process is None:
            raise UsageError(f"{cli.name} was not run")
        if process.truncated:
            from offbook.subjects.process import MAX_OUTPUT

            # Its JSON is parsed as a whole: without the end, the answer is unknown.
            raise RunError(
                f"{cli.name} wrote more than {MAX_OUTPUT >> 20} MiB, so its answer is unknown"
            )
        emitted: set[str] = set()
        if type(cli).parse_output is CliAgent.parse_output:
            emitted.add("output")  # without a parser for JSON, the raw output is in the trace
        cost = _find_cost(process.stdout)
        if cost is not None:
            emitted.add("cost")
        return BackendResult(
            cli.output.text,
            process.code,
            cost_usd=cost,
            emitted=frozenset(emitted),
            timed_out=process.timed_out,
        )


class _CostLine(msgspec.Struct, frozen=True):
    total_cost_usd: float | None = None


def _find_cost(stdout: str) -> float | None:
    """Return the cost that a client reports in the last JSON line that has one."""
    for line in reversed(stdout.split("\n")):
        if line.startswith("{") and '"total_cost_usd"' in line:
            try:
                return msgspec.json.decode(line, type=_CostLine).total_cost_usd
            except msgspec.DecodeError:
                continue
    return None


class _HatSource:
    """Adds the current hat to the metadata of requests, and counts tokens."""

    def __init__(self, source: ModelSource, hat: str) -> None:
        self._source = source
        self._hat = hat
        self.tokens = 0

    async def reply(self, request: Request, /) -> Reply:
        metadata = {**request.metadata, "hat": self._hat}
        reply = await self._source.reply(msgspec.structs.replace(request, metadata=metadata))
        self.tokens += reply.usage.input + reply.usage.output
        return reply


class _ServedBackend:
    """A command or client whose model is a source, served under a new URL for each turn."""

    def __init__(
        self,
        source: ModelSource,
        context: RunContext,
        start: Callable[[RunContext], Backend],
        tool_aliases: ToolAliases,
    ) -> None:
        self._source = source
        self._context = context
        self._start = start
        self._tool_aliases = tool_aliases
        # One for all turns, so that exchange ids do not repeat in the trace.
        self._faults = current_faults()
        self._traced = TracedSource(_with_faults(source, wire=True), context.hub, tools=True)
        # Only a playbook knows in advance which tools it calls, under which names.
        self._called: set[str] = getattr(source, "called_tools", set[str]())

    async def run_turn(self, hat: str, prompt: str, deadline: float) -> BackendResult:
        from offbook.exchange.tool_aliases import AliasedSource  # of command-line agents only

        endpoint = serve_source(self._source, self._context.hub, tools=True, faults=self._faults)
        hat_source = _HatSource(self._traced, hat)
        endpoint.source = aliased = AliasedSource(hat_source, given={}, known=self._tool_aliases)
        aliased.activate(self._called)
        try:
            context = msgspec.structs.replace(
                self._context, endpoint=endpoint.url, to_script_call=aliased.original_call
            )
            result = await self._start(context).run_turn(hat, prompt, deadline)
        finally:
            endpoint.close()
        # The client has seen an HTTP error and may have gone on; the run fails with its cause.
        if endpoint.failure is not None:
            raise endpoint.failure
        return msgspec.structs.replace(result, tokens=hat_source.tokens)


class BackendConfig(msgspec.Struct, frozen=True):
    """A backend by name, with its options.

    `playbook` is the file of its model: a playbook, mocks or a cassette. Without one the backend
    calls its real model; `env` must then contain the API key.
    """

    backend: str
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}
    playbook: str = ""


class BackendFactory:
    """Validates a config at once, and makes the backend when the run has a context."""

    def __init__(self, config: BackendConfig, folder: Path) -> None:
        _validate_config(config, folder)
        self._config = config
        self._home = folder / ".agent" / "home"
        self._source: ModelSource | None = None
        # Both imports are late: a command without a model needs neither, and `live` loads HTTP.
        if config.playbook:
            from offbook.sources.loading import open_source

            self._source = open_source(Path(config.playbook))()
        elif config.backend in CLIENTS and config.backend not in HOSTED_CLIENTS:
            from offbook.sources.live import Live

            self._source = Live(environment=config.env)

    def __call__(self, context: RunContext) -> Backend:
        """Return the backend for this run."""
        if self._source is None:
            return self._start(context)
        name = self._config.backend
        if name == "playbook":
            return SourceBackend(TracedSource(_with_faults(self._source, wire=False), context.hub))
        tool_aliases = getattr(find_client(name), "tool_aliases", {}) if name in CLIENTS else {}
        return _ServedBackend(self._source, context, self._start, tool_aliases)

    def _start(self, context: RunContext) -> Backend:
        """Return the backend that starts a process for each turn."""
        from offbook.exchange.providers import client_env

        model_env = client_env(context.endpoint) if context.endpoint else {}
        # The real key and base URL stay here: they belong to `Live`, which calls the provider.
        own = {name: value for name, value in self._config.env.items() if name not in model_env}
        if self._config.backend == "command":
            env = {**model_env, **own}
            return CommandBackend(self._config.command, context.cwd, self._home, env, context.hub)
        return _ClientBackend(find_client(self._config.backend), context, own)

    def verdict(self) -> Verdict | None:
        """Return a failed verdict if the playbook was not played to its end."""
        unfinished = getattr(self._source, "unfinished", None)
        remaining = unfinished() if unfinished is not None else None
        return None if remaining is None else Verdict(PLAYBOOK_CONSUMED, "fail", str(remaining))


def _with_faults(source: ModelSource, *, wire: bool) -> ModelSource:
    """Return the source with the faults of the current run."""
    faults = current_faults()
    if faults is None:
        return source
    from offbook.sources.faulty_source import FaultySource  # few runs have faults

    return FaultySource(source, faults, wire=wire)


def find_client(name: str) -> type[CliAgent]:
    """Return the class of a client."""
    module, _, class_name = CLIENTS[name].partition(":")
    return getattr(import_module(f"offbook.subjects.clis.{module}"), class_name)


def _validate_config(config: BackendConfig, folder: Path) -> None:
    """Reject a config that cannot work, before anything is started."""
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
