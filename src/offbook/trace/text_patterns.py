"""Patterns that come from users or agents: compiled with a clear error, bounded in time.

The door of regex, whose matching can be stopped; the standard library's cannot.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from offbook.errors import UsageError

if TYPE_CHECKING:
    import regex

SECONDS = 2.0
_SIGNS = re.compile(r"[\\.^$*+?{}\[\]|()]")
# What can neither match a line's end nor tell where a text begins or ends.
_WITHIN_LINE = re.compile(
    r"(?:\(\?i\))?"
    r"(?:[^\\^$.*+?{}\[\]|()\n]|[.*+?|]|\{\d*,?\d*\}|\((?:\?:)?(?!\?)|\)|\\[dwSbB]|\\[^\w\s]"
    r"|\[[^\]\\^\[&|~\x00-\x1f][^\]\\\[&|~\x00-\x1f]*\])*\Z"
)


class LiteralPattern:
    """A text to be found as it stands."""

    def __init__(self, text: str) -> None:
        self._text = text

    def search(self, text: str) -> tuple[int, int] | None:
        """Where it is found first, or nothing."""
        at = text.find(self._text)
        return None if at < 0 else (at, at + len(self._text))

    def replace(self, replacement: str, text: str) -> str:
        """The text with each place that it is found replaced."""
        return text.replace(self._text, replacement)

    def reach(self, text: str) -> tuple[int, int]:
        """Up to where a text that goes on can be searched, and from where on it is to be kept."""
        return len(text), max(0, len(text) - len(self._text) + 1)


class TrustedPattern:
    """A pattern of our own, which is known not to run away and so needs no watch.

    One of `signs`, if there are any, stands in all that it finds: a text with none has no such
    place, and that is seen at a glance.
    """

    def __init__(self, source: str, signs: str = "") -> None:
        self._compiled = re.compile(source)
        self._signs = signs

    def replace(self, replacement: str, text: str) -> str:
        """The text with each place that it is found replaced."""
        if self._signs and not any(map(text.__contains__, self._signs)):
            return text
        if self._compiled.search(text) is None:
            return text
        return self._compiled.sub(lambda _: replacement, text)


class UserPattern:
    """A regular expression that gives up, with an error, when it runs away."""

    def __init__(self, compiled: regex.Pattern[str], where: str) -> None:
        self._compiled = compiled
        self._where = where
        self._within_line = _WITHIN_LINE.match(compiled.pattern) is not None

    @property
    def source(self) -> str:
        """The expression as it was written."""
        return self._compiled.pattern

    def search(self, text: str) -> tuple[int, int] | None:
        """Where it is found first, or nothing."""
        try:
            found = self._compiled.search(text, timeout=SECONDS)
        except TimeoutError as error:
            raise self._runaway() from error
        return None if found is None else found.span()

    def replace(self, replacement: str, text: str) -> str:
        """The text with each place that it is found replaced."""
        try:
            return self._compiled.sub(lambda _: replacement, text, timeout=SECONDS)
        except TimeoutError as error:
            raise self._runaway() from error

    def reach(self, text: str) -> tuple[int, int]:
        """Up to where a text that goes on can be searched, and from where on it is to be kept.

        What stays within a line needs whole lines; anything else, the whole text.
        """
        end = text.rfind("\n") + 1 if self._within_line else 0
        return end, end

    def _runaway(self) -> UsageError:
        return UsageError(
            f"the pattern {self.source!r} runs away: no answer within {SECONDS:g} s",
            where=self._where,
            hint="repeat no group that repeats something itself, as in (a+)+",
        )


@lru_cache(maxsize=256)
def compile_trusted(source: str, signs: str = "") -> TrustedPattern:
    """A pattern of our own."""
    return TrustedPattern(source, signs)


@lru_cache(maxsize=1024)
def compile_pattern(source: str, where: str = "") -> UserPattern | LiteralPattern:
    """A pattern of somebody else's; what has no sign of an expression is found as it stands."""
    if not _SIGNS.search(source):
        return LiteralPattern(source)
    import regex

    try:
        return UserPattern(regex.compile(source), where)
    except regex.error as error:
        raise UsageError(
            f"the pattern {source!r} does not compile: {error}",
            where=where,
            hint=f"to find it as it stands, write {regex.escape(source)!r}",
        ) from error
