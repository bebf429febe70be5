"""The events of a trace, and the small vocabularies of their data: topics, terminations, verdicts.

A trace has one event a line: `{"ts": …, "event": "tool.call", "data": {…}, "seq": 3}`.

Names
    _meta.*                      the trace, the run, iterations, termination
    model.request|reply|error    the exchanges with the model
    model.change                 a request that differs from its conversation so far
    model.aside                  a side request, answered without the model
    model.wire                   the bytes of an exchange, if they are recorded
    cassette.*                   the tape of the run: what it replays or records, where it differs
    http.call                    a request to another server than a model, with a tape of HTTP
    tool.call|result|blocked     the tool calls of the model, and the results that it gets
    tool.start|end               the executions of tools, where they are seen
    tool.error                   an exception of a tool
    session.* agent.* turn.*     the progress of the agent's loop
    ui.*                         notifications and questions to the user
    host.call                    what the agent asked of its host
    cli.call                     a call of a fake program
    remote.task                  a task that a scripted remote agent received
    step.pre|post                the steps of a persona, or of a framework's agent
    handoff plan                 what an agent passes on, and what it decided
    fault.injected               a fault: what went wrong on purpose
    bus.* cell.* process.* ux.*  events of other subjects
    workspace.files              the files that an iteration of a loop wrote and deleted
    isolation.refused            a connection to another machine, which was not made
    check.verdict                the result of a check
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import msgspec
from msgspec.structs import asdict

from offbook.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FORMAT = "offbook.trace"
VERSION = 1

HEADER = "_meta.trace"  # The first line: the format and its version.
RUN_START = "_meta.run_start"  # A run starts: the subject, and the turns of its script.
RUN_END = "_meta.run_end"  # A run ends: whether it passed, the agent's answer, or the error.
LOOP_START = "_meta.loop_start"  # A hat loop starts: its task and its limits.
ITERATION = "_meta.iteration"  # An iteration of the loop: its number, its hat and its cost.
TERMINATION = "_meta.termination"  # The loop ends: the reason and the exit code.
REQUEST = "model.request"  # A request to the model: the new messages, a digest of the others.
REPLY = "model.reply"  # The reply of the model: blocks, stop reason, usage and scripted step.
ERROR = "model.error"  # The model answered with an error: status, category and message.
CHANGE = "model.change"  # A request differs from the conversation before: what, expected, got.
ASIDE = "model.aside"  # A side request, such as a token count, answered without the model.
WIRE = "model.wire"  # The bytes of an exchange: request and response, without secrets, limited.
TAPE = "cassette.tape"  # The tape that a run replays or records: its file and its tracks.
HTTP = "http.call"  # A request to another server, recorded or replayed: its URL and status.
TOOL_CALL = "tool.call"  # The model calls a tool: its name, arguments and call id.
TOOL_START = "tool.start"  # A tool starts to run: its input, and which execution of the call it is.
TOOL_END = "tool.end"  # A tool ended: what it returned or raised, and the milliseconds it took.
TOOL_RESULT = "tool.result"  # The result of a call that the model gets, and if it is an error.
HOOK_TOOL_CALL = "hook.tool_call"  # A hook changed the input of a tool call.
TOOL_ERROR = "tool.error"  # A tool raised: the exception.
TOOL_BLOCKED = "tool.blocked"  # A hook blocked a tool call: the reason.
AGENT_START = "agent.start"  # The agent starts to work on a prompt.
AGENT_END = "agent.end"  # The agent has finished a prompt.
AGENT_PARTS = "agent.parts"  # What the agent consists of: nodes, edges, handoffs, hooks, commands.
AGENT_ERROR = "agent.error"  # The agent failed: the error.
STEP_PRE = "step.pre"  # A step of a persona starts: its name, function and arguments.
STEP_POST = "step.post"  # A step of a persona ended: its output, or its error.
HANDOFF = "handoff"  # An agent hands over to another one, or to a person.
PLAN = "plan"  # A plan or a decision of the agent, as a structure.
FEEDBACK = "feedback_injected"  # Feedback of a person or a gate to the agent, such as an approval.
BUDGET_EXHAUSTED = "agent.budget_exhausted"  # The agent stopped at a limit.
LOOP_STUCK = "agent.loop_stuck"  # The agent repeated itself until it was stopped.
PERSON_SAID = "person.said"  # A simulated person prompts the agent: the message, and its number.
PERSON = "person.asked"  # The agent asked a person: the question, and the answer of the script.
FAULT = "fault.injected"  # A fault of the run's plan: its kind, and where it was injected.
HOST_CALL = "host.call"  # A call of the host: parameters, who answered, and the answer.
CLI_CALL = "cli.call"  # A call of a fake program: its arguments and exit code.
REMOTE_TASK = "remote.task"  # A scripted remote agent received a message: its task and answer.
PUBLISH = "bus.publish"  # A hat published an event: topic and payload.
WORKSPACE_FILES = "workspace.files"  # Files of a loop: written, with their texts, and deleted.
PROCESS_START = "process.start"  # A process starts: its command.
PROCESS_OUTPUT = "process.output"  # Output of a process: stream and text.
PROCESS_EXIT = "process.exit"  # A process ended: exit code or signal.
REFUSED = "isolation.refused"  # A connection to another machine was refused: its destination.
TERMINAL_WRITE = "ux.terminal.write"  # Bytes written to a terminal, in base64.
VERDICT = "check.verdict"  # The result of a check: status, expected and actual value, message.


# gc=False: a million events would otherwise cost a pass of the garbage collector each
class Event(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One event of a trace.

    `ts` is in milliseconds since 1970; `seq` counts the events of a trace; `id`, `context` and
    `parent` are empty where they carry no meaning.
    """

    ts: int
    event: str
    data: dict[str, Any] = {}
    seq: int = 0
    id: str = ""
    context: dict[str, Any] = {}
    parent: str = ""


