"""Patterns to search and replace in texts. Those of users and agents are limited in time.

Only this module imports `regex`: its matching can be stopped, that of the standard library cannot.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from offbook.errors import UsageError

if TYPE_CHECKING:
    import regex

MAX_SECONDS = 2.0
_SPECIAL_CHARACTERS = re.compile(r"[\\.^$*+?{}\[\]|()]")
# Expressions that cannot match a line end, and do not depend on where a text begins or ends: no
# anchors, no look-around, no \s and no negated class.
_WITHIN_LINE = re.compile(
    r"(?:\(\?i\))?"
    r"(?:[^\\^$.*+?{}\[\]|()\n]|[.*+?|]|\{\d*,?\d*\}|\((?:\?:)?(?!\?)|\)|\\[dwSbB]|\\[^\w\s]"
    r"|\[[^\]\\^\[&|~\x00-\x1f][^\]\\\[&|~\x00-\x1f]*\])*\Z"
)


class Glob:
    """A pattern in which `*` matches any text and every other character itself.

    Hand-written, because the regular expression of `fnmatch.translate` takes 3 ms for a
    conversation of 100 kB where `str.find` takes 0.1 to 0.2 ms. The other special characters of
    `fnmatch` (`?`, `[`) are plain text here.
    """

    __slots__ = ("_first", "_inner", "_is_literal", "_last", "_min_length", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._is_literal = "*" not in pattern
        self._first, *inner = pattern.split("*")
        self._last = inner.pop() if inner else ""
        self._inner = [segment for segment in inner if segment]
        self._min_length = len(pattern) - pattern.count("*")

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches the whole text."""
        if self._is_literal:
            return text == self.pattern
        if len(text) < self._min_length or not text.startswith(self._first):
            return False
        start, end = len(self._first), len(text) - len(self._last)
        # The leftmost match of each segment leaves the most text to the next: no backtracking.
        for segment in self._inner:
            index = text.find(segment, start, end)
            if index < 0:
                return False
            start = index + len(segment)
        return text.endswith(self._last)

    def covers(self, other: Glob) -> bool:
        """Return whether this pattern matches every text that the other one matches."""
        # The stars of the other pattern are plain characters to this one's stars.
        return self.matches(other.pattern)


class LiteralPattern:
    """A plain text to find."""

    def __init__(self, text: str) -> None:
        self._text = text

    def search(self, text: str) -> tuple[int, int] | None:
        """Return the start and end of the first match, or None."""
        start = text.find(self._text)
        return None if start < 0 else (start, start + len(self._text))

    def replace(self, replacement: str, text: str) -> str:
        """Return the text with every match replaced."""
        return text.replace(self._text, replacement)

    def stream_bounds(self, text: str) -> tuple[int, int]:
        """Return the end of the part that can be searched before more text follows, and the start
        of the part that must be kept for the next search.
        """  # noqa: D205 - one sentence
        return len(text), max(0, len(text) - len(self._text) + 1)


class TrustedPattern:
    """A pattern of Offbook itself: known to be linear, so it needs no time limit.

    Every match contains one of the `required` characters, if there are any. A text without them
    is skipped, which is faster than to search it.
    """

    def __init__(self, source: str, required: str = "") -> None:
        self._compiled = re.compile(source)
        self._required = required

    def replace(self, replacement: str, text: str) -> str:
        """Return the text with every match replaced."""
        if self._required and not any(map(text.__contains__, self._required)):
            return text
        if self._compiled.search(text) is None:  # `sub` would copy the text
            return text
        return self._compiled.sub(lambda _: replacement, text)


class UserPattern:
    """A regular expression of a user: an error, and not a hang, if it backtracks too long."""

    def __init__(self, compiled: regex.Pattern[str], where: str) -> None:
        self._compiled = compiled
        self._where = where
        self._within_line = _WITHIN_LINE.match(compiled.pattern) is not None

    @property
    def source(self) -> str:
        """The expression as it was written."""
        return self._compiled.pattern

    def search(self, text: str) -> tuple[int, int] | None:
        """Return the start and end of the first match, or None."""
        try:
            match = self._compiled.search(text, timeout=MAX_SECONDS)
        except TimeoutError as error:
            raise self._timeout_error() from error
        return None if match is None else match.span()

    def replace(self, replacement: str, text: str) -> str:
        """Return the text with every match replaced."""
        try:
            return self._compiled.sub(lambda _: replacement, text, timeout=MAX_SECONDS)
        except TimeoutError as error:
            raise self._timeout_error() from error

    def stream_bounds(self, text: str) -> tuple[int, int]:
        """Return the bounds as LiteralPattern does: after the last line, or the whole text."""
        end = text.rfind("\n") + 1 if self._within_line else 0
        return end, end

    def _timeout_error(self) -> UsageError:
        return UsageError(
            f"the pattern {self.source!r} took longer than {MAX_SECONDS:g} s",
            where=self._where,
            hint="do not repeat a group that itself repeats something, as in (a+)+",
        )


@lru_cache(maxsize=256)
def compile_trusted(source: str, required: str = "") -> TrustedPattern:
    """Return a pattern of Offbook itself."""
    return TrustedPattern(source, required)


@lru_cache(maxsize=1024)
def compile_pattern(source: str, where: str = "") -> UserPattern | LiteralPattern:
    """Return the pattern of a user; without special characters it is a plain text."""
    if not source:
        raise UsageError("the pattern is empty and would match every text", where=where)
    if not _SPECIAL_CHARACTERS.search(source):
        return LiteralPattern(source)
    import regex  # late: most runs have no such pattern

    try:
        return UserPattern(regex.compile(source), where)
    except regex.error as error:
        raise UsageError(
            f"invalid pattern {source!r}: {error}",
            where=where,
            hint=f"to match it literally, write {regex.escape(source)!r}",
        ) from error
