"""The dialects of the supported providers; `detect_dialect` finds the one of an HTTP request."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from offbook.exchange.dialects.decoding import ALL_RULES

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
