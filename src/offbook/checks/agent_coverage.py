"""The coverage of an agent: which of its parts the runs of a suite have exercised.

A part is a tool, a hook, a command, an answer to a question, a hat, a topic, a node or an edge of a
graph, or a handoff. The trace says which parts the agent offers, and the outcome of each:

    coverage = AgentCoverage()
    for path in traces:
        read_coverage(Trace(path), coverage)
    coverage.percent        # None without data: an agent that offers nothing is not covered

Roles of the script and errors of the provider are counted, but they are not parts of the agent.
Only the trace is read, so stored traces can be measured as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from offbook.errors import counted
from offbook.trace.events import (
    AGENT_END,
    AGENT_PARTS,
    ERROR,
    HANDOFF,
    HOOK_TOOL_CALL,
    ITERATION,
    PUBLISH,
    REPLY,
    REQUEST,
    RUN_END,
    STEP_POST,
    STEP_PRE,
    TOOL_BLOCKED,
    TOOL_END,
    TOOL_RESULT,
    Event,
)
from offbook.trace.executions import EXECUTION_EVENTS, Execution, ExecutionReader
from offbook.trace.query import AgentOfEvents

FORMAT = "offbook.coverage"
VERSION = 1
Kind = Literal[
    "tool",
    "hook",
    "command",
    "answer",
    "hat",
    "topic",
    "node",
    "edge",
    "handoff",
    "role",
    "error",
]
KINDS: tuple[Kind, ...] = Kind.__args__  # type: ignore[attr-defined]
# What a part was never, if it has no outcome.
NEVER = {
    "tool": "never called",
    "answer": "never given",
    "topic": "never published",
    "edge": "never taken",
    "handoff": "never taken",
}
# Outcomes that do not cover a part: the code of the tool did not do its work.
FAILURES = ("failed", "blocked", "refused", "unfinished", "unknown")
QUESTIONS = {"ui.confirm", "ui.select", "ui.input", "ui.editor"}
START, END = "__start__", "__end__"


class CoveredPart(msgspec.Struct, omit_defaults=True):
    """A part of the agent: whether the agent offers it, and how often each outcome was seen."""

    offered: bool = False
    outcomes: dict[str, int] = {}

    @property
    def covered(self) -> bool:
        """True if it did its work at least once."""
        return any(outcome not in FAILURES for outcome in self.outcomes if outcome != "mocked")

    def state(self, kind: str) -> str:
        """Return the state as the table shows it: `covered`, `only failed` and so on."""
        if not self.outcomes:
            return NEVER.get(kind, "never run")
        if not self.covered:
            return f"only {' and '.join(name for name in FAILURES if name in self.outcomes)}"
        return "covered" if self.offered or kind in {"role", "error"} else "not offered"


class AgentCoverage(msgspec.Struct, omit_defaults=True):
    """The parts of an agent by kind and name, over any number of traces."""

    traces: int = 0
    parts: dict[str, dict[str, CoveredPart]] = {}

    def part(self, kind: Kind, name: str) -> CoveredPart:
        """Return a part, which is added if it is new."""
        named = self.parts.setdefault(kind, {})
        if name not in named:
            named[name] = CoveredPart()
        return named[name]

    def offer(self, kind: Kind, name: str) -> None:
        """Note that the agent has this part."""
        self.part(kind, name).offered = True

    def count(self, kind: Kind, name: str, outcome: str, times: int = 1) -> None:
        """Note an outcome of a part."""
        outcomes = self.part(kind, name).outcomes
        outcomes[outcome] = outcomes.get(outcome, 0) + times

    def merge(self, other: AgentCoverage) -> None:
        """Add the coverage of other traces."""
        self.traces += other.traces
        for kind, name, part in other:
            own = self.part(kind, name)
            own.offered |= part.offered
            for outcome, times in part.outcomes.items():
                self.count(kind, name, outcome, times)

    def __iter__(self) -> Iterator[tuple[Kind, str, CoveredPart]]:
        for kind in KINDS:
            for name, part in sorted(self.parts.get(kind, {}).items()):
                yield kind, name, part

    @property
    def offered(self) -> list[CoveredPart]:
        """The parts that the agent offers: what the percentage is of."""
        return [part for _, _, part in self if part.offered]

    @property
    def percent(self) -> float | None:
        """The covered parts among the offered ones; None if no trace offers a part."""
        offered = self.offered
        return 100 * sum(part.covered for part in offered) / len(offered) if offered else None

    def missing(self) -> list[str]:
        """Return a line for each part that is offered and not covered."""
        return [
            f"{kind} {name}: {part.state(kind)}"
            for kind, name, part in self
            if part.offered and not part.covered
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the coverage for programs and for the page."""
        percent = self.percent
        return {
            "format": FORMAT,
            "version": VERSION,
            "traces": self.traces,
            "percent": None if percent is None else round(percent, 2),
            "offered": len(self.offered),
            "covered": sum(part.covered for part in self.offered),
            "parts": [
                {
                    "kind": kind,
                    "name": name,
                    "offered": part.offered,
                    "state": part.state(kind),
                    "outcomes": dict(sorted(part.outcomes.items())),
                }
                for kind, name, part in self
            ],
        }

    def render(self) -> list[str]:
        """Return the lines of the table: the parts by kind, and the percentage."""
        percent = self.percent
        if percent is None:
            return [f"no data: {counted(self.traces, 'trace')}, and no part of an agent in them"]
        rows = [
            (kind, name, part.state(kind), _list_outcomes(part.outcomes))
            for kind, name, part in self
        ]
        widths = [min(60, max(len(row[n]) for row in rows)) for n in range(3)]
        lines = [
            f"{kind:{widths[0]}}  {name:{widths[1]}}  {state:{widths[2]}}  {outcomes}".rstrip()
            for kind, name, state, outcomes in rows
        ]
        covered = sum(part.covered for part in self.offered)
        total = f"{covered} of {len(self.offered)} parts covered: {percent:.1f} %"
        return [*lines, f"{total}, {counted(self.traces, 'trace')}"]


