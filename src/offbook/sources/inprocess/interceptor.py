"""The interceptor of one run: it answers the requests that this process sends to a model.

To support another HTTP library, write a file with a `Transport` and add it to
`patching.TRANSPORTS`. The library is not imported here: a transport patches its modules if they
are loaded, or as soon as they are.
"""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from offbook.determinism.run_context import thread_variable
from offbook.exchange.providers import all_providers
from offbook.sources.inprocess.blocking import CoroutineRunner, Gate, StreamRelay, relay_response

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator
    from contextvars import ContextVar

    from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
    from offbook.sources.inprocess.blocking import Put

    Answer = Callable[[HttpRequest], Coroutine[Any, Any, HttpResponse]]

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class Transport(Protocol):
    """The support for one HTTP library."""

    @property
    def modules(self) -> tuple[str, ...]:
        """The names of the modules that `patch` changes."""
        ...

    def patch(self, module: Any) -> Iterable[Callable[[], None]]:
        """Direct the requests of a module's clients to the interceptor; return how to undo it."""
        ...


class Hosts:
    """The addresses of models: known providers, and the base URLs of this run.

    The base URLs in environment variables such as `OPENAI_BASE_URL` count too: an agent that is
    configured for a gateway is intercepted there.
    """

    def __init__(self, urls: tuple[str, ...] = ()) -> None:
        providers = all_providers().values()
        self._hosts = frozenset(host for provider in providers for host in provider.hosts)
        self._local_ports = {port for provider in providers for port in provider.local_ports}
        patterns = [pattern for provider in providers for pattern in provider.host_patterns]
        self._pattern = re.compile("|".join(patterns))
        variables = [v for p in providers for v in (*p.url_variables, *p.gateway_variables)]
        self._base_urls: set[tuple[str, int | None]] = set()
        for url in (*urls, *(os.environ.get(name, "") for name in variables)):
            if url:
                # OLLAMA_HOST may be a bare `host:port`.
                parts = urlsplit(url if "//" in url else f"http://{url}")
                port = parts.port or DEFAULT_PORTS.get(parts.scheme)
                self._base_urls.add(((parts.hostname or "").lower(), port))

    # Every request of a run is looked up here, also those to other servers.
    def __contains__(self, address: tuple[str, int | None]) -> bool:
        host, port = address
        name = host.lower()
        return (
            name in self._hosts
            or (name, port) in self._base_urls
            or (port in self._local_ports and name in LOCAL_HOSTS)
            or self._pattern.fullmatch(name) is not None
        )


class Interceptor:
    """Answers the requests of one run, from any client and in any thread.

    With `relay`, a response may be a stream that is still being received.
    """

    def __init__(self, answer: Answer, urls: tuple[str, ...] = (), *, relay: bool = False) -> None:
        self.hosts = Hosts(urls)
        self._answer = answer
        self._relay = StreamRelay() if relay else None
        self._gate = Gate()
        self._runner = CoroutineRunner()

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Return the response to a request, for clients that await it."""
        if self._relay is not None:
            return await self._relay.await_response(partial(self._relay_async, request))
        async with self._gate:
            return await self._answer(request)

    def answer_blocking(self, request: HttpRequest) -> HttpResponse:
        """Return the response to a request, for clients that block."""
        if self._relay is not None:
            return self._relay.wait_for_response(partial(self._relay_blocking, request))
        with self._gate:
            return self._runner.run(self._answer(request))

    async def _relay_async(self, request: HttpRequest, put: Put) -> None:
        async with self._gate:
            await relay_response(self._answer(request), put)

    def _relay_blocking(self, request: HttpRequest, put: Put) -> None:
        with self._gate:
            self._runner.run(relay_response(self._answer(request), put))

    def close(self) -> None:
        """Wait for the threads of this run, and close its event loops."""
        if self._relay is not None:
            self._relay.close()
        self._runner.close()


current_interceptor: ContextVar[Interceptor | None] = thread_variable("offbook_interceptor")
"""The interceptor of the current run, in all its tasks and threads; None outside of a run."""


def find_interceptor(host: str, port: int | None) -> Interceptor | None:
    """Return the interceptor for an address, or None if the request is to be sent."""
    interceptor = current_interceptor.get()
    return interceptor if interceptor is not None and (host, port) in interceptor.hosts else None


def paced_chunks(response: HttpResponse) -> Iterator[tuple[bytes, float]]:
    """Yield the events of a stream, each with the seconds before it."""
    delays = response.chunk_delays or (0.0,) * len(response.chunks)
    yield from zip(response.chunks, delays, strict=False)
