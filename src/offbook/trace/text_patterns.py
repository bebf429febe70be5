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
