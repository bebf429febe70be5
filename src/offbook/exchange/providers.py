"""All dialects, and which of them a request is written in."""

from __future__ import annotations

from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING

from offbook.exchange.dialects.validation import ALL_RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offbook.exchange.dialects.dialect import Dialect, HttpRequest


# --- All dialects, and which of them a request is written in.

# A dialect is loaded when the ones before it do not claim a request: a client speaks one of them.


@cache
def _chat(rules: frozenset[str]) -> Dialect:
    from offbook.exchange.dialects.chat import Chat

    return Chat(rules)


@cache
def _responses(rules: frozenset[str]) -> Dialect:
    from offbook.exchange.dialects.responses import Responses

    return Responses(rules)


@cache
def _anthropic(rules: frozenset[str]) -> Dialect:
    from offbook.exchange.dialects.anthropic import Anthropic

    return Anthropic(rules)


@cache
def _gemini(rules: frozenset[str]) -> Dialect:
    from offbook.exchange.dialects.gemini import Gemini

    return Gemini(rules)


@cache
def _bedrock(rules: frozenset[str]) -> Dialect:
    from offbook.exchange.dialects.bedrock import Bedrock

    return Bedrock(rules)


DIALECT_LOADERS = (_chat, _responses, _anthropic, _gemini, _bedrock)


def all_dialects() -> tuple[Dialect, ...]:
    """Every dialect, refusing what its provider would."""
    return tuple(load(ALL_RULES) for load in DIALECT_LOADERS)


def dialect_detector(rules: frozenset[str]) -> Callable[[HttpRequest], Dialect | None]:
    """Recognises dialects that refuse what breaks one of these rules."""
    return detect_dialect if rules == ALL_RULES else lambda wire: detect_dialect(wire, rules)


def detect_dialect(wire: HttpRequest, rules: frozenset[str] = ALL_RULES) -> Dialect | None:
    """The dialect of this request, if it is one that we speak."""
    for load in DIALECT_LOADERS:
        dialect = load(rules)
        if dialect.claims(wire):
            return dialect
    return None


# --- The environment in which clients of every provider find a model under one base URL.

API_KEY = "offbook"
QUIET_ENV = {  # what keeps clients from talking to others beside the model
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "NO_PROXY": "127.0.0.1,localhost",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "no_proxy": "127.0.0.1,localhost",
}

# What clients must be told in words, because they do not read it from their environment.
CLI_ARGUMENTS = {
    "codex": (
        *("-c", 'openai_base_url="{url}/v1"', "-c", "analytics.enabled=false"),
        *("--disable", "plugins"),
    ),
}


def client_env(url: str) -> dict[str, str]:
    """What a process must have in its environment to find the model there, and nobody else."""
    return {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_BASE": f"{url}/v1",
        "OPENAI_API_KEY": API_KEY,
        "CODEX_API_KEY": API_KEY,
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": API_KEY,
        "GOOGLE_GEMINI_BASE_URL": url,
        "GOOGLE_BASE_URL": url,
        "GEMINI_API_KEY": API_KEY,
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": url,
        "AWS_BEARER_TOKEN_BEDROCK": API_KEY,
        **QUIET_ENV,
    }


def add_client_arguments(command: Sequence[str], url: str) -> list[str]:
    """The command; a client that reads no base URL from its environment is told it in words."""
    words = CLI_ARGUMENTS.get(PurePath(command[0]).stem, ()) if command else ()
    return [*command[:1], *(word.format(url=url) for word in words), *command[1:]]
