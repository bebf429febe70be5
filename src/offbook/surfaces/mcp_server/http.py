"""The protocol over streamable HTTP, through the official SDK: its door, and uvicorn's."""

from __future__ import annotations

import asyncio
import socket
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from offbook.errors import UsageError
from offbook.surfaces.mcp_server import describe_tools, find_tool
from offbook.surfaces.mcp_server.stdio import INSTRUCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp import types
    from mcp.server.lowlevel import Server

HOST = "127.0.0.1"


def build_server() -> Server[Any]:
    """The tools as a server of the SDK."""
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
            told = {"content": [{"type": "text", "text": str(error)}], "isError": True}
        else:
            async with asyncio.TaskGroup() as telling:

                def tell(done: float, total: float | None, message: str) -> None:
                    telling.create_task(context.session.report_progress(done, total, message))

                told = await tool.call(params.arguments or {}, tell)
        return types.CallToolResult.model_validate(told)

    return Server(
        "offbook",
        title="Offbook",
        version=version("offbook"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def serve_http(port: int, told: Callable[[str], None]) -> None:
    """Serve on this machine only, until interrupted; where is told when it is so."""
    try:
        listening = socket.create_server((HOST, port))
    except OSError as error:
        raise UsageError(
            f"port {port} cannot be listened on: {error.strerror}",
            hint="choose another: --port 0 takes any that is free",
        ) from error
    with listening:
        server = build_server()
        import uvicorn

        told(f"http://{HOST}:{listening.getsockname()[1]}/mcp")
        config = uvicorn.Config(server.streamable_http_app(), log_level="warning")
        uvicorn.Server(config).run(sockets=[listening])
