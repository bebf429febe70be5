"""HTTP/1.1 as bytes, without I/O: for the server, and for HTTP clients in this process."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import unquote, unquote_to_bytes

import httptools
import msgspec

from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
    names another machine, as in a DNS rebinding attack. `length` is the length of the body.
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
    return RequestHead(
        method, path, query.decode("latin-1"), headers, host, is_local, run, length, raw
    )


class HeadCache:
    """The latest heads by their bytes: a client sends the same head with nearly every request.

    A cached head spares the HTTP parser, about 20 µs of a request with the OpenAI SDK's headers.
    """

    def __init__(self) -> None:
        self._heads: dict[bytes, RequestHead] = {}

    def find(self, raw: bytes) -> RequestHead | None:
        """Return the head with these bytes, if it is cached."""
        return self._heads.get(raw)

    def add(self, head: RequestHead) -> None:
        """Cache a head if its bytes alone define where it ends and how long its body is."""
        raw = head.raw
        if len(raw) > CACHED_HEAD_LIMIT or not raw[:1].isalpha() or not raw.endswith(END_OF_HEAD):
            return
        if raw.count(b"\n") != raw.count(b"\r\n"):  # a bare \n may have ended the head earlier
            return
        if UNCACHED_HEADERS.isdisjoint(head.headers):
            if len(self._heads) >= CACHE_SIZE:
                self._heads.clear()
            self._heads[raw] = head


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
    lines = "".join([f"{name}: {value}\r\n" for name, value in response.headers.items()])
    reason = "OK" if status == OK else _reason(status)
    return f"HTTP/1.1 {status} {reason}\r\n{lines}{framing}\r\n".encode("latin-1", "replace")


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
