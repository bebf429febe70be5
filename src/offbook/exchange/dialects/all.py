"""All dialects, and which of them a request is written in."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from offbook.exchange.rules import ALL

if TYPE_CHECKING:
    from collections.abc import Callable

    from offbook.exchange.dialects.dialect import Dialect, Wire


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


DIALECTS = (_chat, _responses, _anthropic, _gemini, _bedrock)


def dialects() -> tuple[Dialect, ...]:
    """Every dialect, refusing what its provider would."""
    return tuple(load(ALL) for load in DIALECTS)


def only(rules: frozenset[str]) -> Callable[[Wire], Dialect | None]:
    """Recognises dialects that refuse what breaks one of these rules."""
    return recognise if rules == ALL else lambda wire: recognise(wire, rules)


def recognise(wire: Wire, rules: frozenset[str] = ALL) -> Dialect | None:
    """The dialect of this request, if it is one that we speak."""
    for load in DIALECTS:
        dialect = load(rules)
        if dialect.claims(wire):
            return dialect
    return None
