"""One HTTP/1.1 connection of the server: bytes to requests, responses to bytes, in order.

Pipelined requests wait for the response to the one before. A stream without pacing is written in
one call, with each of its events as a separate chunk.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import unquote, unquote_to_bytes

import httptools
import msgspec

from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
from offbook.exchange.dialects.wire import FilledTemplate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping
    from contextvars import Context

    from offbook.sources.server.websocket import WebSocket


END_OF_HEAD = b"\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
CHUNKED = "transfer-encoding: chunked\r\n"
CLOSE = "connection: close\r\n"
OK = 200
WITHOUT_BODY = frozenset({204, 304})
LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost"})

CACHE_SIZE = 256
CACHED_HEAD_LIMIT = 8192
UNCACHED_HEADERS = frozenset({"expect", "transfer-encoding", "upgrade"})  # they change the reading


class RequestHead(msgspec.Struct, frozen=True):
    """The request line and headers.

    A path `/s/<run>/…` is split into `run` and `path`. `is_local` is False if the Host header
    names another machine, as in a DNS rebinding attack. `foreign_page` is True if a browser sent it
    for a page of another server; this, a HEAD and an upgrade are not plain. `length` is that of the
    body.
    """

    method: str
    path: str
    query: str = ""
    headers: dict[str, str] = {}
    host: str = ""
    is_local: bool = True
    run: str = ""
    length: int = 0
    raw: bytes = b""
    foreign_page: bool = False
    is_plain: bool = True


def parse_head(
    method: str, target: bytes, headers: dict[str, str], raw: bytes = b""
) -> RequestHead:
    """Build a head from the parts that the HTTP parser found; `raw` are its bytes."""
    encoded, _, query = target.partition(b"?")
    path = (unquote_to_bytes(encoded) if b"%" in encoded else encoded).decode("utf-8", "replace")
    run = ""
    if path.startswith("/s/"):
        run, slash, rest = path[3:].partition("/")
        path = slash + rest or "/"
    host = headers.get("host", "")
    name, _, port = host.partition(":")
    is_local = name.lower() in LOCAL_HOSTS and (not port or port.isdigit())
    length = int(headers.get("content-length", 0))
    foreign = is_foreign_page(headers)
    plain = not foreign and method != "HEAD" and "upgrade" not in headers
    asked = query.decode("latin-1")
    return RequestHead(
        method, path, asked, headers, host, is_local, run, length, raw, foreign, plain
    )


def is_foreign_page(headers: Mapping[str, str]) -> bool:
    """Return whether a browser sent this request for a page of another server.

    Such a page must not use a model, least of all one that costs the user money.
    """
    site = headers.get("sec-fetch-site", "none").lower()
    if site not in {"none", "same-origin"}:
        return True
    origin = headers.get("origin")
    return origin is not None and origin.lower() != f"http://{headers.get('host', '').lower()}"


class HeadCache(dict[bytes, RequestHead]):
    """The latest heads by their bytes: a client sends the same head with nearly every request.

    A cached head spares the HTTP parser, about 20 µs of a request with the OpenAI SDK's headers.
    """

    def add(self, head: RequestHead) -> None:
        """Cache a head if its bytes alone define where it ends and how long its body is."""
        raw = head.raw
        if len(raw) > CACHED_HEAD_LIMIT or not raw[:1].isalpha() or not raw.endswith(END_OF_HEAD):
            return
        if raw.count(b"\n") != raw.count(b"\r\n"):  # a bare \n may have ended the head earlier
            return
        if UNCACHED_HEADERS.isdisjoint(head.headers):
            if len(self) >= CACHE_SIZE:
                self.clear()
            self[raw] = head


class RequestBuffer:
    """One request that arrives in pieces, for clients that write HTTP to a fake connection."""

    def __init__(self) -> None:
        self.request: HttpRequest | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> HttpRequest | None:
        """Add a piece, and return the request once it is complete."""
        with suppress(httptools.HttpParserUpgrade):  # not supported here: a normal request
            self._parser.feed_data(bytes(data))
        return self.request

    # The parser calls these.

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        target = self._target.decode("latin-1")
        if "://" in target.partition("?")[0]:  # the absolute form, which clients send to a proxy
            target = f"/{target.split('://', 1)[1].partition('/')[2]}"
        path, _, query = target.partition("?")
        method = self._parser.get_method().decode("latin-1")
        self.request = HttpRequest(method, unquote(path), self._headers, bytes(self._body), query)


def error_response(status: int, message: str, **details: object) -> HttpResponse:
    """Return Offbook's own error, for a request whose dialect is not known."""
    error = {"type": "offbook_error", "message": message, **details}
    headers = {"content-type": "application/json", "x-should-retry": "false"}
    return HttpResponse(status, headers, msgspec.json.encode({"error": error}))


