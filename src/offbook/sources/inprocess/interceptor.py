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
from offbook.sources.inprocess.blocking import CoroutineRunner, Gate, StreamRelay, relay_response

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator
    from contextvars import ContextVar

    from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
    from offbook.sources.inprocess.blocking import Put

    Answer = Callable[[HttpRequest], Coroutine[Any, Any, HttpResponse]]

# The APIs that speak one of the supported dialects.
KNOWN_HOSTS = frozenset(
    {
        "api.openai.com",
        "api.anthropic.com",
        "generativelanguage.googleapis.com",
        "aiplatform.googleapis.com",
        "openrouter.ai",
        "api.groq.com",
        "api.mistral.ai",
        "codestral.mistral.ai",
        "api.together.xyz",
        "api.together.ai",
        "api.deepseek.com",
        "api.x.ai",
        "api.fireworks.ai",
        "api.cerebras.ai",
        "api.sambanova.ai",
        "api.perplexity.ai",
        "api.deepinfra.com",
        "api.cohere.com",
        "api.cohere.ai",
        "api.moonshot.ai",
        "api.moonshot.cn",
        "api.minimax.io",
        "api.z.ai",
        "api.novita.ai",
        "api.hyperbolic.xyz",
        "api.studio.nebius.ai",
        "integrate.api.nvidia.com",
        "router.huggingface.co",
        "api-inference.huggingface.co",
        "models.github.ai",
        "models.inference.ai.azure.com",
        "dashscope.aliyuncs.com",
        "dashscope-intl.aliyuncs.com",
        "ai-gateway.vercel.sh",
    }
)
# Hosts whose name contains a region or a customer.
HOST_PATTERN = re.compile(
    r".+\.openai\.azure\.com|.+\.services\.ai\.azure\.com|.+\.cognitiveservices\.azure\.com"
    r"|[a-z0-9-]+-aiplatform\.googleapis\.com|aiplatform\.[a-z0-9-]+\.rep\.googleapis\.com"
    r"|bedrock-runtime(-fips)?\.[a-z0-9-]+\.amazonaws\.com(\.cn)?"
    r"|[a-z]{2}\.api\.openai\.com"
)
LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
LOCAL_PORTS = frozenset({11434})  # Ollama's default
BASE_URL_VARIABLES = (
    "OPENAI_BASE_URL",
    "OPENAI_API_BASE",
    "AZURE_OPENAI_ENDPOINT",
    "ANTHROPIC_BASE_URL",
    "GOOGLE_GEMINI_BASE_URL",
    "GOOGLE_BASE_URL",
    "GEMINI_BASE_URL",
    "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
    "OLLAMA_HOST",
    "OLLAMA_BASE_URL",
    "LITELLM_PROXY_API_BASE",
)
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
        self._base_urls: set[tuple[str, int | None]] = set()
        for url in (*urls, *(os.environ.get(name, "") for name in BASE_URL_VARIABLES)):
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
            name in KNOWN_HOSTS
            or (name, port) in self._base_urls
            or (port in LOCAL_PORTS and name in LOCAL_HOSTS)
            or HOST_PATTERN.fullmatch(name) is not None
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
