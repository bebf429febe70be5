"""A proxy on loopback that refuses every connection and remembers its target."""

from __future__ import annotations

import socketserver
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

REFUSAL = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


class LoopbackProxy:
    """The address of the proxy, and the targets of the connections that were tried."""

    def __init__(self, port: int, targets: list[str]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.targets = targets

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which a process sends everything to the proxy."""
        names = [*VARIABLES, *map(str.lower, VARIABLES)]
        return {**dict.fromkeys(names, self.url), "NO_PROXY": "", "no_proxy": ""}


@contextmanager
def start_proxy() -> Generator[LoopbackProxy]:
    """Run a proxy in this block."""
    targets: list[str] = []

    class Handler(socketserver.StreamRequestHandler):
        timeout = 10

        def handle(self) -> None:
            # `CONNECT host:port HTTP/1.1` or `GET http://host/path HTTP/1.1`; a connection
            # without a request counts too.
            words = self.rfile.readline().decode("latin-1").split()
            targets.append(words[1] if len(words) > 1 else "a connection without a request")
            self.wfile.write(REFUSAL)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield LoopbackProxy(server.server_address[1], targets)
        finally:
            server.shutdown()
            thread.join()
