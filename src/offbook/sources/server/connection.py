"""One HTTP/1.1 connection: bytes to requests, answers to bytes, strictly in turn.

Requests that came together (pipelining) wait for the answer to the one before. A stream without
pacing is written in one go, yet each of its events is a chunk of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol, cast

import httptools
import msgspec

from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
from offbook.exchange.dialects.streaming import FilledTemplate
from offbook.sources.server.request_head import END, HeadCache, RequestHead, parse_head
from offbook.sources.server.websocket import (
    CLOSE,
    NORMAL,
    NOT_TEXT,
    PING,
    PONG,
    TEXT,
    Frames,
    FramingError,
    accept_key,
    close_frame,
    frame,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterable
    from contextvars import Context

PIPELINE_LIMIT = 16
HEADERS_LIMIT = 64 * 1024
KNOWN_NAMES = 512
CHUNKED = "transfer-encoding: chunked\r\n"
REASONS = {status.value: status.phrase for status in HTTPStatus}
_NOBODY = RequestHead("", "")

_names: dict[bytes, str] = {}


class Handler(Protocol):
    """Who answers the requests of one run; its code runs in `context`."""

    context: Context

    async def answer(self, wire: HttpRequest, /) -> HttpResponse:
        """The answer to a request; never an exception."""
        ...

    def delays(self, answer: HttpResponse, /) -> Iterable[float] | None:
        """The seconds before each chunk of a stream, or None for all at once."""
        ...

    def lose(self, wire: HttpRequest, answer: HttpResponse, /) -> None:
        """The client was gone before it had all of this answer."""
        ...

    def converse(self, wire: HttpRequest, message: bytes, /) -> AsyncIterator[bytes]:
        """The messages that answer one message of a WebSocket, each when it is due."""
        ...


class ServerState(Protocol):
    """The server, as its connections see it."""

    limit: int
    loop: asyncio.AbstractEventLoop
    connections: set[Connection]
    heads: HeadCache

    def route(self, head: RequestHead, /) -> Handler:
        """Who answers this request."""
        ...

    def play(
        self, work: Coroutine[Any, Any, None], context: Context, /
    ) -> asyncio.Task[None] | None:
        """Begin this work at once; the task that goes on with it, if it has to wait."""
        ...


class QueuedRequest(msgspec.Struct, frozen=True):
    """A request in the queue, with what its answer must know; or an answer that is due already."""

    head: RequestHead
    body: bytes = b""
    keep: bool = True
    old: bool = False
    refusal: HttpResponse | None = None


def error_response(status: int, message: str, **more: object) -> HttpResponse:
    """An answer that no provider would give: something is wrong before any dialect is known."""
    error = {"type": "offbook_error", "message": message, **more}
    headers = {"content-type": "application/json", "x-should-retry": "false"}
    return HttpResponse(status, headers, msgspec.json.encode({"error": error}))


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, front: ServerState) -> None:
        self._front = front
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._begun: RequestHead | None = None
        self._raw = b""
        self._queue: deque[QueuedRequest] = deque()
        self._busy = False
        self._task: asyncio.Task[None] | None = None
        self._sent: tuple[Handler, HttpRequest, HttpResponse] | None = None
        self._room: asyncio.Future[None] | None = None
        self._frames: Frames | None = None
        self._messages: deque[tuple[int, bytes]] = deque()
        self._talk: tuple[Handler, HttpRequest] | None = None
        self._gone = False
        self._begin()
        self.since: float | None = None

    # ------------------------------------------------------------------- what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # With no room at all, a write is tried at once, and we hear when it could not be done.
        self._transport.set_write_buffer_limits(high=0)
        self._front.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as asyncio calls it
        self._gone = True
        self._parser = None
        self._front.connections.discard(self)
        if self._room is not None and self._sent is not None:
            desk, wire, answer = self._sent
            desk.lose(wire, answer)
        self.resume_writing()

    def pause_writing(self) -> None:
        if self._room is None:
            self._room = self._front.loop.create_future()

    def resume_writing(self) -> None:
        if self._room is not None:
            self._room.set_result(None)
            self._room = None

    def eof_received(self) -> bool:
        # A client may close its half once it has asked; it still gets its answer.
        self._parser = None
        return self._busy

    def data_received(self, data: bytes) -> None:
        if self._frames is not None:
            self._hear(data)
        elif not self._skim(data):
            self._parse(data)

    # ------------------------------------------------------------------------------- reading

    def _skim(self, data: bytes) -> bool:
        """Take a request whose head is known and whose body is whole; all others are parsed."""
        head, at = self._begun, 0
        if head is None:
            if self._partial or self._busy or self._parser is None:
                return False
            at = data.find(END) + len(END)
            head = self._front.heads.find(data[:at])
            if head is None:
                return False
            if head.length and len(data) == at:  # the body comes by itself
                self._begun = head
                self.since = self._front.loop.time()
                return True
        if len(data) - at == head.length:
            self._begun = self.since = None
            self._start(QueuedRequest(head, data[at:]))
            return True
        if self._begun is not None:
            self._begun = None
            self._parse(head.raw)
        return False

    def _parse(self, data: bytes) -> None:
        if self._parser is None:
            return
        if not self._partial:
            self._raw = data[: data.find(END) + len(END)]
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._parser = None
            self._hear(data[cast("int", upgrade.args[0]) :])
        except httptools.HttpParserError as error:
            self._refuse(error_response(400, f"this is not HTTP: {error}"))
        if self._partial and self.since is None:
            self.since = self._front.loop.time()

    # ---------------------------------------------------------------- what the parser calls

    def _begin(self) -> None:
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body: bytes | bytearray = b""
        self._size = 0
        self._partial = False

    def on_message_begin(self) -> None:
        self._begin()
        self._partial = True

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._measure(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        key = _names.get(name) or _name(name)
        text = value.decode("latin-1")
        headers = self._headers
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
        self._measure(len(name) + len(value))

    def _measure(self, size: int) -> None:
        self._size += size
        if self._size > HEADERS_LIMIT:
            self._refuse(error_response(431, f"the headers have more than {HEADERS_LIMIT} bytes"))

    def on_headers_complete(self) -> None:
        headers = self._headers
        if int(headers.get("content-length", 0)) > self._front.limit:
            self._refuse_body()
        elif headers.get("content-encoding", "identity") != "identity":
            self._refuse(
                error_response(415, "a compressed body is not read here: send it as it is")
            )
        elif headers.get("expect", "").lower() == "100-continue" and not self._queue:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        if self._parser is None:
            return
        if not self._body:
            self._body = body
            return
        if isinstance(self._body, bytes):
            self._body = bytearray(self._body)
        self._body += body
        if len(self._body) > self._front.limit:
            self._refuse_body()

    def on_message_complete(self) -> None:
        parser = self._parser
        if parser is None:
            return
        self._partial = False
        self.since = None
        method = parser.get_method().decode("latin-1")
        head = parse_head(method, self._target, self._headers, self._raw)
        keep, old = parser.should_keep_alive(), parser.get_http_version() == "1.0"
        if keep and not old:
            self._front.heads.keep(head)
        self._raw = b""  # of a second request in the same piece, the bytes are not told apart
        self._take(QueuedRequest(head, bytes(self._body), keep, old))

    def _take(self, asked: QueuedRequest) -> None:
        if not self._busy:
            self._start(asked)
            return
        self._queue.append(asked)
        if len(self._queue) >= PIPELINE_LIMIT:
            self._transport.pause_reading()

    # ------------------------------------------------------------------------ answering, in turn

    def _next(self) -> None:
        self._start(self._queue.popleft())

    def _start(self, asked: QueuedRequest) -> None:
        if asked.refusal is not None:
            self._close_with(asked.refusal)
            return
        head = asked.head
        desk = self._front.route(head)
        wire = HttpRequest(head.method, head.path, head.headers, asked.body, head.query)
        if "upgrade" in head.headers and self._upgrade(desk, wire):
            return
        self._busy = True
        self._task = self._front.play(self._answer(desk, wire, asked), desk.context)

    async def _answer(self, desk: Handler, wire: HttpRequest, asked: QueuedRequest) -> None:
        try:
            answer = await desk.answer(wire)
            if answer.live_chunks is not None:
                await self._hand_on(answer, asked, answer.live_chunks)
                return
            if self._gone:
                desk.lose(wire, answer)
                return
            self._sent = (desk, wire, answer)
            delays = desk.delays(answer) if answer.chunks else None
            if delays is None or asked.old or wire.method == "HEAD":
                self._transport.write(_render(answer, asked, bodiless=wire.method == "HEAD"))
            else:
                await self._trickle(desk, wire, answer, delays)
            self._finish(keep=asked.keep and not asked.old)
        except BaseException:
            self._transport.abort()  # a client must never wait for an answer that cannot come
            raise

    async def _trickle(
        self, desk: Handler, wire: HttpRequest, answer: HttpResponse, delays: Iterable[float]
    ) -> None:
        self._transport.write(_head(answer, CHUNKED))
        for chunk, delay in zip(answer.chunks, delays, strict=False):
            if delay > 0:
                await asyncio.sleep(delay)
            if self._room is not None:
                await self._room
            if self._gone:
                desk.lose(wire, answer)
                return
            self._transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        self._transport.write(b"0\r\n\r\n")

    async def _hand_on(
        self, answer: HttpResponse, asked: QueuedRequest, live_chunks: AsyncIterator[bytes]
    ) -> None:
        """Write a stream as it comes; to its end, though the client be gone: it may be kept."""
        framing = "connection: close\r\n" if asked.old else CHUNKED
        if not self._gone:
            self._transport.write(_head(answer, framing))
        try:
            async for chunk in live_chunks:
                if self._room is not None:
                    await self._room
                if not self._gone:
                    whole = chunk if asked.old else b"%x\r\n%b\r\n" % (len(chunk), chunk)
                    self._transport.write(whole)
        except ConnectionError:
            self._transport.abort()  # as whoever wrote it was: half a stream is no whole one
            return
        if not self._gone and not asked.old:
            self._transport.write(b"0\r\n\r\n")
        self._finish(keep=asked.keep and not asked.old)

    def _finish(self, *, keep: bool) -> None:
        self._busy = False
        if self._gone:
            return
        if self._queue and keep:
            if len(self._queue) == PIPELINE_LIMIT:
                self._transport.resume_reading()
            self._busy = True
            self._front.loop.call_soon(self._next)
        elif not keep or self._parser is None:
            self._transport.close()

    # ------------------------------------------------------------------------------- refusing

    def _refuse_body(self) -> None:
        limit = self._front.limit
        self._refuse(error_response(413, f"the body has more than {limit} bytes", limit=limit))

    def _refuse(self, answer: HttpResponse) -> None:
        """Answer so when the turn comes, and hear no more of this client."""
        if self._parser is None:
            return
        self._parser = None
        self._partial = False
        self._take(QueuedRequest(_NOBODY, keep=False, refusal=answer))

    def _close_with(self, answer: HttpResponse) -> None:
        """Say it, and read on without listening: a client that is still sending hears it so."""
        self._transport.write(_render(answer, QueuedRequest(_NOBODY, keep=False)))
        self.since = self._front.loop.time()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def expire(self) -> None:
        """The client took too long to say what it wants."""
        if self._parser is None or self._frames is not None:
            self._transport.abort()
        else:
            self._refuse(error_response(408, "the request did not come to its end in time"))

    def abort(self) -> None:
        """End it, whatever is going on."""
        if self._task is not None:
            self._task.cancel()
        self._transport.abort()

    # ------------------------------------------------------------------------------ WebSocket

    def _upgrade(self, desk: Handler, wire: HttpRequest) -> bool:
        key = wire.headers.get("sec-websocket-key")
        if wire.headers["upgrade"].lower() != "websocket" or key is None:
            return False
        self._frames = Frames(self._front.limit)
        self._talk = (desk, wire)
        self._transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            b"sec-websocket-accept: %b\r\n\r\n" % accept_key(key).encode()
        )
        return True

    def _hear(self, data: bytes) -> None:
        if self._frames is None or self._gone:
            return
        try:
            self._messages.extend(self._frames.feed(data))
        except FramingError as error:
            self._hang_up(error.code, str(error))
            return
        if self._messages and not self._busy and self._talk is not None:
            self._busy = True
            work = self._reply_to_messages(*self._talk)
            self._task = self._front.play(work, self._talk[0].context)

    async def _reply_to_messages(self, desk: Handler, wire: HttpRequest) -> None:
        while self._messages and not self._gone:
            opcode, payload = self._messages.popleft()
            if opcode == CLOSE:
                self._hang_up(NORMAL)
            elif opcode == PING:
                self._transport.write(frame(PONG, payload))
            elif opcode == TEXT:
                async for said in desk.converse(wire, payload):
                    if self._room is not None:
                        await self._room
                    if self._gone:
                        break
                    self._transport.write(frame(TEXT, said))
            elif opcode < CLOSE:
                self._hang_up(NOT_TEXT, "only text is spoken here")
        self._busy = False

    def _hang_up(self, code: int, reason: str = "") -> None:
        self._frames = None
        self._messages.clear()
        self._transport.write(close_frame(code, reason))
        self._transport.close()


def _name(raw: bytes) -> str:
    text = raw.decode("latin-1").lower()
    if len(_names) < KNOWN_NAMES:
        _names[raw] = text
    return text


def _head(answer: HttpResponse, framing: str) -> bytes:
    status = answer.status
    lines = "".join([f"{name}: {value}\r\n" for name, value in answer.headers.items()])
    reason = REASONS.get(status, "Unknown")
    return f"HTTP/1.1 {status} {reason}\r\n{lines}{framing}\r\n".encode("latin-1", "replace")


def _render(answer: HttpResponse, asked: QueuedRequest, *, bodiless: bool = False) -> bytes:
    """The whole answer as bytes."""
    ending = "" if asked.keep and not asked.old else "connection: close\r\n"
    chunks = answer.chunks
    if not chunks:
        head = _head(answer, f"content-length: {len(answer.body)}\r\n{ending}")
        return head if bodiless else head + answer.body
    if asked.old:  # HTTP/1.0 knows no chunks: the stream ends with the connection
        return b"".join((_head(answer, ending), *chunks))
    head = _head(answer, f"{CHUNKED}{ending}")
    if bodiless:
        return head
    return head + (chunks.join(_frame) if isinstance(chunks, FilledTemplate) else _frame(chunks))


def _frame(chunks: Iterable[bytes]) -> bytes:
    """The chunks as HTTP sends them, and their end."""
    return b"".join([*(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks), b"0\r\n\r\n"])
