"""The events of a run, in the words of a test.

run.events.tool_sequence() == ["read", "bash"]
run.events.tool_results_for("bash")[0].text
"""

from __future__ import annotations

from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

import msgspec

from offbook.errors import FormatError, UsageError, did_you_mean
from offbook.exchange.messages import Content, Message, ToolCall, join_text, require_outcome
from offbook.exchange.model import AGENT_KEY
from offbook.trace.events import (
    CHANGE,
    HANDOFF,
    HOOK_TOOL_CALL,
    REMOTE_TASK,
    REPLY,
    REQUEST,
    TOOL_BLOCKED,
    TOOL_CALL,
    TOOL_END,
    TOOL_RESULT,
    TOOL_START,
    UNSET,
    ConversationChange,
    Event,
    ToolBlockedData,
    ToolCallData,
    ToolInputData,
    ToolResultData,
    Verdict,
    read_verdicts,
)
from offbook.trace.executions import (
    EXECUTION_EVENTS,
    READ_EVENTS,
    Execution,
    ExecutionReader,
    KnownTools,
    read_executions,
    to_result_content,
)
from offbook.trace.instrument import ReplyData, RequestData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from offbook.trace.recorder import KeptEvent


class ToolCallRecord(msgspec.Struct, frozen=True):
    """A tool call, blocked or not.

    `input` is what the model sent, `rewritten_input` what a hook made of it: None if none did.
    """

    tool_name: str
    input: dict[str, Any]
    blocked: bool = False
    block_reason: str | None = None
    step: int = 0
    tool_call_id: str = ""
    rewritten_input: dict[str, Any] | None = None


class ToolResultRecord(msgspec.Struct, frozen=True):
    """The result of a tool, real or mocked; `failed` is None if it is unknown."""

    tool_name: str
    tool_call_id: str
    content: tuple[Content, ...]
    failed: bool | None = False
    details: Any = None
    mocked: bool = False
    step: int = 0

    @property
    def text(self) -> str:
        """The text blocks, joined by line ends."""
        return join_text(self.content)

    @property
    def is_error(self) -> bool:
        """True if the tool failed; raises `UnknownOutcome` if that is unknown."""
        return require_outcome(self.failed, self.tool_name)


class ToolResults(list[ToolResultRecord]):
    """The results of one tool. An index that is too high says which tools have results."""

    def __init__(self, tool: str, results: Iterable[ToolResultRecord]) -> None:
        results = [*results]
        super().__init__(result for result in results if result.tool_name == tool)
        self._tool = tool
        self._others = dict.fromkeys(result.tool_name for result in results)

    def __getitem__(self, index: Any) -> Any:
        try:
            return cast("Any", super()).__getitem__(index)
        except IndexError:
            fact = f"{self._tool!r} has {len(self)} result{'s' * (len(self) != 1)}"
            if self._tool not in self._others:
                nearest = did_you_mean(self._tool, self._others)
                fact += f": {nearest}" if self._others else ", and no other tool has one"
            raise IndexError(fact) from None


class ExecutedTool(msgspec.Struct, frozen=True):
    """A tool that ran: its name, the input that it received, and its result.

    `number` counts the executions for one call of the model. `duration` is in seconds, None where
    only the agent's requests show that the tool ran. Without a call of the model, `call_id` is
    empty or an id that the agent made up.
    """

    name: str
    input: dict[str, Any]
    result: ToolResultRecord
    number: int = 1
    duration: float | None = None
    call_id: str = ""


class ModelOutput(msgspec.Struct, frozen=True):
    """The replies of the model: its tool calls in order, and its last text."""

    calls: list[ToolCall]
    text: str


class UICallRecord(msgspec.Struct, frozen=True):
    """A call of the user interface, and its answer."""

    method: str
    args: list[Any]
    return_value: Any = None


