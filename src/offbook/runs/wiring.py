"""The connection between a subject and its model.

A subject reaches its model in one of three ways (`Subject.model_access`):

    call        it calls the source object itself
    transport   its HTTP clients in this process are intercepted, without a socket
    endpoint    it gets the base URL of a server, shared by all runs of this process
"""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import ScriptMismatch, UsageError
from offbook.exchange.model import ToolAlias
from offbook.exchange.people import Allow, Answer, Deny, PersonQuestion, ask_source
from offbook.files import make_temp_folder, remove_temp_folder
from offbook.subjects.subject import NamesServerTools, RunContext, Subject
from offbook.trace.events import UNSET, FaultData, PersonData, RefusedData
from offbook.trace.instrument import TracedSource

# The server, the dialects and the interception are imported where they are used: a scripted
# session needs none of them, and they take half of its start-up time.
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from offbook.determinism.faults import FaultInjector
    from offbook.determinism.frozen_time import RunClock
    from offbook.determinism.network_guard import NetworkGuard
    from offbook.errors import ConnectionBlocked
    from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
    from offbook.exchange.model import (
        AliasedSource,
        ModelSource,
        Reply,
        Request,
        ToolAliases,
    )
    from offbook.sources.server.endpoint import Endpoint
    from offbook.sources.server.proxy import Proxy
    from offbook.sources.server.server import Server
    from offbook.subjects.subject import HasRequestMetadata, RemoteAgent, ToolServer
    from offbook.subjects.tool_watch import ToolWatch
    from offbook.trace.events import Verdict
    from offbook.trace.hub import Hub

URLS_SHOWN = 4
# The folders of a project for what tools write; tapes have no file of them.
UNWATCHED_FILES = ("cassettes/**", "reports/**")
# Packages and caches, which are not the work of an agent.
UNWATCHED_FOLDERS = {"__pycache__", "node_modules", ".venv", "venv", ".tox", ".cache"}
HISTORY = "history"  # the one rule of `lenient` that holds for every subject


def is_process(subject: Subject) -> bool:
    """Return whether a subject is a separate process."""
    return getattr(subject, "starts_process", False) or subject.model_access == "endpoint"


