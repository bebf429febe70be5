"""The test harness of patterns: a separate runtime, and a check at the end.

    with create_harness() as h:
        counter = h.load("counter.py", {"value": 5})
        counter.result.increment.send()
        h.idle()
        assert counter.cells.value.get() == 6

In an `async def` the same with `async with` and `await`. Everything synchronous has happened when
`idle` returns, whether it is awaited or not, so a forgotten `await` loses nothing.

Time is that of the harness: `h.advance(3)` runs the timers of the next three seconds at once, also
those of `asyncio.sleep` in a handler.

`create_harness(playbook=[…])` puts a scripted model under the patterns: the HTTP clients of their
handlers are answered, and the trace of the run has requests, replies and cells.

At the end the harness raises what the test did not see: an error of a handler or an effect, a
warning, a computed value that is not a function of its cells, an event that was never handled.
What a test expects, it declares (`expect_errors=1`), and then it has to happen.
"""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from contextvars import Context, ContextVar, copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from offbook.errors import (
    DeadlineExceeded,
    OffbookError,
    PatternError,
    UsageError,
    name_some,
    require_known,
)
from offbook.options import decode
from offbook.patterns.clock import DIGITS, MAX_TIMERS, Delay, Timer, current_clock
from offbook.patterns.definition import LoadedPattern, Pattern, load_pattern
from offbook.patterns.graph import Computed, PatternScope
from offbook.patterns.runtime import Cell, Runtime
from offbook.patterns.values import caller, format_place
from offbook.trace.hub import current_hub

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from contextlib import AbstractContextManager

    from offbook.patterns.scripted_model import ScriptedModel
    from offbook.trace.hub import Hub
    from offbook.trace.query import Events

T = TypeVar("T")
__tracebackhide__ = True  # pytest shows the line of the test or the pattern
SETTLE_TIMEOUT = 5.0
MAX_YIELDS = 50  # rounds of the event loop in which work may go on before the clock moves
POLL_SECONDS = 0.01  # while work waits for something other than the clock
MAX_POLLS = 5
OPEN: dict[int, PatternHarness] = {}  # harnesses that are not disposed, for the pytest plugin
# The harness whose pattern is running in this thread or task.
_current: ContextVar[PatternHarness | None] = ContextVar("offbook-harness", default=None)
_show: list[Callable[..., Any]] = [warnings.showwarning]


class Done:
    """A finished step: it can be awaited, and does not have to be."""

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


