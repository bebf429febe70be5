"""The MCP server: serves the tools that the capabilities declare.

Over stdin and stdout, with one JSON-RPC message per line, the few methods that a tool server needs
are implemented here: the official SDK takes two seconds of CPU to import, and clients such as Codex
wait for one. HTTP uses the SDK.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

import msgspec

from offbook.capability import load
from offbook.errors import UsageError, require_known
from offbook.exchange.json_rpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    JsonObject,
    RequestId,
    RpcError,
    is_request_id,
)
from offbook.secrets import hide_bytes, known_secret_bytes
from offbook.surfaces.capabilities import load_capabilities
from offbook.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp import types
    from mcp.server.lowlevel import Server


def all_tools() -> dict[str, Any]:
    """Return the MCP tools of all capabilities by name."""
    tools: dict[str, Any] = {}
    for capability in load_capabilities():
        if capability.mcp_tools:
            tools.update(load(capability.mcp_tools))
    return tools


def find_tool(name: str) -> Any:
    """Return the tool of this name."""
    tools = all_tools()
    require_known("unknown tool", name, tools)
    return tools[name]


def describe_tools() -> list[dict[str, Any]]:
    """Return the descriptions of all tools, as `tools/list` reports them."""
    return [tool.describe() for tool in all_tools().values()]


# --- Over stdin and stdout

PROTOCOL_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
INSTRUCTIONS = (
    "Test an agent loop without its model. Call in this order: test_setup creates a workspace, "
    "test_run runs the loop in it with scripted answers, test_assert checks the run, test_inspect "
    "shows it, test_report writes a report for CI, test_cleanup removes the workspace. The loop "
    "gives the agent one hat after another. An answer publishes events with "
    '<event topic="build.done">text</event>, and the topic selects the next hat by its `triggers`; '
    "an answer whose last line is LOOP_COMPLETE ends the loop with exit code 0. Further tools: "
    "test_snapshot and test_diff compare files, test_evaluate lets a judge score the run, "
    "test_record records the answers of a real agent, test_replay replays them. After runs, "
    "test_coverage lists the hats, topics and tools that were never used, test_compare compares "
    "the runs of two workspaces, test_benchmark runs the loop several times and measures it; "
    "test_chaos runs it with faults in the responses of its model."
)


class RpcMessage(msgspec.Struct, frozen=True):
    """A message of the client: a request has an id, a notification has none."""

    method: str | None = None
    id: RequestId | msgspec.UnsetType = msgspec.UNSET
    params: dict[str, Any] = {}


_DECODER: msgspec.json.Decoder[RpcMessage | list[RpcMessage]] = msgspec.json.Decoder(
    RpcMessage | list[RpcMessage]
)


class ToolCallParams(msgspec.Struct, frozen=True):
    """The parameters of `tools/call`."""

    name: str
    arguments: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class StdioServer:
    """The connection of one client. Calls run concurrently; a cancelled call gets no response."""

    def __init__(self, output: IO[bytes]) -> None:
        self._output = output
        self._tasks: dict[RequestId | None, asyncio.Task[None]] = {}

    async def serve(self, lines: asyncio.Queue[bytes | None]) -> None:
        """Handle messages until the client disconnects, then cancel the calls that still run."""
        while (line := await lines.get()) is not None:
            if line.strip():
                self._handle_line(line)
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _handle_line(self, line: bytes) -> None:
        try:
            decoded = _DECODER.decode(line)
        except msgspec.ValidationError as error:
            self._send_error(None, RpcError(f"invalid request: {error}", INVALID_REQUEST))
            return
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._send_error(None, RpcError(f"invalid JSON: {error}", PARSE_ERROR))
            return
        for message in decoded if isinstance(decoded, list) else [decoded]:
            if message.method is None:
                continue  # a response, and this server sends no requests
            if message.id is not msgspec.UNSET:
                self._handle_request(message.id, message.method, message.params)
            elif message.method == "notifications/cancelled":
                request_id = message.params.get("requestId")
                task = self._tasks.get(request_id) if is_request_id(request_id) else None
                if task is not None:
                    task.cancel()

    def _handle_request(
        self, request_id: RequestId, method: str, params: Mapping[str, Any]
    ) -> None:
        """Respond at once, or, for a tool call, when the tool has finished."""
        try:
            if method != "tools/call":
                self._send({"id": request_id, "result": respond(method, params)})
                return
            call = self._start_call(params)
        except RpcError as error:
            self._send_error(request_id, error)
            return

        async def send_result() -> None:
            self._send({"id": request_id, "result": await call})

        task = asyncio.ensure_future(send_result())
        self._tasks[request_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(request_id, None))

    def _start_call(self, params: Mapping[str, Any]) -> Awaitable[JsonObject]:
        try:
            call = msgspec.convert(params, ToolCallParams)
            tool = find_tool(call.name)
        except (msgspec.ValidationError, UsageError) as error:
            raise RpcError(str(error), INVALID_PARAMS) from error
        token = (call.meta or {}).get("progressToken")
        progress = None if token is None else self._progress_reporter(token)
        return tool.call(call.arguments or {}, progress)

    def _progress_reporter(self, token: RequestId) -> Callable[[float, float | None, str], None]:
        def report(done: float, total: float | None, message: str) -> None:
            params = {"progressToken": token, "progress": done, "total": total, "message": message}
            self._send({"method": "notifications/progress", "params": params})

        return report

    def _send_error(self, request_id: RequestId | None, error: RpcError) -> None:
        self._send({"id": request_id, "error": {"code": error.code, "message": str(error)}})

    def _send(self, message: JsonObject) -> None:
        with suppress(BrokenPipeError):  # the client has gone: the end of stdin follows
            raw = msgspec.json.encode({"jsonrpc": "2.0", **message})
            self._output.write(hide_bytes(raw, known_secret_bytes()) + b"\n")
            self._output.flush()


def respond(method: str, params: Mapping[str, Any]) -> JsonObject:
    """Return the result of a request that is not a tool call."""
    if method == "initialize":
        requested = params.get("protocolVersion")
        supported = requested in PROTOCOL_VERSIONS
        return {
            "protocolVersion": requested if supported else PROTOCOL_VERSIONS[0],
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": "offbook", "title": "Offbook", "version": VERSION},
            "instructions": INSTRUCTIONS,
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": describe_tools()}
    raise RpcError(f"unknown method {method!r}", METHOD_NOT_FOUND)


def serve_stdio() -> None:
    """Serve the client on stdin and stdout."""
    # A tool that prints would break the protocol, so its output goes to stderr.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    asyncio.run(_serve(output))


async def _serve(output: IO[bytes]) -> None:
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes | None] = asyncio.Queue()

    def read() -> None:
        with suppress(RuntimeError):  # the loop is closed
            for line in sys.stdin.buffer:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, None)

    # A daemon thread, because a blocking read cannot be interrupted.
    threading.Thread(target=read, daemon=True).start()
    await StdioServer(output).serve(lines)


# --- Over streamable HTTP, served by the official SDK and uvicorn

HOST = "127.0.0.1"


def build_server() -> Server[Any]:
    """Return an SDK server with the tools."""
    try:
        from mcp import types
        from mcp.server.lowlevel import Server
    except ImportError as error:
        raise UsageError(
            "serving over HTTP needs the MCP SDK", hint="pip install 'offbook[mcp]'"
        ) from error

    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult.model_validate({"tools": describe_tools()})

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            tool = find_tool(params.name)
        except UsageError as error:
            result = {"content": [{"type": "text", "text": str(error)}], "isError": True}
        else:
            async with asyncio.TaskGroup() as reports:

                def report(done: float, total: float | None, message: str) -> None:
                    reports.create_task(context.session.report_progress(done, total, message))

                result = await tool.call(params.arguments or {}, report)
        return types.CallToolResult.model_validate(result)

    return Server(
        "offbook",
        title="Offbook",
        version=VERSION,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def serve_http(port: int, on_start: Callable[[str], None]) -> None:
    """Serve on loopback until interrupted; `on_start` gets the URL."""
    try:
        listener = socket.create_server((HOST, port))
    except OSError as error:
        raise UsageError(
            f"cannot listen on port {port}: {error.strerror}",
            hint="use --port 0 for a free port",
        ) from error
    with listener:
        server = build_server()
        import uvicorn

        on_start(f"http://{HOST}:{listener.getsockname()[1]}/mcp")
        config = uvicorn.Config(_refuse_pages(server.streamable_http_app()), log_level="warning")
        uvicorn.Server(config).run(sockets=[listener])


def _refuse_pages(app: Any) -> Any:
    """Return the ASGI app behind the rule of all our servers: no page of another origin."""
    from offbook.sources.server.connection import error_response, is_foreign_page

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope.get("headers", ())}
        if scope["type"] == "lifespan" or not is_foreign_page(headers):
            await app(scope, receive, send)
            return
        response = error_response(403, "refused: a browser sent this for a page of another origin")
        await send({"type": "http.response.start", "status": response.status, "headers": []})
        await send({"type": "http.response.body", "body": response.body})

    return serve
