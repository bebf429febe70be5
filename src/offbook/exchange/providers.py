"""The supported providers: their dialects, and how their clients are pointed at a base URL.

`detect_dialect` finds the dialect of an HTTP request. `client_env` returns the environment
variables that make the clients of every provider send their requests to one server.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from offbook.exchange.dialects.validation import ALL_RULES

if TYPE_CHECKING:
    from collections.abc import Callable

    from offbook.exchange.dialects.dialect import Dialect, HttpRequest

# The dialects in the order in which they are asked whether they claim a request.
DIALECT_NAMES = ("chat", "responses", "anthropic", "gemini", "bedrock")


@cache
def load_dialect(name: str, rules: frozenset[str]) -> Dialect:
    """Return the dialect with this name, which validates requests against these rules."""
    # Late imports for start-up time: a client uses one dialect, and the others stay unloaded.
    match name:
        case "chat":
            from offbook.exchange.dialects.chat import Chat

            return Chat(rules)
        case "responses":
            from offbook.exchange.dialects.responses import Responses

            return Responses(rules)
        case "anthropic":
            from offbook.exchange.dialects.anthropic import Anthropic

            return Anthropic(rules)
        case "gemini":
            from offbook.exchange.dialects.gemini import Gemini

            return Gemini(rules)
        case "bedrock":
            from offbook.exchange.dialects.bedrock import Bedrock

            return Bedrock(rules)
        case _:
            raise KeyError(name)


def all_dialects() -> tuple[Dialect, ...]:
    """Return every dialect, validating requests as its provider does."""
    return tuple(load_dialect(name, ALL_RULES) for name in DIALECT_NAMES)


def detect_dialect(http_request: HttpRequest, rules: frozenset[str] = ALL_RULES) -> Dialect | None:
    """Return the dialect of this request, or None if no dialect claims it."""
    for name in DIALECT_NAMES:
        dialect = load_dialect(name, rules)
        if dialect.claims(http_request):
            return dialect
    return None


def dialect_detector(rules: frozenset[str]) -> Callable[[HttpRequest], Dialect | None]:
    """Return `detect_dialect` for these validation rules."""
    # The usual case, without the cost of a lambda for every request.
    if rules == ALL_RULES:
        return detect_dialect
    return lambda http_request: detect_dialect(http_request, rules)


# ------------------------------------------------------------------ client environment

API_KEY = "offbook"

# Settings that stop clients from contacting other hosts: telemetry, price lists, update checks.
QUIET_ENV = {
    "AGNO_TELEMETRY": "false",
    "AIDER_ANALYTICS_DISABLE": "true",
    "AIDER_CHECK_UPDATE": "false",
    "ANONYMIZED_TELEMETRY": "False",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "DISABLE_TELEMETRY": "true",  # Open Interpreter
    "DO_NOT_TRACK": "1",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "NO_PROXY": "127.0.0.1,localhost",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "no_proxy": "127.0.0.1,localhost",
}

# Arguments for the commands that do not read the base URL from the environment.
CLI_ARGUMENTS = {
    "codex": (
        *("-c", 'openai_base_url="{url}/v1"', "-c", "analytics.enabled=false"),
        *("--disable", "plugins"),
    ),
}


def client_env(url: str) -> dict[str, str]:
    """Return the environment in which the clients of all providers use this base URL."""
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


def client_arguments(url: str) -> dict[str, list[str]]:
    """Return the arguments that point a command at this base URL, by its name."""
    return {
        name: [argument.format(url=url) for argument in arguments]
        for name, arguments in CLI_ARGUMENTS.items()
    }