def trace_header(ts: int, **fields: Any) -> Event:
    """Return the first event of a trace: its format, its version and further fields."""
    return Event(ts, HEADER, {"format": FORMAT, "version": VERSION, **fields})


# --- The data of Offbook's own events: emitted with `hub.emit_data`, read with `read`. Events of
# agents, personas and other programs have any data.

Optional = msgspec.UnsetType
UNSET = msgspec.UNSET
StructT = TypeVar("StructT", bound=msgspec.Struct)


def read_data(event: Event, kind: type[StructT]) -> StructT:
    """Return the data of an event as a struct; raise for data of another form."""
    try:
        return msgspec.convert(event.data, kind)
    except msgspec.ValidationError as error:
        what = f"event {event.seq}, {event.event}, cannot be read: {error}"
        raise FormatError(what) from error


# gc=False: nothing refers to the data of an event but the event, until it is encoded
class EventData(msgspec.Struct, frozen=True, gc=False):
    """The data of one kind of event. A field that is not set is not in the trace."""

    event_name: ClassVar[str]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that are set; their values as they are."""
        fields = asdict(self)
        if UNSET in self.__struct_defaults__:
            return {name: value for name, value in fields.items() if value is not UNSET}
        return fields

    @classmethod
    def read(cls, event: Event) -> Self:
        """Return the data of an event of a trace; fields of other versions are ignored."""
        return read_data(event, cls)


class RunStartData(EventData, frozen=True):
    """A run starts: the turns of its script, or the command."""

    event_name = RUN_START
    subject: str
    turns: int | Optional = UNSET
    command: list[str] | Optional = UNSET


class RunEndData(EventData, frozen=True):
    """A run ends: `output` is the agent's answer, `error` the reason of a failure."""

    event_name = RUN_END
    ok: bool
    exit: int | Optional = UNSET
    output: Any = UNSET
    error: str | Optional = UNSET


class ModelErrorData(EventData, frozen=True):
    """An error of the provider, as the agent received it."""

    event_name = ERROR
    message: str
    status: int
    category: str
    exchange: str | Optional = UNSET
    retry_after: float | Optional = UNSET


