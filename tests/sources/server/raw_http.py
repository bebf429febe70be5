"""HTTP by hand, so that nothing corrects what a test sends."""

import socket
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

PATIENCE = 10


@contextmanager
def dialled(url: str) -> Generator[socket.socket]:
    """A connection to the server of this URL."""
    port = urlsplit(url).port
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        yield connection


def post(url: str, body: bytes, *headers: str, method: str = "POST", host: str = "") -> bytes:
    """A request as bytes."""
    parts = urlsplit(url)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    lines = [f"{method} {path} HTTP/1.1", f"host: {host or parts.netloc}", *headers]
    if not any(
        line.lower().startswith(("content-length", "transfer-encoding")) for line in headers
    ):
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


class Reader:
    """Reads answers off a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rb")

    def head(self) -> tuple[int, dict[str, str]]:
        """The status and the headers of the next answer."""
        line = self._file.readline()
        if not line:
            raise EOFError
        headers: dict[str, str] = {}
        while (field := self._file.readline().strip()) != b"":
            name, _, value = field.decode().partition(": ")
            headers[name.lower()] = value
        return int(line.split(b" ")[1]), headers

    def chunks(self) -> Iterator[bytes]:
        """The chunks of a chunked body, each as it was sent."""
        while size := int(self._file.readline(), 16):
            yield self._file.read(size)
            self._file.readline()
        self._file.readline()

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The next answer, whole."""
        status, headers = self.head()
        if headers.get("transfer-encoding") == "chunked":
            return status, headers, b"".join(self.chunks())
        return status, headers, self._file.read(int(headers.get("content-length", 0)))

    def rest(self) -> bytes:
        """What comes until the server closes."""
        return self._file.read()


def ask(url: str, body: bytes, *headers: str, **more: str) -> tuple[int, dict[str, str], bytes]:
    """One request on a connection of its own, and its answer."""
    with dialled(url) as connection:
        connection.sendall(post(url, body, *headers, **more))
        return Reader(connection).answer()
