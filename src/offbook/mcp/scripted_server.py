"""A scripted MCP server: tools, resources and prompts that a test defines, for any MCP client.

    shop = mcp_server("shop", tools={"find_order": find_order, "refund": "refunded"})
    agent = Agent(toolsets=[MCPToolset(shop.url)])
    with drive(agent, mcp=[shop]) as rehearsal: …

The server runs in the process of the test. Over HTTP a client reaches it by `url`; over stdio by
`command`, a small program that passes the messages on. So its calls are executions in the trace,
whatever the client is. `ServerSession` is the conversation with one client.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from inspect import Parameter, getdoc, isawaitable, iscoroutinefunction, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_type_hints

import msgspec

from offbook.errors import RpcError, ToolFailed, UsageError, did_you_mean, explain_call
from offbook.exchange.json_rpc import INVALID_PARAMS, METHOD_NOT_FOUND, JsonObject, Peer
from offbook.exchange.messages import Image, RawBlock, Text
from offbook.exchange.model import SchemaValidator, compile_validator
from offbook.files import read_document
from offbook.subjects.mock_tools import ToolOutcome, describe_exception, error_outcome
from offbook.subjects.subject import MOCKS_USED
from offbook.trace.events import Verdict
from offbook.trace.hub import use_hub
from offbook.version import VERSION

if TYPE_CHECKING:
    from offbook.subjects.tool_watch import ToolWatch
    from offbook.trace.hub import Hub

PROTOCOL_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
ANY_OBJECT: JsonObject = {"type": "object"}
CONTEXT = "ctx"  # the parameter of a tool that gets the `ToolContext`
RESOURCE_NOT_FOUND = -32002


class ServerTool(msgspec.Struct, frozen=True):
    """A tool of a scripted server, with the schema of its parameters.

    `result` is a fixed result, or a function of the parameters. It returns a string, None, a value
    for JSON, or a `ToolOutcome`; an exception as the result is a tool that fails with it.
    """

    result: Any = None
    description: str = ""
    schema: JsonObject = msgspec.field(default_factory=lambda: dict(ANY_OBJECT))
    annotations: JsonObject = {}

    def describe(self, name: str) -> JsonObject:
        """Return the tool as `tools/list` has it."""
        described: JsonObject = {"name": name, "inputSchema": self.schema}
        if self.description:
            described["description"] = self.description
        return {**described, "annotations": self.annotations} if self.annotations else described


class ToolContext:
    """The client, as a tool of a scripted server sees it in its parameter `ctx`.

    async def refund(id: int, ctx: ToolContext) -> str:
        answer = await ctx.elicit("Which account?", {"account": {"type": "string"}})
        await ctx.progress(1, 2, "asked")
    """

    def __init__(self, session: ServerSession, token: object) -> None:
        self._session = session
        self._token = token

    async def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report progress, if the client asked for it."""
        if self._token is None:
            return
        params: JsonObject = {"progressToken": self._token, "progress": done}
        params |= {"total": total} if total is not None else {}
        params |= {"message": message} if message else {}
        self._session.peer.notify("notifications/progress", params)

    async def log(self, message: Any, level: str = "info") -> None:
        """Send a log message to the client."""
        self._session.peer.notify("notifications/message", {"level": level, "data": message})

    async def elicit(self, message: str, properties: Mapping[str, Any]) -> JsonObject:
        """Ask the person behind the client; return the action, and the content if accepted."""
        schema = {"type": "object", "properties": dict(properties), "required": [*properties]}
        params = {"message": message, "requestedSchema": schema}
        return await self._session.ask("elicitation", "elicitation/create", params)

    async def sample(self, text: str, *, system: str = "", max_tokens: int = 1000) -> str:
        """Ask the model of the client; return the text of its answer."""
        message = {"role": "user", "content": {"type": "text", "text": text}}
        params: JsonObject = {"messages": [message], "maxTokens": max_tokens}
        params |= {"systemPrompt": system} if system else {}
        answer = await self._session.ask("sampling", "sampling/createMessage", params)
        blocks: Any = answer["content"]
        blocks = blocks if isinstance(blocks, list) else [blocks]
        return "\n".join(block["text"] for block in blocks if block.get("type") == "text")

    async def roots(self) -> list[JsonObject]:
        """Return the folders that the client lets the server use."""
        return (await self._session.ask("roots", "roots/list", {}))["roots"]


class ServerFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file of a scripted server."""

    class Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """A tool with a fixed result, or with the error that it always returns."""

        description: str = ""
        parameters: JsonObject = {}
        required: list[str] | None = None
        result: Any = None
        error: str = ""

    mcp_server: str
    tools: dict[str, Tool] = {}
    resources: dict[str, Any] = {}
    prompts: dict[str, str] = {}
    instructions: str = ""
    page_size: int = 0


@explain_call
def mcp_server(  # noqa: PLR0913 - what a server may have
    name: str,
    *,
    tools: Mapping[str, Any] | Iterable[Callable[..., Any]] = (),
    resources: Mapping[str, Any] | None = None,
    prompts: Mapping[str, Any] | None = None,
    instructions: str = "",
    page_size: int = 0,
) -> ScriptedServer:
    """Return a scripted MCP server.

    `tools` are functions, with schemas from their signatures, or fixed results by the name of the
    tool, or `ServerTool` for a schema of your own. `resources` are texts, bytes or functions by
    their URI, and `prompts` texts or functions by their name. Lists have pages of `page_size`.
    """
    if not isinstance(name, str) or not name:
        raise UsageError("mcp_server() takes its name first", hint='mcp_server("shop", tools={…})')
    server = ScriptedServer(name, instructions, page_size)
    named = (
        cast("Mapping[str, Any]", tools)
        if isinstance(tools, Mapping)
        else {_name_of(function): function for function in tools}
    )
    for tool, value in named.items():
        server.tools[tool] = _to_tool(tool, value)
    server.resources.update(resources or {})
    server.prompts.update(prompts or {})
    return server


def load_mcp_server(path: Path | str) -> ScriptedServer:
    """Return the scripted MCP server that a YAML or JSON file defines."""
    file = read_document(Path(path), ServerFile)
    tools = {
        name: ServerTool(
            ToolFailed(tool.error) if tool.error else tool.result,
            tool.description,
            {
                "type": "object",
                "properties": tool.parameters,
                "required": [*tool.parameters] if tool.required is None else tool.required,
            },
        )
        for name, tool in file.tools.items()
    }
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

    def __init__(self, name: str, instructions: str = "", page_size: int = 0) -> None:
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
            from offbook.mcp.http_sessions import mount

            self._mounted = mount(self)
        return self._mounted[0]

    @property
    def command(self) -> list[str]:
        """The command for clients that speak stdio: it passes their messages on to `url`."""
        from offbook.mcp.http_sessions import bridge_command

        return bridge_command(self.url)

    def close(self) -> None:
        """Remove the server; its clients are disconnected."""
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
        self.hub, self.watch = hub, watch
        self.calls.clear()

    def detach(self) -> None:
        """End the recording."""
        self.hub = self.watch = None
        self._mocks = {}

    def verdicts(self) -> Iterable[Verdict]:
        """Return a failed verdict if tools were never called."""
        called = {name for name, _ in self.calls}
        unused = [name for name in self.tools if name not in called]
        if unused:
            message = f"never used: {', '.join(unused)} of the MCP server {self.name}"
            yield Verdict(MOCKS_USED, "fail", message, actual=unused)

    async def call(self, name: str, arguments: JsonObject, context: ToolContext) -> ToolOutcome:
        """Run a tool; its execution is part of the trace."""
        tool = self._mocks.get(name) or self.tools[name]
        self.calls.append((name, arguments))
        if errors := _validator(tool, f"{self.name}.{name}")(arguments):
            problem = errors[0]
            place = ".".join(map(str, problem.path))
            return error_outcome(f"invalid arguments of {name}: {place} {problem.message}".strip())
        hub, watch = self.hub, self.watch
        if hub is None or watch is None:
            return await _run_tool(tool, arguments, context)
        with use_hub(hub):
            # A client in this process has reported the execution before it sent the call.
            if watch.is_reported(name, arguments):
                return await _run_tool(tool, arguments, context)
            watched = watch.call(name, arguments)
            watched.served = True
            async with watched as execution:
                outcome = await _run_tool(tool, arguments, context)
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
    if isinstance(value, ServerTool):
        return value
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
            hint="give one: ServerTool(function, schema={…})",
        ) from error
    definitions: JsonObject = schema.pop("$defs")
    own: JsonObject = definitions.pop(schema["$ref"].rpartition("/")[2])
    own.pop("title", None)
    return {**own, "$defs": definitions} if definitions else own


def _validator(tool: ServerTool, where: str) -> SchemaValidator:
    return compile_validator(tool.schema, where)


async def _run_tool(tool: ServerTool, arguments: JsonObject, context: ToolContext) -> ToolOutcome:
    value = tool.result
    if callable(value):
        parameters = signature(value).parameters
        given = {**arguments, CONTEXT: context} if CONTEXT in parameters else arguments
        if iscoroutinefunction(value):
            value = await value(**given)
        else:
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


# --- The conversation with one client


class ServerSession:
    """One client of a scripted server: the methods of the protocol.

    `call_soon` runs a function in the event loop of the connection, from any thread.
    """

    def __init__(
        self,
        server: ScriptedServer,
        send: Callable[[JsonObject], None],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._server = server
        self._call_soon = call_soon
        self._client: JsonObject = {}  # its capabilities
        self.subscriptions: set[str] = set()
        self.peer = Peer(send, self._respond, self._on_notification)
        server.sessions.append(self)

    def close(self) -> None:
        """End the conversation."""
        if self in self._server.sessions:
            self._server.sessions.remove(self)
        self.peer.close()

    def notify_soon(self, method: str, params: JsonObject | None) -> None:
        """Send a notification from any thread."""
        self._call_soon(lambda: self.peer.notify(method, params))

    async def ask(self, capability: str, method: str, params: JsonObject) -> JsonObject:
        """Send a request to the client, if it has the capability for it."""
        if capability not in self._client:
            raise UsageError(
                f"the client of the MCP server {self._server.name!r} does not support {capability}",
                hint=f"let the agent declare {capability}, or remove {method} from the tool",
            )
        return await self.peer.request(method, params)

    def _on_notification(self, method: str, params: JsonObject) -> None:
        if method == "notifications/cancelled":
            self.peer.cancel(params.get("requestId"))

    async def _respond(self, method: str, params: JsonObject) -> JsonObject:
        server = self._server
        match method:
            case "initialize":
                return self._initialize(params)
            case "ping" | "logging/setLevel":
                return {}
            case "tools/list":
                tools = [tool.describe(name) for name, tool in server.tools.items()]
                return self._page("tools", tools, params)
            case "tools/call":
                return await self._call_tool(params)
            case "resources/list":
                listed = [{"uri": uri, "name": uri.rpartition("/")[2]} for uri in server.resources]
                return self._page("resources", listed, params)
            case "resources/templates/list":
                return {"resourceTemplates": []}
            case "resources/read":
                return await self._read_resource(str(params.get("uri")))
            case "resources/subscribe":
                self.subscriptions.add(str(params.get("uri")))
                return {}
            case "resources/unsubscribe":
                self.subscriptions.discard(str(params.get("uri")))
                return {}
            case "prompts/list":
                listed = [_describe_prompt(name, value) for name, value in server.prompts.items()]
                return self._page("prompts", listed, params)
            case "prompts/get":
                return await self._get_prompt(str(params.get("name")), params)
            case _:
                raise RpcError(f"unknown method {method!r}", METHOD_NOT_FOUND)

    def _initialize(self, params: JsonObject) -> JsonObject:
        server, version = self._server, params.get("protocolVersion")
        self._client = params.get("capabilities") or {}
        capabilities: JsonObject = {"tools": {"listChanged": True}, "logging": {}}
        if server.resources:
            capabilities["resources"] = {"subscribe": True, "listChanged": True}
        if server.prompts:
            capabilities["prompts"] = {"listChanged": True}
        return {
            "protocolVersion": version if version in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[0],
            "capabilities": capabilities,
            "serverInfo": {"name": server.name, "version": VERSION},
            **({"instructions": server.instructions} if server.instructions else {}),
        }

    def _page(self, key: str, items: Sequence[JsonObject], params: JsonObject) -> JsonObject:
        cursor, size = params.get("cursor"), self._server.page_size
        if cursor is not None and not str(cursor).isdecimal():
            raise RpcError(f"invalid cursor {cursor!r}", INVALID_PARAMS)
        start = int(cursor or 0)
        end = start + size if size else len(items)
        more = {"nextCursor": str(end)} if end < len(items) else {}
        return {key: items[start:end], **more}

    async def _call_tool(self, params: JsonObject) -> JsonObject:
        name, tools = str(params.get("name")), self._server.tools
        if name not in tools:
            hint = did_you_mean(name, tools)
            raise RpcError(f"unknown tool {name!r}: {hint}", INVALID_PARAMS)
        context = ToolContext(self, (params.get("_meta") or {}).get("progressToken"))
        try:
            outcome = await self._server.call(name, params.get("arguments") or {}, context)
        except Exception as error:  # noqa: BLE001 - the watch has noted it; the client gets a result
            outcome = error_outcome(describe_exception(error))
        result: JsonObject = {"content": [_to_wire(block) for block in outcome.content]}
        if isinstance(outcome.details, dict) and outcome.details:
            result["structuredContent"] = outcome.details
        return {**result, "isError": True} if outcome.is_error else result

    async def _read_resource(self, uri: str) -> JsonObject:
        if uri not in (resources := self._server.resources):
            hint = did_you_mean(uri, resources)
            raise RpcError(f"unknown resource {uri!r}: {hint}", RESOURCE_NOT_FOUND, {"uri": uri})
        value = await _evaluate(resources[uri], {})
        if isinstance(value, bytes):
            return {"contents": [{"uri": uri, "blob": base64.b64encode(value).decode()}]}
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        return {"contents": [{"uri": uri, "text": text}]}

    async def _get_prompt(self, name: str, params: JsonObject) -> JsonObject:
        if name not in (prompts := self._server.prompts):
            hint = did_you_mean(name, prompts)
            raise RpcError(f"unknown prompt {name!r}: {hint}", INVALID_PARAMS)
        try:
            text = await _evaluate(prompts[name], params.get("arguments") or {})
        except TypeError as error:
            raise RpcError(f"invalid arguments of {name!r}: {error}", INVALID_PARAMS) from error
        return {"messages": [{"role": "user", "content": {"type": "text", "text": str(text)}}]}


async def _evaluate(value: Any, arguments: JsonObject) -> Any:
    answer = value(**arguments) if callable(value) else value
    return await cast("Awaitable[Any]", answer) if isawaitable(answer) else answer


def _describe_prompt(name: str, value: Any) -> JsonObject:
    if not callable(value):
        return {"name": name}
    arguments = [
        {"name": parameter.name, "required": parameter.default is Parameter.empty}
        for parameter in signature(value).parameters.values()
    ]
    return {"name": name, "description": getdoc(value) or "", "arguments": arguments}


def _to_wire(block: Text | Image | RawBlock) -> JsonObject:
    """Return a block of a tool result as MCP writes it."""
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    if isinstance(block, Image):
        return {"type": "image", "data": block.data, "mimeType": block.media_type}
    return {"type": block.kind, **block.data}
