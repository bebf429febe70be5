"""Assertions about the tool calls of an agent."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar, Literal

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
from offbook.errors import did_you_mean
from offbook.trace.matching import contains, text_matches
from offbook.trace.query import Events, ToolCallRecord

State = Literal["ok", "failed", "blocked", "retried"]


class ToolSequence(Assertion, frozen=True, tag="tool_sequence"):
    """The agent called these tools: names, or names with their input.

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
        actual = _actual_calls(context)
        comparison = compare_tool_calls(actual, expected, self.mode)
        return AssertionResult(
            comparison.ok,
            [str(call) for call in expected],
            [str(call) for call in actual],
            "the calls differ",
            {"missing": comparison.missing, "extra": comparison.extra},
            comparison.rows,
        )


class ToolCalled(Assertion, frozen=True, tag="tool_called"):
    """The agent called this tool with this input, between `min` and `max` times."""

    tool: str
    input: dict[str, Any] | None = None
    args: Args = "partial"
    min: int = 1
    max: int | None = None
    title_fields: ClassVar[tuple[str, ...]] = ("tool",)

    def requires(self) -> list[Requirement]:
        return [(ToolEvents, ())]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        calls = _actual_calls(context)
        expected = ExpectedCall(self.tool, self.input, self.args)
        matching = [position for position, call in enumerate(calls) if expected.matches(call)]
        count = len(matching)
        ok = count >= self.min and (self.max is None or count <= self.max)
        bounds = {"min": self.min, "max": self.max, "call": str(expected)}
        same_tool = [str(call) for call in calls if call.tool == self.tool]
        message = f"{expected} was called {count} times"
        if not same_tool:
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
    """The agent never called this tool, or never with this input, while it called others."""

    tool: str
    input: dict[str, Any] | None = None
    title_fields: ClassVar[tuple[str, ...]] = ("tool",)

    def requires(self) -> list[Requirement]:
        return [(ToolEvents, ())]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        rows: list[AlignedRow] = []
        for call in _actual_calls(context):
            forbidden = call.tool == self.tool and contains(
                call.input, self.input or {}, matches=text_matches
            )
            rows.append(AlignedRow("", str(call), ok=not forbidden))
        calls = [row.actual for row in rows if not row.ok]
        message = f"{self.tool!r} was called"
        return AssertionResult(not calls, f"no {self.tool}", calls, message, rows=rows)


class ToolBefore(Assertion, frozen=True, tag="tool_before"):
    """The agent called `first` before it called `then`."""

    first: str
    then: str
    title_fields: ClassVar[tuple[str, ...]] = ("first", "then")

    def requires(self) -> list[Requirement]:
        return [(ToolEvents, ())]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        names = [call.tool for call in _actual_calls(context)]
        if self.then not in names:
            raise NoData(f"{self.then!r} was never called")
        position = names.index(self.then)
        ok = self.first in names[:position]
        # All calls of other tools are fine; those of `first` are too late.
        rows = [
            row._replace(ok=row.ok or row.actual not in {"", self.first})
            for row in align_names([self.first, self.then], names, [(position, 1)])
        ]
        message = f"{self.then!r} was called before {self.first!r}"
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
            reason = "no result"
            if state is None and result is not None:
                if result.failed is None:
                    unknown, reason = True, "unknown"
                else:
                    state = "failed" if result.failed else "ok"
            if state is not None:
                states.append(state)
            actual = f"{ActualCall(call.tool_name, call.input)}: {state or reason}"
            rows.append(AlignedRow(f"{self.tool}: {self.status}", actual, ok=state == self.status))
        if any(a != "ok" and b == "ok" for a, b in itertools.pairwise(states)):
            states.append("retried")
        if unknown and self.status not in states:
            raise NoData(f"it is unknown whether {self.tool!r} failed: its results do not say it")
        message = f"no call of {self.tool!r} was {self.status}"
        return AssertionResult(self.status in states, self.status, states, message, rows=rows)


def _actual_calls(context: CheckContext) -> list[ActualCall]:
    return [ActualCall(call.tool_name, call.input) for call in _call_records(context)]


def _call_records(context: CheckContext) -> list[ToolCallRecord]:
    calls = Events(context.get(ToolEvents).events).tool_calls
    if not calls:
        raise NoData("no tool was called")
    return calls
