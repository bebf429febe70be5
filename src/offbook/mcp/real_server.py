"""A real MCP server behind a scripted one: Offbook is between the host and the server.

    files = mcp_server("files", command=["uvx", "mcp-server-filesystem", "."])
    with Recording(Live(), "files.yaml", tracks="all") as source:
        with drive(ClaudeCode(), mcp=[files], source=source) as rehearsal: …

The scripted server has the tools, resources and prompts of the real one, and passes requests on.
Its executions are part of the trace. With a tape, what the real server answered is on the track of
tools, its lists as well; a replay does not start it.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbook.exchange.json_rpc import METHOD_NOT_FOUND, JsonObject, RpcError, as_object
from offbook.exchange.tool_track import SERVER, RecordedException, ToolEnd, ToolRun
from offbook.mcp.server_session import LISTS, PROTOCOL_VERSIONS, read_outcome
from offbook.subjects.mock_tools import ToolOutcome, error_outcome
from offbook.subjects.process import isolated_env
from offbook.subjects.rpc_process import LoopThread, RpcProcess
from offbook.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offbook.exchange.tool_track import ToolTrack
    from offbook.mcp.server_session import ServerSession

DEADLINE = 60.0  # seconds for the response to one request
MAX_PAGES = 1000
ASKED = {  # of the host, by the capability that it needs
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}


class RealServer:
    """The process of a real MCP server, in a separate event loop.

    `lists` has what it lists, from the process or from a tape. `session` is that of the host which
    made the latest call: what the server asks while it works goes there.
    """

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.lists: JsonObject = {}
        self.session: ServerSession | None = None
        self._command = [*command]
        self._track: ToolTrack | None = None
        self._thread: LoopThread | None = None
        self._process = RpcProcess(f"the MCP server {name}", self._respond, self._on_notification)
        self._home = Path()

    def open(self, track: ToolTrack | None) -> None:
        """Read what the server lists: from a tape, otherwise from the server."""
        self._track = track
        run = ToolRun(f"{SERVER}{self.name}", {"method": "initialize"})
        recorded = track.find(run) if track is not None and track.replays else None
        if recorded is not None:
            self.lists = as_object(recorded.result)
            return
        self._start()
        if track is not None:
            track.add(run, ToolEnd(self.lists))

    def close(self) -> None:
        """End the process."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.run(self._process.close()).result()
            thread.close()
            shutil.rmtree(self._home, ignore_errors=True)

    # --- The process

    def _start(self) -> None:
        if self._thread is None:
            thread = self._thread = LoopThread()
            self._home = Path(tempfile.mkdtemp(prefix="offbook-home-"))
            try:
                self.lists = thread.run(self._initialize()).result()
            except BaseException:
                self.close()
                raise

    async def _initialize(self) -> JsonObject:
        """Start the process; return what it lists."""
        process, cwd = self._process, Path.cwd()
        process.start(self._command, cwd=cwd, env=isolated_env(self._home))
        info = await process.request(
            "initialize",
            {
                "protocolVersion": PROTOCOL_VERSIONS[0],
                "capabilities": {capability: {} for capability in ASKED.values()},
                "clientInfo": {"name": "offbook", "version": VERSION},
            },
            deadline=DEADLINE,
        )
        process.notify("notifications/initialized")
        found: JsonObject = {"initialize": info}
        for method, (capability, key) in LISTS.items():
            if capability in as_object(as_object(info).get("capabilities")):
                found[method] = await self._list(method, key)
        return found

    async def _list(self, method: str, key: str) -> list[Any]:
        items: list[Any] = []
        params: JsonObject = {}
        for _ in range(MAX_PAGES):
            try:
                page = as_object(await self._process.request(method, params, deadline=DEADLINE))
            except RpcError as error:
                if error.code == METHOD_NOT_FOUND:  # many have no templates
                    return items
                raise
            items += page.get(key) or []
            if page.get("nextCursor") is None:
                break
            params = {"cursor": page["nextCursor"]}
        return items

    # --- Requests of the host

    async def call_tool(
        self, name: str, arguments: JsonObject, session: ServerSession, token: object
    ) -> ToolOutcome:
        """Return the result of a tool; the tape is that of the watch."""
        params: JsonObject = {"name": name, "arguments": arguments}
        params |= {"_meta": {"progressToken": token}} if token is not None else {}
        try:
            return read_outcome(as_object(await self._request("tools/call", params, session)))
        except RpcError as error:
            return error_outcome(str(error))

    async def pass_on(self, method: str, params: JsonObject, session: ServerSession) -> JsonObject:
        """Return the result of another request, from the tape or of the server."""
        track = self._track
        run = ToolRun(f"{SERVER}{self.name}", {"method": method, **params})
        if track is not None and track.replays and (end := track.find(run)) is not None:
            if end.error is not None:
                raise RpcError(end.error.message, int(end.error.args[0]))
            return as_object(end.result)
        try:
            result = as_object(await self._request(method, params, session))
        except RpcError as error:
            if track is not None:
                failed = RecordedException("RpcError", str(error), (error.code,))
                track.add(run, ToolEnd(error=failed))
            raise
        if track is not None:
            track.add(run, ToolEnd(result))
        return result

    async def _request(self, method: str, params: JsonObject, session: ServerSession) -> Any:
        self.session = session
        if self._thread is None:  # a run that has left its tape
            await asyncio.to_thread(self._start)
        thread = self._thread
        if thread is None:
            raise RpcError(f"the MCP server {self.name} has ended")
        work = self._process.request(method, params, deadline=DEADLINE)
        return await asyncio.wrap_future(thread.run(work))

    # --- What the server asks

    async def _respond(self, method: str, params: JsonObject) -> Any:
        session, capability = self.session, ASKED.get(method)
        if method == "ping":
            return {}
        if session is None or capability is None:
            raise RpcError(f"unknown method {method!r}", METHOD_NOT_FOUND)
        answer: Future[Any] = Future()
        session.ask_soon(capability, method, params, answer)
        return await asyncio.wrap_future(answer)

    def _on_notification(self, method: str, params: JsonObject) -> None:
        passed = method in {"notifications/progress", "notifications/message"}
        if self.session is not None and passed:
            self.session.notify_soon(method, params)