class AgentOfEvents:
    """The agent that each event of a run belongs to: `note` all events, then `find`.

    A request says which agent sent it. Its reply, the calls of the reply and their results belong
    to the same agent.
    """

    event_names = (REQUEST, REPLY, REMOTE_TASK)

    def __init__(self) -> None:
        self._exchanges: dict[Any, str] = {}
        self._calls: dict[Any, str] = {}
        self._names: dict[str, None] = {}

    def note(self, event: Event) -> None:
        """Read an event that names an agent, or a reply to one."""
        if event.event == REMOTE_TASK:
            self._names[self.find(event)] = None
        elif event.event == REQUEST:
            name = self._agent_of_request(event)
            self._names[name] = None
            if (exchange := event.data.get("exchange")) is not None:
                self._exchanges[exchange] = name
        elif event.event == REPLY:
            name = self._exchanges.get(event.data.get("exchange"), "")
            for block in event.data.get("blocks", ()):
                if block.get("type") == "tool_call":
                    self._calls[block.get("id")] = name

    @property
    def names(self) -> list[str]:
        """The agents, in order."""
        return [name for name in self._names if name]

    def require(self, name: str) -> None:
        """Raise a UsageError if there is no agent of this name."""
        if name not in self._names:
            hint = did_you_mean(name, self.names)
            raise UsageError(f"no agent {name!r} in this run", hint=hint)

    def find(self, event: Event) -> str:
        """Return the agent of an event, empty if it is not known."""
        data = event.data
        if event.event == REMOTE_TASK:
            return str(data.get("agent", ""))
        if event.event == REQUEST:
            return self._agent_of_request(event)
        if event.event == HANDOFF:
            return str(data.get("from", ""))
        if event.event.startswith("tool."):
            return self._calls.get(data.get("call_id"), "")
        return self._exchanges.get(data.get("exchange"), "")

    def _agent_of_request(self, event: Event) -> str:
        metadata: dict[str, Any] = event.data.get("metadata") or {}
        return str(metadata.get(AGENT_KEY, ""))

    def find_call(self, call_id: str) -> str:
        """Return the agent whose model made a call."""
        return self._calls.get(call_id, "")