class PatternHarness:
    """A runtime for one test, with the patterns that are loaded into it."""

    def __init__(
        self,
        *,
        validate_schemas: bool = False,
        expect_errors: int | bool = False,
        expect_warnings: int | bool = False,
        expect_non_idempotent: bool = False,
        hub: Hub | None = None,
        playbook: object = None,
        trace: Path | str | None = None,
    ) -> None:
        self._validate = validate_schemas
        self._expected_errors = expect_errors
        self._expected_warnings = expect_warnings
        self._expect_unstable = expect_non_idempotent
        self._hub = hub or current_hub.get()  # that of the agent that uses the harness
        self._script = playbook
        self._trace_file = trace
        self._model: ScriptedModel | None = None
        self._context: Context | None = None  # of the run with the scripted model
        self._recording = ExitStack()
        if trace is not None and playbook is None:
            self._hub = self._recording.enter_context(_record(Path(trace), self._hub))
        self.trace: list[tuple[str, dict[str, Any]]] = []
        self.warnings: list[str] = []
        self.runtime = Runtime(self._record, check_idempotent=True)
        self.runtime.start_task = self._start_task
        self._runner: asyncio.Runner | None = None
        self._watched: dict[Callable[[], None], bool] = {}  # subscriptions, in their order
        self._last_timer: Timer | None = None
        self._disposed = False
        self._log_collector = _LogCollector(self)
        logging.getLogger().addHandler(self._log_collector)
        self.created = format_place(caller())
        OPEN[id(self)] = self

    # --- use

    def load(
        self, source: Pattern | str | Path, state: Mapping[str, Any] | None = None
    ) -> LoadedPattern:
        """Make an instance of a pattern, given as an object or as the path of its file.

        A plain value in `state` becomes a cell of this instance; a cell is shared.
        """
        self.runtime.require_open()
        if isinstance(source, (str, Path)):
            # Relative to the test, wherever pytest was started.
            source = load_pattern(Path(caller()[0].co_filename).parent / source)
        elif not isinstance(source, Pattern):
            raise UsageError(
                f"expected a pattern, got {type(source).__name__}",
                hint='load a function with @pattern, or a path: h.load("counter.py")',
            )
        if self._script is not None and self._model is None:
            raise UsageError(
                "the model of the harness is not started",
                hint="write `with create_harness(playbook=…) as h:`",
            )
        given: Mapping[str, Any] = {} if state is None else state
        return self._run_code(lambda: source.build(self.runtime, given, validate=self._validate))

    def idle(self) -> Done:
        """Run effects and handlers until nothing is scheduled. Asynchronous work may go on."""
        if not self._disposed:
            self._flush()
        return Done()

    def settled(self, timeout: float = SETTLE_TIMEOUT) -> Any:
        """Wait until nothing is scheduled and all asynchronous work has ended."""
        if self._disposed:
            return Done()
        return self._run(self._settle(timeout))

    def advance(self, seconds: float) -> Any:
        """Let time pass on the clock of the harness: run its timers in order, without waiting."""
        decode(seconds, Delay, "advance")
        return Done() if self._disposed else self._run(self._advance(seconds))

    def _run(self, work: Coroutine[Any, Any, None]) -> Any:
        """Return work for `await`; without an event loop, run it to its end."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._loop_runner().run(work)
            return Done()
        return work

    def subscribe(
        self, target: Cell[Any] | Computed | Callable[[], Any], callback: Callable[[Any], Any]
    ) -> Callable[[], None]:
        """Call back with a value now, and once in each `idle` in which it changed.

        The target is a cell, a computed value (`pattern.outputs.count`) or a function that reads
        some: `h.subscribe(lambda: pattern.result.count, counts.append)`.
        """
        self.runtime.require_open()
        if not isinstance(target, (Cell, Computed)):
            if not callable(target):
                raise UsageError(
                    f"{target!r} is a value and does not change",
                    hint="subscribe to pattern.outputs.NAME, pattern.cells.NAME, or a function",
                )
            target = self.runtime.computed(target)
        watched = cast("Computed", target)
        stop_sink = self._run_code(lambda: watched.sink(callback))

        def stop() -> None:
            if self._watched.pop(stop, None) is not None:
                stop_sink()

        self._watched[stop] = True
        return stop

    def batch(self) -> AbstractContextManager[None]:
        """Make all writes inside one transaction: an exception undoes them."""
        return self.runtime.batch()

    def building(self) -> AbstractContextManager[None]:
        """Create cells and computed values of this harness outside of a pattern."""
        return PatternScope(self.runtime).entered()

    @property
    def events(self) -> Events:
        """The events of the run with the scripted model: requests, replies and cells."""
        if self._model is None:
            raise UsageError("the harness has no model", hint="create_harness(playbook=…)")
        return self._model.rehearsal.events

    @property
    def errors(self) -> list[Exception]:
        """The errors of handlers, effects and asynchronous work, in their order."""
        return self.runtime.errors

    @property
    def pending_events(self) -> list[str]:
        """The events that were sent and not handled yet."""
        return self.runtime.pending_events

    @property
    def running_work(self) -> list[str]:
        """The asynchronous handlers and computed values that have not ended."""
        tasks = self.runtime.tasks.items()
        return sorted(work.name for task, work in tasks if not task.done())

    # --- the end

    def dispose(self, *, check: bool = True) -> Any:
        """Stop everything and raise what went wrong unnoticed. Calling it twice is allowed.

        With a scripted model, await it in an `async def`.
        """
        if self._disposed:
            return Done()
        if self._model is None:
            self._dispose(check=check)
            return Done()
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            runner = self._loop_runner()
            self._runner = None  # it is needed until the model has ended
            with runner:
                runner.run(self._dispose_with_model(check=check))
            return Done()
        return self._dispose_with_model(check=check)

    async def _dispose_with_model(self, *, check: bool) -> None:
        model = cast("ScriptedModel", self._model)
        problem: OffbookError | None = None
        try:
            self._dispose(check=check)
        except OffbookError as error:
            problem = error
        await asyncio.sleep(0)  # cancelled tasks end here
        try:
            await model.end(failed=problem is not None or not check)
        except BaseException as error:
            if not check:
                return
            # What the model could not answer is the cause of errors of handlers.
            if problem is not None:
                error.add_note(f"the pattern: {problem}")
            raise
        if problem is not None:
            raise problem

    def _dispose(self, *, check: bool) -> None:
        pending = self.pending_events
        running = self.running_work
        for stop in list(self._watched):
            stop()
        self._run_code(self.runtime.close)
        self._disposed = True
        self._recording.close()
        logging.getLogger().removeHandler(self._log_collector)
        OPEN.pop(id(self), None)
        if self._runner is not None:
            self._runner.close()
            self._runner = None
        if check:
            self._raise_problems(pending, running)

    def _raise_problems(self, pending: list[str], running: list[str]) -> None:
        problems: list[str] = []
        cause: Exception | None = None
        if pending:
            problems.append(
                f"{_count(len(pending), 'event')} never handled: {name_some(pending)}; "
                "call h.idle() after send"
            )
        if running:
            problems.append(f"still running: {name_some(running)}; call h.settled()")
        expected, found = self._expected_errors, len(self.errors)
        if _unexpected(expected, found):
            cause = self.errors[0] if self.errors else None
            problems.append(
                f"expected {_wanted(expected)} error{'' if expected == 1 else 's'}, "
                f"got {found}{_listed(self.errors)}"
            )
        if _unexpected(self._expected_warnings, len(self.warnings)):
            wanted = _wanted(self._expected_warnings)
            problems.append(
                f"expected {wanted} warnings, got {len(self.warnings)}{_listed(self.warnings)}"
            )
        problems += [
            f"{expectation} has no matcher, so it checked nothing: add .to_equal(…)"
            if expectation.startswith("expect_cell")
            else f"{expectation} has no matcher, so it checked nothing: add .to_mutate(…)"
            for expectation in self.runtime.unchecked.values()
        ]
        unstable = list(dict.fromkeys(self.runtime.unstable))
        if unstable and not self._expect_unstable:
            problems += unstable
        if self._expect_unstable and not unstable:
            problems.append("expected a computed value that is not a function of cells, found none")
        if problems:
            raise PatternError("\n".join(problems)) from cause

    def __enter__(self) -> Self:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._loop_runner().run(self._begin()) if self._script is not None else None
            return self
        self._dispose(check=False)
        raise UsageError("a harness in an `async def` needs `async with`")

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._leave(error)

    async def _begin(self) -> None:
        """Start the run with the scripted model."""
        from offbook.patterns.scripted_model import ScriptedModel

        try:
            model = ScriptedModel(self._script, self._trace_file)
            self._context = await model.begin()
        except BaseException:
            self._dispose(check=False)
            raise
        self._model = model
        self._hub = model.rehearsal.hub
        self.runtime.run_code = self._run_code

    async def __aenter__(self) -> Self:
        if self._script is not None:
            await self._begin()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._leave(error)
        await asyncio.sleep(0)  # cancelled tasks end here, not in the next test

    def _leave(self, error: BaseException | None) -> Any:
        if error is None:
            return self.dispose()
        # The failure of the test comes first; what may explain it is added.
        if pending := self.pending_events:
            error.add_note(
                f"{_count(len(pending), 'event')} not handled yet: {name_some(pending)}; "
                "call h.idle() before reading"
            )
        if running := self.running_work:
            error.add_note(f"still running: {name_some(running)}; call h.settled() before reading")
        for kept in self.errors:
            if kept is not error:
                error.add_note(f"the pattern reported: {kept!r} {_notes(kept)}")
        return self.dispose(check=False)

    # --- inside

    def _record(self, event: str, data: dict[str, Any]) -> None:
        self.trace.append((event, data))
        if self._hub is not None:
            self._hub.emit(event, data)

    @contextmanager
    def _pattern_code(self) -> Generator[None]:
        """Collect the warnings and the logged errors of the code of patterns."""
        if warnings.showwarning is not _collect_warning:  # pytest resets it after each test
            _show[0], warnings.showwarning = warnings.showwarning, _collect_warning
        current, clock = _current.set(self), current_clock.set(self.runtime.clock)
        try:
            yield
        finally:
            _current.reset(current)
            current_clock.reset(clock)

    def _run_code(self, call: Callable[[], T]) -> T:
        """Run code of patterns; with a scripted model, in the context of its run."""

        def run() -> T:
            with self._pattern_code():
                return call()

        inside = _current.get() is self
        return run() if inside or self._context is None else self._context.run(run)

    def _start_task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = self._loop_runner().get_loop()
        self.runtime.clock.attach(loop)
        inside = _current.get() is self
        context = copy_context() if inside or self._context is None else self._context.copy()
        context.run(_current.set, self)
        context.run(current_clock.set, self.runtime.clock)
        return loop.create_task(work, context=context)

    def _loop_runner(self) -> asyncio.Runner:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner

    async def _settle(self, seconds: float) -> None:
        """Let work go on until it has ended.

        Work that only sleeps is woken at once. Otherwise the clock follows that of the machine: a
        timeout of work that waits for something else is as long as it says.
        """
        clock, loop = self.runtime.clock, asyncio.get_running_loop()
        latest, deadline = clock.now + seconds, loop.time() + seconds
        self._flush()
        while True:
            await self._let_work_go_on()
            if not self.runtime.tasks:
                return
            if self._is_asleep():
                if clock.next_time is not None and clock.next_time <= latest:
                    self._run_timer()
                    continue
            else:
                before = loop.time()
                left = min(deadline - before, POLL_SECONDS)
                await self._wait_for_work(max(left, 0))
                await self._pass_time(loop.time() - before)
                if loop.time() < deadline and clock.now < latest:
                    continue
                await self._let_work_go_on()
                if not self.runtime.tasks:
                    return
            raise DeadlineExceeded(
                f"not settled after {seconds:g} s: "
                f"{name_some([*self.running_work, *self.pending_events])}",
                hint="the work never ends, or needs a longer h.settled(timeout=…)",
            )

    async def _advance(self, seconds: float) -> None:
        """Run the timers up to a time."""
        self._flush()
        await self._let_work_go_on()
        for _ in range(MAX_POLLS):  # what waits for a thread or a connection gets some real time
            if self._is_asleep():
                break
            await self._wait_for_work(POLL_SECONDS)
            await self._let_work_go_on()
        await self._pass_time(seconds)

    async def _wait_for_work(self, seconds: float) -> None:
        tasks = list(self.runtime.tasks)
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    async def _pass_time(self, seconds: float) -> None:
        clock = self.runtime.clock
        start, end = clock.now, round(clock.now + seconds, DIGITS)
        for _ in range(MAX_TIMERS):
            if clock.next_time is None or clock.next_time > end:
                clock.now = end
                return
            self._run_timer()
            await self._let_work_go_on()
        raise PatternError(
            f"{MAX_TIMERS:,} timers in {clock.now - start:g} s of the harness, "
            f"the last of {self._describe_timer()}",
            hint="wait longer in each round, or advance by less",
        )

    def _run_timer(self) -> None:
        clock = self.runtime.clock
        self._last_timer = self._run_code(clock.run_next)
        self._flush()
        if clock.is_stuck:
            raise PatternError(
                f"timers start each other without end at {clock.now:g} s: {self._describe_timer()}",
                hint="a timer that starts itself again needs a delay",
            )

    def _describe_timer(self) -> str:
        name = self._last_timer.name if self._last_timer is not None else ""
        return name or name_some(self.running_work) or "work that has ended"

    async def _let_work_go_on(self) -> None:
        """Run tasks and flush until all work has ended, or waits."""
        for _ in range(MAX_YIELDS):
            before = len(self.runtime.tasks)
            self._flush(goes_on=True)
            if self._is_asleep() and len(self.runtime.tasks) == before:
                return
            await asyncio.sleep(0)

    def _is_asleep(self) -> bool:
        """Return whether all work has ended, or waits for the clock only."""
        clock, works = self.runtime.clock, self.runtime.tasks.values()
        awake = [work for work in works if not clock.completes(work.waits_for)]
        if not awake:
            return True
        parents = {work.parent for work in works}
        # One that waits for its own tasks sleeps as long as they do.
        return len(awake) < len(works) and all(
            work in parents and work.waits_for_tasks for work in awake
        )

    def _flush(self, *, goes_on: bool = False) -> None:
        self._run_code(lambda: self.runtime.flush(goes_on=goes_on))


@contextmanager
def _record(path: Path, hub: Hub | None) -> Generator[Hub]:
    """Record the events of a hub, or of a new one, in a trace file."""
    from offbook.trace.recorder import Recorder, record_trace

    if hub is None:
        with record_trace(path, subject="patterns") as made:
            yield made
        return
    recorder = Recorder(path, ts=hub.now(), subject="patterns")
    stop = hub.subscribe(recorder.record, plain=True)
    try:
        yield hub
    finally:
        stop()
        recorder.close()


class _LogCollector(logging.Handler):
    """Keeps the warnings and errors that the patterns of a harness log."""

    def __init__(self, harness: PatternHarness) -> None:
        super().__init__(logging.WARNING)
        self._harness = harness

    def emit(self, record: logging.LogRecord) -> None:
        if _current.get() is self._harness:  # other threads log, too
            message = f"{record.levelname} {record.name}: {record.getMessage()}"
            self._harness.warnings.append(message)


def _collect_warning(message: Any, category: Any, *place: Any, **options: Any) -> None:
    """Keep a warning for the harness whose pattern is running, or show it as before.

    `warnings.catch_warnings` would mix the warnings of threads.
    """
    harness = _current.get()
    if harness is None:
        _show[0](message, category, *place, **options)
    else:
        harness.warnings.append(f"{category.__name__}: {message}")


def create_harness(**options: Any) -> PatternHarness:
    """Return a new harness, for a `with` or an `async with` block.

    - `validate_schemas=True` checks values against the types of the inputs.
    - `expect_errors`, `expect_warnings`: True for any number, or the exact number.
    - `expect_non_idempotent=True`: a computed value gives two results for the same cells.
    - `playbook`: turns and roles, a file of them, or another source, as the model of the patterns.
    - `trace`: a file for the cells, handlers and model calls.
    """
    known = (
        *("expect_errors", "expect_non_idempotent", "expect_warnings", "hub", "playbook", "trace"),
        "validate_schemas",
    )
    for name in options:
        require_known("create_harness has no option", name, known)
    return PatternHarness(**options)


def _unexpected(expected: int, found: int) -> bool:
    if expected is True:
        return found == 0
    return found != int(expected)


def _wanted(expected: int) -> str:
    return "at least 1" if expected is True else str(int(expected))


def _listed(items: list[Any]) -> str:
    shown = [f"{item!r} {_notes(item)}" if isinstance(item, Exception) else item for item in items]
    return "".join(f"{os.linesep}  - {text}" for text in shown)


def _notes(error: BaseException) -> str:
    return "; ".join(getattr(error, "__notes__", ()))


def _count(number: int, noun: str) -> str:
    return f"1 {noun} was" if number == 1 else f"{number} {noun}s were"
