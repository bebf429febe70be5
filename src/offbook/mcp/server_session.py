"""The conversation of an MCP server with one client: the methods of the protocol.

The server is one that a test defines, or Offbook's own (`ServedParts`).
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import Parameter, getdoc, signature
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from offbook.errors import UsageError, did_you_mean
from offbook.exchange.json_rpc import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    JsonObject,
    Peer,
    RpcError,
    as_object,
    as_objects,
)
from offbook.exchange.messages import Content, Image, RawBlock, Text
from offbook.subjects.mock_tools import ToolOutcome, describe_exception, error_outcome, evaluate
from offbook.version import VERSION

if TYPE_CHECKING:
    from concurrent.futures import Future

PROTOCOL_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
ANY_OBJECT: JsonObject = {"type": "object"}
RESOURCE_NOT_FOUND = -32002
# What a server lists, by its method: the capability for it, and the key of the result.
LISTS = {
    "tools/list": ("tools", "tools"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resources", "resourceTemplates"),
    "prompts/list": ("prompts", "prompts"),
}
PASSED_ON = {"resources/read", "prompts/get", "completion/complete"}  # to a real server


class ServerTool(msgspec.Struct, frozen=True):
    """A tool of a scripted server, with the schema of its parameters; `more` are other fields.

    `result` is a fixed result, or a function of the parameters. It returns a string, None, a value
    for JSON, or a `ToolOutcome`; an exception as the result is a tool that fails with it.
    """

    result: Any = None
    description: str = ""
    schema: JsonObject = msgspec.field(default_factory=lambda: dict(ANY_OBJECT))
    more: JsonObject = {}

    def describe(self, name: str) -> JsonObject:
        """Return the tool as `tools/list` has it."""
        description = {"description": self.description} if self.description else {}
        return {"name": name, **description, "inputSchema": self.schema, **self.more}


class ToolContext:
    """The client, as a tool of a scripted server sees it in its parameter `ctx`.

    async def refund(id: int, ctx: ToolContext) -> str:
        answer = await ctx.elicit("Which account?", {"account": {"type": "string"}})
        await ctx.progress(1, 2, "asked")
    """

    def __init__(self, session: ServerSession, token: object) -> None:
        self._session = session
        self._token = token

    async def pass_on(self, real: RealParts, tool: str, arguments: JsonObject) -> ToolOutcome:
        """Let a real server run the tool, for the same client."""
        return await real.call_tool(tool, arguments, self._session, self._token)

    async def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report progress, if the client asked for it."""
        self.report(done, total, message)

    def report(self, done: float, total: float | None, message: str) -> None:
        """Report progress, as `progress` does, without an `await`."""
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
        content: Any = answer["content"]
        blocks = cast("list[Any]", content) if isinstance(content, list) else [content]
        return "\n".join(block["text"] for block in blocks if block.get("type") == "text")

    async def roots(self) -> list[JsonObject]:
        """Return the folders that the client lets the server use."""
        return (await self._session.ask("roots", "roots/list", {}))["roots"]


class RealParts(Protocol):
    """A real server behind a scripted one: what it lists, and how requests are passed on."""

    lists: JsonObject

    async def call_tool(
        self, name: str, arguments: JsonObject, session: ServerSession, token: object, /
    ) -> ToolOutcome:
        """Return the result of a tool."""
        ...

    async def pass_on(
        self, method: str, params: JsonObject, session: ServerSession, /
    ) -> JsonObject:
        """Return the result of another request."""
        ...


class ServedParts(Protocol):
    """The parts of a server that all its sessions share."""

    name: str
    instructions: str
    page_size: int
    connected: bool
    resources: dict[str, Any]
    prompts: dict[str, Any]
    sessions: list[ServerSession]

    @property
    def tools(self) -> Mapping[str, ServerTool]:
        """The tools by name."""
        ...

    @property
    def real(self) -> RealParts | None:
        """The real server, if there is one."""
        ...

    async def call(self, name: str, arguments: JsonObject, context: ToolContext, /) -> ToolOutcome:
        """Run a tool."""
        ...