def _list_outcomes(outcomes: dict[str, int]) -> str:
    return ", ".join(f"{times} {outcome}" for outcome, times in sorted(outcomes.items()))


class CoverageReader:
    """Adds the events of one trace to a coverage; an observer of traces that are being written.

    With the name of an `agent`, they are added at the end: only then its events are known.
    """

    def __init__(self, coverage: AgentCoverage, agent: str = "") -> None:
        self._coverage = coverage
        self._agent = agent
        self._events: list[Event] = []
        coverage.traces += not agent
        self._executions = ExecutionReader(keep=False)
        self._errors: list[str] = []  # of the provider, since the last reply
        self._hooks: set[str] = set()
        self._graph = ""
        self._nodes: set[str] = set()
        self._edges: set[tuple[str, str]] = set()
        self._previous: set[str] = {START}  # the nodes of the step before, which lead to this one
        self._current: set[str] = set()
        self._step_ended = False

        self._handlers: dict[str, Callable[[dict[str, Any]], None]] = {
            REQUEST: self._add_tools,
            AGENT_PARTS: self._add_parts,
            TOOL_BLOCKED: lambda _: self._count_hook("tool_call", "blocked a call"),
            HOOK_TOOL_CALL: lambda _: self._count_hook("tool_call", "changed a call"),
            STEP_PRE: self._start_step,
            STEP_POST: self._end_step,
            HANDOFF: self._add_handoff,
            ITERATION: lambda data: self._count_named("hat", data.get("hat"), "run"),
            PUBLISH: lambda data: self._count_named("topic", data.get("topic"), "published"),
            REPLY: self._add_reply,
            ERROR: self._add_error,
            AGENT_END: lambda _: self._end_prompt(),
            RUN_END: lambda _: self._end_run(),
            "session.command": self._add_command,
        }

    def wants(self, name: str) -> bool:
        """Return whether events of this name say anything about a part."""
        if self._agent and name in AgentOfEvents.event_names:
            return True
        known = name in self._handlers or name in EXECUTION_EVENTS
        return known or name.startswith("hook.") or name in QUESTIONS

    def on_event(self, event: Event) -> None:
        """Count one event."""
        if self._agent:
            self._events.append(event)
            return
        handler = self._handlers.get(event.event)
        if handler is not None:
            handler(event.data)
        if event.event in EXECUTION_EVENTS:
            self._add_execution(event)
        elif handler is not None:
            pass
        elif event.event in QUESTIONS:
            self._add_answer(event.event, event.data)
        else:
            self._count_hook(event.event.removeprefix("hook."), "run")

    def on_close(self) -> None:
        """Count what was still open."""
        if self._agent:
            read_coverage(self._events, self._coverage, self._agent)
        else:
            self._end_run()

    def _add_tools(self, data: dict[str, Any]) -> None:
        for tool in data.get("tools", ()):
            self._coverage.offer("tool", str(tool["name"]))

    def _add_parts(self, data: dict[str, Any]) -> None:
        """Note the parts that the subject describes."""
        coverage = self._coverage
        for hook in data.get("hooks", ()):
            self._hooks.add(hook)
            coverage.offer("hook", hook)
        for command in data.get("commands", ()):
            coverage.offer("command", f"/{command}")
        for hat, topics in data.get("hats", {}).items():
            coverage.offer("hat", hat)
            for topic in topics:
                if "*" not in topic:
                    coverage.offer("topic", topic)
        for node in data.get("nodes", ()):
            coverage.offer("node", node)
        for source, target in data.get("handoffs", ()):
            coverage.offer("handoff", f"{source} → {target}")
        for source, target in data.get("edges", ()):
            coverage.offer("edge", f"{source} → {target}")
            self._edges.add((source, target))
        if "nodes" in data:
            self._graph = str(data.get("persona"))
            self._nodes = set(data["nodes"])

    def _add_execution(self, event: Event) -> None:
        """Note how an execution of a tool ended, or that a call of it was not executed."""
        call = self._executions.call_of(event)
        execution = self._executions.on_event(event)
        ended = execution is not None and event.event == (
            TOOL_END if execution.seen else TOOL_RESULT
        )
        if execution is None or (execution.end is not None and execution.end.ran is False):
            if event.event == TOOL_RESULT and (call is None or not call.executions):
                blocked = call is not None and call.blocked
                tool = str(event.data.get("tool"))
                # Refused: wrong arguments, or no such tool.
                self._coverage.count("tool", tool, "blocked" if blocked else "refused")
        elif ended:
            failed = execution.failed
            # The wire does not say whether it failed.
            outcome = "ended" if failed is None else "failed" if failed else "succeeded"
            self._count_execution(execution, outcome)

    def _count_execution(self, execution: Execution, outcome: str) -> None:
        self._coverage.count("tool", execution.tool, outcome)
        if execution.mocked:
            self._coverage.count("tool", execution.tool, "mocked")
        # The two hooks of a call have events only where they changed something.
        for hook in ("tool_call", "tool_result"):
            self._count_hook(hook, "run")

    def _count_hook(self, hook: str, outcome: str) -> None:
        if hook in self._hooks:
            self._coverage.count("hook", hook, outcome)

    def _count_named(self, kind: Kind, name: object, outcome: str) -> None:
        if name:
            self._coverage.count(kind, str(name), outcome)

    def _add_handoff(self, data: dict[str, Any]) -> None:
        if {"from", "to"} <= data.keys():  # one to a person has other fields
            self._coverage.count("handoff", f"{data['from']} → {data['to']}", "taken")

    def _add_command(self, data: dict[str, Any]) -> None:
        self._coverage.count("command", f"/{data.get('command')}", "run")

    def _add_reply(self, data: dict[str, Any]) -> None:
        for error in self._errors:
            self._coverage.count("error", error, "then answered")
        self._errors.clear()
        self._count_named("role", data.get("role"), "replied")

    def _add_error(self, data: dict[str, Any]) -> None:
        error = " ".join(str(data[key]) for key in ("category", "status") if data.get(key))
        self._errors.append(error or "error")

    def _in_graph(self, data: dict[str, Any]) -> bool:
        """Return whether a step is a node of the graph.

        Otherwise it is a function of the agent, or a subgraph, whose own nodes are counted.
        """
        return data.get("persona") == self._graph and data.get("step_name") in self._nodes

    def _start_step(self, data: dict[str, Any]) -> None:
        """Note the edges that led to a node.

        The nodes of one step of a graph start together, so a start after an end is the next step.
        """
        if not self._in_graph(data):
            return
        if self._step_ended:
            self._previous, self._current, self._step_ended = self._current, set(), False
        node = str(data["step_name"])
        self._current.add(node)
        for source in self._previous:
            if (source, node) in self._edges:
                self._coverage.count("edge", f"{source} → {node}", "taken")

    def _end_step(self, data: dict[str, Any]) -> None:
        if self._in_graph(data):
            outcome = "failed" if data.get("error") else "run"
            self._coverage.count("node", data["step_name"], outcome)
            self._step_ended = True

    def _add_answer(self, name: str, data: dict[str, Any]) -> None:
        """Note the answer to a question, and the other answers that a user could give."""
        args = cast("list[Any]", data.get("args") or [""])
        title, answer = str(args[0]), data.get("answer")
        if name == "ui.confirm":
            options, given = ["yes", "no"], "yes" if answer else "no"
        elif name == "ui.select" and len(args) > 1 and isinstance(args[1], list):
            options = [str(option) for option in cast("list[Any]", args[1])]
            given = "cancelled" if answer is None else str(answer)
        else:
            options, given = [], "cancelled" if answer is None else "answered"
        for option in options:
            self._coverage.offer("answer", f"{title} → {option}")
        self._coverage.count("answer", f"{title} → {given}", "given")

    def _end_prompt(self) -> None:
        """Note the edges to the end of the graph."""
        for source in self._current:
            if (source, END) in self._edges:
                self._coverage.count("edge", f"{source} → {END}", "taken")
        self._previous, self._current, self._step_ended = {START}, set(), False

    def _end_run(self) -> None:
        """Note the errors of the provider that no reply followed."""
        self._end_prompt()
        for error in self._errors:
            self._coverage.count("error", error, "then ended")
        self._errors.clear()
        for call in self._executions.unknown:
            self._coverage.count("tool", call.data.tool, "unknown")
        for execution in self._executions.running:
            self._count_execution(execution, "unfinished")
        self._executions = ExecutionReader(keep=False)


