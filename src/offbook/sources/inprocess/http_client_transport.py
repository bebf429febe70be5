"""What a blocking client takes for a connected socket: it answers as soon as it is read from."""

from __future__ import annotations

from io import BufferedReader, RawIOBase
from typing import TYPE_CHECKING, Any

from offbook.determinism.patch import apply_patch
from offbook.sources.inprocess.http1 import RequestBuffer, respond
from offbook.sources.inprocess.interceptor import find_interceptor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from offbook.sources.inprocess.interceptor import Interceptor


# --- What a blocking client takes for a connected socket: it answers as soon as it is read from.


class FakeSocket:
    """A connection to the line, with as much of a socket as http.client and urllib3 ask for."""

    def __init__(self, line: Interceptor) -> None:
        self._line = line
        self._incoming = RequestBuffer()

    def sendall(self, data: bytes) -> None:
        """Take a piece of the request."""
        self._incoming.feed(data)

    def makefile(self, *_: object, **__: object) -> BufferedReader:
        """What the response is read from."""
        return BufferedReader(_Response(self._pieces()))

    def _pieces(self) -> Iterator[bytes]:
        wire = self._incoming.wire()
        self._incoming = RequestBuffer()
        if wire is not None:
            yield from respond(self._line.answer_now(wire), wire.method)

    def settimeout(self, *_: object) -> None:
        """Nobody waits here."""

    def setsockopt(self, *_: object) -> None:
        """There is nothing to set."""

    def shutdown(self, *_: object) -> None:
        """There is nothing to shut."""

    def close(self) -> None:
        """There is nothing to close."""


class _Response(RawIOBase):
    """The pieces of a response, one for each time that it is read."""

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


# --- http.client: what urllib, and under urllib3 requests and botocore, make their requests with.


class HttpClientTransport:
    """Python's own connections."""

    modules = ("http.client",)

    def patch(self, module: Any) -> Iterable[Callable[[], None]]:
        """Connect to the line, also where a connection from before is used again."""
        yield apply_patch(module.HTTPConnection, "putrequest", _begin)
        yield apply_patch(module.HTTPConnection, "connect", connect)
        if hasattr(module, "HTTPSConnection"):
            yield apply_patch(module.HTTPSConnection, "connect", connect)


def connect(original: Callable[..., None], connection: Any) -> None:
    """Connect to the line instead of the host, or of the proxy before it."""
    if not connect_to_interceptor(connection):
        original(connection)


def connect_to_interceptor(connection: Any) -> bool:
    """Whether this connection now leads to the line."""
    tunnel = getattr(connection, "_tunnel_host", None)
    host = tunnel or connection.host
    port = connection._tunnel_port if tunnel else connection.port  # noqa: SLF001 - no other way
    found = find_interceptor(host, port)
    if found is None:
        return False
    connection.sock = FakeSocket(found)
    return True


def _begin(original: Callable[..., None], connection: Any, *args: Any, **named: Any) -> None:
    old = connection.sock
    if old is not None and not isinstance(old, FakeSocket) and connect_to_interceptor(connection):
        old.close()
    original(connection, *args, **named)


# --- urllib3: the connections of requests and botocore, which connect in a way of their own.


class Urllib3Transport:
    """The connections that are made of http.client's."""

    modules = ("urllib3.connection",)

    def patch(self, module: Any) -> Iterable[Callable[[], None]]:
        """Connect to the line; what nobody can overhear needs no certificate."""
        yield apply_patch(module.HTTPConnection, "connect", _connect)
        yield apply_patch(module.HTTPSConnection, "connect", _connect)


def _connect(original: Callable[..., None], connection: Any) -> None:
    if connect_to_interceptor(connection):
        connection.is_verified = True
    else:
        original(connection)
