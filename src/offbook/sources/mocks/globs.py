"""Patterns with stars, and how to find those that fit a text among thousands.

A star stands for anything, every other sign for itself. A pattern is filed under the rarest of its
words, whole or cut off by a star: a text can only fit if it holds that one. All of them are looked
for in one pass, so a request costs what its length costs, however many patterns there are.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from offbook.secrets import word_finder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

LONGEST = 12
FEW = 8


class Glob:
    """One pattern."""

    __slots__ = ("_first", "_inner", "_last", "_least", "_literal", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._literal = "*" not in pattern
        self._first, *inner = pattern.split("*")
        self._last = inner.pop() if inner else ""
        self._inner = [segment for segment in inner if segment]
        self._least = len(pattern) - pattern.count("*")

    def fits(self, text: str) -> bool:
        """Whether the whole text is as the pattern says."""
        if self._literal:
            return text == self.pattern
        if len(text) < self._least or not text.startswith(self._first):
            return False
        at, end = len(self._first), len(text) - len(self._last)
        for segment in self._inner:
            found = text.find(segment, at, end)
            if found < 0:
                return False
            at = found + len(segment)
        return text.endswith(self._last)

    def covers(self, other: Glob) -> bool:
        """Whether everything that fits the other fits this one too."""
        return self.fits(other.pattern)

    def words(self) -> set[str]:
        """The words that it holds, or what it says of them."""
        return {word[:LONGEST] for word in self.pattern.replace("*", " ").split()}


class Globs:
    """Many patterns, each with the place where it stands."""

    def __init__(self, patterns: Iterable[tuple[int, Glob]]) -> None:
        self._globs = list(patterns)
        self._everywhere: list[int] = []
        self._files: list[list[int]] = []
        self._few = len(self._globs) <= FEW
        if not self._few:
            self._find = word_finder(self._file_all())

    def _file_all(self) -> Iterable[bytes]:
        """File each under the rarest of its words, so that no file grows long."""
        words = [glob.words() for _, glob in self._globs]
        counts = Counter(word for found in words for word in found)
        files: dict[str, list[int]] = {}
        for index, found in enumerate(words):
            if found:
                rarest = min(found, key=lambda word: (counts[word], -len(word), word))
                files.setdefault(rarest, []).append(index)
            else:
                self._everywhere.append(index)
        self._files = list(files.values())
        return map(_spell, files)

    def fitting(self, text: str) -> Iterator[int]:
        """The places of the patterns that fit, in their order."""
        globs = self._globs
        for index in self._candidates(text):
            place, glob = globs[index]
            if glob.fits(text):
                yield place

    def _candidates(self, text: str) -> Sequence[int]:
        if self._few:
            return range(len(self._globs))
        found = set(self._everywhere)
        for word in {word for word, _, _ in self._find(_spell(text))}:
            found.update(self._files[word])
        return sorted(found)


def _spell(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
