"""HTTP/1.1 for clients that can only be answered in bytes: one request, one response."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote

from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse

if TYPE_CHECKING:
    from collections.abc import Iterator

END = b"\r\n\r\n"
BODILESS = {204, 304}
LAST = b"0\r\n\r\n"


class RequestBuffer:
    """A request that comes in pieces."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._head = 0

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """The next piece."""
        self._bytes += data

    def wire(self) -> HttpRequest | None:
        """The request, once it is all there."""
        if not self._head:
            at = self._bytes.find(END)
            if at < 0:
                return None
            self._head = at
            self._method, self._target, self._headers = _read_head(bytes(self._bytes[:at]))
        rest = bytes(self._bytes[self._head + len(END) :])
        if self._headers.get("transfer-encoding", "").lower() == "chunked":
            body = _read_chunks(rest)
        else:
            length = int(self._headers.get("content-length", 0))
            body = rest[:length] if len(rest) >= length else None
        if body is None:
            return None
        path, _, query = self._target.partition("?")
        return HttpRequest(self._method, unquote(path), self._headers, body, query)


def _read_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    if "://" in target:  # the absolute form, as one writes it to a proxy
        target = f"/{target.split('://', 1)[1].partition('/')[2]}"
    headers: dict[str, str] = {}
    for text in lines:
        name, _, value = text.partition(":")
        headers[name.strip().lower()] = value.strip()
    return method, target, headers


def _read_chunks(data: bytes) -> bytes | None:
    body = bytearray()
    at = 0
    while (end := data.find(b"\r\n", at)) >= 0:
        size = int(data[at:end].partition(b";")[0], 16)
        at = end + 2 + size + 2
        if size == 0:
            return bytes(body) if data.find(b"\r\n", end + 2) >= 0 else None
        body += data[end + 2 : end + 2 + size]
    return None


def respond(answer: HttpResponse, method: str = "") -> Iterator[bytes]:
    """The response in pieces: the head, then the body, or each event of a stream by itself."""
    yield write_head(answer)
    if method == "HEAD" or answer.status in BODILESS:
        return
    if answer.chunks:
        yield from (write_chunk(chunk) for chunk in answer.chunks if chunk)
        yield LAST
    else:
        yield answer.body


def write_head(answer: HttpResponse) -> bytes:
    """All before the body."""
    headers = {**answer.headers, "connection": "close"}
    if answer.chunks or answer.live_chunks is not None:
        headers["transfer-encoding"] = "chunked"
    else:
        headers["content-length"] = str(len(answer.body))
    lines = [f"HTTP/1.1 {answer.status} {_phrase(answer.status)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode("latin-1", "replace") + END


def write_chunk(chunk: bytes) -> bytes:
    """A piece of a stream, with its length before it."""
    return b"%x\r\n%b\r\n" % (len(chunk), chunk)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
