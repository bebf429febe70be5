"""The proxy adds less than 0.3 ms to a request of a command, a namespace less than 30 ms to a run.

A request is sent over a kept connection: to the base URL, and through a tunnel of the proxy, with
the certificate of the run. A run is a command that does nothing, as it is and sealed. Times are
CPU, of client, server and child processes: others do not slow them down.
"""

from __future__ import annotations

import asyncio
import os
import resource
import ssl
import statistics
import sys
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urlsplit

from offbook.determinism.network_guard import NetworkGuard
from offbook.exchange import Reply, Request, Text
from offbook.sources.server import Server
from offbook.sources.server.proxy import Proxy, open_proxy
from offbook.subjects.process import Seal, run_foreground

GROUPS, REQUESTS, RUNS = 10, 200, 5
PROXY_LIMIT, NAMESPACE_LIMIT = 0.3, 30.0  # milliseconds
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "Hi"}]}'
PATH = "/v1/chat/completions"


class Echo:
    """A model that says one word."""

    async def reply(self, _: Request) -> Reply:
        return Reply((Text("Hello."),))


def ask(connection: HTTPConnection, path: str) -> None:
    """Send a request, and read its response."""
    connection.request("POST", path, BODY, {"content-type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    response.read()


def tunnel(proxy: Proxy) -> HTTPConnection:
    """Return a connection to a provider through the proxy."""
    context = ssl.create_default_context(cafile=proxy.variables(os.environ)["SSL_CERT_FILE"])
    connection = HTTPSConnection("127.0.0.1", proxy.port, context=context)
    connection.set_tunnel("api.openai.com", 443)
    return connection


def measure(*works: Callable[[], object], count: int) -> list[float]:
    """Return the milliseconds of each function, the median of ten groups measured in turns."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(GROUPS):
        for work, took in zip(works, times, strict=True):
            start = cpu()
            for _ in range(count):
                work()
            took.append((cpu() - start) * 1000 / count)
    return [statistics.median(took) for took in times]


def cpu() -> float:
    """Return the CPU seconds of this process and of those that it waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def run(seal: Seal | None) -> None:
    """Run a command that does nothing."""
    asyncio.run(run_foreground(["true"], os.environ, 60, seal=seal))


def main() -> int:
    """Print both rows; return 1 if one exceeds its limit."""
    with Server() as server:
        endpoint = server.mount(Echo())
        proxy = open_proxy(server, endpoint, NetworkGuard())
        plain = HTTPConnection("127.0.0.1", server.port)
        path = urlsplit(endpoint.url).path + PATH
        tunnelled = tunnel(proxy)
        direct, proxied = measure(
            lambda: ask(plain, path), lambda: ask(tunnelled, PATH), count=REQUESTS
        )
        seal = Seal(proxy.ports, proxy.adopt)
        bare, sealed = measure(lambda: run(None), lambda: run(seal), count=RUNS)
        proxy.close()
    rows = [
        ("a request through the proxy", proxied - direct, PROXY_LIMIT, f"without: {direct:.2f} ms"),
        ("a run in a namespace", sealed - bare, NAMESPACE_LIMIT, f"without: {bare:.1f} ms"),
    ]
    for name, added, limit, note in rows:
        print(f"{name:30} + {added:6.2f} ms   goal < {limit:g} ms   {note}")
    return int(any(added >= limit for _, added, limit, _ in rows))


if __name__ == "__main__":
    sys.exit(main())
