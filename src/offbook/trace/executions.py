"""The executions of tools in a trace: what ran, with which input, and what came of it.

The evidence of an execution is, in this order:

- `tool.start` and `tool.end`, where the tool itself was seen: in a session, in a framework;
- `tool.result` of a tool that is not seen: the agent's own request has the call and its result.

A call without either is unknown: the agent may have run the tool and ended. What the script says
is never evidence.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import partialmethod
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, TypeVar, cast, overload

import msgspec

from offbook.errors import FormatError, UnknownOutcome
from offbook.exchange.messages import Content, Text, join_text
from offbook.trace.events import (
    HOOK_TOOL_CALL,
    REPLY,
    TOOL_BLOCKED,
    TOOL_CALL,
    TOOL_END,
    TOOL_RESULT,
    TOOL_START,
    UNSET,
    Event,
    EventData,
    ToolBlockedData,
    ToolCallData,
    ToolEndData,
    ToolInputData,
    ToolResultData,
    ToolStartData,
    read_data,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

EXECUTION_EVENTS = (
    TOOL_CALL,
    HOOK_TOOL_CALL,
    TOOL_BLOCKED,
    TOOL_START,
    TOOL_END,
    TOOL_RESULT,
)
READ_EVENTS = frozenset({*EXECUTION_EVENTS, REPLY})
# The fields that an event of another tool may lack.
MISSING: dict[type[EventData], dict[str, Any]] = {
    ToolCallData: {"call_id": "", "tool": "", "input": {}},
    ToolStartData: {"call_id": "", "tool": "", "input": {}},
    ToolEndData: {"call_id": "", "tool": "", "ms": 0, "is_error": False},
    ToolResultData: {"call_id": "", "tool": "", "content": (), "is_error": None},
}
D = TypeVar("D", bound=EventData)
T = TypeVar("T")


class Execution:
    """One execution of a tool.

    `started` is the event with which it began: `tool.start`, or the `tool.result` that says it.
    `end` and `result` are None while there is none. `input` is None if it is unknown.
    """

    __slots__ = ("call", "end", "input", "number", "result", "started", "tool")

    def __init__(
        self, started: Event, call: CallState | None, tool: str, given: Any, number: int = 1
    ) -> None:
        self.started = started
        self.call = call
        self.tool = tool
        self.input = given
        self.number = number
        self.end: ToolEndData | None = None
        self.result: ToolResultData | None = None

    @property
    def seen(self) -> bool:
        """True if the tool itself was seen, False if only the agent's request says it."""
        return self.started.event == TOOL_START

    @property
    def ended(self) -> bool:
        """False if the tool was still running when the trace ended."""
        return self.end is not None or self.result is not None

    @property
    def failed(self) -> bool | None:
        """Whether the tool failed; None if it is unknown."""
        if self.end is not None:
            return self.end.is_error
        return None if self.result is None or self.seen else self.result.is_error

    @property
    def mocked(self) -> bool:
        """True if a mock ran in its place."""
        if self.end is not None and self.end.mocked is not UNSET:
            return self.end.mocked
        return self.result is not None and self.result.mocked

    @property
    def seconds(self) -> float | None:
        """The duration, where it was measured."""
        return None if self.end is None else self.end.ms / 1000

    @property
    def content(self) -> tuple[Content, ...]:
        """What the tool returned, in the words that the model got if they say the same."""
        sent = None if self.result is None else to_result_content(self.result.content)
        if self.end is None or self.end.content is UNSET:
            return sent or ()
        own = to_result_content(self.end.content)
        return sent if sent is not None and same_result(own, sent) else own


