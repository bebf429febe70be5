"""The context of a check: the facts about a run, read from its trace, its folder or its record.

A collector reads the events of a trace once and keeps only what a check needs. It is identified by
its class and its arguments: `TopicMatch("build.*", None)`. The context creates the collectors that
the checks of a run require and feeds all of them in a single pass over the trace, so a trace of any
size is read once and never held in memory.

A check that finds nothing to examine raises `NoData`. That becomes a `no_data` verdict, which is
never a pass.
"""

from __future__ import annotations

import codecs
import re
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar, cast

import msgspec

from offbook.errors import UsageError, did_you_mean
from offbook.files import resolve_within
from offbook.trace.agent_output import output_bytes, payload_text, text_field
from offbook.trace.events import (
    EXIT_CODES,
    ITERATION,
    LOOP_START,
    PROCESS_EXIT,
    PROCESS_OUTPUT,
    PUBLISH,
    REPLY,
    REQUEST,
    RUN_END,
    RUN_START,
    TERMINAL_WRITE,
    TERMINATION,
    VERDICT,
    canonical_termination,
    topic_matches,
)
from offbook.trace.executions import EXECUTION_EVENTS, read_executions
from offbook.trace.matching import compile_pattern
from offbook.trace.query import AgentOfEvents
from offbook.trace.reader import LineFault, Trace, elapsed_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from offbook.trace.events import Event
    from offbook.trace.executions import ExecutionReader, ToolUse

MAX_SAMPLES = 5
TAIL_LENGTH = 200
BLOCK_SIZE = 128 * 1024
# Incremental, because a chunk of output may end in the middle of a character.
_Decoder = codecs.getincrementaldecoder("utf-8")


class Collector(Protocol):
    """A reducer over the events of a trace.

    It receives the events whose name is in `event_names`, and those whose data has a key in
    `data_keys`.
    """

    event_names: ClassVar[tuple[str, ...]]
    data_keys: ClassVar[tuple[str, ...]] = ()

    def on_event(self, event: Event) -> None:
        """Receive one event, in the order of the trace."""
        ...


class PublishedTopics(Collector):
    """The published topics in order, and the summary that Ralph publishes at the end of a loop."""

    event_names = (PUBLISH,)

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.summary = ""

    def on_event(self, event: Event) -> None:
        # Interned: a long loop publishes the same few topics thousands of times.
        topic = sys.intern(text_field(event, "topic"))
        self.topics.append(topic)
        if topic == "loop.terminate":
            self.summary = payload_text(event.data.get("payload"))

    def find(self, pattern: str) -> str | None:
        """Return the first group of a pattern in the summary, or None."""
        match = re.search(pattern, self.summary)
        return match[1] if match else None


class TopicMatch(Collector):
    """The events of one topic: their count, the first few, and whether a payload matches.

    An error in the pattern is raised when `matched` is read, so that it fails only the check that
    uses the pattern and the other checks still get their data.
    """

    event_names = (PUBLISH,)

    def __init__(self, topic: str, pattern: str | None = None) -> None:
        self._topic = topic
        self._pattern = pattern
        self._matched = pattern is None
        self._error: UsageError | None = None
        self.count = 0
        self.samples: list[dict[str, Any]] = []

    @property
    def matched(self) -> bool:
        """True if the payload of an event matches the pattern."""
        if self._error is not None:
            raise self._error
        return self._matched

    def on_event(self, event: Event) -> None:
        # Equality first: matching the topic as a glob is the slow path.
        if event.data.get("topic") != self._topic and not topic_matches(
            self._topic, text_field(event, "topic")
        ):
            return
        self.count += 1
        if len(self.samples) < MAX_SAMPLES:
            self.samples.append(event.data)
        if self._matched or self._error is not None:
            return
        try:
            pattern = compile_pattern(self._pattern or "", "event_occurred.payload_pattern")
            self._matched = pattern.search(payload_text(event.data.get("payload"))) is not None
        except UsageError as error:
            self._error = error


class HatHistory(Collector):
    """The hat of each iteration."""

    event_names = (ITERATION,)

    def __init__(self) -> None:
        self.hats: list[str] = []

    def on_event(self, event: Event) -> None:
        self.hats.append(sys.intern(text_field(event, "hat")))


