"""All dialects, and which of them a request is written in."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from offbook.exchange.rules import ALL

if TYPE_CHECKING:
    from collections.abc import Callable

    from offbook.exchange.dialects.dialect import Dialect, Wire


@cache
def dialects(rules: frozenset[str] = ALL) -> tuple[Dialect, ...]:
    """Every dialect, refusing what breaks one of these rules."""
    from offbook.exchange.dialects.anthropic import Anthropic
    from offbook.exchange.dialects.bedrock import Bedrock
    from offbook.exchange.dialects.chat import Chat
    from offbook.exchange.dialects.gemini import Gemini
    from offbook.exchange.dialects.responses import Responses

    return (Chat(rules), Responses(rules), Anthropic(rules), Gemini(rules), Bedrock(rules))


def only(rules: frozenset[str]) -> Callable[[Wire], Dialect | None]:
    """Recognises dialects that refuse what breaks one of these rules."""
    return recognise if rules == ALL else lambda wire: recognise(wire, rules)


def recognise(wire: Wire, rules: frozenset[str] = ALL) -> Dialect | None:
    """The dialect of this request, if it is one that we speak."""
    for dialect in dialects(rules):
        if dialect.claims(wire):
            return dialect
    return None
