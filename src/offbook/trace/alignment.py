"""Alignment: the one comparison of two sequences, for events, requests, steps and lines of text.

expected           | actual
= find({"id": 7})    | find({"id": 7})
≠ refund({"id": 7})  | refund({"id": 8})
.id: expected 7, got 8
-  notify            |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from offbook.secrets import excerpt, outgoing

if TYPE_CHECKING:
    from offbook.trace.matching import Mismatch

MAX_WIDTH = 60
CONTEXT_ROWS = 2
MAX_ROWS = 20_000
CONTEXT_CHARACTERS = 20
MAX_PAIRED = 400  # items without an equal one between two pairs that are paired by their subject
_WORD = re.compile(r"[A-Za-z0-9_/~](?:[A-Za-z0-9_.:/@+~-]*[A-Za-z0-9_/])?|\s+|.", re.DOTALL)
T = TypeVar("T")
Matches = Callable[[int, int], bool]
# Positions of an actual step and of the expected step that it satisfies.
Pairs = list[tuple[int, int]]


class AlignedRow(NamedTuple):
    """One step as expected and as it happened, with notes on the differences."""

    expected: str
    actual: str
    ok: bool = False
    notes: tuple[str, ...] = ()

    @property
    def sign(self) -> str:
        """`=` as expected, `≠` different, `-` missing, `+` unexpected, blank if not compared."""
        if self.ok:
            return "=" if self.expected else " "
        return ("≠" if self.actual else "-") if self.expected else "+"


def align_equal(first: Sequence[Hashable], second: Sequence[Hashable]) -> Pairs:
    """Return the longest list of pairs of equal items that keeps both orders.

    The longest common subsequence, with a row of the usual table as the bits of one number:
    5,000 items that repeat take 0.1 s, in `difflib` two minutes.
    """
    shortest = min(len(first), len(second))
    head = next((i for i in range(shortest) if first[i] != second[i]), shortest)
    tail = next((i for i in range(shortest - head) if first[~i] != second[~i]), shortest - head)
    pairs = [(i, i) for i in range(head)]
    for start in range(head, len(first) - tail, MAX_ROWS):  # to bound the memory
        stops = (min(start + MAX_ROWS, len(side) - tail) for side in (first, second))
        one, two = (side[start:stop] for side, stop in zip((first, second), stops, strict=True))
        pairs += [(a + start, b + start) for a, b in _align_block(one, two)]
    pairs += [(len(first) - i, len(second) - i) for i in range(tail, 0, -1)]
    return pairs


def _align_block(first: Sequence[Hashable], second: Sequence[Hashable]) -> Pairs:
    positions: dict[Hashable, int] = {}
    for index, item in enumerate(first):
        positions[item] = positions.get(item, 0) | 1 << index
    # A bit of a row is 0 if the subsequence gets longer with this item of `first`.
    row = (1 << len(first)) - 1
    rows = [row]
    for item in second:
        matched = row & positions.get(item, 0)
        row = (row + matched) | (row - matched)
        rows.append(row)
    pairs: Pairs = []
    a, b = len(first), len(second)
    while a and b:
        if rows[b] >> (a - 1) & 1:
            a -= 1
        elif not rows[b - 1] >> (a - 1) & 1:
            b -= 1
        else:
            a, b = a - 1, b - 1
            pairs.append((a, b))
    return pairs[::-1]


def align(
    first: Sequence[T],
    second: Sequence[T],
    key: Callable[[T], Hashable],
    subject: Callable[[T], object],
) -> Iterator[tuple[int | None, int | None]]:
    """Yield the positions of all items as pairs, in order; None where an item has no partner.

    First those with equal keys are paired, then, between two such pairs, those of one subject.
    """
    equal = align_equal([key(item) for item in first], [key(item) for item in second])
    a = b = 0
    for a_end, b_end in [*equal, (len(first), len(second))]:
        paired = _pair_subjects(
            [subject(item) for item in first[a:a_end]], [subject(item) for item in second[b:b_end]]
        )
        for b_next, a_next in [*((b + j, a + i) for j, i in paired), (b_end, a_end)]:
            yield from ((i, None) for i in range(a, a_next))
            yield from ((None, j) for j in range(b, b_next))
            if a_next < len(first) and b_next < len(second):
                yield a_next, b_next
            a, b = a_next + 1, b_next + 1


def _pair_subjects(first: Sequence[object], second: Sequence[object]) -> Pairs:
    """Return the positions in the second and the first list; none if these are long."""
    if max(len(first), len(second)) > MAX_PAIRED:
        return []
    return align_in_order(len(second), len(first), lambda j, i: second[j] == first[i])


class AlignedRun(NamedTuple):
    """Items `a` to `b` of the first sequence, and `c` to `d` of the second: equal, or changed."""

    equal: bool
    a: int
    b: int
    c: int
    d: int


def align_runs(first: Sequence[Hashable], second: Sequence[Hashable]) -> list[AlignedRun]:
    """Return two sequences as runs of equal and of changed items, in order."""
    runs: list[AlignedRun] = []
    a = b = 0
    for a_next, b_next in [*align_equal(first, second), (len(first), len(second))]:
        if (a, b) != (a_next, b_next):
            runs.append(AlignedRun(equal=False, a=a, b=a_next, c=b, d=b_next))
        if a_next < len(first) and b_next < len(second):
            run = AlignedRun(equal=True, a=a_next, b=a_next + 1, c=b_next, d=b_next + 1)
            if runs and runs[-1].equal:
                run = run._replace(a=runs[-1].a, c=runs.pop().c)
            runs.append(run)
        a, b = a_next + 1, b_next + 1
    return runs


def split_words(text: str) -> list[str]:
    """Return the words of a text, and what is between them."""
    return _WORD.findall(text)


def similarity(first: str, second: str, above: float = 0) -> float:
    """Return how similar two texts are, from 0 to 1; 0 if not above a limit."""
    from difflib import SequenceMatcher  # only here: saves 1 ms of `import offbook`

    matcher = SequenceMatcher(None, first, second, autojunk=False)
    # The upper bound is cheap, the ratio is not.
    return matcher.ratio() if matcher.quick_ratio() > above else 0


# The two pairings below are for steps that match by a predicate: a partial dict, a pattern, a
# function.


def align_in_order(actual: int, expected: int, matches: Matches) -> Pairs:
    """Return the longest list of matching pairs that keeps both orders.

    `matches(a, e)` returns True if the actual step `a` satisfies the expected step `e`.
    """
    # lengths[a][e] is the length of the longest list of pairs from (a, e) to the end.
    lengths = [[0] * (expected + 1) for _ in range(actual + 1)]
    for a in range(actual - 1, -1, -1):
        for e in range(expected - 1, -1, -1):
            if matches(a, e):
                lengths[a][e] = lengths[a + 1][e + 1] + 1
            else:
                lengths[a][e] = max(lengths[a + 1][e], lengths[a][e + 1])
    pairs: Pairs = []
    a = e = 0
    while a < actual and e < expected:
        if matches(a, e):
            pairs.append((a, e))
            a, e = a + 1, e + 1
        elif lengths[a + 1][e] >= lengths[a][e + 1]:
            a += 1
        else:
            e += 1
    return pairs


def align_in_any_order(actual: int, expected: int, matches: Matches) -> Pairs:
    """Return the largest set of matching pairs in which each step occurs at most once.

    Augmenting paths: a step that is taken already is released if its owner can take another one.
    """
    candidates = [[a for a in range(actual) if matches(a, e)] for e in range(expected)]
    owners: dict[int, int] = {}

    def assign(e: int, visited: set[int]) -> bool:
        for a in candidates[e]:
            if a in visited:
                continue
            visited.add(a)
            if a not in owners or assign(owners[a], visited):
                owners[a] = e
                return True
        return False

    for e in range(expected):
        assign(e, set())
    return sorted(owners.items())


def align_names(expected: Sequence[str], actual: Sequence[str], pairs: Pairs) -> list[AlignedRow]:
    """Return the rows of two lists of names; a pair shares a row."""
    rows: list[AlignedRow] = []
    next_expected = 0
    expected_of = dict(pairs)
    for position, name in enumerate(actual):
        match = expected_of.get(position)
        if match is None:
            rows.append(AlignedRow("", name))
            continue
        rows += [AlignedRow(missing, "") for missing in expected[next_expected:match]]
        rows.append(AlignedRow(expected[match], name, ok=True))
        next_expected = match + 1
    return [*rows, *(AlignedRow(missing, "") for missing in expected[next_expected:])]


def render_rows(
    rows: Sequence[AlignedRow],
    headings: tuple[str, str] = ("expected", "actual"),
    agreed: str = "as expected",
) -> list[str]:
    """Return the lines of a table; long stretches without a difference are shortened."""
    # If nothing differs, everything is shown.
    shown = {
        neighbour
        for position, row in enumerate(rows)
        if not row.ok
        for neighbour in range(position - CONTEXT_ROWS, position + CONTEXT_ROWS + 1)
    } or set(range(len(rows)))
    width = max(map(len, (headings[0], *(_truncate(row.expected) for row in rows))))
    lines = [f"  {headings[0]:{width}} | {headings[1]}"]
    skipped = 0
    for position, row in enumerate(rows):
        if position not in shown:
            skipped += 1
            continue
        if skipped:
            lines.append(f"  … {skipped} more {agreed}")
            skipped = 0
        columns = f"{_truncate(row.expected):{width}} | {_truncate(row.actual)}"
        lines.append(f"{row.sign} {columns}".rstrip())
        lines += [f"    {note}" for note in row.notes]
    if skipped:
        lines.append(f"  … {skipped} more {agreed}")
    return lines


def describe_mismatch(mismatch: Mismatch, name: str = "input") -> str:
    """Return a line with both values; long texts are shown from shortly before the difference."""
    want, got = shorten_sides(mismatch.expected, mismatch.actual)
    return f"{mismatch.path or name}: expected {want}, got {got}"


def shorten_sides(expected: Any, actual: Any) -> tuple[str, str]:
    """Return two values as short texts that begin shortly before their first difference."""
    from offbook.trace.matching import render_value  # a replay of a cassette needs none of it

    want, got = (outgoing(render_value(side, max_length=None)) for side in (expected, actual))
    characters = enumerate(zip(want, got, strict=False))
    split = next((i for i, (a, b) in characters if a != b), min(len(want), len(got)))
    start = split - CONTEXT_CHARACTERS if split > MAX_WIDTH - CONTEXT_CHARACTERS else 0
    cut = "…" if start else ""
    return f"{cut}{_truncate(want[start:])}", f"{cut}{_truncate(got[start:])}"


def _truncate(text: str) -> str:
    return excerpt(text.replace("\n", "\\n"), MAX_WIDTH)
