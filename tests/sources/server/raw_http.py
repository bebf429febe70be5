"""HTTP over raw sockets, so that a test can send invalid requests."""

import socket
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

TIMEOUT = 60


@contextmanager
def connect(url: str) -> Generator[socket.socket]:
    """Connect to the server of a URL."""
    port = urlsplit(url).port
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as connection:
        yield connection


def post(url: str, body: bytes, *headers: str, method: str = "POST", host: str = "") -> bytes:
    """Render a request as bytes."""
    parts = urlsplit(url)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    lines = [f"{method} {path} HTTP/1.1", f"host: {host or parts.netloc}", *headers]
    if not any(
        line.lower().startswith(("content-length", "transfer-encoding")) for line in headers
    ):
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


class Reader:
    """Reads responses from a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rb")

    def head(self) -> tuple[int, dict[str, str]]:
        """Read the status and the headers of the next response."""
        line = self._file.readline()
        if not line:
            raise EOFError
        headers: dict[str, str] = {}
        while (field := self._file.readline().strip()) != b"":
            name, _, value = field.decode().partition(": ")
            headers[name.lower()] = value
        return int(line.split(b" ")[1]), headers

    def chunks(self) -> Iterator[bytes]:
        """Read the chunks of a body, each as it was sent."""
        while size := int(self._file.readline(), 16):
            yield self._file.read(size)
            self._file.readline()
        self._file.readline()

    def response(self) -> tuple[int, dict[str, str], bytes]:
        """Read the next response."""
        status, headers = self.head()
        if headers.get("transfer-encoding") == "chunked":
            return status, headers, b"".join(self.chunks())
        return status, headers, self._file.read(int(headers.get("content-length", 0)))

    def rest(self) -> bytes:
        """Read until the server closes."""
        return self._file.read()


def ask(url: str, body: bytes, *headers: str, **more: str) -> tuple[int, dict[str, str], bytes]:
    """Send a request on a new connection, and return the response."""
    with connect(url) as connection:
        connection.sendall(post(url, body, *headers, **more))
        return Reader(connection).response()