# The kinds of changes, in words.
FACTS = {
    "call": "a call that the model never made",
    "arguments": "changed arguments of a call",
    "result": "a changed result of a tool",
    "item": "another item of a tool of the provider",
    "text": "words that the model never said",
    "prompt": "a rewritten prompt",
    "order": "messages in another order",
    "duplicate": "a message that is repeated",
    "dropped": "messages left out",
    "summary": "a summary in place of messages",
    "inserted": "a message inserted between earlier ones",
    "history": "messages that this run did not produce",
    "system": "another system prompt",
    "model": "another model",
    "parameters": "other parameters",
    "tools": "other tools",
    "input": "a tool that ran with another input than the model's",
    "unasked": "a tool that ran without a call of the model",
    "again": "a tool that ran more than once for one call",
    "unexecuted": "a result of a tool that did not run",
    "returned": "another result than the tool returned",
}
ChangeLevel = Literal["fails", "shown", "allowed"]


class ConversationChange(EventData, frozen=True):
    """A difference between a request and what was said before in its conversation.

    `what` is a kind such as `arguments` or `system`; `message` is the number of the message in the
    request, from 1, or 0. One of the level `fails` fails the run, unless the test accepts it; one
    that is `allowed` is a known way to shorten a conversation, or to begin one.
    """

    event_name = CHANGE
    what: str
    expected: str = ""
    got: str = ""
    message: int = 0
    level: ChangeLevel = "shown"
    exchange: str = ""

    @property
    def fact(self) -> str:
        """The kind of the change, in words."""
        return FACTS.get(self.what, self.what)

    @property
    def text(self) -> str:
        """The change in one line, for a report."""
        sides = (("expected", self.expected), ("got", self.got))
        return f"{self.fact}: {', '.join(f'{name} {side!r}' for name, side in sides if side)}"


class AgentStartData(EventData, frozen=True):
    """The agent gets a prompt."""

    event_name = AGENT_START
    prompt: str


class AgentEndData(EventData, frozen=True):
    """The agent has finished a prompt: why it stopped."""

    event_name = AGENT_END
    stop: str


class ToolCallData(EventData, frozen=True):
    """A call of the model, in the names of the script; `step` is its number there.

    `observed` says whether each execution of the tool has events; a trace of an earlier
    version does not say it.
    """

    event_name = TOOL_CALL
    call_id: str
    tool: str
    input: Any
    step: int = 0
    observed: bool | Optional = UNSET


class ToolStartData(EventData, frozen=True):
    """A tool starts to run with this input, for the `number`th time for its call.

    `call_id` is empty if the model made no such call. `server` is the MCP server of the tool.
    """

    event_name = TOOL_START
    call_id: str
    tool: str
    input: Any
    number: int = 1
    server: str | Optional = UNSET


class ToolEndData(EventData, frozen=True):
    """An execution ended after `ms` milliseconds.

    `content` is what the tool returned, if it is not the same as in the `tool.result` of the call.
    `error` is its exception. `ran` is False if the framework refused the input: the tool's own code
    did not run.
    """

    event_name = TOOL_END
    call_id: str
    tool: str
    ms: float
    is_error: bool
    number: int = 1
    content: Any = UNSET
    error: str | Optional = UNSET
    mocked: bool | Optional = UNSET
    ran: bool | Optional = UNSET


class ToolResultData(EventData, frozen=True):
    """A result; `is_error` is None if it is unknown, `executed` False if the tool did not run.

    `input` is the input of the call in the agent's request, if it is not that of the model: None
    if the request has no such call.
    """

    event_name = TOOL_RESULT
    call_id: str
    tool: str
    content: Any
    is_error: bool | None
    details: Any = None
    mocked: bool = False
    step: int = 0
    executed: bool | Optional = UNSET
    input: Any = UNSET


class ToolBlockedData(EventData, frozen=True):
    """A call that a hook blocked."""

    event_name = TOOL_BLOCKED
    call_id: str
    tool: str = ""
    reason: str = ""
    step: int | Optional = UNSET


class ToolInputData(EventData, frozen=True):
    """The input of a call after a hook changed it."""

    event_name = HOOK_TOOL_CALL
    call_id: str
    tool: str = ""
    input: Any = None
    step: int | Optional = UNSET


class ToolErrorData(EventData, frozen=True):
    """An exception of a tool."""

    event_name = TOOL_ERROR
    call_id: str
    tool: str
    error: str


class ProcessStartData(EventData, frozen=True):
    """A process starts; `protocol` is what it speaks on its standard streams, if it is one."""

    event_name = PROCESS_START
    command: list[str]
    protocol: str | Optional = UNSET


