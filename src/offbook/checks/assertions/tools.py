"""Assertions about the tools that an agent called."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar, Literal

import msgspec

from offbook.checks.assertions.assertion import Assertion, Finding, listed
from offbook.checks.evidence import Asked, Evidence, NoData
from offbook.checks.facts import Tooling
from offbook.checks.trajectory import Args, Did, Mode, Wanted, compare, contains, shown
from offbook.errors import nearest
from offbook.trace.query import Events, ToolCallRecord

State = Literal["ok", "failed", "blocked", "retried"]


class ToolSequence(Assertion, frozen=True, forbid_unknown_fields=True, tag="tool_sequence"):
    """The agent called these tools: names, or names with their input.

    `args` says how inputs are compared; a tool may have a way of its own.
    """

    tools: list[str | Wanted]
    mode: Mode = "exact"
    args: Args = "partial"
    subject: ClassVar[tuple[str, ...]] = ("mode",)

    def asks(self) -> list[Asked]:
        return [(Tooling, ())]

    def look(self, evidence: Evidence) -> Finding:
        wanted = [self._wish(one) for one in self.tools]
        if self.mode != "exact":
            listed([one.tool for one in wanted], "tool_sequence.tools")
        actual = [Did(record.tool_name, record.input) for record in _calls(evidence)]
        found = compare(actual, wanted, self.mode)
        message = "" if found.holds else "the calls differ:\n" + "\n".join(found.diff)
        context = {"missing": found.missing, "extra": found.extra}
        shown_ = [shown(did) for did in actual]
        return Finding(found.holds, [str(one) for one in wanted], shown_, message, context)

    def _wish(self, one: str | Wanted) -> Wanted:
        if isinstance(one, str):
            return Wanted(one)
        return msgspec.structs.replace(one, args=one.args or self.args)


class ToolCalled(Assertion, frozen=True, forbid_unknown_fields=True, tag="tool_called"):
    """The agent called this tool, with input like this, so many times (at least once)."""

    tool: str
    input: dict[str, Any] | None = None
    args: Args = "partial"
    min: int = 1
    max: int | None = None
    subject: ClassVar[tuple[str, ...]] = ("tool",)

    def asks(self) -> list[Asked]:
        return [(Tooling, ())]

    def look(self, evidence: Evidence) -> Finding:
        calls = _calls(evidence)
        wish = Wanted(self.tool, self.input, self.args)
        fitting = [c for c in calls if wish.fits(Did(c.tool_name, c.input))]
        count = len(fitting)
        holds = count >= self.min and (self.max is None or count <= self.max)
        bounds = {"min": self.min, "max": self.max, "call": str(wish)}
        made = [shown(Did(c.tool_name, c.input)) for c in calls if c.tool_name == self.tool]
        near = "" if made else nearest(self.tool, {c.tool_name for c in calls})
        return Finding(holds, bounds, count, near, {"calls": made})


class ToolNever(Assertion, frozen=True, forbid_unknown_fields=True, tag="tool_never"):
    """The agent never called this tool, or never with input like this, though it called others."""

    tool: str
    input: dict[str, Any] | None = None
    subject: ClassVar[tuple[str, ...]] = ("tool",)

    def asks(self) -> list[Asked]:
        return [(Tooling, ())]

    def look(self, evidence: Evidence) -> Finding:
        found = [
            shown(Did(record.tool_name, record.input))
            for record in _calls(evidence)
            if record.tool_name == self.tool
            and contains(record.input, self.input or {}, patterns=True)
        ]
        return Finding(not found, f"no {self.tool}", found)


class ToolBefore(Assertion, frozen=True, forbid_unknown_fields=True, tag="tool_before"):
    """Whenever the agent called `then`, it had called `first` already."""

    first: str
    then: str
    subject: ClassVar[tuple[str, ...]] = ("first", "then")

    def asks(self) -> list[Asked]:
        return [(Tooling, ())]

    def look(self, evidence: Evidence) -> Finding:
        names = [record.tool_name for record in _calls(evidence)]
        if self.then not in names:
            raise NoData(f"{self.then!r} was never called")
        holds = self.first in names[: names.index(self.then)]
        return Finding(holds, f"{self.first} before {self.then}", names)


class ToolStatus(Assertion, frozen=True, forbid_unknown_fields=True, tag="tool_status"):
    """A call of this tool came out so: ok, failed, blocked, or failed and then retried."""

    tool: str
    status: State
    subject: ClassVar[tuple[str, ...]] = ("tool", "status")

    def asks(self) -> list[Asked]:
        return [(Tooling, ())]

    def look(self, evidence: Evidence) -> Finding:
        calls = [record for record in _calls(evidence) if record.tool_name == self.tool]
        if not calls:
            raise NoData(f"{self.tool!r} was never called")
        results = {r.tool_call_id: r for r in Events(evidence.know(Tooling).events).tool_results}
        states: list[State] = []
        for record in calls:
            result = results.get(record.tool_call_id)
            if record.blocked:
                states.append("blocked")
            elif result is None:
                continue
            else:
                states.append("failed" if result.is_error else "ok")
        if any(a != "ok" and b == "ok" for a, b in itertools.pairwise(states)):
            states.append("retried")
        return Finding(self.status in states, self.status, states)


def _calls(evidence: Evidence) -> list[ToolCallRecord]:
    calls = Events(evidence.know(Tooling).events).tool_calls
    if not calls:
        raise NoData("no tool was called")
    return calls