class Termination(Collector):
    """The end of the run as recorded in the trace: reason, exit code, iterations, duration."""

    event_names = (TERMINATION, PROCESS_EXIT, RUN_START, RUN_END, LOOP_START)

    def __init__(self) -> None:
        self.unfinished = False  # it began, and the trace does not contain its end
        self.reason: str | None = None
        self.exit_code: int | None = None
        self.iterations: int | None = None
        self.seconds: float | None = None

    def on_event(self, event: Event) -> None:
        data = event.data
        if event.event != PROCESS_EXIT:  # that may be one process of many
            self.unfinished = event.event in {RUN_START, LOOP_START}
        code = data.get("exit_code", data.get("code"))
        self.exit_code = code if isinstance(code, int) else self.exit_code
        if event.event != TERMINATION:
            return
        reason, seconds = data.get("reason"), data.get("elapsed_secs")
        if isinstance(reason, str):
            self.reason = canonical_termination(reason) or reason
        self.seconds = float(seconds) if isinstance(seconds, (int, float)) else self.seconds
        iterations = data.get("iterations")
        if self.iterations is None and isinstance(iterations, int):
            self.iterations = iterations


class TotalCost(Collector):
    """The sum of all recorded costs in dollars; None if no event has a cost."""

    event_names = ()
    # Agents report their cost under different keys, in events of any name.
    data_keys = ("cost_dollars", "cost_usd", "total_cost_usd")

    def __init__(self) -> None:
        self.dollars: float | None = None

    def on_event(self, event: Event) -> None:
        for key in self.data_keys:
            cost = event.data.get(key)
            if isinstance(cost, (int, float)):
                self.dollars = (self.dollars or 0.0) + float(cost)


class OutputMatch(Collector):
    """A search for a pattern in the output of a stream, and the end of that output.

    The output is searched block by block. Between blocks only the text is kept that can still
    become part of a match. An error in the pattern is raised when `matched` is read.
    """

    event_names = (PROCESS_OUTPUT, TERMINAL_WRITE, PROCESS_EXIT)

    def __init__(self, stream: str, pattern: str) -> None:
        self._stream = stream
        self._pattern = pattern
        self._chunks: list[bytes] = []
        self._size = 0
        self._block_size = BLOCK_SIZE
        self._decode = _Decoder("replace").decode
        self._remainder = ""
        self._matched = False
        self._error: UsageError | None = None
        self.tail = ""
        self.truncated = False  # the run wrote more than the trace contains
        self.captured = False  # the trace has the output of a stream, or the end of a process

    def on_event(self, event: Event) -> None:
        self.captured = True
        if event.event == PROCESS_EXIT:
            self.truncated |= event.data.get("truncated") is True
            return
        output = output_bytes(event)
        if output is None or output[0] != self._stream:
            return
        self._chunks.append(output[1])
        self._size += len(output[1])
        if self._size > self._block_size:
            self._search()

    @property
    def matched(self) -> bool:
        """True if the pattern matches the output received so far."""
        self._search(final=True)
        if self._error is not None:
            raise self._error
        return self._matched

    def _search(self, *, final: bool = False) -> None:
        text = self._decode(b"".join(self._chunks), final)
        self._chunks, self._size = [], 0
        self.tail = (self.tail + text[-TAIL_LENGTH:])[-TAIL_LENGTH:]
        if self._matched or self._error is not None:
            return
        try:
            pattern = compile_pattern(self._pattern, f"{self._stream}_contains.pattern")
            text = self._remainder + text
            end, keep_from = (len(text), 0) if final else pattern.stream_bounds(text)
            self._matched = end > 0 and pattern.search(text[:end]) is not None
            self._remainder = "" if self._matched else text[keep_from:]
            # The next block is at least as long as the remainder: each character is searched a
            # constant number of times on average, also when a pattern keeps everything.
            self._block_size = max(BLOCK_SIZE, len(self._remainder))
        except UsageError as error:
            self._error = error


class ToolEvents(Collector):
    """The tool calls, blocks, executions and results of the run."""

    event_names = (*EXECUTION_EVENTS, REPLY)  # the calls of one reply run in any order

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        is_reply = event.event == REPLY  # of which only the place is needed
        self.events.append(msgspec.structs.replace(event, data={}) if is_reply else event)

    def read(self) -> ExecutionReader:
        """Return the calls of the model and the executions of the tools."""
        return read_executions(self.events)