class ProcessOutputData(EventData, frozen=True):
    """Output of a process, or of the backend of a hat."""

    event_name = PROCESS_OUTPUT
    stream: str
    text: str
    hat: str | Optional = UNSET


class ProcessExitData(EventData, frozen=True):
    """A process ended; `leaked` are the processes that it left behind."""

    event_name = PROCESS_EXIT
    code: int | None = None
    timed_out: bool = False
    truncated: Any = False
    leaked: list[int] | Optional = UNSET


class RefusedData(EventData, frozen=True):
    """A connection that was refused: its host and port, and the line of code, if it is known."""

    event_name = REFUSED
    destination: str
    error: str = ""
    where: str = ""


class SideRequestData(EventData, frozen=True):
    """A request that took no step of the script; `request` is that which got a reply again."""

    event_name = ASIDE
    method: str
    path: str
    status: int
    about: str
    request: str | Optional = UNSET


class WireData(EventData, frozen=True):
    """The bytes of an exchange; `ending` is what came in place of the end of the response."""

    event_name = WIRE
    request: dict[str, Any]
    response: dict[str, Any]
    exchange: str | Optional = UNSET
    ending: str | Optional = UNSET


class TapeData(EventData, frozen=True):
    """The tape of a run: replayed, or `recorded`."""

    event_name = TAPE
    file: str
    tracks: list[str]
    recorded: bool


class PassthroughData(EventData, frozen=True):
    """A request that was not recorded, and went to the real model."""

    event_name = "cassette.passthrough"
    request: int
    hat: str
    hash: str


class ReorderedData(EventData, frozen=True):
    """An interaction that was replayed before one that was recorded earlier."""

    event_name = "cassette.reordered"
    interaction: int
    hat: str


class DriftData(EventData, frozen=True):
    """A request that differs from the recorded one; a loose replay answered it."""

    event_name = "cassette.drift"
    interaction: int
    hat: str
    recorded: str
    hash: str


class ForkData(EventData, frozen=True):
    """The run leaves a tape, its `parent`, after this interaction; another source goes on."""

    event_name = "cassette.fork"
    parent: str
    step: int


class PersonData(EventData, frozen=True):
    """A question of the agent to a person: an approval of a tool call, or a text.

    `answer` is `allow`, `deny` or the value; it is not set if the script has none.
    """

    event_name = PERSON
    question: str = ""
    tool: str | Optional = UNSET
    input: Any = UNSET
    answer: Any = UNSET
    changed: Any = UNSET
    reason: str | Optional = UNSET


class PersonSaidData(EventData, frozen=True):
    """A message of a simulated person to the agent."""

    event_name = PERSON_SAID
    text: str
    turn: int


class FaultData(EventData, frozen=True):
    """A fault of the run's plan: the `fault`-th of the run, with the fields of `Fault`.

    `request` is the digest of the conversation, or `call_id` the call that it concerns.
    """

    event_name = FAULT
    fault: int
    place: str
    kind: str
    number: int
    name: str | Optional = UNSET
    at: float | Optional = UNSET
    status: int | Optional = UNSET
    seconds: float | Optional = UNSET
    request: str | Optional = UNSET
    call_id: str | Optional = UNSET


class HostCallData(EventData, frozen=True):
    """A call of the host, and its `result` or `error`."""

    event_name = HOST_CALL
    capability: str
    operation: str
    params: dict[str, Any]
    outcome: str
    result: Any = UNSET
    error: str | Optional = UNSET


class RemoteTaskData(EventData, frozen=True):
    """A message that a scripted remote agent received, the state of its task, and the answer."""

    event_name = REMOTE_TASK
    agent: str
    task: str
    message: Any
    state: str
    answer: Any


class CliCallData(EventData, frozen=True):
    """A call of a fake program; `answered` is False if no answer matched it."""

    event_name = CLI_CALL
    program: str
    args: list[str]
    exit_code: int | Optional = UNSET  # before its end
    answered: bool | Optional = UNSET


class LoopStartData(EventData, frozen=True):
    """A hat loop starts: its limit, and the fields of Ralph's sessions."""

    event_name = LOOP_START
    max_iterations: int
    prompt_file: str = ""
    ux_mode: str = "cli"