class ServerSession:
    """One client of a server: the methods of the protocol.

    `call_soon` runs a function in the event loop of the connection, from any thread.
    """

    def __init__(
        self,
        server: ServedParts,
        send: Callable[[JsonObject], None],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._server = server
        self._call_soon = call_soon
        self._client: JsonObject = {}  # its capabilities
        self.subscriptions: set[str] = set()
        self._asking: set[asyncio.Future[None]] = set()
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

    def ask_soon(
        self, capability: str, method: str, params: JsonObject, answer: Future[Any]
    ) -> None:
        """Send a request to the client from any thread; `answer` gets its result."""

        async def ask() -> None:
            try:
                answer.set_result(await self.ask(capability, method, params))
            except Exception as error:  # noqa: BLE001 - it belongs to the other thread
                answer.set_exception(error)

        def start() -> None:
            task = asyncio.ensure_future(ask())
            self._asking.add(task)  # a loop has only weak references to its tasks
            task.add_done_callback(self._asking.discard)

        self._call_soon(start)

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

    async def _respond(self, method: str, params: JsonObject) -> JsonObject:  # noqa: PLR0911 - one for each method
        server = self._server
        if server.real is not None:
            if method in server.real.lists and method != "initialize":
                key = LISTS[method][1]
                return self._page(key, server.real.lists[method], params)
            if method in PASSED_ON:
                return await server.real.pass_on(method, params, self)
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
        self._client = as_object(params.get("capabilities"))
        server.connected = True
        version = version if version in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[0]
        if server.real is not None:  # its answer, without what is not passed on
            info = as_object(server.real.lists.get("initialize"))
            offered = as_object(info.get("capabilities"))
            names = offered.keys() & {"tools", "resources", "prompts", "logging", "completions"}
            kept: JsonObject = {name: {} for name in sorted(names)}
            return {**info, "protocolVersion": version, "capabilities": kept}
        capabilities: JsonObject = {"tools": {"listChanged": True}, "logging": {}}
        if server.resources:
            capabilities["resources"] = {"subscribe": True, "listChanged": True}
        if server.prompts:
            capabilities["prompts"] = {"listChanged": True}
        return {
            "protocolVersion": version,
            "capabilities": capabilities,
            "serverInfo": {"name": server.name, "version": VERSION},
            **({"instructions": server.instructions} if server.instructions else {}),
        }

    def _page(self, key: str, items: Sequence[JsonObject], params: JsonObject) -> JsonObject:
        cursor, size = params.get("cursor"), self._server.page_size
        if cursor is not None and re.fullmatch("[0-9]{1,9}", str(cursor)) is None:
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
        meta = as_object(params.get("_meta"))
        context = ToolContext(self, meta.get("progressToken"))
        try:
            outcome = await self._server.call(name, as_object(params.get("arguments")), context)
        except Exception as error:  # noqa: BLE001 - the watch has noted it; the client gets a result
            outcome = error_outcome(describe_exception(error))
        result: JsonObject = {"content": [_to_wire(block) for block in outcome.content]}
        details: Any = outcome.details
        if isinstance(details, dict) and details:
            result["structuredContent"] = details
        return {**result, "isError": True} if outcome.is_error else result

    async def _read_resource(self, uri: str) -> JsonObject:
        if uri not in (resources := self._server.resources):
            hint = did_you_mean(uri, resources)
            raise RpcError(f"unknown resource {uri!r}: {hint}", RESOURCE_NOT_FOUND, {"uri": uri})
        value = await evaluate(resources[uri])
        if isinstance(value, bytes):
            return {"contents": [{"uri": uri, "blob": base64.b64encode(value).decode()}]}
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        return {"contents": [{"uri": uri, "text": text}]}

    async def _get_prompt(self, name: str, params: JsonObject) -> JsonObject:
        if name not in (prompts := self._server.prompts):
            hint = did_you_mean(name, prompts)
            raise RpcError(f"unknown prompt {name!r}: {hint}", INVALID_PARAMS)
        prompt, arguments = prompts[name], as_object(params.get("arguments"))
        try:
            text = await evaluate(partial(prompt, **arguments) if callable(prompt) else prompt)
        except TypeError as error:
            raise RpcError(f"invalid arguments of {name!r}: {error}", INVALID_PARAMS) from error
        return {"messages": [{"role": "user", "content": {"type": "text", "text": str(text)}}]}


def _describe_prompt(name: str, value: Any) -> JsonObject:
    if not callable(value):
        return {"name": name}
    arguments = [
        {"name": parameter.name, "required": parameter.default is Parameter.empty}
        for parameter in signature(value).parameters.values()
    ]
    return {"name": name, "description": getdoc(value) or "", "arguments": arguments}


def read_outcome(result: JsonObject) -> ToolOutcome:
    """Return a result of `tools/call` as the outcome of a tool."""
    blocks = as_objects(result.get("content"))
    return ToolOutcome(
        tuple(read_block(str(block.get("type")), block) for block in blocks),
        result.get("structuredContent"),
        bool(result.get("isError")),
    )


def read_block(kind: str, block: JsonObject) -> Content:
    """Return a block of a message of MCP."""
    if kind == "text":
        return Text(str(block.get("text", "")))
    if kind == "image":
        return Image(str(block.get("data", "")), str(block.get("mimeType", "")))
    return RawBlock(kind, {key: value for key, value in block.items() if key != "type"}, "mcp")


def _to_wire(block: Text | Image | RawBlock) -> JsonObject:
    """Return a block of a tool result as MCP writes it."""
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    if isinstance(block, Image):
        return {"type": "image", "data": block.data, "mimeType": block.media_type}
    return {"type": block.kind, **block.data}
