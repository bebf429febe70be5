"""Assertions about the tools that an agent called."""

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
    compare_calls,
    contains,
)
from offbook.errors import did_you_mean
from offbook.trace.query import Events, ToolCallRecord

DIFFER = "the calls differ"
State = Literal["ok", "failed", "blocked", "retried"]


class ToolSequence(Assertion, frozen=True, forbid_unknown_fields=True, tag="tool_sequence"):
    """The agent called these tools: names, or names with their input.

    `args` says how inputs are compared; a tool may have a way of its own.
    """

    tools: list[str | ExpectedCall]
    mode: Mode = "exact"
    args: Args = "partial"
    subject: ClassVar[tuple[str, ...]] = ("mode",)

    def asks(self) -> list[Requirement]:
        return [(ToolEvents, ())]

    def look(self, evidence: CheckContext) -> AssertionResult:
        wanted = [self._wish(one) for one in self.tools]
        if self.mode != "exact":
            require_items([one.tool for one in wanted], "tool_sequence.tools")
        actual = _did(evidence)
        found = compare_calls(actual, wanted, self.mode)
        context = {"missing": found.missing, "extra": found.extra}
        sides = ([str(one) for one in wanted], [str(did) for did in actual])
        return AssertionResult(found.holds, *sides, DIFFER, context, found.rows)

    def _wish(self, one: str | ExpectedCall) -> ExpectedCall:
        if isinstance(one, str):
            return ExpectedCall(one)
        return msgspec.structs.replace(one, args=one.args or self.args)


class ToolCalled(Assertion, frozen=True, forbid_unknown_fields=True, tag="tool_called"):
    """The agent called this tool, with input like this, so many times (at least once)."""

    tool: str
    input: dict[str, Any] | None = None
    args: Args = "partial"
    min: int = 1
    max: int | None = None
    subject: ClassVar[tuple[str, ...]] = ("tool",)

    def asks(self) -> list[Requirement]:
        return [(ToolEvents, ())]

    def look(self, evidence: CheckContext) -> AssertionResult:
        calls = _did(evidence)
        wish = ExpectedCall(self.tool, self.input, self.args)
        fitting = [at for at, did in enumerate(calls) if wish.fits(did)]
        count = len(fitting)
        holds = count >= self.min and (self.max is None or count <= self.max)
        bounds = {"min": self.min, "max": self.max, "call": str(wish)}
        made = [str(did) for did in calls if did.tool == self.tool]
        told = f"{wish} was called {count} times"
        if not made:
            told = f"{self.tool!r} was never called; {did_you_mean(self.tool, {d.tool for d in calls})}"
        rows = self._rows(wish, calls, fitting)
        return AssertionResult(holds, bounds, count, told, {"calls": made}, rows)

    def _rows(
        self, wish: ExpectedCall, calls: list[ActualCall], fitting: list[int]
    ) -> list[AlignedRow]:
        """The calls beside as many wishes as there should be, and no more than there may be."""
        most = len(fitting) if self.max is None else self.max
        wanted = max(self.min, min(len(fitting), most))
        pairs = [(at, number) for number, at in enumerate(fitting[:wanted])]
        rows = align_calls(calls, [wish] * wanted, pairs, ordered=False)
        extra = fitting[wanted:]
        return [
            row._replace(fits=row.fits or (not row.expected and at not in extra))
            for at, row in enumerate(rows)  # a row for each call, then what is missing
        ]


class ToolNever(Assertion, frozen=True, forbid_unknown_fields=True, tag="tool_never"):
    """The agent never called this tool, or never with input like this, though it called others."""

    tool: str
    input: dict[str, Any] | None = None
    subject: ClassVar[tuple[str, ...]] = ("tool",)

    def asks(self) -> list[Requirement]:
        return [(ToolEvents, ())]

    def look(self, evidence: CheckContext) -> AssertionResult:
        rows = [AlignedRow("", str(did), fits=not self._names(did)) for did in _did(evidence)]
        made = [row.actual for row in rows if not row.fits]
        return AssertionResult(
            not made, f"no {self.tool}", made, f"{self.tool!r} was called", rows=rows
        )

    def _names(self, did: ActualCall) -> bool:
        """Whether this is a call that should never be."""
        return did.tool == self.tool and contains(did.input, self.input or {}, patterns=True)


class ToolBefore(Assertion, frozen=True, forbid_unknown_fields=True, tag="tool_before"):
    """Whenever the agent called `then`, it had called `first` already."""

    first: str
    then: str
    subject: ClassVar[tuple[str, ...]] = ("first", "then")

    def asks(self) -> list[Requirement]:
        return [(ToolEvents, ())]

    def look(self, evidence: CheckContext) -> AssertionResult:
        names = [did.tool for did in _did(evidence)]
        if self.then not in names:
            raise NoData(f"{self.then!r} was never called")
        at = names.index(self.then)
        holds = self.first in names[:at]
        rows = [
            row._replace(fits=row.fits or row.actual not in {"", self.first})
            for row in align_names([self.first, self.then], names, [(at, 1)])
        ]
        told = f"{self.then!r} was called before {self.first!r}"
        return AssertionResult(holds, f"{self.first} before {self.then}", names, told, rows=rows)


class ToolStatus(Assertion, frozen=True, forbid_unknown_fields=True, tag="tool_status"):
    """A call of this tool came out so: ok, failed, blocked, or failed and then retried."""

    tool: str
    status: State
    subject: ClassVar[tuple[str, ...]] = ("tool", "status")

    def asks(self) -> list[Requirement]:
        return [(ToolEvents, ())]

    def look(self, evidence: CheckContext) -> AssertionResult:
        calls = [one for one in _calls(evidence) if one.tool_name == self.tool]
        if not calls:
            raise NoData(f"{self.tool!r} was never called")
        results = {r.tool_call_id: r for r in Events(evidence.know(ToolEvents).events).tool_results}
        states: list[State] = []
        rows: list[AlignedRow] = []
        for record in calls:
            result = results.get(record.tool_call_id)
            state: State | None = "blocked" if record.blocked else None
            if state is None and result is not None:
                state = "failed" if result.is_error else "ok"
            if state is not None:
                states.append(state)
            said = f"{ActualCall(record.tool_name, record.input)}: {state or 'no result'}"
            rows.append(AlignedRow(f"{self.tool}: {self.status}", said, fits=state == self.status))
        if any(a != "ok" and b == "ok" for a, b in itertools.pairwise(states)):
            states.append("retried")
        told = f"no call of {self.tool!r} was {self.status}"
        return AssertionResult(self.status in states, self.status, states, told, rows=rows)


def _did(evidence: CheckContext) -> list[ActualCall]:
    return [ActualCall(record.tool_name, record.input) for record in _calls(evidence)]


def _calls(evidence: CheckContext) -> list[ToolCallRecord]:
    calls = Events(evidence.know(ToolEvents).events).tool_calls
    if not calls:
        raise NoData("no tool was called")
    return calls