class CallState:
    """A call of the model: its executions, its result, and whether it was stopped.

    `input` is what the hooks made of it, `reply` the number of the reply that has it, `number` that
    of the call itself.
    """

    __slots__ = (
        *("blocked", "data", "event", "executions", "input", "number", "refused", "reply"),
        "result",
    )

    def __init__(self, event: Event, data: ToolCallData, reply: int, number: int) -> None:
        self.event = event
        self.data = data
        self.reply = reply
        self.number = number
        self.input = data.input
        self.executions: list[Execution] = []
        self.result: ToolResultData | None = None
        self.blocked = False  # by a hook
        self.refused = False  # by the framework

    @property
    def executed(self) -> bool | None:
        """Whether the tool ran; None if it is unknown."""
        if self.executions:
            return True
        # The result of a blocked or refused call is not one of the tool. An observed tool that
        # was not seen did not run.
        known = self.blocked or self.refused or self.data.observed is True
        return False if known or self.result is not None else None


class ToolUse(NamedTuple):
    """An execution, with its call if the model made one; or a call that did not run."""

    call: CallState | None
    execution: Execution | None = None

    @property
    def tool(self) -> str:
        """The name of the tool."""
        if self.execution is not None:
            return self.execution.tool
        return "" if self.call is None else self.call.data.tool

    @property
    def input(self) -> Any:
        """The input that the tool received; if it did not run, that of the call."""
        if self.execution is not None:
            return self.execution.input
        return None if self.call is None else self.call.input

    @property
    def ran(self) -> bool | None:
        """Whether the tool ran; None if it is unknown."""
        return True if self.call is None or self.execution else self.call.executed

    @property
    def failed(self) -> bool | None:
        """Whether the tool failed, or the result of a call that did not run is an error."""
        if self.execution is not None:
            return self.execution.failed
        result = None if self.call is None else self.call.result
        return None if result is None else result.is_error

    @property
    def counts(self) -> bool:
        """Whether it counts as a use of the tool: it ran.

        A trace of an earlier version, or of another tool, has no other evidence than the call.
        """
        call = self.call
        old = call is not None and call.data.observed is UNSET and not call.blocked
        return old or self.ran is True

    @property
    def event(self) -> Event:
        """The event of the call, or with which the execution began."""
        if self.call is not None:
            return self.call.event
        return cast("Execution", self.execution).started


