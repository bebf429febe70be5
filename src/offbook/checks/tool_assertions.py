"""Assertions about the tools of an agent, and the comparison of its calls with expected ones.

`tool_sequence`, `tool_called` and `tool_before` count the tools that ran. A call of the model that
was blocked or refused did not run. Of a call without a result it is unknown: an assertion that
depends on it has no data.

Calls are paired optimally: if a pairing exists, it is found. (A greedy matcher takes the first
candidate, and fails where two expectations overlap.)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec

from offbook.checks.assertion import Assertion, AssertionResult
from offbook.checks.context import AgentNames, CheckContext, NoData, Requirement
from offbook.errors import counted, did_you_mean
from offbook.options import decide
from offbook.trace.executions import ToolUse
from offbook.trace.matching import (
    AlignedRow,
    Mismatch,
    Pairs,
    align_in_any_order,
    align_in_order,
    align_names,
    contains,
    describe_mismatch,
    find_mismatches,
    render_value,
    text_matches,
    values_equal,
)

Mode = Literal["exact", "in_order", "any_order", "subset", "superset"]
Args = Literal["exact", "partial", "pattern", "ignore"]
# The modes in which a call that no expectation matches is a failure.
NO_EXTRA_CALLS = {"exact", "any_order", "subset"}
State = Literal["ok", "failed", "blocked", "retried"]


# --- Comparison of calls


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
            result = self.input(call.input)
        except Exception as error:  # noqa: BLE001 - an input that makes it raise does not match
            return (f"input: {self._predicate} raised {error!r}",)
        holds, reason = decide(result, self._predicate)
        why = "returned False" if holds is result else f"returned False: {reason}"
        return () if holds else (f"input: {self._predicate} {why}",)

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


# --- The calls of a run


class ToolCalls(NamedTuple):
    """The executions, and the calls that did not run: True, False, or None if it is unknown."""

    calls: list[tuple[ActualCall, bool | None]]

    def select(self, *outcomes: bool | None) -> list[ActualCall]:
        """Return the calls with one of these outcomes."""
        return [call for call, ran in self.calls if ran in outcomes]

    def decide(self, check: Callable[[list[ActualCall]], AssertionResult]) -> AssertionResult:
        """Return the result for the calls that ran, if the unknown ones cannot change it."""
        result = check(self.select(True))
        unknown = self.select(None)
        if unknown and check(self.select(True, None)).ok != result.ok:
            tools = ", ".join(sorted({repr(call.tool) for call in unknown}))
            raise NoData(f"it is unknown whether {tools} ran: no result came back")
        return result


def _read_calls(context: CheckContext, agent: str | None) -> ToolCalls:
    return ToolCalls([(_to_actual(use), use.ran) for use in context.tool_calls_of(agent)])


def _to_actual(use: ToolUse) -> ActualCall:
    return ActualCall(use.tool, use.input or {})


# --- Assertions


class ToolAssertion(Assertion, frozen=True, kw_only=True):
    """An assertion about tool calls, of one `agent` of the run if it has a name.

    Without any call there is no data.
    """

    agent: str | None = None
    needs: ClassVar[tuple[str, ...]] = ("tool_calls",)
    value_fields: ClassVar[tuple[str, ...]] = ("input",)

    def requires(self) -> Iterable[Requirement]:
        return [*super().requires(), *([] if self.agent is None else [(AgentNames, ())])]

    @property
    def title(self) -> str:
        return super().title if self.agent is None else f"{self.agent}: {super().title}"


class ToolSequence(ToolAssertion, frozen=True, tag="tool_sequence"):
    """The agent ran these tools: names, or names with their input.

    `args` sets the comparison of inputs; each tool can override it.
    """

    tools: list[str | ExpectedCall]
    mode: Mode = "exact"
    args: Args = "partial"
    title_fields: ClassVar[tuple[str, ...]] = ("mode",)
    value_fields: ClassVar[tuple[str, ...]] = ("tools",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tools and self.mode != "exact":
            # Exactly no calls is a condition; any other mode is not one.
            raise ValueError("`tools` is empty and would check nothing")

    def evaluate(self, context: CheckContext) -> AssertionResult:
        expected = [
            ExpectedCall(tool)
            if isinstance(tool, str)
            else msgspec.structs.replace(tool, args=tool.args or self.args)
            for tool in self.tools
        ]
        calls = _read_calls(context, self.agent)

        def compare(actual: list[ActualCall]) -> AssertionResult:
            comparison = compare_tool_calls(actual, expected, self.mode)
            details = {"missing": comparison.missing, "extra": comparison.extra}
            if not_run := calls.select(False):
                details["not run"] = [str(call) for call in not_run]
            return AssertionResult(
                comparison.ok,
                [str(call) for call in expected],
                [str(call) for call in actual],
                "the tools that ran differ",
                details,
                comparison.rows,
            )

        return calls.decide(compare)


class ToolCalled(ToolAssertion, frozen=True, tag="tool_called"):
    """The agent ran this tool with this input, between `min` and `max` times."""

    tool: str
    input: dict[str, Any] | None = None
    args: Args = "partial"
    min: int = 1
    max: int | None = None
    title_fields: ClassVar[tuple[str, ...]] = ("tool",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min == 0 and self.max is None:
            raise ValueError("min 0 alone would always pass")
        if self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is greater than max {self.max}")

    def evaluate(self, context: CheckContext) -> AssertionResult:
        calls = _read_calls(context, self.agent)
        return calls.decide(lambda actual: self._count(actual, calls.select(False)))

    def _count(self, calls: list[ActualCall], not_run: list[ActualCall]) -> AssertionResult:
        expected = ExpectedCall(self.tool, self.input, self.args)
        matching = [position for position, call in enumerate(calls) if expected.matches(call)]
        count = len(matching)
        ok = count >= self.min and (self.max is None or count <= self.max)
        bounds = {"min": self.min, "max": self.max, "call": str(expected)}
        same_tool = [str(call) for call in calls if call.tool == self.tool]
        message = f"{expected} ran {counted(count, 'time')}"
        if not same_tool and any(call.tool == self.tool for call in not_run):
            message = f"the model called {self.tool!r}, but it did not run"
        elif not same_tool:
            suggestion = did_you_mean(self.tool, {call.tool for call in calls})
            message = f"{self.tool!r} was never called; {suggestion}"
        # Matching calls share a row with as many expectations as are required and allowed.
        allowed = count if self.max is None else min(count, self.max)
        shown = max(self.min, allowed)
        pairs = [(position, number) for number, position in enumerate(matching[:shown])]
        rows = align_calls(calls, [expected] * shown, pairs, ordered=False)
        # Other calls are fine; only matching calls beyond the maximum are marked as unexpected.
        # Each call has its row, at its position; the missing ones follow.
        too_many = matching[shown:]
        rows = [
            row._replace(ok=row.ok or (not row.expected and position not in too_many))
            for position, row in enumerate(rows)
        ]
        return AssertionResult(ok, bounds, count, message, {"calls": same_tool}, rows)


class ToolNever(ToolAssertion, frozen=True, tag="tool_never"):
    """The model never called this tool, or never with this input, while it called others.

    A tool that the agent ran without a call of the model counts as well.
    """

    tool: str
    input: dict[str, Any] | None = None
    title_fields: ClassVar[tuple[str, ...]] = ("tool",)

    def evaluate(self, context: CheckContext) -> AssertionResult:
        rows: list[AlignedRow] = []
        # A call that was blocked counts as well: the model must not even try.
        for use in context.tool_calls_of(self.agent):
            call = _to_actual(use)
            # What the model wrote, and what the tool received.
            inputs = [call.input] if use.call is None else [use.call.data.input, call.input]
            forbidden = call.tool == self.tool and any(
                contains(given, self.input or {}, matches=text_matches) for given in inputs
            )
            rows.append(AlignedRow("", str(call), ok=not forbidden))
        calls = [row.actual for row in rows if not row.ok]
        message = f"{self.tool!r} was called"
        return AssertionResult(not calls, f"no {self.tool}", calls, message, rows=rows)


class ToolBefore(ToolAssertion, frozen=True, tag="tool_before"):
    """The agent ran `first` before it ran `then`."""

    first: str
    then: str
    title_fields: ClassVar[tuple[str, ...]] = ("first", "then")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first == self.then:
            raise ValueError(f"`first` and `then` are the same tool, {self.first!r}")

    def evaluate(self, context: CheckContext) -> AssertionResult:
        calls = _read_calls(context, self.agent)
        if all(call.tool != self.then for call, _ in calls.calls):
            raise NoData(f"{self.then!r} was never called")
        return calls.decide(self._compare)

    def _compare(self, calls: list[ActualCall]) -> AssertionResult:
        names = [call.tool for call in calls]
        if self.then not in names:
            rows = [AlignedRow(self.first, ""), AlignedRow(self.then, "")]
            message = f"the model called {self.then!r}, but it did not run"
            expected = f"{self.first} before {self.then}"
            return AssertionResult(False, expected, names, message, rows=rows)
        position = names.index(self.then)
        ok = self.first in names[:position]
        # All calls of other tools are fine; those of `first` are too late.
        rows = [
            row._replace(ok=row.ok or row.actual not in {"", self.first})
            for row in align_names([self.first, self.then], names, [(position, 1)])
        ]
        message = f"{self.then!r} ran before {self.first!r}"
        return AssertionResult(ok, f"{self.first} before {self.then}", names, message, rows=rows)


class ToolStatus(ToolAssertion, frozen=True, tag="tool_status"):
    """A call of this tool was ok, failed, blocked, or failed and then retried."""

    tool: str
    status: State
    title_fields: ClassVar[tuple[str, ...]] = ("tool", "status")

    def evaluate(self, context: CheckContext) -> AssertionResult:
        uses = [use for use in context.tool_calls_of(self.agent) if use.tool == self.tool]
        if not uses:
            raise NoData(f"{self.tool!r} was never called")
        states: list[State] = []
        rows: list[AlignedRow] = []
        unknown = False
        for use in uses:
            state: State | None = None
            if use.call is not None and use.call.blocked:
                state = "blocked"
            elif use.failed is not None:
                state = "failed" if use.failed else "ok"
            elif use.ran or (use.call is not None and use.call.result is not None):
                unknown = True
            # A call without a result has no state: the run may have ended before the tool did.
            if state is not None:
                states.append(state)
            actual = f"{_to_actual(use)}: {state or 'no result'}"
            rows.append(AlignedRow(f"{self.tool}: {self.status}", actual, ok=state == self.status))
        if any(a != "ok" and b == "ok" for a, b in itertools.pairwise(states)):
            states.append("retried")
        if unknown and self.status not in states:
            raise NoData(f"it is unknown whether {self.tool!r} failed: its results do not say it")
        message = f"no call of {self.tool!r} was {self.status}"
        return AssertionResult(self.status in states, self.status, states, message, rows=rows)