class AgentNames(Collector):
    """The agents of the run, their requests, and whose model made each tool call."""

    event_names = AgentOfEvents.event_names

    def __init__(self) -> None:
        self.agents = AgentOfEvents()
        self.requests: Counter[str] = Counter()

    def on_event(self, event: Event) -> None:
        self.agents.note(event)
        if event.event == REQUEST:
            self.requests[self.agents.find(event)] += 1


# --- The context

C = TypeVar("C", bound=Collector)
# The class of a collector and its arguments.
Requirement = tuple[type[Collector], tuple[Any, ...]]
NOT_ENDED = "no data: the run did not end, so its trace is incomplete"


class NoData(Exception):
    """The run has no data for this check."""


class Need(NamedTuple):
    """A fact that a check needs: the collectors that read it, and the message without it."""

    collectors: tuple[type[Collector], ...]
    missing: str
    may_be_empty: bool = False


# The properties of a context that checks name in `needs`.
NEEDS = {
    "reason": Need((Termination, PublishedTopics), "the trace has no termination reason"),
    "exit_code": Need((Termination, PublishedTopics), "the trace has no exit code"),
    "iterations": Need(
        (HatHistory, Termination, PublishedTopics), "the trace has no iteration records"
    ),
    "hats": Need((HatHistory,), "the trace has no iteration records"),
    "topics": Need((PublishedTopics, HatHistory, Termination), "no event was published"),
    "seconds": Need((Termination,), "the trace has fewer than two events, so no duration"),
    "cost": Need((TotalCost,), "no cost was recorded"),
    "tool_calls": Need((ToolEvents,), "no tool was called"),
    "model_calls": Need((AgentNames,), "no request was sent to a model"),
    "root": Need((), "the run has no folder"),
    "snapshots": Need((), "the run has no snapshots"),
    "has_trace": Need((), "the case has no trace"),
    "record": Need((), "the case has no run record"),
    "suggestions": Need((), "the case has no friction events", may_be_empty=True),
    # Of the transcript of an audit.
    "calls": Need((), "no tool was called"),
    "plans": Need((), "no plan was recorded"),
    "structures": Need((), "no tool result and no plan was recorded"),
    "activity": Need((), "no request and no tool call was recorded"),
    "ends": Need((), "the transcript has no end"),
    "reached": Need((), "no step was reached"),
}