class ExecutionReader:
    """Reads the executions from the events of a trace, one after the other.

    With `strict`, an event without the fields of its name raises a FormatError; otherwise they are
    empty, as in a trace of another tool, and an event with wrong ones is ignored. Without `keep`,
    only open calls and executions are kept in memory.
    """

    def __init__(self, *, strict: bool = False, keep: bool = True) -> None:
        self._strict = strict
        self._keep = keep
        self.calls: list[CallState] = []
        self.results: list[tuple[int, ToolResultData]] = []  # with event numbers
        self._by_id: dict[str, CallState] = {}  # the latest with each id
        self._executions: list[Execution] = []
        self._running: dict[tuple[str, str, int], Execution] = {}
        self._replies = 0

    def on_event(self, event: Event) -> Execution | None:
        """Read an event; return the execution that it starts, ends or completes."""
        try:
            return self._on_event(event)
        except FormatError:
            if self._strict:
                raise
            return None

    def _on_event(self, event: Event) -> Execution | None:
        name = event.event
        if name == TOOL_START:
            return self._start(event, self._read(ToolStartData, event))
        if name == TOOL_END:
            return self._end(self._read(ToolEndData, event))
        if name == TOOL_RESULT:
            return self._add_result(event, self._read(ToolResultData, event))
        if name == REPLY:
            self._replies += 1
        elif name == TOOL_CALL:
            data = self._read(ToolCallData, event)
            call = CallState(event, data, self._replies, len(self.calls))
            if data.call_id:
                self._by_id[data.call_id] = call
            if self._keep:
                self.calls.append(call)
        elif name == TOOL_BLOCKED:
            if (call := self._by_id.get(self._read(ToolBlockedData, event).call_id)) is not None:
                call.blocked = True
        elif name == HOOK_TOOL_CALL:
            changed = self._read(ToolInputData, event)
            if (call := self._by_id.get(changed.call_id)) is not None:
                call.input = changed.input
        return None

    def _read(self, kind: type[D], event: Event) -> D:
        if not self._strict:
            event = msgspec.structs.replace(event, data={**MISSING.get(kind, {}), **event.data})
        return read_data(event, kind)

    def call_of(self, event: Event) -> CallState | None:
        """Return the call of the model that an event is about."""
        return self._by_id.get(str(event.data.get("call_id")))

    def _start(self, event: Event, data: ToolStartData) -> Execution:
        call = self._by_id.get(data.call_id)
        execution = Execution(event, call, data.tool, data.input, data.number)
        self._running[data.call_id, data.tool, data.number] = execution
        self._add(execution)
        return execution

    def _end(self, data: ToolEndData) -> Execution | None:
        execution = self._running.pop((data.call_id, data.tool, data.number), None)
        if execution is None:
            return None
        execution.end = data
        if data.ran is False:
            if self._keep:
                self._executions.remove(execution)
            if execution.call is not None:
                execution.call.executions.remove(execution)
                execution.call.refused = True
        return execution

    def _add_result(self, event: Event, data: ToolResultData) -> Execution | None:
        call = self._by_id.get(data.call_id)
        if self._keep:
            self.results.append((event.seq, data))
        else:
            self._by_id.pop(data.call_id, None)
        if call is not None:
            call.result = data
            if call.executions:
                execution = call.executions[-1]
                execution.result = data
                return execution
        observed = call is not None and (call.refused or call.data.observed is True)
        # Without an id it is not known whose result it is.
        if data.executed is False or observed or not data.call_id:
            return None
        given = call.input if data.input is UNSET and call is not None else data.input
        execution = Execution(event, call, data.tool, None if given is UNSET else given)
        execution.result = data
        self._add(execution)
        return execution

    def _add(self, execution: Execution) -> None:
        if self._keep:
            self._executions.append(execution)
        if execution.call is not None:
            execution.call.executions.append(execution)

    @property
    def executions(self) -> list[Execution]:
        """All executions in the order of their start; those of one reply as it has their calls.

        The calls of one reply may run at once, in threads: the order of their starts says nothing,
        and differs from run to run.
        """
        first: dict[int, int] = {}
        keys: list[tuple[int, int]] = []
        for index, execution in enumerate(self._executions):
            call = execution.call
            if call is None:
                keys.append((index, 0))
            else:
                keys.append((first.setdefault(call.reply, index), call.number))
        order = sorted(range(len(keys)), key=keys.__getitem__)
        return [self._executions[index] for index in order]

    @property
    def unknown(self) -> list[CallState]:
        """The calls of which no event says whether they ran."""
        calls = self.calls if self._keep else self._by_id.values()
        return [call for call in calls if call.executed is None]

    @property
    def running(self) -> list[Execution]:
        """The executions that have not ended."""
        return list(self._running.values())

    @property
    def uses(self) -> list[ToolUse]:
        """All executions, and between them the calls of the model that did not run."""
        listed: list[tuple[int, int, ToolUse]] = []
        furthest: list[int] = []  # the furthest call up to each execution
        for index, execution in enumerate(self.executions):
            call = execution.call
            position = -1 if call is None else call.number
            furthest.append(max(position, furthest[-1] if furthest else -1))
            listed.append((index, 1, ToolUse(call, execution)))
        listed += [
            (bisect_right(furthest, call.number), 0, ToolUse(call))
            for call in self.calls
            if not call.executions
        ]
        return [use for _, _, use in sorted(listed, key=lambda entry: entry[:2])]


def read_executions(
    events: Iterable[Event], earlier: Iterable[Event] = (), *, strict: bool = False
) -> ExecutionReader:
    """Return a reader that has read these events.

    `earlier` are events before them: a call of theirs counts if it ran in these.
    """
    reader = ExecutionReader(strict=strict)
    for event in earlier:
        reader.on_event(event)
    before = len(reader.calls)
    reader.results.clear()
    for event in events:
        if event.event in READ_EVENTS:
            reader.on_event(event)
    reader.calls[:before] = [call for call in reader.calls[:before] if call.executions]
    return reader


