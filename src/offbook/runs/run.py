"""A run: what a test reads of it, such as its output and its tool calls, and how it ends.

    run = rehearsal.run(when("Refund order 7", [call("refund", {"id": 7}), say("Done.")]))
    assert run.tools == ["refund"]
    assert run.output == "Done."

In a plain function it is complete when `Rehearsal.run` returns it.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import re
import signal
import sys
import threading
from ast import literal_eval
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import suppress
from contextvars import Context, copy_context
from functools import cache, wraps
from operator import attrgetter
from pathlib import Path
from selectors import DefaultSelector
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast
from weakref import WeakSet

import msgspec

from offbook.determinism.run_context import (
    snapshot_variables,
    use_variable,
    watch_audit_events,
)
from offbook.errors import Interrupted, IsolationError, OffbookError, ScriptError, UsageError
from offbook.files import ReusedFolder, RunFolder, make_run_folder, remove_temp_folder
from offbook.trace.events import (
    HOOK_TOOL_CALL,
    PROCESS_EXIT,
    REQUEST,
    TOOL_CALL,
    UNSET,
    FileLine,
    ProcessExitData,
    RunEndData,
    Verdict,
)
from offbook.trace.hub import Hub, current_hub
from offbook.trace.recorder import KeptEvent, KeptEvents, Recorder, traces_are_read

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable
    from concurrent.futures import Executor
    from types import FrameType

    from offbook.checks.fault_outcomes import FaultOutcome
    from offbook.determinism.run_context import Clock
    from offbook.exchange.model import Request
    from offbook.trace.events import ConversationChange, Event
    from offbook.trace.executions import KnownTools
    from offbook.trace.query import Events, ExecutedTool, ModelOutput, ToolResultRecord

# Of earlier runs: their tools may run, or their results be sent, in this one.
EARLIER = frozenset({TOOL_CALL, HOOK_TOOL_CALL})
# The modules whose frames are the first ones of a thread.
THREAD_MODULES = frozenset({"threading", "concurrent.futures.thread"})


class Run:
    """One run of a script. In an `async def`, await it; elsewhere it is complete."""

    def __init__(self, start: Callable[[Run], Coroutine[Any, Any, None]], trace: RunTrace) -> None:
        self._work = start(self)
        self._trace = trace
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
        task = asyncio.current_task()
        try:
            await self._work
        except BaseException as error:
            self.error = error
            self._task = task  # only now: a run that passed keeps no task
            work: Any = None if task is None else task.get_coro()
            self._task_frame = getattr(work, "cr_frame", None) or getattr(work, "gi_frame", None)
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
    def executed(self) -> KnownTools[ExecutedTool]:
        """The tools that ran, in order, each with its input, result, duration and number.

        A tool ran if the session or the framework ran it, with the input that it received. Of a
        command or a function only its requests can be seen: there a tool ran if a request has the
        call and its result. If the agent ended without a request, it is unknown, and a comparison
        raises `UnknownOutcome`.
        """
        return self.events.executed

    @property
    def tools(self) -> KnownTools[str]:
        """The names of the tools that ran, in order; unknown ones as in `executed`."""
        from offbook.trace.executions import KnownTools

        executed = self.executed
        return KnownTools([tool.name for tool in executed.known()], executed.unknown)

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
        from offbook.trace.rebuilt_requests import rebuild_requests  # few tests read them

        first, last, _ = self._end()
        # A request can continue a conversation of an earlier run.
        events = [event for event in self._trace.read() if event.seq <= last]
        numbers = [event.seq for event in events if event.event == REQUEST]
        requests = zip(numbers, rebuild_requests(events), strict=True)
        return [request for number, request in requests if number > first]

    @property
    def changes(self) -> list[ConversationChange]:
        """What the agent changed between the requests of one conversation, in order.

        Such as another system prompt, model, parameters or tools, or messages left out: `what` is
        its kind, `expected` and `got` are its two sides.
        """
        return self.events.changes

    @property
    def faults(self) -> list[FaultOutcome]:
        """The injected faults, each with what the agent did about it."""
        from offbook.checks.fault_outcomes import find_outcomes

        return find_outcomes(self.events.all)

    @property
    def events(self) -> Events:
        """The events of this run alone."""
        if self._events is None:
            from offbook.trace.query import KeptRun  # most commands are never queried

            first, last, _ = self._end()
            events = self._trace.list_kept()
            start = bisect_right(events, first, key=attrgetter("seq"))
            end = bisect_right(events, last, key=attrgetter("seq"))
            earlier = [event.read() for event in events[:start] if event.event in EARLIER]
            self._events = KeptRun(events[start:end], earlier)
        return self._events


# --- The files and the trace of a rehearsal, which all its runs share


class RunFiles:
    """The working directory and the trace file of a rehearsal; by default in a temporary folder."""

    def __init__(
        self, cwd: Path | str | None, trace: Path | str | None, reused: ReusedFolder | None
    ) -> None:
        self._cwd = None if cwd is None else _to_path(cwd, "cwd").resolve()
        if self._cwd is not None and not self._cwd.is_dir():
            raise UsageError("cwd is not a folder", where=str(cwd), hint="create it first")
        self._trace = None if trace is None else _to_path(trace, "trace")
        self._reused = reused
        self._folder: RunFolder | None = None

    @property
    def cwd(self) -> Path:
        return self._cwd or self._temp_folder().cwd

    @property
    def trace(self) -> Path:
        return self._trace or self._temp_folder().trace

    def _temp_folder(self) -> RunFolder:
        if self._folder is None:
            self._folder = make_run_folder() if self._reused is None else self._reused.take()
        return self._folder

    def release(self) -> None:
        """Remove the temporary folder."""
        if self._folder is None:
            return
        if self._reused is None:
            remove_temp_folder(self._folder.root)
        else:
            self._reused.give_back(self._folder)


class RunTrace:
    """The trace of a rehearsal: the hub that emits its events, the file, and the events so far."""

    def __init__(self, clock: Clock, *, in_memory: bool) -> None:
        self._clock = clock
        self._in_memory = in_memory
        self._kept = KeptEvents()
        self._recorder: Recorder | None = None
        self._events: list[KeptEvent] = []
        self.hub = Hub(clock)

    def read(self) -> list[Event]:
        """Return all events so far."""
        return [event.read() for event in self.list_kept()]

    def list_kept(self) -> list[KeptEvent]:
        """Return all events so far, which are not decoded yet."""
        self.hub.release()
        self._events += self._kept.take()
        return self._events

    def start(self, files: RunFiles, subject: str) -> None:
        """Record the events of the hub from now on."""
        if self._in_memory and not traces_are_read():
            self.hub.subscribe(self._kept.keep, plain=True)
            self.hub.recorder = self._kept
            return
        ts = self._clock.millis()
        self._recorder = Recorder(files.trace, ts=ts, kept=self._kept, subject=subject)
        self.hub.subscribe(self._recorder.record, plain=True)
        self.hub.recorder = self._recorder

    def close(self) -> None:
        """Close the file."""
        self.hub.release()
        if self._recorder is not None:
            self._recorder.close()

    @property
    def changed(self) -> bool:
        """True if something else wrote to the file."""
        return self._recorder is not None and self._recorder.changed


def _to_path(value: object, option: str) -> Path:
    if isinstance(value, (str, Path)) and str(value):
        return Path(value)
    raise UsageError(f"{option}: expected a path, got {value!r}", hint=f'write {option}="…"')


# --- How a run ends: one verdict and one reason in its trace

_TURN = re.compile(r"(?:.+: )?(?:when|role)(?:\((?P<text>'.*'|\".*\")|: (?P<yaml>.+))", re.DOTALL)
_FILE_AND_LINE = re.compile(r"(?P<file>.+):(?P<line>\d+)")


def emit_failure(hub: Hub, error: BaseException, *, exit: int | None = None) -> None:  # noqa: A002 - the name of the field
    """Emit the verdict and the end of a run that failed with this error."""
    if isinstance(error, Interrupted):
        reason = str(error)
    elif isinstance(error, (asyncio.CancelledError, KeyboardInterrupt)):
        reason = "interrupted: Ctrl-C, or the task of the run was cancelled"
    else:
        reason = f"{type(error).__name__}: {error}"
    if isinstance(error, ScriptError):
        verdict = Verdict("playbook consumed", "fail", str(error))
    elif isinstance(error, IsolationError):
        verdict = Verdict("nothing leaves the machine", "fail", str(error))
    else:
        verdict = Verdict("run finished", "error", reason)
    where = error.where if isinstance(error, OffbookError) else ""
    hub.emit_verdict(verdict, place_of_error(where, hub.place))
    code = UNSET if exit is None else exit
    hub.emit_data(RunEndData(ok=False, exit=code, error=reason))


def place_of_error(where: str, place: FileLine | None) -> FileLine | None:
    """Return the line that the location of an error names, such as `when('Refund order 7')`.

    In a file of YAML that is `shop.yaml: when: Refund order 7`.

    Without a name in it, or if the file does not contain it, it is the place that is known.
    """
    named = _FILE_AND_LINE.fullmatch(where)
    if named is not None and Path(named["file"]).is_file():
        return FileLine(named["file"], int(named["line"]))
    turn = _TURN.match(where)
    if place is None or place.line or turn is None:
        return place
    prompt = turn["yaml"] or str(literal_eval(turn["text"]))
    words = prompt.removesuffix("…").splitlines()[:1]
    try:
        lines = Path(place.file).read_text("utf-8", "replace").splitlines()
    except OSError:
        return place
    found = (number for number, line in enumerate(lines, 1) for text in words if text in line)
    return FileLine(place.file, next(found, 0))


TERMINATION = (signal.SIGTERM, signal.SIGHUP)
_running: list[tuple[int, Hub]] = []  # the runs in progress, with the id of their process
_watchers: dict[object, bool] = {}  # whether they could set the handlers


def watch_termination() -> Callable[..., None]:
    """Let SIGTERM and SIGHUP first end the runs in progress; return a function that stops it.

    Once for many runs: to set a handler takes longer than to emit an event. A handler of the user
    is kept.
    """
    watcher = object()
    in_main = threading.current_thread() is threading.main_thread()  # others may not set handlers
    if in_main and not any(_watchers.values()):
        _replace_handlers(signal.SIG_DFL, _terminate)
    _watchers[watcher] = in_main
    if len(_watchers) == 1:
        _agent_processes.mark()

    def stop(*, interrupted: bool = False) -> None:
        if watcher in _watchers:
            del _watchers[watcher]
            if not _watchers:
                if threading.current_thread() is threading.main_thread():
                    _replace_handlers(_terminate, signal.SIG_DFL)
                # A thread of an agent that was interrupted goes on, and starts more.
                if not interrupted:
                    _agent_processes.unmark()

    return stop


class enter_run(use_variable):  # noqa: N801 - used as a function; a generator costs three times as much
    """Make the hub of a run the current one in this block.

    If SIGTERM or SIGHUP ends the process in it, the end of the run is emitted.
    """

    __slots__ = ("_entry",)

    def __init__(self, hub: Hub) -> None:
        self._variable, self._value = current_hub, hub
        self._entry = (os.getpid(), hub)

    def __enter__(self) -> None:
        self._token = current_hub.set(self._value)
        _running.append(self._entry)

    def __exit__(self, *_: object) -> None:
        _running.remove(self._entry)
        super().__exit__()


def _terminate(number: int, _frame: object) -> None:
    for process, hub in tuple(_running):
        if process == os.getpid():  # else a fork of it: the run goes on in the parent
            emit_failure(hub, Interrupted(number))
            hub.release()
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def _replace_handlers(old: object, new: Any) -> None:
    for number in TERMINATION:
        if signal.getsignal(number) is old:
            signal.signal(number, new)


# --- The processes of an agent in this process: daemons that outlive it, if it is killed

RLIMIT_LOCKS = 10  # a limit that Linux ignores since version 2.4
PROCESS_STARTS = {"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}
# They start processes without an audit event.
SPAWNING_MODULES = {"multiprocessing.popen_forkserver", "multiprocessing.popen_spawn_posix"}


class AgentProcesses:
    """Ends what agents in this process have started when it ends, also if it is killed (Linux).

    While a rehearsal is open, each new process inherits a mark. It is the value of a limit: a
    daemon keeps it, whatever it does to its environment, its session and its parent. Before the
    first process is started, `process_tree.py` is, which waits for our end and kills those with
    the mark. Offbook's own commands have a supervisor of their own.
    """

    def __init__(self) -> None:
        self._mark = 0  # while a rehearsal is open
        self._known = (0, 0)  # the id of the process that made a mark, and the mark
        self._watched = 0  # the mark for which a process waits

    def mark(self) -> None:
        """Mark the processes that are started from now on."""
        if sys.platform != "linux":
            return
        from resource import RLIM_INFINITY, getrlimit, setrlimit

        _, most = limits = getrlimit(RLIMIT_LOCKS)
        if limits != (RLIM_INFINITY, RLIM_INFINITY):
            # By an interrupted run; or by another process, at whose end this one is killed.
            return
        if self._known[0] != os.getpid():
            self._known = (os.getpid(), int.from_bytes(os.urandom(7)) + 1)
        self._mark = self._known[1]
        setrlimit(RLIMIT_LOCKS, (self._mark, most))
        _watch_process_starts()
        # Not `isdisjoint`: it would visit all modules.
        if any(name in sys.modules for name in SPAWNING_MODULES):
            self._watch()

    def unmark(self) -> None:
        """Mark no more processes."""
        if self._mark and self._known[0] == os.getpid():
            from resource import RLIM_INFINITY, setrlimit

            setrlimit(RLIMIT_LOCKS, (RLIM_INFINITY, RLIM_INFINITY))
        self._mark = 0

    def on_audit_event(self, event: str, args: tuple[Any, ...]) -> None:
        """Watch this process before the first one that an agent starts."""
        if not self._mark or self._watched == self._mark:
            return
        if event == "import" and args[0] not in SPAWNING_MODULES:
            return
        from offbook.subjects.process import TREE

        if event != "subprocess.Popen" or TREE not in args[1]:
            self._watch()

    def _watch(self) -> None:
        if self._watched == self._mark:
            return
        self._watched = self._mark  # first: to start a process is an audit event
        import subprocess

        from offbook.determinism.network_guard import permit_connections
        from offbook.subjects.process import TREE

        words = [sys.executable, "-I", "-S", TREE, "watch", str(os.getpid()), str(self._mark)]
        # By a shell that ends at once: an agent that waits for all of its children would wait for
        # this one. Outside of the guard of the network, which gives each process a proxy.
        with suppress(OSError):
            permit_connections().run(
                subprocess.run,
                ["/bin/sh", "-c", '"$@" &', "sh", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={},
                start_new_session=True,
                check=False,
            )


_agent_processes = AgentProcesses()


@cache
def _watch_process_starts() -> None:
    watch_audit_events({*PROCESS_STARTS, "import"}, _agent_processes.on_audit_event)


# --- What an agent leaves running when it returns: threads, tasks and processes. Only an agent that
# did not follow its script is asked: the work is then often still to come.

# The idle threads of a pool wait for work; those of Offbook are not the agent's. One of asyncio
# waits for a process, and ends a moment after it.
POOLS = ("asyncio_", "asyncio-waitpid-", "AnyIO", "ThreadPoolExecutor", "offbook-")


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
    ends = [ProcessExitData.read(event) for event in events if event.event == PROCESS_EXIT]
    if left := sum(len(end.leaked or ()) for end in ends):
        parts.append(f"{left} process{'es' * (left != 1)} in the background, now ended")
    return ", ".join(sorted(parts))


# --- The sync bridge: asynchronous code runs to its end where there is no event loop

P = ParamSpec("P")
R = TypeVar("R", bound="AwaitableResult")
T = TypeVar("T")


def in_event_loop() -> bool:
    """Return whether the caller is inside a running event loop and has to await."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class SyncBridge:
    """A separate event loop, taken when it is first needed.

    Clients of some SDKs belong to an event loop, and a new one loads its certificates again. So the
    loop of a closed bridge is used by the next one, unless something was left in it.
    """

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._context: Context | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end in this thread."""
        # One loop for all calls: subjects keep tasks and connections between two prompts.
        if self._runner is None:
            self._runner = _take_runner()
            self._context = copy_context()
        elif self._runner.get_loop().is_running():
            work.close()
            raise UsageError(
                "another thread is running this rehearsal",
                hint="open a rehearsal in each thread, or run one script after the other",
            )
        # The loop has the context in which it was taken. The scopes of mocks that the caller has
        # opened since then apply as well.
        restore = snapshot_variables()

        async def run_in_scopes() -> T:
            restore()
            if isinstance(loop := asyncio.get_running_loop(), WatchedLoop):
                loop.watch_generators()
            return await work

        return self._runner.run(run_in_scopes(), context=self._context)

    def close(self) -> None:
        """Return the loop, or close it with the tasks that still run; idempotent."""
        runner, self._runner = self._runner, None
        if runner is not None:
            _return_runner(runner)


@cache
def _idle_runners(process_id: int) -> list[asyncio.Runner]:
    """Return the list of the runner that waits for the next bridge of this process, if any."""
    runners: list[asyncio.Runner] = []

    def close() -> None:
        # A fork inherits the handler, and shares the files of the loop with its parent.
        while runners and os.getpid() == process_id:
            runners.pop().close()

    atexit.register(close)
    return runners


def _take_runner() -> asyncio.Runner:
    """Return the idle runner, or a new one; other threads have their own."""
    idle = _idle_runners(os.getpid()) if current_thread() is main_thread() else []
    runner = idle.pop() if idle else asyncio.Runner(loop_factory=_make_loop)
    asyncio.set_event_loop(runner.get_loop())
    return runner


def _return_runner(runner: asyncio.Runner) -> None:
    """Keep a runner for the next bridge if its loop is empty, close it otherwise."""
    idle = _idle_runners(os.getpid()) if current_thread() is main_thread() else [runner]
    loop = runner.get_loop()
    asyncio.set_event_loop(None)
    if idle or not isinstance(loop, WatchedLoop) or not loop.is_empty():
        runner.close()
    else:
        idle.append(runner)


def _make_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    if type(loop) is not asyncio.SelectorEventLoop:
        return loop  # of another policy, such as uvloop's: it is closed with its bridge
    loop.close()
    return WatchedLoop()


class WatchedLoop(asyncio.SelectorEventLoop):
    """An event loop that knows what was left in it; asyncio has no public way to ask."""

    def __init__(self) -> None:
        self._watched = DefaultSelector()
        self._own_files = 0
        self._timers: WeakSet[asyncio.TimerHandle] = WeakSet()
        self._generators: WeakSet[AsyncGenerator[Any, Any]] = WeakSet()
        self._has_threads = False
        super().__init__(self._watched)
        self._own_files = len(self._watched.get_map())  # what wakes it up

    def is_empty(self) -> bool:
        """Return whether no task, timer, connection, generator or thread is left."""
        for _ in range(3):  # callbacks, and those that they schedule
            self.call_soon(self.stop)
            self.run_forever()
        now = self.time()
        timers = [timer for timer in self._timers if timer.when() > now and not timer.cancelled()]
        files = len(self._watched.get_map()) - self._own_files
        return not any(
            (asyncio.all_tasks(self), timers, files, self._generators, self._has_threads)
        )

    def call_at(self, *args: Any, **options: Any) -> asyncio.TimerHandle:
        timer = super().call_at(*args, **options)
        self._timers.add(timer)
        return timer

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        self._has_threads = True
        if executor is not None:
            return super().run_in_executor(executor, func, *args)
        # Not in a pool: at the exit, Python waits for its threads, and after Ctrl-C an agent that
        # blocks one would never let it end.
        future = concurrent.futures.Future[Any]()
        thread = threading.Thread(
            target=_complete, args=(future, func, args), name="asyncio_", daemon=True
        )
        thread.start()
        return asyncio.wrap_future(future, loop=self)

    def watch_generators(self) -> None:
        """Note the async generators that start from now until the loop stops."""
        hooks = sys.get_asyncgen_hooks()

        def start(generator: AsyncGenerator[Any, Any]) -> None:
            self._generators.add(generator)
            if hooks.firstiter is not None:
                hooks.firstiter(generator)

        sys.set_asyncgen_hooks(firstiter=start)


def _complete(
    future: concurrent.futures.Future[Any], function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    """Call a function, and set its value or its exception."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        value = function(*args)
    except BaseException as error:  # noqa: BLE001 - raised where it is awaited
        future.set_exception(error)
    else:
        future.set_result(value)


class AwaitableResult(msgspec.Struct, frozen=True):
    """A result that is complete and can be awaited as well."""

    def __await__(self) -> Generator[Any, None, Self]:
        yield from ()
        return self


def sync_or_async(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    """Return a function that completes outside of an event loop and is awaited inside one.

    @sync_or_async
    async def load() -> LoadResult: ...

    result = load()          # in a plain function
    result = await load()    # in an async def
    """

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        # In an event loop the coroutine itself is returned; the caller awaits it.
        work = function(*args, **options)
        return cast("R", work) if in_event_loop() else asyncio.run(work)

    return call
