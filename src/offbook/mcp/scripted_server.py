"""A scripted MCP server: tools, resources and prompts that a test defines, for any MCP client.

    shop = mcp_server("shop", tools={"find_order": find_order, "refund": "refunded"})
    agent = Agent(toolsets=[MCPToolset(shop.url)])
    with drive(agent, mcp=[shop]) as rehearsal: …

The server runs in the process of the test. Over HTTP a client reaches it by `url`; over stdio by
`command`, a small program that passes the messages on. So its calls are executions in the trace,
whatever the client is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from inspect import Parameter, getdoc, isawaitable, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_type_hints

import msgspec

from offbook.errors import UsageError, explain_call
from offbook.exchange.json_rpc import JsonObject, as_object
from offbook.exchange.messages import Text
from offbook.exchange.model import Tool, compile_validator
from offbook.files import read_document
from offbook.mcp.http_sessions import bridge_command, mount
from offbook.mcp.real_server import RealServer
from offbook.mcp.server_session import ANY_OBJECT, ServerSession, ServerTool, ToolContext
from offbook.subjects.mock_tools import ToolOutcome, describe_exception, error_outcome
from offbook.subjects.subject import MOCKS_USED
from offbook.trace.events import Verdict
from offbook.trace.hub import use_hub

if TYPE_CHECKING:
    from offbook.exchange.tool_track import ToolTrack
    from offbook.subjects.tool_watch import ToolWatch, WatchedCall
    from offbook.trace.hub import Hub

CONTEXT = "ctx"  # the parameter of a tool that gets the `ToolContext`


class FixedTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool of the file of a server: a fixed result, or the error that it always returns."""

    description: str = ""
    parameters: JsonObject = {}
    required: list[str] | None = None
    result: Any = None
    error: str = ""


class ServerFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file of a scripted server."""

    mcp_server: str
    tools: dict[str, FixedTool] = {}
    resources: dict[str, Any] = {}
    prompts: dict[str, str] = {}
    instructions: str = ""
    page_size: int = 0


@explain_call
def mcp_server(
    name: str | Path,
    *,
    tools: Mapping[str, Any] | Iterable[Callable[..., Any] | tuple[Tool, Any]] = (),
    resources: Mapping[str, Any] | None = None,
    prompts: Mapping[str, Any] | None = None,
    instructions: str = "",
    page_size: int = 0,
    command: Sequence[str] = (),
) -> ScriptedServer:
    """Return a scripted MCP server, or the one that a YAML or JSON file defines.

    `tools` are functions, with schemas from their signatures, or fixed results, by the name of the
    tool. In a list, a pair of a `Tool` and a result has a schema of your own. `resources` are
    texts, bytes or functions by their URI, and `prompts` texts or functions by their name. Lists
    have pages of `page_size`.

    With `command`, that of a real MCP server, requests are passed on to it, and it defines the
    tools, resources and prompts. A tape records what it answers, and replays it without it.
    """
    if isinstance(name, Path) or str(name).endswith((".yaml", ".yml", ".json")):
        return _read_server(Path(name))
    if not isinstance(name, str) or not name:
        raise UsageError("mcp_server() takes its name first", hint='mcp_server("shop", tools={…})')
    if command:
        if tools or resources or prompts or instructions:
            raise UsageError(
                "mcp_server() takes a command or tools, resources and prompts, not both",
                hint="mock a tool of a real server with mock_tools=, or write a second server",
            )
        if isinstance(command, str):
            hint = 'mcp_server("time", command=["uvx", "mcp-server-time"])'
            raise UsageError(f"command: expected a list of words, got {command!r}", hint=hint)
        return ScriptedServer(name, page_size=page_size, real=RealServer(name, command))
    server = ScriptedServer(name, instructions, page_size)
    if isinstance(tools, Mapping):
        named = cast("Mapping[str, Any]", tools)
        server.tools |= {tool: _to_tool(tool, value) for tool, value in named.items()}
    else:
        for entry in tools:
            if isinstance(entry, tuple):
                tool, value = cast("tuple[Tool, Any]", entry)
                schema = tool.schema or ANY_OBJECT
                server.tools[tool.name] = ServerTool(value, tool.description, schema, tool.more)
            else:
                tool_name = _name_of(entry)
                server.tools[tool_name] = _to_tool(tool_name, entry)
    server.resources.update(resources or {})
    server.prompts.update(prompts or {})
    return server


def _read_server(path: Path) -> ScriptedServer:
    file = read_document(path, ServerFile)
    tools: list[tuple[Tool, Any]] = []
    for name, tool in file.tools.items():
        required = [*tool.parameters] if tool.required is None else tool.required
        schema = {"type": "object", "properties": tool.parameters, "required": required}
        result = error_outcome(tool.error) if tool.error else tool.result
        tools.append((Tool(name, tool.description, schema), result))
    return mcp_server(
        file.mcp_server,
        tools=tools,
        resources=file.resources,
        prompts=file.prompts,
        instructions=file.instructions,
        page_size=file.page_size,
    )


class ScriptedServer:
    """An MCP server in this process, for any number of clients.

    `url` is its address for streamable HTTP, `command` the command of a client that speaks stdio.
    `calls` are the calls of its tools, as (name, arguments). A tool that is never called fails the
    run, unless it has `allow_unused_mocks`.
    """

    def __init__(
        self,
        name: str,
        instructions: str = "",
        page_size: int = 0,
        *,
        real: RealServer | None = None,
    ) -> None:
        self.real = real
        self.connected = False
        self.name = name
        self.instructions = instructions
        self.page_size = page_size
        self.tools: dict[str, ServerTool] = {}
        self.resources: dict[str, Any] = {}
        self.prompts: dict[str, Any] = {}
        self.calls: list[tuple[str, JsonObject]] = []
        self.sessions: list[ServerSession] = []
        self.hub: Hub | None = None
        self.watch: ToolWatch | None = None
        self._mocks: dict[str, ServerTool] = {}
        self._mounted: tuple[str, Callable[[], None]] | None = None

    # --- The address

    @property
    def url(self) -> str:
        """The address for clients that speak streamable HTTP."""
        if self._mounted is None:
            self._mounted = mount(self)
        return self._mounted[0]

    @property
    def command(self) -> list[str]:
        """The command for clients that speak stdio: it passes their messages on to `url`."""
        return bridge_command(self.url)

    def close(self) -> None:
        """Remove the server; its clients are disconnected."""
        if self.real is not None:
            self.real.close()
        mounted, self._mounted = self._mounted, None
        if mounted is not None:
            mounted[1]()

    # --- Changes during a run

    def add_tool(self, name: str, value: Any) -> None:
        """Add or replace a tool; the clients are notified."""
        self.tools[name] = _to_tool(name, value)
        self._notify("notifications/tools/list_changed")

    def remove_tool(self, name: str) -> None:
        """Remove a tool; the clients are notified."""
        del self.tools[name]
        self._notify("notifications/tools/list_changed")

    def set_resource(self, uri: str, value: Any) -> None:
        """Add or change a resource; the clients that subscribed to it are notified."""
        new = uri not in self.resources
        self.resources[uri] = value
        if new:
            self._notify("notifications/resources/list_changed")
        else:
            self._notify("notifications/resources/updated", {"uri": uri})

    def _notify(self, method: str, params: JsonObject | None = None) -> None:
        for session in list(self.sessions):
            if params is None or params["uri"] in session.subscriptions:
                session.notify_soon(method, params)

    # --- In a run (the protocol `ToolServer`)

    @property
    def tool_names(self) -> Collection[str]:
        """The names of its tools."""
        return self.tools

    def mock_tool(self, name: str, value: Any) -> None:
        """Replace the result of a tool in the next run; its schema stays."""
        self._mocks[name] = msgspec.structs.replace(self.tools[name], result=value)

    @property
    def mocked(self) -> Collection[str]:
        """The names of the tools that are mocked."""
        return self._mocks

    def attach(self, hub: Hub, watch: ToolWatch) -> None:
        """Record the calls in the trace of a run."""
        if self.hub is not None:
            raise UsageError(
                f"the MCP server {self.name!r} is part of another run",
                hint="create a server for each run",
            )
        if self.real is not None:
            self._open_real(self.real, hub.tool_track)
        self.hub, self.watch = hub, watch
        self.calls.clear()

    def _open_real(self, real: RealServer, track: ToolTrack | None) -> None:
        """Take the tools of the real server; each passes its calls on."""
        real.open(track)
        self.tools = {}
        for listed in map(as_object, real.lists.get("tools/list") or ()):
            name = str(listed.get("name"))
            schema, description = listed.get("inputSchema"), listed.get("description")
            self.tools[name] = ServerTool(None, str(description or ""), as_object(schema))

    def detach(self) -> None:
        """End the recording."""
        self.hub = self.watch = None
        self._mocks = {}
        if self.real is not None:
            self.real.close()

    def verdicts(self) -> Iterable[Verdict]:
        """Return a failed verdict if tools were never called; of a real server, if none was."""
        if self.real is not None:
            if not self.calls:
                yield Verdict(MOCKS_USED, "fail", f"never used: the MCP server {self.name}")
            return
        called = {name for name, _ in self.calls}
        unused = [name for name in self.tools if name not in called]
        if unused:
            message = f"never used: {', '.join(unused)} of the MCP server {self.name}"
            yield Verdict(MOCKS_USED, "fail", message, actual=unused)

    async def call(self, name: str, arguments: JsonObject, context: ToolContext) -> ToolOutcome:
        """Run a tool; its execution is part of the trace."""
        tool = self._mocks.get(name) or self.tools[name]
        self.calls.append((name, arguments))
        run = partial(_run_tool, tool, arguments, context)
        if self.real is not None and name not in self._mocks:
            run = partial(context.pass_on, self.real, name, arguments)
        elif errors := compile_validator(tool.schema, f"{self.name}.{name}")(arguments):
            problem = errors[0]
            place = ".".join(map(str, problem.path))
            return error_outcome(f"invalid arguments of {name}: {place} {problem.message}".strip())
        hub, watch = self.hub, self.watch
        if hub is None or watch is None:
            return await run()
        with use_hub(hub):
            # A client in this process has reported the execution before it sent the call.
            if watch.is_reported(name, arguments):
                return await run()
            watched = watch.call(name, arguments)
            watched.served, watched.server = True, self.name
            return await watched.run_async(run, _note)


def _note(execution: WatchedCall, outcome: ToolOutcome) -> ToolOutcome:
    execution.failed = outcome.is_error
    execution.returns([msgspec.to_builtins(block) for block in outcome.content])
    return outcome


def _name_of(function: object) -> str:
    name = getattr(function, "__name__", "")
    if not callable(function) or not name or name == "<lambda>":
        raise UsageError(
            f"a tool without a name: {function!r}", hint='write tools={"find_order": find_order}'
        )
    return name


def _to_tool(name: str, value: Any) -> ServerTool:
    if not callable(value):
        return ServerTool(value)
    return ServerTool(value, getdoc(value) or "", _read_schema(name, value))


def _read_schema(name: str, function: Callable[..., Any]) -> JsonObject:
    """Return the JSON schema of the parameters of a function."""
    try:
        hints = get_type_hints(function)
    except NameError:  # a name of a local scope
        hints = {}
    fields: list[Any] = []
    for parameter in signature(function).parameters.values():
        if parameter.name == CONTEXT:
            continue
        if parameter.kind is Parameter.VAR_KEYWORD:
            return ANY_OBJECT
        kind = hints.get(parameter.name, Any)
        if parameter.default is Parameter.empty:
            fields.append((parameter.name, kind))
        else:
            # A struct refuses a mutable default, and the schema needs no more than the fact.
            default = parameter.default
            plain = default is None or isinstance(default, (str, int, float))
            fields.append((parameter.name, kind, default if plain else None))
    try:
        schema = msgspec.json.schema(msgspec.defstruct(name, fields, kw_only=True))
    except TypeError as error:
        raise UsageError(
            f"no JSON schema for the tool {name!r}: {error}",
            hint=f"give one: tools=[(Tool({name!r}, schema={{…}}), function)]",
        ) from error
    definitions: JsonObject = schema.pop("$defs")
    own: JsonObject = definitions.pop(schema["$ref"].rpartition("/")[2])
    own.pop("title", None)
    return {**own, "$defs": definitions} if definitions else own


async def _run_tool(tool: ServerTool, arguments: JsonObject, context: ToolContext) -> ToolOutcome:
    value = tool.result
    if callable(value):
        parameters = signature(value).parameters
        given = {**arguments, CONTEXT: context} if CONTEXT in parameters else arguments
        # In a thread: it may block, and this loop serves the model as well.
        value = await asyncio.to_thread(value, **given)
        value = await value if isawaitable(value) else value
    if isinstance(value, Exception):
        return error_outcome(describe_exception(value))
    if isinstance(value, ToolOutcome):
        return value
    if value is None:
        return ToolOutcome()
    if isinstance(value, str):
        return ToolOutcome((Text(value),))
    details: Any = msgspec.to_builtins(value)
    return ToolOutcome((Text(msgspec.json.encode(details).decode()),), details)