def render_head(response: HttpResponse, framing: str) -> bytes:
    """Render status line and headers; `framing` are the header lines about the body."""
    status = response.status
    head = "HTTP/1.1 200 OK\r\n" if status == OK else f"HTTP/1.1 {status} {_reason(status)}\r\n"
    for name, value in response.headers.items():
        head += f"{name}: {value}\r\n"
    return f"{head}{framing}\r\n".encode("latin-1", "replace")


@cache
def _reason(status: int) -> str:
    from http import HTTPStatus  # late: most responses are OK

    with suppress(ValueError):
        return HTTPStatus(status).phrase
    return "Unknown"


def render_chunk(chunk: bytes) -> bytes:
    """Render one chunk of a body, with its length."""
    return b"%x\r\n%b\r\n" % (len(chunk), chunk)


def render_chunks(chunks: Iterable[bytes]) -> bytes:
    """Render all chunks of a body, and its end."""
    return b"".join([*(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks), LAST_CHUNK])


def render_pieces(response: HttpResponse, method: str) -> Iterator[bytes]:
    """Yield a response in pieces: the head, then the body or each event of a stream."""
    if response.chunks:
        yield render_head(response, CHUNKED + CLOSE)
    else:
        yield render_head(response, f"content-length: {len(response.body)}\r\n{CLOSE}")
    if method == "HEAD" or response.status in WITHOUT_BODY:
        return
    if response.chunks:
        yield from (render_chunk(chunk) for chunk in response.chunks if chunk)
        yield LAST_CHUNK
    else:
        yield response.body


# --------------------------------------------------------------------------- connection

BODY_LIMIT = 32 * 1024 * 1024  # Anthropic's limit for a request
PIPELINE_LIMIT = 16
HEADERS_LIMIT = 64 * 1024
HEADER_NAMES_LIMIT = 512
NO_HEAD = RequestHead("", "")

_header_names: dict[bytes, str] = {}


class Handler(Protocol):
    """Answers the requests of one run; its code runs in `context`.

    With `at_once`, an answer never waits, nor does a part of its response: it needs no task.
    """

    context: Context
    at_once: bool

    def answer(self, request: HttpRequest, /) -> Coroutine[Any, Any, HttpResponse]:
        """Return the response to a request; never raise."""
        ...

    def delays(self, response: HttpResponse, /) -> Iterable[float] | None:
        """Return the seconds before each chunk of a stream, or None for no delay."""
        ...

    def mark_undelivered(self, response: HttpResponse, /) -> None:
        """Note that the client disconnected before it had all of this response."""
        ...

    def converse(self, request: HttpRequest, message: bytes, /) -> AsyncIterator[bytes]:
        """Yield the messages that answer one WebSocket message, each when it is due.

        An empty message is the start of the conversation.
        """
        ...


class ServerState(Protocol):
    """The part of the server that its connections use."""

    limit: int
    loop: asyncio.AbstractEventLoop
    connections: set[Connection]
    head_cache: HeadCache
    refuses_pages: bool

    def route(self, head: RequestHead, /) -> Handler:
        """Return the handler of a request."""
        ...

    def start_task(
        self, work: Coroutine[Any, Any, None], context: Context, /
    ) -> asyncio.Task[None]:
        """Run a coroutine in the server's loop, until it ends or the server stops."""
        ...


class QueuedRequest(msgspec.Struct, frozen=True):
    """A request in the pipeline, or an error response that is due after those before it."""

    head: RequestHead
    body: bytes = b""
    keep_alive: bool = True
    http10: bool = False
    error: HttpResponse | None = None


