"""Compares what an agent did with what it should have done, and shows where they part.

Calls are paired optimally: when any pairing fits, it is found. (A greedy matcher takes the first
that fits, and fails where two expectations overlap.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

import msgspec

from offbook.trace.patterns import compile_pattern

Mode = Literal["exact", "in_order", "any_order", "subset", "superset"]
Args = Literal["exact", "partial", "pattern", "ignore"]


class Did(NamedTuple):
    """A tool call that happened."""

    tool: str
    input: Mapping[str, Any]


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call that should happen: by its name, and by its input in one of several ways.

    `input` is a dict to compare with, a function that looks at it, or None for any.
    """

    tool: str
    input: Any = None
    args: Args | None = None

    def __post_init__(self) -> None:
        if self.input is not None and not isinstance(self.input, dict) and not callable(self.input):
            raise ValueError("`input` is a dict or a function")

    def fits(self, did: Did) -> bool:
        """Whether a call is the one that was meant."""
        if did.tool != self.tool:
            return False
        if self.input is None or self.args == "ignore":
            return True
        if callable(self.input):
            return bool(self.input(did.input))
        if self.args == "exact":
            return dict(did.input) == self.input
        return contains(did.input, self.input, patterns=self.args == "pattern")

    def __str__(self) -> str:
        if self.input is None:
            return self.tool
        return f"{self.tool}(…)" if callable(self.input) else f"{self.tool}({show(self.input)})"


def contains(given: Any, wanted: Any, *, patterns: bool = False) -> bool:
    """Whether a value has all that is wanted of it; texts may be patterns."""
    if isinstance(wanted, Mapping):
        fields = cast("Mapping[str, Any]", wanted)
        return isinstance(given, Mapping) and all(
            key in given and contains(given[key], value, patterns=patterns)
            for key, value in fields.items()
        )
    if isinstance(wanted, (list, tuple)):
        items = cast("Sequence[Any]", wanted)
        if not isinstance(given, (list, tuple)):
            return False
        held = cast("Sequence[Any]", given)
        return len(held) == len(items) and all(
            contains(a, b, patterns=patterns) for a, b in zip(held, items, strict=True)
        )
    if patterns and isinstance(wanted, str) and isinstance(given, str):
        return compile_pattern(wanted).search(given) is not None
    return bool(given == wanted) and isinstance(given, bool) == isinstance(wanted, bool)


class Comparison(NamedTuple):
    """Whether a trajectory is as wanted, and the two side by side."""

    holds: bool
    diff: list[str]
    missing: list[str]
    extra: list[str]


def compare(actual: Sequence[Did], wanted: Sequence[Wanted], mode: Mode) -> Comparison:
    """Hold what happened against what should have.

    `exact`: the same calls in the same order. `in_order`: all that is wanted, in its order, others
    between. `any_order`: the same calls, in whatever order. `subset`: nothing but what is wanted.
    `superset`: all that is wanted, and perhaps more.
    """
    pairs = align(actual, wanted) if mode in {"exact", "in_order"} else assign(actual, wanted)
    paired = {a for a, _ in pairs}
    met = {w for _, w in pairs}
    missing = [str(one) for at, one in enumerate(wanted) if at not in met]
    extra = [shown(one) for at, one in enumerate(actual) if at not in paired]
    holds = not (missing and mode != "subset") and not (extra and mode in _CLOSED)
    return Comparison(holds, _diff(actual, wanted, pairs), missing, extra)


_CLOSED = {"exact", "any_order", "subset"}


def assign(actual: Sequence[Did], wanted: Sequence[Wanted]) -> list[tuple[int, int]]:
    """The largest set of pairs in which every call and every wish occurs once at most."""
    fits = [[a for a, did in enumerate(actual) if wish.fits(did)] for wish in wanted]
    taken: dict[int, int] = {}

    def settle(wish: int, tried: set[int]) -> bool:
        for call in fits[wish]:
            if call in tried:
                continue
            tried.add(call)
            if call not in taken or settle(taken[call], tried):
                taken[call] = wish
                return True
        return False

    for wish in range(len(wanted)):
        settle(wish, set())
    return sorted(taken.items())


def align(actual: Sequence[Did], wanted: Sequence[Wanted]) -> list[tuple[int, int]]:
    """The longest set of pairs that keeps both orders."""
    rows, columns = len(actual), len(wanted)
    best = [[0] * (columns + 1) for _ in range(rows + 1)]
    for a in range(rows - 1, -1, -1):
        for w in range(columns - 1, -1, -1):
            if wanted[w].fits(actual[a]):
                best[a][w] = best[a + 1][w + 1] + 1
            else:
                best[a][w] = max(best[a + 1][w], best[a][w + 1])
    pairs: list[tuple[int, int]] = []
    a = w = 0
    while a < rows and w < columns:
        if wanted[w].fits(actual[a]):
            pairs.append((a, w))
            a, w = a + 1, w + 1
        elif best[a + 1][w] >= best[a][w + 1]:
            a += 1
        else:
            w += 1
    return pairs


def _diff(
    actual: Sequence[Did], wanted: Sequence[Wanted], pairs: list[tuple[int, int]]
) -> list[str]:
    """Both sides, a line a step: `=` as wanted, `-` wanted and missing, `+` not wanted."""
    by_call = dict(pairs)
    met = set(by_call.values())
    lines: list[str] = []
    upto = 0
    for at, did in enumerate(actual):
        wish = by_call.get(at)
        if wish is not None:
            lines += [f"- {wanted[w]}" for w in range(upto, wish) if w not in met]
            upto = max(upto, wish + 1)
        lines.append(f"{'=' if wish is not None else '+'} {shown(did)}")
    lines += [f"- {wanted[w]}" for w in range(upto, len(wanted)) if w not in met]
    return lines


def shown(did: Did) -> str:
    """A call, in one line."""
    return f"{did.tool}({show(did.input)})"


def show(value: object) -> str:
    """A value, in at most a line."""
    text = msgspec.json.encode(value, enc_hook=repr).decode()
    return re.sub(r"^(.{79}).+$", r"\1…", text)
