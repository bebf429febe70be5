"""A run: what a test reads of it, such as its output and its tool calls, and how it ends.

    run = rehearsal.run(when("Refund order 7", [call("refund", {"id": 7}), say("Done.")]))
    assert run.tools == ["refund"]
    assert run.output == "Done."

In a plain function it is complete when `Rehearsal.run` returns it.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
from ast import literal_eval
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbook.errors import Interrupted, OffbookError, ScriptError, UsageError
from offbook.trace.events import PROCESS_EXIT, REQUEST, RUN_END, FileLine, Verdict
from offbook.trace.instrument import rebuild_requests
from offbook.trace.query import Events

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable
    from types import FrameType

    from offbook.checks.fault_outcomes import FaultOutcome
    from offbook.exchange.model import Request
    from offbook.trace.events import Event
    from offbook.trace.hub import Hub
    from offbook.trace.query import ExecutedTool, ModelOutput, ToolResultRecord

# The modules whose frames are the first ones of a thread.
THREAD_MODULES = frozenset({"threading", "concurrent.futures.thread"})


class Run:
    """One run of a script. In an `async def`, await it; elsewhere it is complete."""

    def __init__(self, start: Callable[[Run], Coroutine[Any, Any, None]], events: Events) -> None:
        self._work = start(self)
        self._all_events = events
        self._ended: tuple[int, int, object] | None = None
        self._events: Events | None = None
        self._task: asyncio.Task[Any] | None = None
        self._task_frame: FrameType | None = None
        self.awaited = False
        self.error: BaseException | None = None

    def __await__(self) -> Generator[Any, None, Run]:
        return self.complete().__await__()

    async def complete(self) -> Run:
        """Execute the run; a second call only raises the error of the first."""
        if self.awaited:
            if self.error is not None:
                raise self.error
            return self
        self.awaited = True
        self._task = asyncio.current_task()
        work: Any = None if self._task is None else self._task.get_coro()
        self._task_frame = getattr(work, "cr_frame", None) or getattr(work, "gi_frame", None)
        try:
            await self._work
        except BaseException as error:
            self.error = error
            raise
        return self

    def end(self, first: int, last: int, output: object) -> None:
        """Note the range of the run's events and the agent's answer."""
        self._ended = (first, last, output)

    @property
    def finished(self) -> bool:
        """True if the run has ended, with or without an error."""
        return self._ended is not None or self.error is not None

    @property
    def lost_error(self) -> BaseException | None:
        """The error that ended the task of this run and was never raised again by an `await`.

        So it is with a task that is never awaited, with `gather(…, return_exceptions=True)`, or if
        it ended a thread.
        """
        task = self._task
        if self.error is None or task is None or not task.done() or task.cancelled():
            return None
        # An `await` of the task would have added the frame of the caller to the traceback. So
        # would `Future.result()`, if the run was in a thread.
        trace = self.error.__traceback__
        if trace is not None and trace.tb_frame.f_globals.get("__name__") in THREAD_MODULES:
            return self.error
        raised_again = trace is None or trace.tb_frame is not self._task_frame
        return None if raised_again or task.exception() is not self.error else self.error

    def discard(self) -> bool:
        """Close a run that was never awaited; return True if it was one."""
        if not self.awaited:
            self._work.close()
        return not self.awaited

    def _end(self) -> tuple[int, int, object]:
        """Return the range of the run's events, and the agent's answer."""
        if self._ended is None:
            raise UsageError("this run has not finished", hint="write `run = await ….run(…)`")
        return self._ended

    @property
    def output(self) -> Any:
        """The agent's answer to the last prompt; None if it returned nothing.

        It is the output of a framework's result, the return value of a function, the final text of
        a session or of a command.
        """
        return self._end()[2]

    @property
    def executed(self) -> list[ExecutedTool]:
        """The tools that ran, in order, each with its name, input and result.

        A tool ran if the session or the framework ran it. Of a command or a function only its
        requests can be seen: there a tool ran if its result was sent to the model.
        """
        return self.events.executed

    @property
    def tools(self) -> list[str]:
        """The names of the tools that ran, in order."""
        return [tool.name for tool in self.executed]

    def results(self, tool: str) -> list[ToolResultRecord]:
        """Return the results of this tool, also of calls that were refused."""
        return self.events.tool_results_for(tool)

    @property
    def scripted(self) -> ModelOutput:
        """The replies of the model, as the script or the recording has them: calls and text."""
        return self.events.model_output

    @property
    def requests(self) -> list[Request]:
        """The requests of the agent: the system prompt, the tools and all messages of each."""
        first, last, _ = self._end()
        # A request can continue a conversation of an earlier run.
        events = [event for event in self._all_events.all if event.seq <= last]
        numbers = [event.seq for event in events if event.event == REQUEST]
        requests = zip(numbers, rebuild_requests(events), strict=True)
        return [request for number, request in requests if number > first]

    @property
    def faults(self) -> list[FaultOutcome]:
        """The injected faults, each with what the agent did about it."""
        from offbook.checks.fault_outcomes import find_outcomes

        return find_outcomes(self.events.all)

    @property
    def events(self) -> Events:
        """The events of this run alone."""
        first, last, _ = self._end()
        if self._events is None:
            self._events = Events([e for e in self._all_events.all if first < e.seq <= last])
        return self._events


# --- How a run ends: one verdict and one reason in its trace

_TURN = re.compile(r"(?:when|role)\((?P<text>'.*'|\".*\")", re.DOTALL)
_FILE_AND_LINE = re.compile(r"(?P<file>.+):(?P<line>\d+)")


def emit_failure(hub: Hub, error: BaseException, **data: int) -> None:
    """Emit the verdict and the end of a run that failed with this error."""
    if isinstance(error, Interrupted):
        reason = str(error)
    elif isinstance(error, (asyncio.CancelledError, KeyboardInterrupt)):
        reason = "interrupted: Ctrl-C, or the task of the run was cancelled"
    else:
        reason = f"{type(error).__name__}: {error}"
    if isinstance(error, ScriptError):
        verdict = Verdict("playbook consumed", "fail", str(error))
    else:
        verdict = Verdict("run finished", "error", reason)
    where = error.where if isinstance(error, OffbookError) else ""
    hub.emit_verdict(verdict, place_of_error(where, hub.place))
    hub.emit(RUN_END, {"ok": False, "error": reason, **data})


def place_of_error(where: str, place: FileLine | None) -> FileLine | None:
    """Return the line that the location of an error names, such as `when('Refund order 7')`.

    Without a name in it, or if the file does not contain it, it is the place that is known.
    """
    named = _FILE_AND_LINE.fullmatch(where)
    if named is not None and Path(named["file"]).is_file():
        return FileLine(named["file"], int(named["line"]))
    turn = _TURN.match(where)
    if place is None or place.line or turn is None:
        return place
    words = str(literal_eval(turn["text"])).removesuffix("…").splitlines()[:1]
    try:
        lines = Path(place.file).read_text("utf-8", "replace").splitlines()
    except OSError:
        return place
    found = (number for number, line in enumerate(lines, 1) for text in words if text in line)
    return FileLine(place.file, next(found, 0))


TERMINATION = (signal.SIGTERM, signal.SIGHUP)
_running: list[tuple[int, Hub]] = []  # the runs in progress, with the id of their process
_watchers: list[object] = []


def watch_termination() -> Callable[[], None]:
    """Let SIGTERM and SIGHUP first end the runs in progress; return a function that stops it.

    Once for many runs: to set a handler takes longer than to emit an event. A handler of the user
    is kept.
    """
    watcher = object()
    _watchers.append(watcher)
    _replace_handlers(signal.SIG_DFL, _terminate)

    def stop() -> None:
        if watcher in _watchers:
            _watchers.remove(watcher)
            if not _watchers:
                _replace_handlers(_terminate, signal.SIG_DFL)

    return stop


@contextmanager
def record_termination(hub: Hub) -> Generator[None]:
    """Emit the end of this run if SIGTERM or SIGHUP ends the process in this block."""
    entry = (os.getpid(), hub)
    _running.append(entry)
    try:
        yield
    finally:
        _running.remove(entry)


def _terminate(number: int, _frame: object) -> None:
    for process, hub in tuple(_running):
        if process == os.getpid():  # else a fork of it: the run goes on in the parent
            emit_failure(hub, Interrupted(number))
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def _replace_handlers(old: object, new: Any) -> None:
    if threading.current_thread() is threading.main_thread():  # others may not set handlers
        for number in TERMINATION:
            if signal.getsignal(number) is old:
                signal.signal(number, new)


# --- What an agent leaves running when it returns: threads, tasks and processes. Only an agent that
# did not follow its script is asked: the work is then often still to come.

# The idle threads of a pool wait for work; they have none.
POOLS = ("asyncio_", "AnyIO", "ThreadPoolExecutor")


def list_running() -> set[object]:
    """Return the threads of this process and the tasks of this event loop."""
    return {*threading.enumerate(), *asyncio.all_tasks()}


def describe_left_behind(before: set[object], events: Iterable[Event]) -> str:
    """Return what runs now and did not before, and the processes that had to be ended."""
    parts: list[str] = []
    for running in list_running() - before:
        if isinstance(running, threading.Thread) and not running.name.startswith(POOLS):
            parts.append(f"the thread {running.name}")
        elif isinstance(running, asyncio.Task):
            parts.append(f"the task {running.get_name()}")
    left = [pid for event in events if event.event == PROCESS_EXIT for pid in _leaked(event)]
    if left:
        parts.append(f"{len(left)} process{'es' * (len(left) != 1)} in the background, now ended")
    return ", ".join(sorted(parts))


def _leaked(event: Event) -> list[int]:
    return event.data.get("leaked") or []