class IterationData(EventData, frozen=True):
    """An iteration of a hat loop."""

    event_name = ITERATION
    n: int
    elapsed_ms: int
    hat: str


class PublishData(EventData, frozen=True):
    """An event that a hat published; `target` is the only hat that receives it."""

    event_name = PUBLISH
    topic: str
    payload: str | Optional = UNSET
    source: str | Optional = UNSET
    target: str | Optional = UNSET


class WorkspaceFilesData(EventData, frozen=True):
    """The files that an iteration wrote, with their texts, and those that it deleted."""

    event_name = WORKSPACE_FILES
    written: dict[str, Any]
    deleted: list[str]


class TerminationData(EventData, frozen=True):
    """The end of a hat loop; `claimed_exit_code` is that of the process, if one ran it."""

    event_name = TERMINATION
    reason: str
    iterations: int
    elapsed_secs: float
    exit_code: int
    claimed_exit_code: int | Optional | None = UNSET


# --- Topics of published events


@lru_cache(maxsize=4096)
def topic_matches(pattern: str, topic: str) -> bool:
    """Return whether a pattern matches a topic.

    A topic has segments between dots. The pattern `*` matches every topic; any other must have
    the same number of segments, and a `*` in it matches one of them: `build.*` matches
    `build.done` and not `build.task.abandoned`.
    """
    if pattern in {"*", topic}:
        return True
    expected = pattern.split(".")
    segments = topic.split(".")
    return len(expected) == len(segments) and all(
        part in {"*", segment} for part, segment in zip(expected, segments, strict=True)
    )


# --- The reasons for which a loop ends

EXIT_CODES = {
    "CompletionPromise": 0,
    "Cancelled": 0,
    "ConsecutiveFailures": 1,
    "LoopThrashing": 1,
    "LoopStale": 1,
    "ValidationFailure": 1,
    "Stopped": 1,
    "WorkspaceGone": 1,
    "MaxIterations": 2,
    "MaxRuntime": 2,
    "MaxCost": 2,
    "RestartRequested": 3,
    "Interrupted": 130,
}
TERMINATION_ALIASES = {
    "completed": "CompletionPromise",
    "loopcomplete": "CompletionPromise",
    "timeout": "MaxRuntime",
}


def canonical_termination(reason: str) -> str | None:
    """Return the reason as a key of `EXIT_CODES`, or None if it is unknown.

    Versions of Ralph spell it differently: `max_iterations`, `MaxIterations`, `max iterations`.
    """
    folded = re.sub(r"[^a-z]", "", reason.lower())
    for name in EXIT_CODES:
        if folded == name.lower():
            return name
    return TERMINATION_ALIASES.get(folded)


# --- Verdicts: events too, so that a stored trace can be reported without its run

VerdictStatus = Literal["pass", "fail", "no_data", "warn", "error"]


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a check. `no_data` means that there was nothing to check: never a pass."""

    event_name: ClassVar[str] = VERDICT

    check: str
    status: VerdictStatus
    message: str = ""
    expected: Any = None
    actual: Any = None
    context: dict[str, Any] = {}

    @property
    def holds(self) -> bool:
        """True if a run with this verdict still passes."""
        return self.status in {"pass", "warn"}

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that are set, as values of JSON."""
        return msgspec.to_builtins(self, enc_hook=repr)


class FileLine(msgspec.Struct, frozen=True):
    """The line that a verdict is about: of a test, a playbook or a scenario; 0 if it is unknown."""

    file: str
    line: int = 0

    @property
    def context(self) -> dict[str, Any]:
        """The fields of a verdict; a path in the working directory is relative."""
        path = os.path.abspath(self.file)  # noqa: PTH100 - a link is not followed
        inside = path.startswith(f"{os.getcwd()}{os.sep}")  # noqa: PTH109 - as above
        shown = os.path.relpath(path) if inside else path
        return {"file": shown, "line": self.line} if self.line else {"file": shown}


def read_verdicts(events: Iterable[Event]) -> Iterator[Verdict]:
    """Yield the verdicts among these events."""
    for event in events:
        if event.event == VERDICT:
            yield read_data(event, Verdict)
