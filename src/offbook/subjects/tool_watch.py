"""Watches the tools of an agent in this process: each execution is emitted when it starts and ends.

    return watch.call("refund", {"number": 7}, call_id).run(lambda: refund(number=7))

A framework may send an exception to the model as an ordinary result. The run must know it.

An SDK runs tools wherever a function uses it. `current_watch` is the watch of the run that the
code belongs to; `ToolWatch.expects` says whether such an execution is one of the agent.

With a tape, an execution that was recorded returns what it returned then, and the tool does not
run; see `exchange.tool_track`.
"""

from __future__ import annotations

import asyncio
from inspect import Parameter, signature
from threading import Lock
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import msgspec

from offbook.determinism.run_context import thread_variable, use_variable
from offbook.errors import InjectedFault
from offbook.exchange.messages import Content, Text, ToolCall
from offbook.exchange.tool_track import ToolRun, running_tool
from offbook.subjects.faulty_results import finish_call
from offbook.subjects.mock_tools import evaluate, fit_arity
from offbook.subjects.subject import ToolError
from offbook.trace.events import (
    TOOL_CALL,
    UNSET,
    ToolCallData,
    ToolEndData,
    ToolErrorData,
    ToolStartData,
)
from offbook.trace.hub import current_faults
from offbook.trace.recorder import to_json_value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection
    from contextvars import ContextVar

    from offbook.determinism.faults import Fault
    from offbook.exchange.tool_track import ToolTrack
    from offbook.subjects.subject import RunContext
    from offbook.trace.events import Event
    from offbook.trace.hub import Hub
    from offbook.trace.instrument import SeenTool

MAX_CALLS = 1024  # calls of the model for which a tool may still run
T = TypeVar("T")
if TYPE_CHECKING:
    Note = Callable[["WatchedCall", T], T]

current_watch: ContextVar[ToolWatch | None] = thread_variable("offbook_tool_watch")
"""The watch of the run in which the current code runs, or None."""


