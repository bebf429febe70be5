"""The supported providers: the dialects of their requests, and the settings of their clients.

The settings point the clients of every provider at one URL, and stop them from contacting other
hosts. Every guarded test sets `QUIET_ENV`, so this module imports nothing until a dialect is used.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from offbook.exchange.dialects.dialect import Dialect, HttpRequest

# The dialects in the order in which they are asked whether they claim a request.
DIALECT_NAMES = ("chat", "responses", "anthropic", "gemini", "bedrock")


@cache
def load_dialect(name: str, rules: frozenset[str] | None) -> Dialect:
    """Return the dialect with this name, which validates requests against these rules, or all."""
    from offbook.exchange.dialects.decoding import ALL_RULES

    rules = ALL_RULES if rules is None else rules
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
    return tuple(load_dialect(name, None) for name in DIALECT_NAMES)


def detect_dialect(
    http_request: HttpRequest, rules: frozenset[str] | None = None
) -> Dialect | None:
    """Return the dialect of this request, or None if no dialect claims it."""
    for name in DIALECT_NAMES:
        dialect = load_dialect(name, rules)
        if dialect.claims(http_request):
            return dialect
    return None


def dialect_detector(lenient: Iterable[str]) -> Callable[[HttpRequest], Dialect | None]:
    """Return `detect_dialect` with all validation rules except these."""
    from offbook.exchange.dialects.decoding import ALL_RULES, rules_except

    rules = rules_except(lenient)
    if rules == ALL_RULES:
        return detect_dialect
    return lambda http_request: detect_dialect(http_request, rules)


# ----------------------------------------------------------------------------- clients

API_KEY = "offbook"

# Settings that stop clients from contacting other hosts: telemetry, price lists, update checks.
QUIET_ENV = {
    "AGNO_TELEMETRY": "false",
    "AIDER_ANALYTICS_DISABLE": "true",
    "AIDER_CHECK_UPDATE": "false",
    "ANONYMIZED_TELEMETRY": "False",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CONTINUE_CLI_AUTO_UPDATED": "true",  # Continue would update itself with npm
    "CONTINUE_CLI_ENABLE_TELEMETRY": "0",
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
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "no_proxy": "127.0.0.1,localhost",
}

# Arguments for the commands that do not read the base URL from the environment.
CLI_ARGUMENTS = {
    "codex": (
        *("-c", 'openai_base_url="{url}/v1"', "-c", "analytics.enabled=false"),
        *("--disable", "plugins"),
    ),
}

# opencode reads base URLs from its configuration only; this one is merged with the user's.
OPENCODE_CONFIG = (
    '{{"provider": {{'
    '"openai": {{"options": {{"baseURL": "{url}/v1"}}}}, '
    '"anthropic": {{"options": {{"baseURL": "{url}/v1"}}}}, '
    '"google": {{"options": {{"baseURL": "{url}/v1beta"}}}}'
    "}}}}"
)


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
        "GOOGLE_GENERATIVE_AI_API_KEY": API_KEY,
        "OPENCODE_CONFIG_CONTENT": OPENCODE_CONFIG.format(url=url),
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