KEPT_ALIVE = QueuedRequest(NO_HEAD)


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, server: ServerState) -> None:
        self.started: float | None = None  # when the unfinished request began, for the timeout
        self._server = server
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._lost = False
        self._gone: asyncio.Future[None] | None = None  # set while a stalled client may give up
        self._writable: asyncio.Future[None] | None = None  # set while the write buffer is full
        # Reading. The parser is None once no further request is accepted.
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._cached_head: RequestHead | None = None  # its body is still to come
        self._raw_head = b""
        self._reset_message()
        # Responding, one request at a time.
        self._queue: deque[QueuedRequest] = deque()
        self._busy = False
        self._task: asyncio.Task[None] | None = None
        self._written: tuple[Handler, HttpResponse] | None = None
        self._failure: BaseException | None = None  # of a request that was answered at once
        # After an upgrade.
        self._websocket: WebSocket | None = None
        self._messages: deque[bytes] = deque()
        self._conversation: tuple[Handler, HttpRequest] | None = None

    # ------------------------------------------------------------------- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # pause_writing() is called as soon as a write could not be completed. With a limit of 0,
        # asyncio's TLS would call it after every second write, although nothing is left to write.
        self._transport.set_write_buffer_limits(high=1)
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._lost = True
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)
        self._parser = None
        self._server.connections.discard(self)
        if self._writable is not None and self._written is not None:
            handler, response = self._written
            handler.mark_undelivered(response)
        self.resume_writing()

    def pause_writing(self) -> None:
        if self._writable is None:
            self._writable = self._server.loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    def eof_received(self) -> bool:
        # A client may close its half after its request, and still reads the response.
        self._parser = None
        return self._busy

    def data_received(self, data: bytes) -> None:
        if self._websocket is not None:
            self._receive_messages(data)
        elif not self._receive_cached(data):
            self._parse(data)

    # ------------------------------------------------------------------------------- reading

    def _receive_cached(self, data: bytes) -> bool:
        """Take a request without the parser: its head is cached, its body is here as a whole."""
        head, start = self._cached_head, 0
        if head is None:
            if self._in_message or self._busy or self._parser is None:
                return False
            start = data.find(END_OF_HEAD) + len(END_OF_HEAD)
            head = self._server.head_cache.get(data[:start])
            if head is None:
                return False
            if head.length and len(data) == start:  # many clients send the body separately
                self._cached_head = head
                self.started = self._server.loop.time()
                return True
        if len(data) - start == head.length:
            self._cached_head = self.started = None
            if not self._answer_at_once(head, data[start:]):
                self._start(QueuedRequest(head, data[start:]))
            return True
        if self._cached_head is not None:  # the body comes in pieces: that is for the parser
            self._cached_head = None
            self._parse(head.raw)
        return False

    def _parse(self, data: bytes) -> None:
        if self._parser is None:
            return
        if not self._in_message:
            self._raw_head = data[: data.find(END_OF_HEAD) + len(END_OF_HEAD)]
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[cast("int", upgrade.args[0]) :]
            if self._in_message:
                self._ignore_upgrade(rest)
            else:
                self._parser = None
                self._receive_messages(rest)
        except httptools.HttpParserError as error:
            if self._failure is not None:  # of a handler, which the parser called
                raise self._failure from None
            self._reject(error_response(400, f"invalid HTTP: {error}"))
        if self._in_message and self.started is None:
            self.started = self._server.loop.time()

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Read a request again without its upgrade, which made the parser skip the body."""
        method = cast("httptools.HttpRequestParser", self._parser).get_method()
        del self._headers["upgrade"]
        headers = "".join(f"{name}: {value}\r\n" for name, value in self._headers.items())
        self._parser = httptools.HttpRequestParser(self)
        head = b"%b %b HTTP/1.1\r\n%b\r\n" % (method, self._target, headers.encode("latin-1"))
        self._parse(head + rest)

    def _reset_message(self) -> None:
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body: bytes | bytearray = b""
        self._head_size = 0
        self._in_message = False

    # ----------------------------------------------------------------- called by the parser

    def on_message_begin(self) -> None:
        if self._parser is None:  # a rejected request
            return
        self._reset_message()
        self._in_message = True

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        # The same few names come with every request: decode each once.
        key = _header_names.get(name)
        if key is None:
            key = name.decode("latin-1").lower()
            if len(_header_names) < HEADER_NAMES_LIMIT:
                _header_names[name] = key
        text = value.decode("latin-1")
        headers = self._headers
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
        self._count_head(len(name) + len(value))

    def _count_head(self, size: int) -> None:
        self._head_size += size
        if self._head_size > HEADERS_LIMIT:
            self._reject(error_response(431, f"the headers exceed {HEADERS_LIMIT} bytes"))

    def on_headers_complete(self) -> None:
        headers = self._headers
        if int(headers.get("content-length", 0)) > self._server.limit:
            self._reject_body()
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
        if len(self._body) > self._server.limit:
            self._reject_body()

    def on_message_complete(self) -> None:
        parser = self._parser
        if parser is None:
            return
        # The HTTP client of Java asks for HTTP/2 (h2c) in its first request: see _ignore_upgrade.
        if parser.should_upgrade() and "upgrade" in self._headers and not _key_of(self._headers):
            return
        self._in_message = False
        self.started = None
        method = parser.get_method().decode("latin-1")
        head = parse_head(method, self._target, self._headers, self._raw_head)
        body = bytes(self._body)
        keep_alive, http10 = parser.should_keep_alive(), parser.get_http_version() == "1.0"
        if keep_alive and not http10:
            self._server.head_cache.add(head)
        self._raw_head = b""  # the bytes of a second request in the same data are not known
        # The parser ends with a request that it takes for an upgrade, such as a CONNECT.
        is_last = parser.should_upgrade() or not keep_alive
        if not (is_last or http10 or self._busy) and self._answer_at_once(head, body):
            return
        self._enqueue(QueuedRequest(head, body, keep_alive, http10))

    def _enqueue(self, queued: QueuedRequest) -> None:
        if not self._busy:
            self._start(queued)
            return
        self._queue.append(queued)
        if len(self._queue) >= PIPELINE_LIMIT:
            self._transport.pause_reading()

    # ---------------------------------------------------------------------------- responding

    def _start(self, queued: QueuedRequest) -> None:
        if queued.error is not None:
            # Write the error and close our half, but read on until the timeout: a client that is
            # still sending would otherwise get a connection reset in place of the error.
            self._transport.write(_render(queued.error, queued))
            self.started = self._server.loop.time()
            try:
                self._transport.write_eof()
            except NotImplementedError:  # TLS cannot close one half
                self._transport.close()
            return
        head = queued.head
        if head.foreign_page and self._server.refuses_pages:
            message = "refused: a browser sent this for a page of another origin"
            error = error_response(403, message)
            rejected = msgspec.structs.replace(queued, keep_alive=False, error=error)
            self._parser = None
            self._start(rejected)
            return
        handler = self._server.route(head)
        request = HttpRequest(head.method, head.path, head.headers, queued.body, head.query)
        if "upgrade" in head.headers and (key := _key_of(head.headers)):
            self._upgrade(handler, request, key)
            return
        self._busy = True
        work = self._respond(handler, request, queued)
        self._task = self._server.start_task(work, handler.context)

    def _answer_at_once(self, head: RequestHead, body: bytes) -> bool:
        """Answer a request without a task; return whether its handler can.

        A task, its handle and its callback would be an eighth of the cost of a request.
        """
        if not head.is_plain:
            return False
        handler = self._server.route(head)
        if not handler.at_once:
            return False
        request = HttpRequest(head.method, head.path, head.headers, body, head.query)
        try:
            handler.context.run(handler.answer(request).send, None)
        except StopIteration as answered:
            response: HttpResponse = answered.value
            self._written = (handler, response)
            self._transport.write(_render(response, KEPT_ALIVE))
        except BaseException as error:
            self._transport.abort()  # a client must never wait for a response that cannot come
            self._failure = error
            raise
        else:
            self._transport.abort()  # likewise
        return True

    async def _respond(self, handler: Handler, request: HttpRequest, queued: QueuedRequest) -> None:
        """Get the response to a request, and write it."""
        transport, http10 = self._transport, queued.http10
        try:
            response = await handler.answer(request)
            if response.live_chunks is not None:
                # A stream that is still being received. Drain it even if the client disconnected,
                # so that it can be recorded.
                if not self._lost:
                    transport.write(render_head(response, CLOSE if http10 else CHUNKED))
                async for chunk in response.live_chunks:
                    if self._writable is not None:
                        await self._writable
                    if not self._lost:
                        transport.write(chunk if http10 else render_chunk(chunk))
                if not self._lost and not http10:
                    transport.write(LAST_CHUNK)
            elif response.ending:
                await self._break_off(response)
                return
            elif self._lost:
                handler.mark_undelivered(response)
                return
            else:
                self._written = (handler, response)
                delays = handler.delays(response) if response.chunks else None
                if delays is None or http10 or request.method == "HEAD":
                    without_body = request.method == "HEAD"
                    transport.write(_render(response, queued, without_body=without_body))
                else:
                    # A stream with pacing.
                    transport.write(render_head(response, CHUNKED))
                    for chunk, delay in zip(response.chunks, delays, strict=False):
                        if delay > 0:
                            await asyncio.sleep(delay)
                        if self._writable is not None:
                            await self._writable
                        if self._lost:
                            handler.mark_undelivered(response)
                            return
                        transport.write(render_chunk(chunk))
                    transport.write(LAST_CHUNK)
            self._finish(keep_alive=queued.keep_alive and not http10)
        except ConnectionError:
            # The provider broke the stream off: break off too, or it would look complete.
            transport.abort()
        except BaseException:
            transport.abort()  # a client must never wait for a response that cannot come
            raise

    async def _break_off(self, response: HttpResponse) -> None:
        """Send the part of a response that its fault leaves, and close the connection."""
        transport = self._transport
        if self._lost:
            return
        if response.chunks:
            transport.write(render_head(response, CHUNKED))
            transport.write(b"".join(render_chunk(chunk) for chunk in response.chunks))
        if response.ending == "timeout":
            self._gone = self._server.loop.create_future()
            await asyncio.wait([self._gone], timeout=response.hold)
        elif not response.chunks and (sock := transport.get_extra_info("socket")) is not None:
            # A reset in place of an orderly end: only then nothing that was sent can get lost.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()

    def _finish(self, *, keep_alive: bool) -> None:
        self._busy = False
        if self._lost:
            return
        if self._queue and keep_alive:
            if len(self._queue) == PIPELINE_LIMIT:
                self._transport.resume_reading()
            self._start(self._queue.popleft())
        elif not keep_alive or self._parser is None:
            self._transport.close()

    # ----------------------------------------------------------------------------- rejecting

    def _reject_body(self) -> None:
        limit = self._server.limit
        self._reject(error_response(413, f"the body exceeds {limit} bytes", limit=limit))

    def _reject(self, error: HttpResponse) -> None:
        """Respond with an error after the requests before it, and accept no further request."""
        if self._parser is None:
            return
        self._parser = self._cached_head = None
        self._in_message = False
        self._enqueue(QueuedRequest(NO_HEAD, keep_alive=False, error=error))

    def expire(self) -> None:
        """Close the connection of a client that does not complete its request in time."""
        if self._parser is None or self._websocket is not None:
            self._transport.abort()
        else:
            self._reject(error_response(408, "timeout: the request is incomplete"))

    def abort(self) -> None:
        """Close the connection immediately."""
        if self._task is not None:
            self._task.cancel()
        self._transport.abort()

    # ----------------------------------------------------------------------------- WebSocket

    def _upgrade(self, handler: Handler, request: HttpRequest, key: str) -> None:
        from offbook.sources.server.websocket import WebSocket, handshake  # late: see there

        self._websocket = WebSocket(self._server.limit)
        self._conversation = (handler, request)
        self._transport.write(handshake(key))
        self._messages.append(b"")  # the provider may speak first
        self._receive_messages(b"")

    def _receive_messages(self, data: bytes) -> None:
        if self._websocket is None or self._conversation is None or self._lost:
            return
        self._messages.extend(self._websocket.receive(data))
        if self._messages and not self._busy:
            self._busy = True
            work = self._reply_to_messages(self._websocket, *self._conversation)
            self._task = self._server.start_task(work, self._conversation[0].context)
        reply, closes = self._websocket.pending_bytes()  # a pong, a close frame
        if reply:
            self._transport.write(reply)
        if closes:
            self._transport.close()

    async def _reply_to_messages(
        self, websocket: WebSocket, handler: Handler, request: HttpRequest
    ) -> None:
        try:
            while self._messages:
                async for message in handler.converse(request, self._messages.popleft()):
                    if self._writable is not None:
                        await self._writable
                    if self._lost or not websocket.is_open:
                        return
                    self._transport.write(websocket.render_text(message))
            self._busy = False
        except ConnectionError:
            self._transport.abort()  # a fault
        except BaseException:
            self._transport.abort()  # as above
            raise


def _key_of(headers: Mapping[str, str]) -> str:
    """Return the key of an upgrade to WebSocket; an upgrade to anything else has none."""
    is_websocket = headers["upgrade"].lower() == "websocket"
    return headers.get("sec-websocket-key", "") if is_websocket else ""


def _render(response: HttpResponse, queued: QueuedRequest, *, without_body: bool = False) -> bytes:
    """Render a whole response."""
    closing = "" if queued.keep_alive and not queued.http10 else CLOSE
    chunks = response.chunks
    if not chunks:
        head = render_head(response, f"content-length: {len(response.body)}\r\n{closing}")
        return head if without_body else head + response.body
    if queued.http10:  # it has no chunks: the end of the connection ends the stream
        return b"".join((render_head(response, closing), *chunks))
    head = render_head(response, f"{CHUNKED}{closing}")
    if without_body:
        return head
    # A template renders its constant chunks once for all responses.
    if isinstance(chunks, FilledTemplate):
        return head + chunks.join(render_chunks)
    return head + render_chunks(chunks)