def read_coverage(events: Iterable[Event], coverage: AgentCoverage, agent: str = "") -> bool:
    """Add the events of one stored trace to a coverage.

    With the name of an agent, only its parts are added: the tools that it offers to its model, and
    its handoffs. Return whether the trace has this agent.
    """
    if agent:
        events = list(events)
        agents = AgentOfEvents()
        for event in events:
            agents.note(event)
        if agent not in agents.names:
            return False
        events = [own for event in events if (own := _of_agent(event, agent, agents)) is not None]
    reader = CoverageReader(coverage)
    for event in events:
        if reader.wants(event.event):
            reader.on_event(event)
    reader.on_close()
    return True


def add_parts(folder: Path, coverage: AgentCoverage) -> list[str]:
    """Add the coverages of workers to another one; return a message for each unreadable line."""
    problems: list[str] = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            try:
                coverage.merge(msgspec.json.decode(line, type=AgentCoverage))
            except msgspec.MsgspecError as error:
                problems.append(f"the coverage of one trace is lost: {error}")
    return problems


def _of_agent(event: Event, agent: str, agents: AgentOfEvents) -> Event | None:
    """Return an event of an agent, or what it says about this agent."""
    if event.event == AGENT_PARTS:
        handoffs = [pair for pair in event.data.get("handoffs", ()) if pair[0] == agent]
        return msgspec.structs.replace(event, data={"handoffs": handoffs})
    return event if agents.find(event) == agent else None
