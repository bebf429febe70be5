"""Patterns with stars, and how to find those that fit a text among thousands.

A star stands for anything, every other sign for itself. A pattern is filed under the rarest of its
words, whole or cut off by a star: a text can only fit if one of its own words holds that one. So a
request costs what its words cost, however many patterns there are.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

LONGEST = 12
MONSTROUS = 256
FEW = 8
REMEMBERED = 1 << 16


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
        self._files: dict[str, list[int]] = {}
        self._few = len(self._globs) <= FEW
        if not self._few:
            self._file_all()
        self._dull: set[str] = set()
        self._telling: dict[str, list[int]] = {}

    def _file_all(self) -> None:
        """File each under the rarest of its words, so that no file grows long."""
        words = [glob.words() for _, glob in self._globs]
        counts = Counter(word for found in words for word in found)
        for index, found in enumerate(words):
            if found:
                rarest = min(found, key=lambda word: (counts[word], -len(word), word))
                self._files.setdefault(rarest, []).append(index)
            else:
                self._everywhere.append(index)
        self._lengths = sorted({len(word) for word in self._files})

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
        # nearly all words of a conversation lead nowhere: those are left out all at once
        for word in set(text.split()) - self._dull:
            if len(word) > MONSTROUS:  # no word at all: to look at each pattern costs less
                return range(len(self._globs))
            found.update(self._telling.get(word) or self._learn(word))
        return sorted(found)

    def _learn(self, word: str) -> list[int]:
        indices = self._look_up(word)
        if len(self._dull) + len(self._telling) < REMEMBERED:
            if indices:
                self._telling[word] = indices
            else:
                self._dull.add(word)
        return indices

    def _look_up(self, word: str) -> list[int]:
        files = self._files
        found: list[int] = []
        for length in self._lengths:
            for at in range(len(word) - length + 1):
                found += files.get(word[at : at + length], ())
        return found
