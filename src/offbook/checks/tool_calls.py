"""Compares what an agent did with what it should have done, and shows where they part.

Calls are paired optimally: when any pairing fits, it is found. (A greedy matcher takes the first
that fits, and fails where two expectations overlap.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

import msgspec

from offbook.checks.alignment import (
    AlignedRow,
    Pairs,
    align,
    assign,
    find_differences,
    render_value,
)
from offbook.trace.text_patterns import compile_pattern

Mode = Literal["exact", "in_order", "any_order", "subset", "superset"]
Args = Literal["exact", "partial", "pattern", "ignore"]


class ActualCall(NamedTuple):
    """A tool call that happened."""

    tool: str
    input: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.tool}({render_value(self.input)})"


class ExpectedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call that should happen: by its name, and by its input in one of several ways.

    `input` is a dict to compare with, a function that looks at it, or None for any.
    """

    tool: str
    input: Any = None
    args: Args | None = None

    def __post_init__(self) -> None:
        if self.input is not None and not isinstance(self.input, dict) and not callable(self.input):
            raise ValueError("`input` is a dict or a function")

    def fits(self, did: ActualCall) -> bool:
        """Whether a call is the one that was meant."""
        if did.tool != self.tool:
            return False
        if self.input is None or self.args == "ignore":
            return True
        if callable(self.input):
            return not self._ask(did)
        if self.args == "exact":
            return dict(did.input) == self.input
        return contains(did.input, self.input, patterns=self.args == "pattern")

    def differences(self, did: ActualCall) -> tuple[str, ...]:
        """Where the input of a call is not as it should be."""
        if self.input is None or self.args == "ignore":
            return ()
        if callable(self.input):
            return self._ask(did)
        whole = self.args == "exact"

        def differs(given: Any, wanted: Any) -> bool:
            if whole:
                return bool(given != wanted)
            return not contains(given, wanted, patterns=self.args == "pattern")

        return tuple(find_differences(did.input, self.input, differs, whole=whole))

    def _ask(self, did: ActualCall) -> tuple[str, ...]:
        try:
            return () if self.input(did.input) else (f"input: {self._name} says no",)
        except Exception as error:  # noqa: BLE001 - what it trips over is not what it wants
            return (f"input: {self._name} raised {error!r}",)

    @property
    def _name(self) -> str:
        return str(getattr(self.input, "__name__", "the function"))

    def __str__(self) -> str:
        if self.input is None:
            return self.tool
        return f"{self.tool}({self._name if callable(self.input) else render_value(self.input)})"


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


class CallComparison(NamedTuple):
    """Whether a trajectory is as wanted, and the two side by side."""

    holds: bool
    rows: list[AlignedRow]
    missing: list[str]
    extra: list[str]


def compare_calls(
    actual: Sequence[ActualCall], wanted: Sequence[ExpectedCall], mode: Mode
) -> CallComparison:
    """Hold what happened against what should have.

    `exact`: the same calls in the same order. `in_order`: all that is wanted, in its order, others
    between. `any_order`: the same calls, in whatever order. `subset`: nothing but what is wanted.
    `superset`: all that is wanted, and perhaps more.
    """
    ordered = mode in {"exact", "in_order"}
    pairs = pair_calls(actual, wanted, ordered=ordered)
    paired = {a for a, _ in pairs}
    met = {w for _, w in pairs}
    missing = [str(one) for at, one in enumerate(wanted) if at not in met]
    extra = [str(one) for at, one in enumerate(actual) if at not in paired]
    holds = not (missing and mode != "subset") and not (extra and mode in _CLOSED)
    rows = align_calls(actual, wanted, pairs, ordered=ordered)
    if mode not in _CLOSED:  # others are free to come
        rows = [row if row.expected else row._replace(fits=True) for row in rows]
    return CallComparison(holds, rows, missing, extra)


_CLOSED = {"exact", "any_order", "subset"}


def pair_calls(
    actual: Sequence[ActualCall], wanted: Sequence[ExpectedCall], *, ordered: bool
) -> Pairs:
    """Which call is which wish, for as many as there can be."""
    known: dict[tuple[int, int], bool] = {}

    def fits(a: int, w: int) -> bool:
        if (a, w) not in known:
            known[a, w] = wanted[w].fits(actual[a])
        return known[a, w]

    return (align if ordered else assign)(len(actual), len(wanted), fits)


def align_calls(
    actual: Sequence[ActualCall], wanted: Sequence[ExpectedCall], pairs: Pairs, *, ordered: bool
) -> list[AlignedRow]:
    """Calls beside wishes; one that is no wish stands beside a wish for the same tool."""
    by_call = dict(pairs)
    left = [w for w in range(len(wanted)) if w not in by_call.values()]
    rows: list[AlignedRow] = []
    for at, did in enumerate(actual):
        wish = by_call.get(at)
        if wish is None:
            bound = min((w for a, w in pairs if a > at), default=len(wanted)) if ordered else None
            wish = _find_kin(did, wanted, left, bound)
        while ordered and wish is not None and left and left[0] < wish:
            rows.append(AlignedRow(str(wanted[left.pop(0)]), ""))
        if wish is None:
            rows.append(AlignedRow("", str(did)))
        elif at in by_call:
            rows.append(AlignedRow(str(wanted[wish]), str(did), fits=True))
        else:
            left.remove(wish)
            rows.append(
                AlignedRow(str(wanted[wish]), str(did), notes=wanted[wish].differences(did))
            )
    return [*rows, *(AlignedRow(str(wanted[w]), "") for w in left)]


def _find_kin(
    did: ActualCall, wanted: Sequence[ExpectedCall], left: list[int], bound: int | None
) -> int | None:
    """The wish for the same tool that nothing has met, before the bound."""
    near = (w for w in left if bound is None or w < bound)
    return next((w for w in near if wanted[w].tool == did.tool), None)