class CheckContext:
    """The facts about one run, read from its trace on demand.

    `record` is the run record of an eval case, as it was read, and `suggestions` what its friction
    events suggest. Such a case may have no trace: its `events` are None.

    `collect` reads the trace once for several collectors; `get` reads it for a collector that is
    not known yet. Events are not kept, only the collectors are.

        context = CheckContext(Trace(path), root=workspace)
        context.collect([(HatHistory, ()), (OutputMatch, ("stdout", "done"))])
        context.get(HatHistory).hats
    """

    def __init__(
        self,
        events: Iterable[Event] | None,
        root: Path | None = None,
        snapshots: Path | None = None,
        record: Mapping[str, Any] | None = None,
        suggestions: Sequence[Any] | None = None,
    ) -> None:
        self.has_trace = events is not None
        # A stored trace is read again from its file; other events may be an iterator.
        self._trace = events.path if isinstance(events, Trace) else None
        self._events: list[Event] = [] if isinstance(events, Trace) else list(events or ())
        self._collectors: dict[Requirement, Collector] = {}
        self._span: tuple[int, int] | None = None
        self.faults: list[LineFault] = []
        self.root = root
        self.snapshots = snapshots
        self.record = record
        self.suggestions = suggestions

    def collect(self, requirements: Iterable[Requirement]) -> None:
        """Read the trace once for all required collectors that are not known yet."""
        # Two assertions with the same requirement share one collector.
        new = {
            (kind, args): kind(*args)
            for kind, args in requirements
            if (kind, args) not in self._collectors
        }
        if new:
            self._read(new.values())
            self._collectors |= new

    def get(self, kind: type[C], *args: Any) -> C:
        """Return the collector of this class and these arguments, filled from the trace."""
        self.collect([(kind, args)])
        return cast("C", self._collectors[kind, args])

    def _read(self, collectors: Iterable[Collector]) -> None:
        # Callbacks by event name: most events interest no collector and cost one lookup.
        callbacks: dict[str, list[Callable[[Event], None]]] = {}
        keyed: list[Collector] = []
        for collector in collectors:
            if collector.data_keys:
                keyed.append(collector)
            for name in collector.event_names:
                callbacks.setdefault(name, []).append(collector.on_event)
        if self._trace is None:
            trace, events = None, self._events
            # Verdicts are recorded after the run and do not count towards its duration.
            stamps = [event.ts for event in events if event.event != VERDICT]
            self._span = (stamps[0], stamps[-1]) if len(stamps) > 1 else None
        else:
            trace = Trace(self._trace)
            keys = [key for collector in keyed for key in collector.data_keys]
            events = trace.select(callbacks, fields=keys)
        for event in events:
            for callback in callbacks.get(event.event, ()):
                callback(event)
            for collector in keyed:
                collector.on_event(event)
        if trace is not None:
            self.faults = trace.faults
            if trace.total > 1 and trace.first is not None and trace.last is not None:
                self._span = (trace.first, trace.last)

    def require(self, name: str) -> Any:
        """Return a fact of `NEEDS`; without it there is no data."""
        value = getattr(self, name)
        if value is None or value is False or (value == [] and not NEEDS[name].may_be_empty):
            raise NoData(NEEDS[name].missing)
        return value

    @property
    def unfinished(self) -> bool:
        """True if the run has a beginning and no end: its process was killed."""
        return self.get(Termination).unfinished and not self.get(PublishedTopics).summary

    @property
    def topics(self) -> list[str]:
        """The published topics, in order."""
        # The first event is the start of the loop itself, and says nothing about the agent.
        if self.get(Termination).iterations == 0 and not self.hats:
            raise NoData("the loop had no iteration")
        return self.get(PublishedTopics).topics

    @property
    def hats(self) -> list[str]:
        """The hat of each iteration."""
        return self.get(HatHistory).hats

    # A trace of Ralph has no termination event: the same facts are in the summary it publishes.

    @property
    def reason(self) -> str | None:
        """The reason why the loop ended."""
        published = self.get(PublishedTopics).find(r"## Reason\s+(\S+)")
        recorded = self.get(Termination).reason
        return recorded or (canonical_termination(published) if published else None)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the run."""
        recorded = self.get(Termination).exit_code
        if recorded is not None:
            return recorded
        published = self.get(PublishedTopics).find(r"Exit code: (-?\d+)")
        return int(published) if published else EXIT_CODES.get(self.reason or "")

    @property
    def iterations(self) -> int | None:
        """The number of iterations, if there was one."""
        published = self.get(PublishedTopics).find(r"Iterations: (\d+)")
        recorded = self.get(Termination).iterations
        if recorded is None and published:
            recorded = int(published)
        # Iterations that were recorded one by one count more than a summary of another tool.
        return len(self.hats) or recorded or None

    @property
    def seconds(self) -> float | None:
        """The duration of the run."""
        recorded = self.get(Termination).seconds
        if recorded is not None or self._span is None:
            return recorded
        return elapsed_seconds(*self._span)

    @property
    def cost(self) -> float | None:
        """The cost of the run in dollars, if one was recorded."""
        return self.get(TotalCost).dollars

    @property
    def tool_calls(self) -> list[ToolUse]:
        """The tools that ran, and the calls of the model that did not."""
        return self.get(ToolEvents).read().uses

    def tool_calls_of(self, agent: str | None) -> list[ToolUse]:
        """Return the tool calls of one agent of the run, or of all without a name."""
        if agent is None:
            return self.tool_calls
        agents = self._read_agent(agent).agents
        uses = [
            use
            for use in self.tool_calls
            if use.call is not None and agents.find_call(use.call.data.call_id) == agent
        ]
        if not uses:
            raise NoData(f"the agent {agent!r} called no tool")
        return uses

    @property
    def model_calls(self) -> int | None:
        """The number of requests to the model, if there was one."""
        return self.get(AgentNames).requests.total() or None

    def model_calls_of(self, agent: str) -> int:
        """Return the number of requests of one agent of the run to its model."""
        requests = self._read_agent(agent).requests[agent]
        if not requests:  # a remote agent, whose model is not known
            raise NoData(f"the agent {agent!r} sent no request to a model")
        return requests

    def _read_agent(self, agent: str) -> AgentNames:
        found = self.get(AgentNames)
        names = found.agents.names
        if agent not in names:
            raise NoData(f"no agent {agent!r} in this run; {did_you_mean(agent, names)}")
        return found

    def resolve(self, path: str) -> Path:
        """Return the path of a file in the folder of the run; a path that leaves it is refused."""
        return resolve_within(self.require("root"), path)
