"""Assertions about the tools of an agent.

`tool_sequence`, `tool_called` and `tool_before` count the tools that ran. A call of the model that
was blocked or refused did not run. Of a call without a result it is unknown: an assertion that
depends on it has no data.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import msgspec

from offbook.checks.alignment import AlignedRow, align_names
from offbook.checks.assertion import Assertion, AssertionResult, require_items
from offbook.checks.collectors import ToolEvents
from offbook.checks.context import CheckContext, NoData, Requirement
from offbook.checks.tool_calls import (
    ActualCall,
    Args,
    ExpectedCall,
    Mode,
    align_calls,
    compare_tool_calls,
)
from offbook.errors import counted, did_you_mean
from offbook.trace.events import TOOL_RESULT
from offbook.trace.matching import contains, text_matches
from offbook.trace.query import Events, ToolCallRecord

if TYPE_CHECKING:
    from collections.abc import Callable

State = Literal["ok", "failed", "blocked", "retried"]


class ToolSequence(Assertion, frozen=True, tag="tool_sequence"):
    """The agent ran these tools: names, or names with their input.

    `args` sets the comparison of inputs; each tool can override it.
    """

    tools: list[str | ExpectedCall]
    mode: Mode = "exact"
    args: Args = "partial"
    title_fields: ClassVar[tuple[str, ...]] = ("mode",)

    def requires(self) -> list[Requirement]:
        return [(ToolEvents, ())]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        expected = [
            ExpectedCall(tool)
            if isinstance(tool, str)
            else msgspec.structs.replace(tool, args=tool.args or self.args)
            for tool in self.tools
        ]
        if self.mode != "exact":  # exactly no calls is a condition; any other mode is not one
            require_items([call.tool for call in expected], "tool_sequence.tools")
        calls = _read_calls(context)

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


class ToolCalled(Assertion, frozen=True, tag="tool_called"):
    """The agent ran this tool with this input, between `min` and `max` times."""

    tool: str
    input: dict[str, Any] | None = None
    args: Args = "partial"
    min: int = 1
    max: int | None = None
    title_fields: ClassVar[tuple[str, ...]] = ("tool",)

    def requires(self) -> list[Requirement]:
        return [(ToolEvents, ())]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        calls = _read_calls(context)
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


class ToolNever(Assertion, frozen=True, tag="tool_never"):
    """The model never called this tool, or never with this input, while it called others."""

    tool: str
    input: dict[str, Any] | None = None
    title_fields: ClassVar[tuple[str, ...]] = ("tool",)

    def requires(self) -> list[Requirement]:
        return [(ToolEvents, ())]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        rows: list[AlignedRow] = []
        # A call that was blocked counts as well: the model must not even try.
        for call, _ in _read_calls(context).calls:
            forbidden = call.tool == self.tool and contains(
                call.input, self.input or {}, matches=text_matches
            )
            rows.append(AlignedRow("", str(call), ok=not forbidden))
        calls = [row.actual for row in rows if not row.ok]
        message = f"{self.tool!r} was called"
        return AssertionResult(not calls, f"no {self.tool}", calls, message, rows=rows)


class ToolBefore(Assertion, frozen=True, tag="tool_before"):
    """The agent ran `first` before it ran `then`."""

    first: str
    then: str
    title_fields: ClassVar[tuple[str, ...]] = ("first", "then")

    def requires(self) -> list[Requirement]:
        return [(ToolEvents, ())]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        calls = _read_calls(context)
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


class ToolStatus(Assertion, frozen=True, tag="tool_status"):
    """A call of this tool was ok, failed, blocked, or failed and then retried."""

    tool: str
    status: State
    title_fields: ClassVar[tuple[str, ...]] = ("tool", "status")

    def requires(self) -> list[Requirement]:
        return [(ToolEvents, ())]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        calls = [call for call in _call_records(context) if call.tool_name == self.tool]
        if not calls:
            raise NoData(f"{self.tool!r} was never called")
        events = Events(context.get(ToolEvents).events)
        # A call without a result has no state: the run may have ended before the tool did.
        results = {result.tool_call_id: result for result in events.tool_results}
        states: list[State] = []
        rows: list[AlignedRow] = []
        unknown = False
        for call in calls:
            result = results.get(call.tool_call_id)
            state: State | None = "blocked" if call.blocked else None
            if state is None and result is not None:
                if result.failed is None:
                    unknown = True
                else:
                    state = "failed" if result.failed else "ok"
            if state is not None:
                states.append(state)
            actual = f"{ActualCall(call.tool_name, call.input)}: {state or 'no result'}"
            rows.append(AlignedRow(f"{self.tool}: {self.status}", actual, ok=state == self.status))
        if any(a != "ok" and b == "ok" for a, b in itertools.pairwise(states)):
            states.append("retried")
        if unknown and self.status not in states:
            raise NoData(f"it is unknown whether {self.tool!r} failed: its results do not say it")
        message = f"no call of {self.tool!r} was {self.status}"
        return AssertionResult(self.status in states, self.status, states, message, rows=rows)


class ModelCalls(NamedTuple):
    """The calls that the model made, in order, each with whether it ran: None if unknown."""

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


def _read_calls(context: CheckContext) -> ModelCalls:
    records = _call_records(context)
    ran_by_id = {
        event.data["call_id"]: bool(event.data.get("executed", True))
        for event in context.get(ToolEvents).events
        if event.event == TOOL_RESULT
    }
    calls: list[tuple[ActualCall, bool | None]] = []
    for record in records:
        changed = record.rewritten_input
        call = ActualCall(record.tool_name, record.input if changed is None else changed)
        calls.append((call, False if record.blocked else ran_by_id.get(record.tool_call_id)))
    return ModelCalls(calls)


def _call_records(context: CheckContext) -> list[ToolCallRecord]:
    calls = Events(context.get(ToolEvents).events).tool_calls
    if not calls:
        raise NoData("no tool was called")
    return calls
