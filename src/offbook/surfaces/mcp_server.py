"""The MCP server of Offbook: the tools that the capabilities declare, for agents that test agents.

The methods of the protocol are those of every server here (`mcp.server_session`). A client reaches
them over stdin and stdout, with one message a line, or over streamable HTTP. Little is imported
before the first response, for which clients such as Codex wait a second.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextlib import suppress
from functools import cache
from typing import IO, TYPE_CHECKING, Any

from offbook.capability import load
from offbook.exchange.json_rpc import JsonObject, RpcError, decode_message
from offbook.exchange.messages import to_json
from offbook.mcp.server_session import ServerSession, ServerTool, ToolContext, read_outcome
from offbook.secrets import hide_bytes, known_secret_bytes
from offbook.surfaces.capabilities import load_capabilities

if TYPE_CHECKING:
    from collections.abc import Callable

    from offbook.subjects.mock_tools import ToolOutcome

PATH = "/mcp"
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


def all_tools() -> dict[str, Any]:
    """Return the MCP tools of all capabilities by name."""
    tools: dict[str, Any] = {}
    for capability in load_capabilities():
        if capability.mcp_tools:
            tools.update(load(capability.mcp_tools))
    return tools


def describe_tools() -> list[dict[str, Any]]:
    """Return the descriptions of all tools, as `tools/list` reports them."""
    return [tool.describe() for tool in all_tools().values()]


class OffbookServer:
    """The tools as a server (`ServedParts`)."""

    name = "offbook"
    instructions = INSTRUCTIONS
    page_size = 0
    real = None

    def __init__(self) -> None:
        self.connected = False
        self.resources: dict[str, Any] = {}
        self.prompts: dict[str, Any] = {}
        self.sessions: list[ServerSession] = []

    @property
    def tools(self) -> dict[str, ServerTool]:
        """The tools by name."""
        return _server_tools()

    async def call(self, name: str, arguments: JsonObject, context: ToolContext, /) -> ToolOutcome:
        """Run a tool."""
        return read_outcome(await self.tools[name].result(arguments, context.report))


@cache  # they are loaded for the first client that lists or calls one
def _server_tools() -> dict[str, ServerTool]:
    tools: dict[str, ServerTool] = {}
    for name, tool in all_tools().items():
        described = tool.describe()
        own = {"name", "description", "inputSchema"}
        more = {key: value for key, value in described.items() if key not in own}
        schema = described["inputSchema"]
        tools[name] = ServerTool(tool.call, described["description"], schema, more)
    return tools


# --- Over stdin and stdout


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
    await serve_lines(lines, output)


async def serve_lines(lines: asyncio.Queue[bytes | None], output: IO[bytes]) -> None:
    """Handle the messages of one client until it disconnects; calls that still run are ended."""

    def send(message: JsonObject) -> None:
        with suppress(BrokenPipeError):  # the client has gone: the end of stdin follows
            output.write(hide_bytes(to_json(message), known_secret_bytes()) + b"\n")
            output.flush()

    loop = asyncio.get_running_loop()
    session = ServerSession(OffbookServer(), send, loop.call_soon_threadsafe)
    while (line := await lines.get()) is not None:
        if line.strip():
            try:
                session.peer.receive(decode_message(line))
            except RpcError as error:
                session.peer.send_error(None, error)
            await asyncio.sleep(0)  # a request is answered before the next message, if it can be
    session.close()


# --- Over streamable HTTP


def serve_http(port: int, on_start: Callable[[str], None]) -> None:
    """Serve on loopback until interrupted; `on_start` gets the URL."""
    asyncio.run(_serve_http(port, on_start))


async def _serve_http(port: int, on_start: Callable[[str], None]) -> None:
    from offbook.mcp.http_sessions import HttpSessions  # late, as stdin and stdout need no server
    from offbook.sources.server.server import HOST, Server

    async with Server(port=port) as server:
        server.mount_handler(HttpSessions(OffbookServer()).answer, "")
        on_start(f"http://{HOST}:{server.port}{PATH}")
        await asyncio.Event().wait()