class Events:
    """The events of a trace, by the queries that tests need.

    A live trace can be queried repeatedly: each query reads the events since the last one, or calls
    a function that returns them all. `earlier` are calls of earlier runs, whose tools may run in
    this one.
    """

    def __init__(
        self, events: Iterable[Event] | Callable[[], list[Event]], earlier: Iterable[Event] = ()
    ) -> None:
        self._source = events
        self._earlier = earlier
        self._read: list[Event] = []
        self._executions: tuple[int, ExecutionReader] | None = None  # of so many events

    @property
    def all(self) -> list[Event]:
        """All events so far."""
        if callable(self._source):
            return self._source()
        if isinstance(self._source, (list, tuple)):
            return list(self._source)
        self._read.extend(self._source)
        return list(self._read)

    def named(self, *names: str) -> list[Event]:
        """Return the events with one of these names."""
        return [event for event in self.all if event.event in names]

    def count(self, name: str) -> int:
        """Return the number of events with this name."""
        return len(self.named(name))

    @property
    def new_messages(self) -> list[int]:
        """The number of new messages of each request."""
        return [len(event.data.get("new", ())) for event in self.named(REQUEST)]

    @property
    def agents(self) -> list[str]:
        """The agents of the run that asked the model, and the remote ones, in order.

        An agent that runs inside of a tool has the name of the tool. Of an agent in another
        process, none is known.
        """
        return self._read_agents(self.all).names

    def of_agent(self, name: str) -> Events:
        """Return the events of one agent: its requests, replies, tool calls, results, handoffs.

        run.events.of_agent("refunds").tool_sequence() == ["refund"]
        """
        events = self.all
        agents = self._read_agents(events)
        agents.require(name)
        return Events([event for event in events if agents.find(event) == name])

    def _read_agents(self, events: Iterable[Event]) -> AgentOfEvents:
        agents = AgentOfEvents()
        for event in events:
            agents.note(event)
        return agents

    @property
    def tool_calls(self) -> list[ToolCallRecord]:
        """All tool calls, blocked or not."""
        calls: list[ToolCallData] = []
        # a blocked call has two events: the call, and later the block with its reason
        reasons: dict[str, str] = {}
        rewritten: dict[str, Any] = {}
        for event in self.named(TOOL_CALL, TOOL_BLOCKED, HOOK_TOOL_CALL):
            if event.event == TOOL_CALL:
                calls.append(ToolCallData.read(event))
            elif event.event == TOOL_BLOCKED:
                block = ToolBlockedData.read(event)
                reasons[block.call_id] = block.reason
            else:
                change = ToolInputData.read(event)
                rewritten[change.call_id] = change.input
        return [
            ToolCallRecord(
                call.tool,
                call.input,
                call.call_id in reasons,
                reasons.get(call.call_id),
                call.step,
                call.call_id,
                rewritten.get(call.call_id),
            )
            for call in calls
        ]

    def tool_calls_for(self, name: str) -> list[ToolCallRecord]:
        """Return the calls of this tool."""
        return [record for record in self.tool_calls if record.tool_name == name]

    def blocked_calls(self) -> list[ToolCallRecord]:
        """Return the calls that a hook blocked."""
        return [record for record in self.tool_calls if record.blocked]

    def tool_sequence(self) -> list[str]:
        """Return the names of the tools called, in order."""
        return [record.tool_name for record in self.tool_calls]

    @property
    def tool_results(self) -> list[ToolResultRecord]:
        """All tool results, real or mocked: those that the model got, and those it never got."""
        reader = self._read_executions()
        results = [(seq, _tool_result(data)) for seq, data in reader.results]
        for execution in reader.executions:
            call = execution.call
            if execution.end is not None and (call is None or call.result is None):
                results.append((execution.started.seq, _executed_tool(execution).result))
        return [result for _, result in sorted(results, key=lambda pair: pair[0])]

    def tool_results_for(self, name: str) -> list[ToolResultRecord]:
        """Return the results of this tool; the error for a missing one names the others."""
        return ToolResults(name, self.tool_results)

    @property
    def executed(self) -> KnownTools[ExecutedTool]:
        """The tools that ran. A call that was blocked or had wrong parameters is not one."""
        reader = self._read_executions()
        return KnownTools(
            [_executed_tool(execution) for execution in reader.executions],
            [call.data.tool for call in reader.unknown],
        )

    def _read_executions(self) -> ExecutionReader:
        events = self.named(*READ_EVENTS)
        if self._executions is None or self._executions[0] != len(events):
            reader = read_executions(events, self._earlier, strict=True)
            self._executions = (len(events), reader)
        return self._executions[1]

    @property
    def model_output(self) -> ModelOutput:
        """The tool calls of the model, and its last text."""
        replies = [message for message in self.messages if message.role == "assistant"]
        calls = [call for message in replies for call in message.calls]
        return ModelOutput(calls, next((m.text for m in reversed(replies) if m.text), ""))

    @property
    def messages(self) -> list[Message]:
        """All messages: the new ones of each request, and each reply."""
        messages: list[Message] = []
        for event in self.named(REQUEST, REPLY):
            if event.event == REQUEST:
                messages += RequestData.read(event).new
            else:
                messages.append(Message("assistant", ReplyData.read(event).blocks))
        return messages

    @property
    def changes(self) -> list[ConversationChange]:
        """What the agent changed: its conversation, but for what is allowed; its tools' work.

        A tool that was seen may have run with another input than the model's, more than once or
        not at all, and its result may be another one than it returned.
        """
        return read_changes(self.named(*CHANGE_EVENTS), self._earlier)

    @property
    def ui(self) -> list[UICallRecord]:
        """All calls of the user interface."""
        return [
            UICallRecord(data["method"], data["args"], data.get("answer"))
            for data in (event.data for event in self.all if event.event.startswith("ui."))
        ]

    def ui_calls_for(self, method: str) -> list[UICallRecord]:
        """Return the calls of this method of the user interface."""
        return [record for record in self.ui if record.method == method]

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdicts of the checks."""
        return list(read_verdicts(self.all))


V = TypeVar("V")


class _NewMessages(msgspec.Struct):
    new: list[msgspec.Raw] = []


class _RequestLine(msgspec.Struct):
    data: _NewMessages = msgspec.field(default_factory=_NewMessages)


_decode_request = msgspec.json.Decoder(_RequestLine).decode


class _ToolFields(msgspec.Struct, Generic[V], gc=False):
    """What decides whether a tool did what its call says; values as they are in a line, or read."""

    call_id: str
    input: V | msgspec.UnsetType = UNSET
    content: V | msgspec.UnsetType = UNSET
    is_error: Any = None
    observed: Any = None


class _ToolLine(msgspec.Struct, gc=False):
    data: _ToolFields[msgspec.Raw]


class _ResultLine(msgspec.Struct, gc=False):
    data: ToolResultData


_decode_tool = msgspec.json.Decoder(_ToolLine).decode
_decode_result = msgspec.json.Decoder(_ResultLine).decode


class KeptRun(Events):
    """The events of a run that has ended; only those that are queried are decoded."""

    def __init__(self, kept: list[KeptEvent], earlier: list[Event]) -> None:
        super().__init__((), earlier)
        self._kept = kept
        self._by_name: dict[str, list[KeptEvent]] = {}
        for event in kept:
            self._by_name.setdefault(event.event, []).append(event)
        self._decoded: dict[str, list[Event]] = {}
        self._new_messages: list[int] | None = None
        self._is_plain: bool | None = None
        self._results: list[ToolResultRecord] | None = None

    @property
    def all(self) -> list[Event]:
        """All events."""
        return [event.read() for event in self._kept]

    def named(self, *names: str) -> list[Event]:
        """Return the events with one of these names."""
        events: list[Event] = []
        for name in dict.fromkeys(names):
            found = self._decoded.get(name)
            if found is None:
                found = [event.read() for event in self._by_name.get(name, ())]
                self._decoded[name] = found
            events += found
        return events if len(names) == 1 else sorted(events, key=attrgetter("seq"))

    def count(self, name: str) -> int:
        """Return the number of events with this name; they are not decoded."""
        return len(self._by_name.get(name, ()))

    @property
    def new_messages(self) -> list[int]:
        """The number of new messages of each request; the messages are not decoded."""
        if self._new_messages is None:
            requests = self._by_name.get(REQUEST, ())
            self._new_messages = [
                _count_new(event) if event.new is None else event.new for event in requests
            ]
        return self._new_messages

    @property
    def changes(self) -> list[ConversationChange]:
        """What the agent changed; as in most runs that is nothing, few events are decoded."""
        return [] if CHANGE not in self._by_name and self._tools_are_plain() else super().changes

    @property
    def tool_results(self) -> list[ToolResultRecord]:
        """All tool results; where each tool that ran has one, nothing else is decoded."""
        if self._results is None:
            self._results = self._read_results()
        return [*self._results]

    def _read_results(self) -> list[ToolResultRecord]:
        if not self._tools_are_plain():
            return super().tool_results
        results: list[ToolResultData] = []
        for event in self._by_name.get(TOOL_RESULT, ()):
            try:
                data = _decode_result(event.line).data if event.decoded is None else None
            except msgspec.MsgspecError:
                data = None
            results.append(ToolResultData.read(event.read()) if data is None else data)
        return [_tool_result(data) for data in results]

    def _tools_are_plain(self) -> bool:
        """Return whether each tool ran once, with the input of its call, and has its result."""
        if self._is_plain is None:
            self._is_plain = _are_plain([e for e in self._kept if e.event in EXECUTION_EVENTS])
        return self._is_plain


def _count_new(event: KeptEvent) -> int:
    if event.decoded is None:
        return len(_decode_request(event.line).data.new)
    return len(event.decoded.data.get("new", ()))


def _are_plain(events: list[KeptEvent]) -> bool:
    """Return whether each call has another id, and each tool ran as it says and has a result."""
    if any(event.decoded is not None for event in events):
        return False
    try:
        tools = [(event.event, _decode_tool(event.line).data) for event in events]
    except msgspec.MsgspecError:  # of another program
        return False
    return _compare_tools(tools) == "plain"


def _executed_tool(execution: Execution) -> ExecutedTool:
    call, sent = execution.call, execution.result
    call_id = str(execution.started.data.get("call_id", ""))
    result = ToolResultRecord(
        execution.tool,
        call_id,
        execution.content,
        execution.failed,
        None if sent is None else sent.details,
        execution.mocked,
        0 if call is None else call.data.step,
    )
    return ExecutedTool(
        execution.tool, execution.input, result, execution.number, execution.seconds, call_id
    )


def _tool_result(data: ToolResultData) -> ToolResultRecord:
    try:
        content = to_result_content(data.content)
    except msgspec.ValidationError as error:
        raise FormatError(f"the result of {data.tool} cannot be read: {error}") from error
    return ToolResultRecord(
        data.tool,
        data.call_id,
        content,
        data.is_error,
        data.details,
        data.mocked,
        data.step,
    )


# --- What the agent changed

CHANGE_EVENTS = frozenset({*EXECUTION_EVENTS, CHANGE, REPLY})  # those that `read_changes` reads


def read_changes(
    events: Iterable[Event], earlier: Iterable[Event] = ()
) -> list[ConversationChange]:
    """Return what an agent changed, from the events of its runs, but for what is allowed.

    `earlier` are the calls of earlier runs, whose tools may run in these.
    """
    changes: list[ConversationChange] = []
    tools: list[Event] = []
    for event in events:
        if event.event == CHANGE:
            with suppress(FormatError):  # of another tool
                changes.append(ConversationChange.read(event))
        elif event.event in CHANGE_EVENTS:
            tools.append(event)
    changes = [change for change in changes if change.level != "allowed"]
    fields = (
        _ToolFields(
            str(data.get("call_id")),
            data.get("input"),
            data.get("content", UNSET),
            data.get("is_error"),
            data.get("observed"),
        )
        for data in (event.data for event in tools)
    )
    # It is read once more in detail only if something differs, as in few runs.
    if _compare_tools(zip((t.event for t in tools), fields, strict=True)) == "different":
        from offbook.trace.integrity import compare_executions

        changes += compare_executions(read_executions(tools, earlier))
    return changes


def _compare_tools(
    tools: Iterable[tuple[str, _ToolFields[Any]]],
) -> Literal["plain", "equal", "different"]:
    """Return whether a tool did anything else than its call and its result say.

    They are plain if also each call has another id, and each tool that ran a result.
    """
    calls: dict[str, _ToolFields[Any]] = {}
    returned: dict[str, Any] = {}
    waiting: set[str] = set()  # for their results
    is_unique = True
    for name, data in tools:
        key = data.call_id
        if name == TOOL_CALL:
            is_unique = is_unique and key not in calls
            calls[key] = data
        elif name == TOOL_START:
            if key not in calls or data.input != calls[key].input or key in returned:
                return "different"
            returned[key] = UNSET
            waiting.add(key)
        elif name == TOOL_END:
            returned[key] = data.content
        elif name == TOOL_RESULT:
            waiting.discard(key)
            if key not in returned:  # a tool that is seen did not run; an error says why
                if key in calls and calls[key].observed is True and not data.is_error:
                    return "different"
            elif returned[key] is not UNSET and returned[key] != data.content:
                return "different"
    return "plain" if is_unique and not waiting else "equal"
