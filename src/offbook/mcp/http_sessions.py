"""Streamable HTTP for the MCP servers of this process.

Each client has a session, named by a header. A message of the client is a POST. The response to a
request is a stream: first what the server sends while it works on the request, then the result.
What the server sends by itself goes to the stream of a GET.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from secrets import token_urlsafe

import msgspec

from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
from offbook.exchange.json_rpc import (
    INVALID_REQUEST,
    JsonObject,
    RequestId,
    RpcError,
    as_object,
    current_request,
    decode_message,
    is_request_id,
)
from offbook.exchange.messages import to_json
from offbook.mcp.server_session import ServedParts, ServerSession
from offbook.runs.wiring import serve_handler
from offbook.sources.server.connection import error_response

SESSION_HEADER = "mcp-session-id"
EVENT_STREAM = {"content-type": "text/event-stream", "cache-control": "no-cache"}
Messages = asyncio.Queue[JsonObject | None]  # of a stream; None ends it


def mount(server: ServedParts) -> tuple[str, Callable[[], None]]:
    """Serve a scripted server with the runs of this process; return its URL, and how to end it."""
    sessions = HttpSessions(server)
    url, remove = serve_handler(sessions.answer)

    def close() -> None:
        remove()
        sessions.close()

    return url, close


def bridge_command(url: str) -> list[str]:
    """Return the command by which a client that speaks stdio reaches this address."""
    return [sys.executable, "-I", str(Path(__file__).with_name("stdio_bridge.py")), url]


class HttpSessions:
    """The clients of one server, by the id of their session."""

    def __init__(self, server: ServedParts) -> None:
        self._server = server
        self._sessions: dict[str, _HttpSession] = {}

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Return the response to a request of any client."""
        name, message = request.headers.get(SESSION_HEADER, ""), JsonObject()
        if request.method == "POST":
            try:
                message = as_object(decode_message(request.body))
            except RpcError as error:
                return error_response(400, f"invalid JSON-RPC message: {error}")
            if not message or not is_request_id(message.get("id", 0)):
                problem = "wrong type of id" if message else "expected an object"
                return error_response(400, f"invalid JSON-RPC message: {problem}")
            if not name and message.get("method") == "initialize":
                name = token_urlsafe(12)
                self._sessions[name] = _HttpSession(self._server, name)
        session = self._sessions.get(name)
        if session is None:  # a client starts again after 404
            error = {"code": INVALID_REQUEST, "message": "unknown session: send initialize first"}
            body = {"jsonrpc": "2.0", "id": message.get("id"), "error": error}
            headers = {"content-type": "application/json"}
            return HttpResponse(404 if name else 400, headers, msgspec.json.encode(body))
        match request.method:
            case "POST":
                return session.receive(message)
            case "GET":
                return session.listen()
            case "DELETE":
                self._sessions.pop(name).close()
                return HttpResponse(200)
            case _:
                return error_response(405, "use POST, GET or DELETE")

    def close(self) -> None:
        """End all sessions, from any thread."""
        for session in self._sessions.values():
            session.call_soon(session.close)


class _HttpSession:
    """One client: a stream for each of its requests, and one for all else."""

    def __init__(self, server: ServedParts, name: str) -> None:
        self._headers = {SESSION_HEADER: name}
        self._loop = asyncio.get_running_loop()
        self._streams: dict[RequestId, Messages] = {}
        self._own: Messages = asyncio.Queue()
        self._session = ServerSession(server, self._send, self.call_soon)

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run a function in the event loop of the session, from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    def receive(self, message: JsonObject) -> HttpResponse:
        """Take a message of the client; the response to a request is a stream."""
        request_id = message.get("id") if "method" in message else None
        stream: Messages = asyncio.Queue()
        if request_id is not None:
            self._streams[request_id] = stream
        self._session.peer.receive(message)
        if message.get("method") == "notifications/cancelled":  # such a request has no response
            self._end_stream(as_object(message.get("params")).get("requestId"))
        return HttpResponse(202, self._headers) if request_id is None else self._respond(stream)

    def listen(self) -> HttpResponse:
        """Return the stream of what the server sends by itself; an earlier one ends."""
        earlier, self._own = self._own, asyncio.Queue()
        while not earlier.empty():
            self._own.put_nowait(earlier.get_nowait())
        earlier.put_nowait(None)
        return self._respond(self._own)

    def _respond(self, messages: Messages) -> HttpResponse:
        async def chunks() -> AsyncIterator[bytes]:
            while (message := await messages.get()) is not None:
                yield b"event: message\ndata: " + to_json(message) + b"\n\n"

        return HttpResponse(200, {**EVENT_STREAM, **self._headers}, live_chunks=chunks())

    def _send(self, message: JsonObject) -> None:
        """Write to the stream of the request that is answered, or to that of the session."""
        request_id = current_request.get() if "method" in message else message.get("id")
        stream = None if request_id is None else self._streams.get(request_id)
        (stream or self._own).put_nowait(message)
        if "method" not in message:
            self._end_stream(request_id)

    def _end_stream(self, request_id: RequestId | None) -> None:
        stream = self._streams.pop(request_id, None) if is_request_id(request_id) else None
        if stream is not None:
            stream.put_nowait(None)

    def close(self) -> None:
        """End the conversation and all streams."""
        self._session.close()
        for stream in (self._own, *self._streams.values()):
            stream.put_nowait(None)
