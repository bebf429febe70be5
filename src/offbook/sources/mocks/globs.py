"""Patterns with stars, and how to find those that fit a text among thousands.

A star stands for anything, every other sign for itself. A pattern is filed under three letters
that it holds within one word: a text can only fit it if one of its words has them too. So a
request costs what its own words cost, however many patterns there are.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

WORD = re.compile(r"\w+")
GRAM = 3
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

    def grams(self) -> set[str]:
        """All that it holds of three letters within a word."""
        return {gram for word in WORD.findall(self.pattern) for gram in _grams(word)}


class Globs:
    """Many patterns, each with the place where it stands."""

    def __init__(self, patterns: Iterable[tuple[int, Glob]]) -> None:
        self._globs = list(patterns)
        self._everywhere: list[int] = []
        self._files: dict[str, list[int]] = {}
        self._few = len(self._globs) <= FEW
        if not self._few:
            self._file_all()
        self._of_word = lru_cache(REMEMBERED)(self._look_up)

    def _file_all(self) -> None:
        """File each under the rarest of its grams, so that no file grows long."""
        grams = [glob.grams() for _, glob in self._globs]
        counts = Counter(gram for found in grams for gram in found)
        for index, found in enumerate(grams):
            if found:
                rarest = min(found, key=lambda gram: (counts[gram], gram))
                self._files.setdefault(rarest, []).append(index)
            else:
                self._everywhere.append(index)

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
        for word in set(WORD.findall(text)):
            if indices := self._of_word(word):
                found.update(indices)
        return sorted(found)

    def _look_up(self, word: str) -> tuple[int, ...]:
        files = self._files
        return tuple(index for gram in _grams(word) for index in files.get(gram, ()))


def _grams(word: str) -> set[str]:
    return {word[at : at + GRAM] for at in range(len(word) - GRAM + 1)}
