"""http.client and the libraries above it: urllib, and with urllib3 requests and botocore.

Their connections get a fake socket, which passes the request to the interceptor.
"""

from __future__ import annotations

import errno
import time
from io import BufferedReader, RawIOBase
from typing import TYPE_CHECKING, Any

from offbook.determinism.run_context import apply_patch
from offbook.sources.inprocess.interceptor import find_interceptor, paced_chunks
from offbook.sources.server.http1 import (
    CHUNKED,
    CLOSE,
    LAST_CHUNK,
    RequestBuffer,
    render_chunk,
    render_head,
    render_pieces,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from offbook.exchange.dialects.dialect import HttpResponse
    from offbook.sources.inprocess.interceptor import Interceptor


class HttpClientTransport:
    """The connections of the standard library."""

    modules = ("http.client",)

    def patch(self, module: Any) -> Iterable[Callable[[], None]]:
        """Connect to the interceptor, also where an open connection is used again."""
        yield apply_patch(module.HTTPConnection, "putrequest", _putrequest)
        yield apply_patch(module.HTTPConnection, "connect", _connect)
        if hasattr(module, "HTTPSConnection"):  # absent in a Python without SSL
            yield apply_patch(module.HTTPSConnection, "connect", _connect)


class Urllib3Transport:
    """The connections of urllib3, which inherit from http.client's and replace `connect`."""

    modules = ("urllib3.connection",)

    def patch(self, module: Any) -> Iterable[Callable[[], None]]:
        """Connect to the interceptor."""
        yield apply_patch(module.HTTPConnection, "connect", _connect_urllib3)
        yield apply_patch(module.HTTPSConnection, "connect", _connect_urllib3)


def _connect(original: Callable[..., None], connection: Any) -> None:
    if not _connect_to_interceptor(connection):
        original(connection)


def _connect_urllib3(original: Callable[..., None], connection: Any) -> None:
    if _connect_to_interceptor(connection):
        connection.is_verified = True  # else urllib3 warns of a missing certificate
    else:
        original(connection)


def _putrequest(original: Callable[..., None], connection: Any, *args: Any, **kwargs: Any) -> None:
    socket = connection.sock
    if socket is not None and not isinstance(socket, FakeSocket):  # noqa: SIM102 - see the comment
        # A socket from before the block leads to the network.
        if _connect_to_interceptor(connection):
            socket.close()
    original(connection, *args, **kwargs)


def _connect_to_interceptor(connection: Any) -> bool:
    """Give a connection a fake socket if its address is intercepted; return whether it is."""
    # Through a proxy, the tunnel has the address of the model.
    tunnel = getattr(connection, "_tunnel_host", None)
    host = tunnel or connection.host
    port = connection._tunnel_port if tunnel else connection.port  # noqa: SLF001 - no public name
    interceptor = find_interceptor(host, port)
    if interceptor is None:
        return False
    connection.sock = FakeSocket(interceptor)
    return True


class FakeSocket:
    """The methods of a socket that http.client and urllib3 use, answered by the interceptor."""

    def __init__(self, interceptor: Interceptor) -> None:
        self._interceptor = interceptor
        self._buffer = RequestBuffer()

    def sendall(self, data: bytes) -> None:
        """Take a piece of the request."""
        self._buffer.feed(data)

    def makefile(self, *_: object, **__: object) -> BufferedReader:
        """Return a file to read the response from."""
        return BufferedReader(_ResponseFile(self._pieces()))

    def _pieces(self) -> Iterator[bytes]:
        request = self._buffer.request
        self._buffer = RequestBuffer()
        if request is not None:
            response = self._interceptor.answer_blocking(request)
            if response.ending or response.chunk_delays:
                yield from _faulty_pieces(response)
            else:
                yield from render_pieces(response, request.method)

    def settimeout(self, *_: object) -> None:
        """Do nothing."""

    def setsockopt(self, *_: object) -> None:
        """Do nothing."""

    def shutdown(self, *_: object) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def _faulty_pieces(response: HttpResponse) -> Iterator[bytes]:
    """Yield the pieces of a slow response, or raise as a socket does that breaks off."""
    if response.chunks:
        yield render_head(response, CHUNKED + CLOSE)
        for chunk, delay in paced_chunks(response):
            time.sleep(delay)
            yield render_chunk(chunk)
    if response.ending == "timeout":
        raise TimeoutError("timed out")
    if response.ending:
        raise ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
    yield LAST_CHUNK


class _ResponseFile(RawIOBase):
    """The pieces of a response, at most one for each read, so that events arrive separately."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size
