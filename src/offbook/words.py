"""Looks for many words in a text at once, in one pass. The door of ahocorasick-rs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Finder = Callable[[bytes], list[tuple[int, int, int]]]


def seek_words(words: Iterable[bytes]) -> Finder:
    """A function that tells which of these words stand in a text, from where, and to where."""
    from ahocorasick_rs import BytesAhoCorasick

    return partial(BytesAhoCorasick(words).find_matches_as_indexes, overlapping=True)