class ToolWatch:
    """The observed executions of an agent's tools: whether each failed, and the exceptions.

    Some frameworks do not pass the id of a call to its tool. Such an execution belongs to the first
    call of the tool with this input that has not run yet, otherwise to the first one of the tool.
    """

    def __init__(self, mocked: Collection[str] = ()) -> None:
        self._hub: Hub | None = None
        self._to_script_call: Callable[[ToolCall], ToolCall] = lambda call: call
        self._calls: dict[str, ToolCallData] = {}  # of the model, the latest last
        self._counts: dict[str, int] = {}  # of the executions of each call
        self._open: list[WatchedCall] = []  # the executions that have not ended
        self._lock = Lock()
        self.mocked = set(mocked)
        self.failed: dict[str, bool] = {}
        self.watched: set[str] = set()
        self.errors: list[ToolError] = []
        self.results: dict[str, SeenTool] = {}

    def open(self, context: RunContext) -> Callable[[], None]:
        """Emit the executions of a run from now on; return a function that ends it."""
        self._hub = context.hub
        self._to_script_call = context.to_script_call
        return context.hub.subscribe(self._note_call, TOOL_CALL)

    @property
    def track(self) -> ToolTrack | None:
        """The tape of the run that records the executions, or answers them."""
        return None if self._hub is None else self._hub.tool_track

    def timer(self) -> float:
        """Return a time for durations, in milliseconds."""
        return 0.0 if self._hub is None else self._hub.timer()

    def _note_call(self, event: Event) -> None:
        data = ToolCallData.read(event)
        with self._lock:
            self._calls[data.call_id] = data
            if len(self._calls) > MAX_CALLS:
                oldest = next(iter(self._calls))
                del self._calls[oldest]
                self._counts.pop(oldest, None)

    def expects(self, tool: str) -> bool:
        """Return whether a tool that an SDK is about to run is one of the agent.

        What runs inside of another tool is a part of that one, unless the model called it.
        """
        running = running_tool.get()
        if running is None or running == tool:  # an adapter watches the tool itself
            return running is None
        with self._lock:
            return any(call.call_id not in self._counts for call, _ in self._calls_of(tool, {}))

    def call(
        self,
        tool: str,
        given: Any,
        call_id: str = "",
        signals: tuple[type[Exception], ...] = (),
        functions: tuple[object, ...] = (),
        pauses: tuple[type[Exception], ...] = (),
    ) -> WatchedCall:
        """Watch one execution with this input, in a `with` block.

        `signals` are exceptions that tools raise to tell the model. `functions` are the tool's own
        code: an exception that passed through none is the framework's refusal of the input.
        `pauses` are exceptions by which a tool waits for a person: it has not run yet.
        Call `run` in a plain function, and `run_async` in an `async def`. A `with` block is only
        watched, and not part of a tape.
        """
        return WatchedCall(self, tool, given, call_id, signals, functions, pauses)

    def is_reported(self, tool: str, given: Any) -> bool:
        """Return whether a client reports the execution that its server is about to start.

        A client in this process does, before it sends the call; each accounts for one execution.
        """
        with self._lock:
            for execution in self._open:
                if not execution.served and (execution.tool, execution.given) == (tool, given):
                    execution.served = True
                    return True
        return False

    def start(self, execution: WatchedCall) -> ToolStartData:
        """Emit the start of an execution; return its data."""
        tool, given = execution.tool, _to_json(execution.given)
        call_id = execution.call_id
        with self._lock:
            if call_id not in self._calls:
                call_id = self._find_call(tool, given) or call_id
            number = 1
            if call_id:
                number = self._counts[call_id] = self._counts.get(call_id, 0) + 1
            made = self._calls.get(call_id)
        # The trace has the names of the script.
        own = self._to_script_call(ToolCall(call_id, tool, given))
        arguments = own.arguments
        if made is not None and arguments != made.input:
            arguments = _without_defaults(arguments, made.input, execution.functions)
        data = ToolStartData(call_id, own.name, arguments, number, execution.server or UNSET)
        if self._hub is not None:
            self._hub.emit_data(data)
        with self._lock:
            self._open.append(execution)
        return data

    def _find_call(self, tool: str, given: Any) -> str:
        """Return the id of the call that a tool runs for, or an empty string."""
        calls = self._calls_of(tool, given)
        same_tool = [call for call, _ in calls]
        equal = [call for call, arguments in calls if arguments == call.input]
        waiting = [call for call in same_tool if call.call_id not in self._counts]
        # The framework may have changed the input: the first call of the latest reply.
        latest = [call for call in waiting if call.step == waiting[-1].step]
        # No call waits: the tool runs once more for the last one.
        candidates = ([call for call in equal if call in waiting], latest, equal[-1:])
        return next((calls[0].call_id for calls in candidates if calls), "")

    def _calls_of(self, tool: str, given: Any) -> list[tuple[ToolCallData, Any]]:
        """Return the calls of the model of a tool, each with the input in the script's names."""
        found: list[tuple[ToolCallData, Any]] = []
        for call in self._calls.values():
            own = self._to_script_call(ToolCall(call.call_id, tool, given))
            if own.name == call.tool:
                found.append((call, own.arguments))
        return found

    def end(self, execution: WatchedCall, error: BaseException | None) -> None:
        """Note and emit the end of an execution, with the exception that ended it."""
        with self._lock:
            self._open.remove(execution)
        started = execution.started
        failed = execution.failed or error is not None
        if error is None or isinstance(error, Exception):
            self.failed[started.call_id] = failed
        text = f"{type(error).__name__}: {error}" if error is not None else ""
        mocked = execution.tool in self.mocked or execution.replayed
        if self._hub is not None:
            self._hub.emit_data(
                ToolEndData(
                    started.call_id,
                    started.tool,
                    round(execution.milliseconds, 3),
                    failed,
                    started.number,
                    UNSET if execution.content is None else execution.content,
                    text or UNSET,
                    True if mocked else UNSET,
                    UNSET if execution.ran(error) else False,
                )
            )
        # A mock that raises is reported as an error of the test, or was given an exception.
        expected = (*execution.signals, *execution.pauses, InjectedFault)
        if isinstance(error, Exception) and not isinstance(error, expected) and not mocked:
            self.errors.append(ToolError(started.call_id, execution.tool, error))
            if self._hub is not None:
                self._hub.emit_data(ToolErrorData(started.call_id, execution.tool, text))


