"""The addresses at which models are to be found."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

KNOWN = frozenset(
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
FAMILIES = re.compile(
    r".+\.openai\.azure\.com|.+\.services\.ai\.azure\.com|.+\.cognitiveservices\.azure\.com"
    r"|[a-z0-9-]+-aiplatform\.googleapis\.com|aiplatform\.[a-z0-9-]+\.rep\.googleapis\.com"
    r"|bedrock-runtime(-fips)?\.[a-z0-9-]+\.amazonaws\.com(\.cn)?"
    r"|[a-z]{2}\.api\.openai\.com"
)
LOCAL = frozenset({11434})  # Ollama's: the one model that answers on the machine itself
VARIABLES = (
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
PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class Hosts:
    """The addresses that one run answers for: the known ones, and the base URLs given to it.

    The base URLs that the environment names are given too: who has set `OPENAI_BASE_URL` wants
    his agent to talk to that address, and the test wants it to be answered.
    """

    def __init__(self, urls: tuple[str, ...] = ()) -> None:
        named = (os.environ.get(name, "") for name in VARIABLES)
        self._given = {_split(url) for url in (*urls, *named) if url}

    def has(self, host: str, port: int | None) -> bool:
        """Whether a model is expected at this address."""
        name = host.lower()
        if name in KNOWN or (name, port) in self._given:
            return True
        if port in LOCAL and name in {"localhost", "127.0.0.1", "::1"}:
            return True
        return FAMILIES.fullmatch(name) is not None


def _split(url: str) -> tuple[str, int | None]:
    parts = urlsplit(url if "//" in url else f"http://{url}")
    return (parts.hostname or "").lower(), parts.port or PORTS.get(parts.scheme)
