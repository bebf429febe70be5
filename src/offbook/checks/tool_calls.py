"""Comparison of the tool calls of an agent with the expected ones.

Calls are paired optimally: if a pairing exists, it is found. (A greedy matcher takes the first
candidate, and fails where two expectations overlap.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from offbook.checks.alignment import (
    AlignedRow,
    Pairs,
    align_in_any_order,
    align_in_order,
    describe_mismatch,
)
from offbook.trace.matching import (
    Mismatch,
    find_mismatches,
    render_value,
    text_matches,
    values_equal,
)

Mode = Literal["exact", "in_order", "any_order", "subset", "superset"]
Args = Literal["exact", "partial", "pattern", "ignore"]
# The modes in which a call that no expectation matches is a failure.
NO_EXTRA_CALLS = {"exact", "any_order", "subset"}


class ActualCall(NamedTuple):
    """A tool call that the agent made."""

    tool: str
    input: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.tool}({render_value(self.input)})"


class ExpectedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call that the agent should make: the tool's name and, optionally, its input.

    `input` is a dict, compared as `args` says, or a function that returns True for a matching
    input, or None for any input.
    """

    tool: str
    input: Any = None
    args: Args | None = None

    def __post_init__(self) -> None:
        if self.input is not None and not isinstance(self.input, dict) and not callable(self.input):
            raise ValueError("`input` must be a dict or a function")

    def matches(self, call: ActualCall) -> bool:
        """Return whether a call satisfies this expectation."""
        if call.tool != self.tool:
            return False
        if self.input is None or self.args == "ignore":
            return True
        if callable(self.input):
            return not self._call_predicate(call)
        return next(self._mismatches(call), None) is None

    def differences(self, call: ActualCall) -> tuple[str, ...]:
        """Return the places where the input of a call differs from the expected input."""
        if self.input is None or self.args == "ignore":
            return ()
        if callable(self.input):
            return self._call_predicate(call)
        return tuple(map(describe_mismatch, self._mismatches(call)))

    def _mismatches(self, call: ActualCall) -> Iterator[Mismatch]:
        return find_mismatches(
            call.input,
            self.input,
            matches=text_matches if self.args == "pattern" else values_equal,
            subset="none" if self.args == "exact" else "deep",
        )

    def _call_predicate(self, call: ActualCall) -> tuple[str, ...]:
        try:
            return () if self.input(call.input) else (f"input: {self._predicate} returned False",)
        except Exception as error:  # noqa: BLE001 - an input that makes it raise does not match
            return (f"input: {self._predicate} raised {error!r}",)

    @property
    def _predicate(self) -> str:
        return str(getattr(self.input, "__name__", "the function"))

    def __str__(self) -> str:
        if self.input is None:
            return self.tool
        return (
            f"{self.tool}({self._predicate if callable(self.input) else render_value(self.input)})"
        )


class CallComparison(NamedTuple):
    """The result of a comparison: `ok`, and both sides aligned."""

    ok: bool
    rows: list[AlignedRow]
    missing: list[str]
    extra: list[str]


def compare_tool_calls(
    actual: Sequence[ActualCall], expected: Sequence[ExpectedCall], mode: Mode
) -> CallComparison:
    """Compare the actual calls with the expected ones.

    `exact`: the same calls in the same order. `in_order`: all expected calls in their order, with
    others in between. `any_order`: the same calls in any order. `subset`: only expected calls.
    `superset`: all expected calls, and possibly more.
    """
    ordered = mode in {"exact", "in_order"}
    # Matching may run a pattern or a function of the user: once per pair is enough.
    cache: dict[tuple[int, int], bool] = {}

    def matches(a: int, e: int) -> bool:
        if (a, e) not in cache:
            cache[a, e] = expected[e].matches(actual[a])
        return cache[a, e]

    align = align_in_order if ordered else align_in_any_order
    pairs = align(len(actual), len(expected), matches)
    matched_actual, matched_expected = {a for a, _ in pairs}, {e for _, e in pairs}
    missing = [str(call) for e, call in enumerate(expected) if e not in matched_expected]
    extra = [str(call) for a, call in enumerate(actual) if a not in matched_actual]
    ok = not (missing and mode != "subset") and not (extra and mode in NO_EXTRA_CALLS)
    rows = align_calls(actual, expected, pairs, ordered=ordered)
    if mode not in NO_EXTRA_CALLS:
        rows = [row if row.expected else row._replace(ok=True) for row in rows]
    return CallComparison(ok, rows, missing, extra)


def align_calls(
    actual: Sequence[ActualCall], expected: Sequence[ExpectedCall], pairs: Pairs, *, ordered: bool
) -> list[AlignedRow]:
    """Return the rows of both sides, with a row for each actual call.

    An unmatched call shares a row with an unmatched expectation for the same tool, so that the
    difference of their inputs is visible.
    """
    expected_of = dict(pairs)
    unmatched = [e for e in range(len(expected)) if e not in expected_of.values()]
    rows: list[AlignedRow] = []
    for position, call in enumerate(actual):
        match = expected_of.get(position)
        if match is None:
            # In order, only expectations before the next matched one are candidates.
            limit = len(expected)
            if ordered:
                limit = min((e for a, e in pairs if a > position), default=limit)
            same_tool = (e for e in unmatched if e < limit and expected[e].tool == call.tool)
            match = next(same_tool, None)
        while ordered and match is not None and unmatched and unmatched[0] < match:
            rows.append(AlignedRow(str(expected[unmatched.pop(0)]), ""))
        if match is None:
            rows.append(AlignedRow("", str(call)))
        elif position in expected_of:
            rows.append(AlignedRow(str(expected[match]), str(call), ok=True))
        else:
            unmatched.remove(match)
            notes = expected[match].differences(call)
            rows.append(AlignedRow(str(expected[match]), str(call), notes=notes))
    return [*rows, *(AlignedRow(str(expected[e]), "") for e in unmatched)]
