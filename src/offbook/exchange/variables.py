"""The environment in which clients of every provider find a model under one base URL."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY = "offbook"
QUIET = {  # what keeps clients from talking to others beside the model
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "NO_PROXY": "127.0.0.1,localhost",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "no_proxy": "127.0.0.1,localhost",
}

# What clients must be told in words, because they do not read it from their environment.
WORDS = {
    "codex": (
        *("-c", 'openai_base_url="{url}/v1"', "-c", "analytics.enabled=false"),
        *("--disable", "plugins"),
    ),
}


def list_variables(url: str) -> dict[str, str]:
    """What a process must have in its environment to find the model there, and nobody else."""
    return {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_BASE": f"{url}/v1",
        "OPENAI_API_KEY": KEY,
        "CODEX_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": KEY,
        "GOOGLE_GEMINI_BASE_URL": url,
        "GOOGLE_BASE_URL": url,
        "GEMINI_API_KEY": KEY,
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": url,
        "AWS_BEARER_TOKEN_BEDROCK": KEY,
        **QUIET,
    }


def tell_command(command: Sequence[str], url: str) -> list[str]:
    """The command; a client that reads no base URL from its environment is told it in words."""
    words = WORDS.get(PurePath(command[0]).stem, ()) if command else ()
    return [*command[:1], *(word.format(url=url) for word in words), *command[1:]]
