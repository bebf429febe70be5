"""MCP over streamable HTTP, served by the official SDK and uvicorn."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

from offbook.errors import UsageError
from offbook.surfaces.mcp_server import describe_tools, find_tool
from offbook.surfaces.mcp_server.stdio import INSTRUCTIONS
from offbook.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp import types
    from mcp.server.lowlevel import Server

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
        config = uvicorn.Config(server.streamable_http_app(), log_level="warning")
        uvicorn.Server(config).run(sockets=[listener])
