"""The addresses at which models are to be found."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from offbook.determinism.thread_context import thread_variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextvars import ContextVar

    from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse


# --- The addresses at which models are to be found.

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
HOST_PATTERN = re.compile(
    r".+\.openai\.azure\.com|.+\.services\.ai\.azure\.com|.+\.cognitiveservices\.azure\.com"
    r"|[a-z0-9-]+-aiplatform\.googleapis\.com|aiplatform\.[a-z0-9-]+\.rep\.googleapis\.com"
    r"|bedrock-runtime(-fips)?\.[a-z0-9-]+\.amazonaws\.com(\.cn)?"
    r"|[a-z]{2}\.api\.openai\.com"
)
LOCAL_PORTS = frozenset({11434})  # Ollama's: the one model that answers on the machine itself
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


class Hosts:
    """The addresses that one run answers for: the known ones, and the base URLs given to it.

    The base URLs that the environment names are given too: who has set `OPENAI_BASE_URL` wants
    his agent to talk to that address, and the test wants it to be answered.
    """

    def __init__(self, urls: tuple[str, ...] = ()) -> None:
        named = (os.environ.get(name, "") for name in BASE_URL_VARIABLES)
        self._given = {_split_url(url) for url in (*urls, *named) if url}

    def has(self, host: str, port: int | None) -> bool:
        """Whether a model is expected at this address."""
        name = host.lower()
        if name in KNOWN_HOSTS or (name, port) in self._given:
            return True
        if port in LOCAL_PORTS and name in {"localhost", "127.0.0.1", "::1"}:
            return True
        return HOST_PATTERN.fullmatch(name) is not None


def _split_url(url: str) -> tuple[str, int | None]:
    parts = urlsplit(url if "//" in url else f"http://{url}")
    return (parts.hostname or "").lower(), parts.port or DEFAULT_PORTS.get(parts.scheme)


# --- What a transport is: the place where an HTTP library sends a request and gets its response.


class Interceptor(Protocol):
    """Where requests of the run at work here are answered."""

    def wants(self, host: str, port: int | None) -> bool:
        """Whether requests to this address are answered here, and never sent."""
        ...

    async def answer(self, wire: HttpRequest) -> HttpResponse:
        """The answer to a request, for clients that await it."""
        ...

    def answer_now(self, wire: HttpRequest) -> HttpResponse:
        """The answer to a request, for clients that block until they have it."""
        ...


class Transport(Protocol):
    """One HTTP library."""

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that hold what has to be patched."""
        ...

    def patch(self, module: Any) -> Iterable[Callable[[], None]]:
        """Let the requests of this module's clients pass by the line; how to undo it."""
        ...


current_interceptor: ContextVar[Interceptor | None] = thread_variable("offbook_line")
"""The line of the run at work here, in all its tasks and threads; None outside of any run."""


def find_interceptor(host: str, port: int | None) -> Interceptor | None:
    """The line that answers for this address, if we are in a run that does."""
    current = current_interceptor.get()
    return current if current is not None and current.wants(host, port) else None
