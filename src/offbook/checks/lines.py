"""Two texts line by line: the fewest lines that make one the other, as `git diff` counts them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

MOST = 800  # lines that differ; beyond, a longer way is found sooner


def split_lines(text: str) -> list[str]:
    """The lines of a text, each with its end; nothing but a line feed ends one."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def match_lines(before: Sequence[str], after: Sequence[str]) -> difflib.SequenceMatcher[str]:
    """Two lists of lines, matched by what is longest in common, where there is time for it."""
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    start, least = 0, min(len(before), len(after))
    while start < least and before[start] == after[start]:
        start += 1
    end = 0
    while end < least - start and before[-1 - end] == after[-1 - end]:
        end += 1
    rows, columns = len(before), len(after)
    middle = pair_lines(before[start : rows - end], after[start : columns - end])
    if middle is not None:
        pairs = [(at, at) for at in range(start)]
        pairs += [(a + start, b + start) for a, b in middle]
        pairs += [(rows - end + at, columns - end + at) for at in range(end)]
        # where difflib keeps what it has found, and looks before it searches
        vars(matcher)["matching_blocks"] = [*_join(pairs), difflib.Match(rows, columns, 0)]
    return matcher


def pair_lines(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int]] | None:
    """The longest list of pairs that are the same, in both orders; None when it takes too long.

    Myers' way: with ever more lines that differ, how far each diagonal reaches.
    """
    rows, columns = len(before), len(after)
    reach = {1: 0}
    trail: list[dict[int, int]] = []
    for most in range(min(rows + columns, MOST) + 1):
        trail.append(dict(reach))
        for diagonal in range(-most, most + 1, 2):
            down = diagonal == -most or (
                diagonal != most and reach[diagonal - 1] < reach[diagonal + 1]
            )
            at = reach[diagonal + 1] if down else reach[diagonal - 1] + 1
            while at < rows and at - diagonal < columns and before[at] == after[at - diagonal]:
                at += 1
            reach[diagonal] = at
            if at >= rows and at - diagonal >= columns:
                return _walk_back(trail, rows, columns)
    return None


def _walk_back(trail: list[dict[int, int]], rows: int, columns: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    a, b = rows, columns
    for most in range(len(trail) - 1, -1, -1):
        reach, diagonal = trail[most], a - b
        down = diagonal == -most or (diagonal != most and reach[diagonal - 1] < reach[diagonal + 1])
        before = diagonal + 1 if down else diagonal - 1
        x = reach[before]
        y = x - before
        while a > x and b > y:
            a, b = a - 1, b - 1
            pairs.append((a, b))
        a, b = x, y
    return pairs[::-1]


def _join(pairs: list[tuple[int, int]]) -> list[difflib.Match]:
    blocks: list[difflib.Match] = []
    for a, b in pairs:
        last = blocks[-1] if blocks else None
        if last and (last.a + last.size, last.b + last.size) == (a, b):
            blocks[-1] = difflib.Match(last.a, last.b, last.size + 1)
        else:
            blocks.append(difflib.Match(a, b, 1))
    return blocks