class _Result(msgspec.Struct):
    # A struct, whose fields msgspec examines once; a type such as `tuple[…]` each time.
    content: tuple[Content, ...]


def to_result_content(value: Any) -> tuple[Content, ...]:
    """Return the content in the data of an event."""
    return msgspec.convert({"content": value}, _Result).content


def same_result(own: tuple[Content, ...], sent: tuple[Content, ...]) -> bool:
    """Return whether two results are the same value, in whatever way frameworks write it."""
    if own == sent:
        return True
    if not all(isinstance(block, Text) for block in (*own, *sent)):
        return False
    return _parse(join_text(own)) == _parse(join_text(sent))


def _parse(text: str) -> object:
    """Return the value that a text is: JSON, or as Python writes it; otherwise the text."""
    stripped = text.strip()
    try:
        return msgspec.json.decode(stripped)
    except (msgspec.DecodeError, UnicodeError):
        pass
    if stripped[:1] in "{[('" + '"' or stripped in {"None", "True", "False"}:
        from ast import literal_eval  # few results need it

        try:
            return literal_eval(stripped)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            pass
    return stripped


# --- The tools that ran, for a test


class KnownTools(list[T]):
    """The tools that ran, as a list. `unknown` are tools of which it is unknown.

    What depends on these raises `UnknownOutcome`: a comparison, the length, an iteration, `in` with
    the name of such a tool.
    """

    def __init__(self, known: Iterable[T], unknown: Sequence[str] = ()) -> None:
        super().__init__(known)
        self.unknown = tuple(unknown)

    def known(self) -> list[T]:
        """Return the tools that certainly ran."""
        return list(super().__iter__())

    def _require_known(self) -> None:
        if self.unknown:
            names = ", ".join(repr(name) for name in dict.fromkeys(self.unknown))
            raise UnknownOutcome(
                f"it is unknown whether {names} ran: the model called it, no request of the agent"
                " has its result, and nothing saw the tool run",
                hint="assert on what the tool did, or drive an agent of a framework whose tools"
                " Offbook sees; `.known()` has the tools that certainly ran",
            )

    def __iter__(self) -> Iterator[T]:
        self._require_known()
        return super().__iter__()

    def __len__(self) -> int:
        self._require_known()
        return super().__len__()

    def __eq__(self, other: object) -> bool:
        self._require_known()
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        self._require_known()
        return super().__ne__(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType] - as any list

    def __contains__(self, item: object) -> bool:
        if super().__contains__(item):
            return True
        # The name of a tool that the model never called is not among them.
        if not isinstance(item, str) or item in self.unknown:
            self._require_known()
        return False

    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> T | list[T]:
        if isinstance(index, slice) or not 0 <= index.__index__() < super().__len__():
            self._require_known()
        return super().__getitem__(index)

    def count(self, value: T, /) -> int:
        """Return how often a tool ran."""
        if not isinstance(value, str) or value in self.unknown:
            self._require_known()
        return super().count(value)

    def __radd__(self, other: list[T]) -> list[T]:
        return [*other, *self]

    def _read(self, name: str, *args: Any) -> Any:
        self._require_known()
        return getattr(super(), name)(*args)

    if not TYPE_CHECKING:  # what else reads a list
        __add__ = partialmethod(_read, "__add__")
        __ge__ = partialmethod(_read, "__ge__")
        __gt__ = partialmethod(_read, "__gt__")
        __le__ = partialmethod(_read, "__le__")
        __lt__ = partialmethod(_read, "__lt__")
        __mul__ = partialmethod(_read, "__mul__")
        __reversed__ = partialmethod(_read, "__reversed__")
        __rmul__ = partialmethod(_read, "__rmul__")
        copy = partialmethod(_read, "copy")
        index = partialmethod(_read, "index")