class WatchedCall:
    """One execution of a tool, in a `with` or `async with` block; a fault may delay or end it."""

    __slots__ = (
        *("_began", "_fault", "_scope", "_watch"),
        *("content", "failed", "functions", "given", "milliseconds", "pauses", "replayed"),
        *("served", "server", "signals", "started", "tool"),
    )

    def __init__(
        self,
        watch: ToolWatch,
        tool: str,
        given: Any,
        call_id: str,
        signals: tuple[type[Exception], ...],
        functions: tuple[object, ...],
        pauses: tuple[type[Exception], ...],
    ) -> None:
        self._watch = watch
        self.tool = tool
        self.given = given
        self.signals = signals
        self.functions = functions
        self.pauses = pauses
        self.content: tuple[Content, ...] | None = None
        self.started = ToolStartData(call_id, tool, given)
        self._began = self.milliseconds = 0.0
        self._fault: Fault | None = None  # that takes effect after the call
        self.served = False  # set by the server that runs it in this process
        self.server = ""  # the name of an MCP server, set by it or its client
        self.failed = False  # set by a framework that turns an exception into a result
        self.replayed = False  # its end is that of a tape

    def run(self, call: Callable[[], T], note: Note[T] | None = None) -> T:
        """Run the tool, or return what it returned on the tape.

        `note` gets the execution and what was returned, and says what its content is.
        """
        with self:
            if (recorded := self._find_recorded()) is not None:
                return self._noted(cast("T", recorded[0]), note)
            try:
                value = call()
            except Exception as error:
                self._record_exception(error)
                raise
            self._record_value(value)
            return self._noted(value, note)

    async def run_async(self, call: Callable[[], Awaitable[T]], note: Note[T] | None = None) -> T:
        """Run the tool, or return what it returned on the tape, in an `async def`."""
        async with self:
            if (recorded := self._find_recorded()) is not None:
                return self._noted(cast("T", recorded[0]), note)
            try:
                value = await call()
            except Exception as error:
                self._record_exception(error)
                raise
            self._record_value(value)
            return self._noted(value, note)

    def _noted(self, value: T, note: Note[T] | None) -> T:
        value = self.with_fault(value)
        return self.returns(value) if note is None else note(self, value)

    def with_fault(self, value: T) -> T:
        """Return what the fault of this execution makes of its result; raise if it is lost."""
        if (fault := self._fault) is not None and (faults := current_faults()) is not None:
            self._fault = None
            value = finish_call(fault, value, faults)
        return value

    def _find_recorded(self) -> tuple[object] | None:
        """Return the value of the tape, or raise its exception; None if the tool has to run."""
        if (track := self._watch.track) is None or not track.replays:
            return None
        end = track.find(self._tool_run)
        if end is None or end.real:
            return None
        from offbook.subjects.tool_values import restore_exception, restore_value

        self.replayed = True
        if end.error is not None:
            raise restore_exception(end.error)
        return (restore_value(end),)

    @property
    def call_id(self) -> str:
        """The id of the model's call, if there is one."""
        return self.started.call_id

    @property
    def _tool_run(self) -> ToolRun:
        return ToolRun(self.started.tool, self.started.input, self.started.call_id)

    def _record_value(self, value: object) -> None:
        if (track := self._watch.track) is None:
            return
        from offbook.subjects.tool_values import record_value

        track.add(self._tool_run, record_value(value))

    def _record_exception(self, error: Exception) -> None:
        if (track := self._watch.track) is None or isinstance(error, InjectedFault):
            return
        from offbook.subjects.tool_values import record_exception

        end = record_exception(error)
        # A pause that cannot be made again, or a refusal of the input, has to happen again.
        again = (isinstance(error, self.pauses) and not end.exact) or not self._own(error)
        track.add(self._tool_run, msgspec.structs.replace(end, real=again))

    def _own(self, error: BaseException) -> bool:
        return isinstance(error, InjectedFault) or _passed(error, self.functions)

    def ran(self, error: BaseException | None) -> bool:
        """Return whether the tool's own code ran, if the execution ended so."""
        own = error is None or self.replayed or self._own(error)
        return own and not isinstance(error, self.pauses)

    def returns(self, value: T) -> T:
        """Note what the tool returned."""
        self.content = to_content(value)
        return value

    def _start(self) -> None:
        self.started = self._watch.start(self)
        self._began = self._watch.timer()
        self._scope = use_variable(running_tool, self.tool)
        self._scope.__enter__()

    def __enter__(self) -> Self:
        self._start()
        if (faults := current_faults()) is not None:
            try:
                self._fault = faults.call_blocking("tool", self.tool, self.started.call_id)
            except InjectedFault as fault:
                self._end(fault)
                raise
        return self

    async def __aenter__(self) -> Self:
        self._start()
        if (faults := current_faults()) is not None:
            try:
                self._fault = await faults.call("tool", self.tool, self.started.call_id)
            except InjectedFault as fault:
                self._end(fault)
                raise
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        lost: InjectedFault | None = None
        if error is None and self._fault is not None and self._fault.kind == "tool_lost":
            lost = InjectedFault(self._fault.message)  # of a block that is only watched
        self._end(lost or error)
        if lost is not None:
            raise lost

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.__exit__(kind, error, trace)

    def _end(self, error: BaseException | None) -> None:
        self.milliseconds = self._watch.timer() - self._began
        self._scope.__exit__()
        self._watch.end(self, error)


