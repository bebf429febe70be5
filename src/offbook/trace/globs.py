"""The patterns of scripts, such as `*refund*`: a server needs none of the others."""

from __future__ import annotations


class Glob:
    """A pattern in which `*` matches any text and every other character itself.

    Hand-written, because the regular expression of `fnmatch.translate` takes 3 ms for a
    conversation of 100 kB where `str.find` takes 0.1 to 0.2 ms. The other special characters of
    `fnmatch` (`?`, `[`) are plain text here.
    """

    __slots__ = ("_contained", "_first", "_inner", "_is_literal", "_last", "_min_length", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._is_literal = "*" not in pattern
        self._first, *inner = pattern.split("*")
        self._last = inner.pop() if inner else ""
        self._inner = [segment for segment in inner if segment]
        self._min_length = len(pattern) - pattern.count("*")
        # Most patterns are of the form `*text*`.
        self._contained = pattern.strip("*") if len(self._inner) == 1 else None
        if self._first or self._last:
            self._contained = None

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches the whole text."""
        if self._contained is not None:
            return self._contained in text
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
