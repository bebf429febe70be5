"""What a blocking client takes for a connected socket: it answers as soon as it is read from."""

from __future__ import annotations

from io import BufferedReader, RawIOBase
from typing import TYPE_CHECKING, Any

from offbook.sources.inprocess.http1 import Incoming, respond

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offbook.sources.inprocess.transport import Line


class Socketless:
    """A connection to the line, with as much of a socket as http.client and urllib3 ask for."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._incoming = Incoming()

    def sendall(self, data: bytes) -> None:
        """Take a piece of the request."""
        self._incoming.feed(data)

    def makefile(self, *_: object, **__: object) -> BufferedReader:
        """What the response is read from."""
        return BufferedReader(_Response(self._pieces()))

    def _pieces(self) -> Iterator[bytes]:
        wire = self._incoming.wire()
        self._incoming = Incoming()
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