# --- Values of tools


def _to_json(value: Any) -> Any:
    """Return the input of a tool as JSON values: a snapshot, because the tool may change it."""
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_to_builtins)
    except (TypeError, ValueError, RecursionError, NotImplementedError):
        return to_json_value(value)


def _without_defaults(given: Any, made: Any, functions: tuple[object, ...]) -> Any:
    """Return the input without the defaults that a framework added to what the model wrote."""
    if not functions or not isinstance(given, dict) or not isinstance(made, dict):
        return cast("Any", given)
    fields = cast("dict[str, Any]", given)
    try:
        parameters = signature(cast("Callable[..., Any]", functions[0])).parameters
    except (TypeError, ValueError):
        return fields
    return {
        name: value
        for name, value in fields.items()
        if name in made or name not in parameters or not _is_default(value, parameters[name])
    }


def _is_default(value: object, parameter: Parameter) -> bool:
    default = parameter.default
    default = getattr(default, "default", default)  # a `Field(default=…)` of pydantic
    return default is not Parameter.empty and _to_json(default) == value


def _passed(error: BaseException, functions: tuple[object, ...]) -> bool:
    """Return whether an exception was raised in one of these functions, or in what it called.

    True if they are unknown.
    """
    codes = {_MOCK_CODE}
    for function in functions:
        inner: Any = function
        while inner is not None:
            if (code := getattr(inner, "__code__", None)) is None:
                return True
            codes.add(code)
            inner = getattr(inner, "__wrapped__", None)
    if len(codes) == 1:
        return True
    seen: set[int] = set()
    raised: BaseException | None = error
    while raised is not None and id(raised) not in seen:
        seen.add(id(raised))
        if any(frame.f_code in codes for frame, _ in walk_tb(raised.__traceback__)):
            return True
        raised = raised.__cause__ or raised.__context__
    return False


def to_content(value: object) -> tuple[Content, ...] | None:
    """Return what a tool returned as content, or None if it cannot be written."""
    if isinstance(value, str):
        return (Text(value),)
    if value is None:  # every framework has its own word for it
        return None
    if isinstance(value, (list, tuple)):
        blocks = [_to_block(item) for item in cast("list[object]", value)]
        if blocks and all(blocks):
            return tuple(block for block in blocks if block is not None)
    try:
        return (Text(msgspec.json.encode(value, enc_hook=_to_builtins).decode()),)
    except (TypeError, ValueError, RecursionError, NotImplementedError):
        return None


def _to_block(item: object) -> Content | None:
    """Return a text block of a provider as a `Text`; None for any other value."""
    if isinstance(item, dict):
        fields = cast("dict[str, Any]", item)
        if fields.get("type") in {"text", "input_text"} and isinstance(fields.get("text"), str):
            return Text(fields["text"])
    return None


def _to_builtins(value: object) -> object:
    # Models of pydantic, which most frameworks take.
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise NotImplementedError
    return dump(mode="json")


# --- Mocks


class MockedTool:
    """The replacement of a tool: a value, or a function of the parameters, if it takes them.

    An exception as the value is a tool that fails with it. An exception that the function raises
    is an error in the test, and is kept in `error`.
    """

    def __init__(self, name: str, value: Any) -> None:
        self._where = f"mock_tools[{name!r}]"
        self._value = fit_arity(value) if callable(value) else value
        self.calls = 0
        self.error: BaseException | None = None

    async def run(self, params: dict[str, Any]) -> Any:
        """Return the mocked result, or raise it."""
        self.calls += 1
        try:
            answer = await evaluate(self._value, params)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            error.add_note(f"in {self._where}")
            self.error = self.error or error
            raise
        if isinstance(answer, Exception):
            raise answer
        return answer


_MOCK_CODE = MockedTool.run.__code__