class Wiring:
    """The connection of one subject, and the guard around it.

    `urls` are base URLs where the subject's clients expect a model, in addition to the
    providers' own; `allow` are addresses that it may reach. `refused` are the connections that
    were blocked. With `serve`, clients of this process get the address of a server in their
    environment during the run, instead of being intercepted. A subject that is `sealed` runs in a
    network namespace. `servers` are MCP servers whose calls are part of the trace, and `agents`
    scripted remote agents.
    """

    def __init__(  # noqa: PLR0913 - the options of a run
        self,
        subject: Subject,
        source: ModelSource,
        hub: Hub,
        *,
        urls: Iterable[str] = (),
        allow: Iterable[str] = (),
        tool_aliases: Mapping[str, str | ToolAlias] | None = None,
        lenient: Iterable[str] = (),
        serve: bool = False,
        sealed: bool = False,
        servers: tuple[ToolServer, ...] = (),
        agents: tuple[RemoteAgent, ...] = (),
    ) -> None:
        if sealed and (sys.platform != "linux" or subject.model_access != "endpoint"):
            raise UsageError(
                f"cannot seal {subject.name}: it needs Linux, and a command whose model is served",
                hint="remove sealed= (--sealed): other hosts are refused without it, too",
            )
        self._sealed = sealed
        if serve and subject.model_access != "transport":
            raise UsageError(
                f"serve has no effect on {subject.name}: its model is not answered in this process",
                hint="remove serve=",
            )
        self._serve = serve
        self._subject = subject
        self._source = source
        self._hub = hub
        self._urls = tuple(urls)
        self._allow = tuple(allow)
        self._lenient = tuple(lenient)
        if self._lenient:
            from offbook.exchange.dialects.wire import ALL_RULES, rules_except

            self._lenient = tuple(
                ALL_RULES - rules_except(self._lenient)
            )  # raises for an unknown one
        if subject.model_access == "call" and set(self._lenient) - {HISTORY}:
            # The rules of the providers are checked on the wire, and this subject has none.
            raise UsageError(
                f"lenient has no effect on {subject.name}: its requests are not validated",
                hint="remove lenient=",
            )
        self._own_aliases: ToolAliases = getattr(subject, "tool_aliases", {})
        self._servers, self._agents = servers, agents
        self._name_server_tools()
        self._aliases: ToolAliases = {}
        if tool_aliases:
            from offbook.exchange.model import parse_tool_aliases

            self._aliases = parse_tool_aliases(tool_aliases, self._own_aliases)
        self._endpoint: Endpoint | None = None
        self._traced: TracedSource | None = None  # of a subject that calls its source
        self._proxy: Proxy | None = None  # of a subject with processes
        self.aliased: AliasedSource | None = None
        self.refused: list[ConnectionBlocked] = []
        # A subject that sees its tools has a watch, which knows the calls of its clients.
        self.tool_watch: ToolWatch | None = getattr(subject, "tool_watch", None)
        self._unanswered: ScriptMismatch | None = None  # a question without an answer
        self._undo: list[Callable[[], None]] = []

    def _name_server_tools(self) -> None:
        """Let a script use the servers' own names of their tools."""
        subject, servers = self._subject, self._servers
        if servers and isinstance(subject, NamesServerTools):
            names = {t: subject.server_tool_name(s.name, t) for s in servers for t in s.tool_names}
            own = {tool: ToolAlias(name) for tool, name in names.items() if name != tool}
            self._own_aliases = {**own, **self._own_aliases}

    def connect(self, cwd: Path, trace: Path | None = None) -> RunContext:
        """Return the context in which the subject is opened; it writes the trace in this file."""
        self._watch_files(getattr(self._subject, "working_folder", None) or cwd, trace)
        # The tool calls of a subject that does not emit them are read from its requests.
        read_tools = not self._subject.emits_tool_calls
        url = ""
        # A tape also has the tools of the run.
        self._hub.tool_track = getattr(self._source, "tool_track", None)
        if (track := getattr(self._source, "http_track", None)) is not None:
            from offbook.sources.http_destination import TracedHttp

            self._hub.http_track = TracedHttp(track, self._hub)
        watch = self._attach_servers() if self._servers else None
        for agent in self._agents:
            agent.attach(self._hub)
            self._undo.append(agent.detach)
        if self._subject.model_access == "call":
            source: ModelSource = self._source
            if self._hub.faults is not None:
                from offbook.sources.faulty_source import FaultySource

                source = FaultySource(source, self._hub.faults, wire=False)
            lenient = HISTORY in self._lenient
            source = TracedSource(source, self._hub, tools=read_tools, lenient=lenient)
            self._traced = source
        else:
            self._endpoint = self._create_endpoint(tools=read_tools)
            source, url = self._endpoint.source, self._endpoint.url
        options: dict[str, Any] = {}
        if is_process(self._subject):
            self._proxy = self._open_proxy(self._endpoint)
            options["proxy_env"] = self._child_variables()
            if self._sealed:
                from offbook.subjects.process import Seal

                options["seal"] = Seal(self._proxy.ports, self._proxy.adopt)
        if hasattr(self._subject, "request_metadata"):
            source = SourceWithMetadata(source, cast("HasRequestMetadata", self._subject))
        if self._aliases or self._own_aliases:
            from offbook.exchange.model import AliasedSource

            source = aliased = AliasedSource(source, given=self._aliases, known=self._own_aliases)
            self.aliased = aliased
            options["to_script_call"] = aliased.original_call
        if self._endpoint is not None:
            self._endpoint.source = source
        if self._servers or self._agents:
            variables = {_url_variable("MCP", each.name): each.url for each in self._servers}
            variables |= {_url_variable("AGENT", each.name): each.url for each in self._agents}
            options |= {"servers": self._servers, "variables": variables}
        context = RunContext(
            source,
            self._hub,
            cwd,
            url,
            failure=lambda: self.failure,
            ask=self._ask_person,
            has_people=lambda: getattr(self._source, "has_people", False),
            **options,
        )
        if watch is not None and watch is not getattr(self._subject, "tool_watch", None):
            self._undo.append(watch.open(context))
        return context

    def _watch_files(self, folder: Path, trace: Path | None) -> None:
        """Let a tape note the files that a command changes in its folder."""
        track = getattr(self._source, "file_track", None)
        if track is None or self._subject.model_access != "endpoint":
            return
        from offbook.checks.expected_files import FileStates

        root = folder.absolute()
        states = FileStates(root, UNWATCHED_FOLDERS, UNWATCHED_FILES)
        states.skip()
        track.watch(states, root, () if trace is None else (trace,))
        self._undo.append(track.end)

    def _child_variables(self) -> Callable[[Mapping[str, str]], dict[str, str]]:
        """Return what adds the variables of the run to those of a process."""
        proxy = cast("Proxy", self._proxy)
        clock: RunClock | None = getattr(self._source, "clock_track", None)
        if clock is None or self._subject.model_access != "endpoint":
            return proxy.variables
        folder = make_temp_folder()

        def close() -> None:
            clock.end_sharing()
            remove_temp_folder(folder)

        self._undo.append(close)

        def variables(environment: Mapping[str, str]) -> dict[str, str]:
            env = proxy.variables(environment)
            return {**env, **clock.share(folder, env)}

        return variables

    async def _ask_person(self, question: PersonQuestion, /) -> Answer:
        """Return the answer of the script to a question of the agent; both are in the trace."""
        tool = question.tool or UNSET
        given = question.input if question.tool else UNSET
        asked = PersonData(question.text, tool, given)
        try:
            answer = await ask_source(self._source, question)
        except ScriptMismatch as error:
            self._unanswered = self._unanswered or error
            self._hub.emit_data(asked)
            raise
        if isinstance(answer, Allow):
            changed = UNSET if answer.params is None else answer.params
            asked = msgspec.structs.replace(asked, answer="allow", changed=changed)
        elif isinstance(answer, Deny):
            reason = answer.reason or UNSET
            asked = msgspec.structs.replace(asked, answer="deny", reason=reason)
        else:
            asked = msgspec.structs.replace(asked, answer=answer)
        self._hub.emit_data(asked)
        return answer

    def _attach_servers(self) -> ToolWatch:
        """Let the MCP servers report to the watch of the subject, or to a new one."""
        from offbook.subjects.tool_watch import ToolWatch

        # pi watches its own tools, in another way.
        own = self.tool_watch if isinstance(self.tool_watch, ToolWatch) else None
        watch = self.tool_watch = own or ToolWatch()
        for server in self._servers:
            server.attach(self._hub, watch)
            self._undo.append(server.detach)
            watch.watched.update(server.tool_names)
            watch.mocked.update(server.mocked)
        self._name_server_tools()  # those of a real server are known now
        return watch

    def _create_endpoint(self, *, tools: bool) -> Endpoint:
        # Mocked tools by the agent's names and by the script's.
        subject, aliases = self._subject, {**self._own_aliases, **self._aliases}
        mocked = set[str](getattr(subject, "mocked", ()))
        mocked.update(name for server in self._servers for name in server.mocked)
        mocked |= {name for name, alias in aliases.items() if alias.tool in mocked}
        options: dict[str, Any] = {"hub": self._hub, "tools": tools, "mocked": mocked}
        options["faults"] = self._hub.faults
        if self._serve or subject.model_access == "endpoint":
            # Its path cannot be guessed: the source may be a real model, with the key of the user.
            endpoint = _shared_server(os.getpid()).mount(
                self._source, run=token_urlsafe(12), lenient=self._lenient, **options
            )
        else:
            from offbook.exchange.providers import dialect_detector
            from offbook.sources.server.endpoint import Endpoint

            # The same without an address: clients are answered in place.
            endpoint = Endpoint(
                self._source,
                url="",
                detect_dialect=dialect_detector(self._lenient),
                lenient_history=HISTORY in self._lenient,
                **options,
            )
        if (seen := self.tool_watch) is not None:
            watched = _AliasedNames(seen.watched, aliases) if aliases else seen.watched
            endpoint.watch_tools(seen.failed, watched, seen.results)
        return endpoint

    def _open_proxy(self, endpoint: Endpoint | None) -> Proxy:
        from offbook.determinism.network_guard import NetworkGuard
        from offbook.exchange.providers import explain_refusal
        from offbook.sources.server.proxy import open_proxy

        guard = NetworkGuard(self._allow, explain=partial(explain_refusal, place="command"))
        return open_proxy(_shared_server(os.getpid()), endpoint, guard, self._hub.http_track)

    @property
    def history_error(self) -> ScriptMismatch | None:
        """The first change of a conversation by the agent that fails the run."""
        seen = self._traced or self._endpoint
        return None if seen is None else seen.history_error

    def forget_history_error(self) -> None:
        """Start the next run without the error of the last one."""
        self._unanswered = None
        if self._traced is not None:
            self._traced.history_error = None
        elif self._endpoint is not None:
            self._endpoint.forget_history_error()

    @property
    def failure(self) -> BaseException | None:
        """The first error at the endpoint, the refusal of the last request, or of a question."""
        known: BaseException | None = self._unanswered
        for track in (self._hub.tool_track, self._hub.http_track):
            if known is None and track is not None:
                known = track.failure
        if known is not None or self._endpoint is None:
            return known
        return self._endpoint.failure or self._endpoint.refusal

    def guard(self) -> AbstractContextManager[None] | None:
        """Answer the clients of the subject, and refuse their other connections.

        None for a subject that calls its source, and has no tape.
        """
        in_process = self._subject.model_access != "endpoint"
        clock: RunClock | None = getattr(self._source, "clock_track", None) if in_process else None
        connected = self._endpoint is not None or self._proxy is not None
        if not connected and clock is None and self._hub.http_track is None:
            return None
        return self._guard(clock)

    @contextmanager
    def _guard(self, clock: RunClock | None) -> Generator[None]:
        with ExitStack() as stack:
            if self._endpoint is None and self._proxy is None:  # the subject calls its source
                self._track_http(stack)
            else:
                stack.callback(self._note_refusals_of_proxy)
                if self._endpoint is not None and self._subject.model_access == "transport":
                    self._guard_clients(stack, self._endpoint)
                    self._track_http(stack)
            if clock is not None:
                from offbook.sources.inprocess.clock import use_clock

                stack.enter_context(use_clock(clock))
            yield

    def _track_http(self, stack: ExitStack) -> None:
        """Record or answer the requests of this process to other servers, with a tape of them."""
        track = self._hub.http_track
        if track is None:
            return
        from urllib.parse import urlsplit

        from offbook.sources.inprocess.patching import track_http

        urls = [self._endpoint.url] if self._endpoint is not None else []
        urls += [each.url for each in (*self._servers, *self._agents)]
        parts = [urlsplit(url) for url in urls if url]
        own = [(each.hostname or "", each.port) for each in parts]
        stack.enter_context(track_http(track, own))

    def _guard_clients(self, stack: ExitStack, endpoint: Endpoint) -> None:
        """Answer the clients of this process, or give them the address of the server."""
        from offbook.determinism.environment import set_environment
        from offbook.determinism.network_guard import block_network
        from offbook.exchange.providers import explain_refusal
        from offbook.sources.inprocess.patching import intercept
        from offbook.sources.inprocess.telemetry import disable_telemetry

        stack.enter_context(disable_telemetry())
        blocked = stack.enter_context(
            block_network(
                allow=self._allow,
                explain=explain_refusal,
                child_env=lambda env: self._child_env(blocked, env),
            )
        )
        stack.callback(self._note_refusals, blocked)
        if self._serve:
            stack.enter_context(set_environment(endpoint.variables))
            return
        stack.enter_context(set_missing_keys())
        stack.enter_context(intercept(endpoint.answer, urls=self._urls, relay=endpoint.relays))

    def _child_env(self, guard: NetworkGuard, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a process that an agent of this process starts."""
        from offbook.exchange.providers import without_keys
        from offbook.sources.server.proxy import open_proxy

        if self._proxy is None or self._proxy.guard is not guard:
            if self._proxy is not None:
                self._proxy.close()
            self._proxy = open_proxy(_shared_server(os.getpid()), None, guard)
        kept = without_keys(environment)
        return {**kept, **self._proxy.variables(kept)}

    def _note_refusals(self, guard: NetworkGuard) -> None:
        """Emit the connections that were refused since the last time."""
        refused, guard.refused = guard.refused, []
        for error in refused:
            self._hub.emit_data(RefusedData(error.destination, error.what, error.where))
        self.refused += refused

    def _note_refusals_of_proxy(self) -> None:
        if self._proxy is not None:  # it may be opened by a process that the agent starts
            self._note_refusals(self._proxy.guard)

    @property
    def failing_refusals(self) -> list[ConnectionBlocked]:
        """The refused connections except those of known telemetry."""
        from offbook.exchange.providers import QUIET_HOSTS

        return [e for e in self.refused if e.destination.rpartition(":")[0] not in QUIET_HOSTS]

    def describe_access(self) -> str:
        """Return lines on the MCP servers and the model that the agent does not reach."""
        return "\n".join(filter(None, [self.describe_servers(), self._describe_model_access()]))

    def describe_servers(self) -> str:
        """Return lines on the MCP servers that the agent has not reached."""
        return "\n".join(
            f"  no client has connected to the MCP server {server.name}\n"
            "  fix: give the agent a client with the url of the server"
            for server in self._servers
            if not server.connected
        )

    def _describe_model_access(self) -> str:
        """Return lines on the ways of the agent to its model: those that were set, and tried."""
        endpoint, lines = self._endpoint, list[str]()
        if endpoint is not None and 0 < endpoint.received == len(endpoint.unknown_paths):
            lines.append(f"  unsupported: {', '.join(dict.fromkeys(endpoint.unknown_paths))}")
            lines.append("  fix: check the URL in the agent; for example /v1/chat/completions")
            return "\n".join(lines)
        if endpoint is None or (endpoint.received and not self.refused):
            return ""
        if not endpoint.received:
            lines.append("  no request arrived at the model")
        if not endpoint.received and endpoint.url:
            from offbook.exchange.providers import all_providers

            common = {provider.url_variables[0] for provider in all_providers().values()}
            urls = [n for n, value in endpoint.variables.items() if value.startswith(endpoint.url)]
            first = sorted(urls, key=lambda name: name not in common)[:URLS_SHOWN]
            lines.append(f"  set: {', '.join(first)} and {len(urls) - len(first)} more")
            lines.append("  fix: let the agent read its base URL from one of them")
        destinations = dict.fromkeys(error.destination for error in self.refused)
        if self._proxy is not None or destinations:
            lines.append(f"  tried: {', '.join(destinations) or 'no other host'}")
        if self.refused:
            lines.append(f"  fix: {self.refused[0].hint}")
        return "\n".join(lines)

    def server_verdicts(self) -> Iterable[Verdict]:
        """Return the verdicts of the MCP servers and of the remote agents."""
        for each in (*self._servers, *self._agents):
            yield from each.verdicts()

    def close(self) -> None:
        """Remove the endpoint and its proxy, and end the recording of servers and agents."""
        while self._undo:
            self._undo.pop()()
        if self._proxy is not None:
            self._proxy.close()
        if self._endpoint is not None:
            self._endpoint.close()


def _url_variable(kind: str, name: str) -> str:
    """Return the variable in which a command finds the URL of an MCP server or a remote agent."""
    return f"OFFBOOK_{kind}_{''.join(c if c.isalnum() else '_' for c in name).upper()}"


class SourceWithMetadata:
    """A source whose requests get the metadata of their subject."""

    def __init__(self, source: ModelSource, subject: HasRequestMetadata) -> None:
        self._source = source
        self._subject = subject

    async def reply(self, request: Request, /) -> Reply:
        """Return the reply to the request with this metadata."""
        metadata = {**request.metadata, **self._subject.request_metadata}
        return await self._source.reply(msgspec.structs.replace(request, metadata=metadata))


def start_faults(plan: object, hub: Hub) -> FaultInjector:
    """Return the injector of a new run; each fault is an event of its trace."""
    from offbook.determinism.faults import FaultInjector, Faults, parse_faults

    parsed = parse_faults(plan) or Faults()
    return FaultInjector(parsed, lambda data: hub.emit_data(FaultData(**data)))


def find_refusal(
    error: BaseException, refused: Iterable[ConnectionBlocked]
) -> ConnectionBlocked | None:
    """Return the refused connection that an error is the consequence of."""
    by_id = {id(refusal): refusal for refusal in refused}
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        if id(cause) in by_id:
            return by_id[id(cause)]
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return None


class _AliasedNames:
    """The names of tools, with the names by which a script may call them."""

    def __init__(self, names: Collection[str], aliases: ToolAliases) -> None:
        self._names = names
        self._aliases = aliases

    def __contains__(self, name: object) -> bool:
        alias = self._aliases.get(str(name))
        return name in self._names or (alias is not None and alias.tool in self._names)

    def __bool__(self) -> bool:
        return bool(self._names)


def serve_handler(
    answer: Callable[[HttpRequest], Awaitable[HttpResponse]],
) -> tuple[str, Callable[[], None]]:
    """Answer requests by a function, on the server that all runs of this process share.

    Return the URL, and a function that ends it.
    """
    return _shared_server(os.getpid()).mount_handler(answer, token_urlsafe(12))


@cache
def _shared_server(process_id: int) -> Server:
    from offbook.sources.server.server import Server

    server = Server().launch()

    def close() -> None:
        # A fork inherits the handler, but not the thread of the server.
        if os.getpid() == process_id:
            server.close()

    atexit.register(close)
    return server


def set_missing_keys() -> AbstractContextManager[None]:
    """Set a placeholder for each missing key in this block, in which clients are made."""
    from offbook.determinism.environment import set_environment
    from offbook.exchange.providers import missing_keys

    return set_environment(missing_keys(os.environ))
