"""The test harness of patterns: a separate runtime, and a check at the end.

    with create_harness() as h:
        counter = h.load("counter.py", {"value": 5})
        counter.result.increment.send()
        h.idle()
        assert counter.cells.value.get() == 6

In an `async def` the same with `async with` and `await`. Everything synchronous has happened when
`idle` returns, whether it is awaited or not, so a forgotten `await` loses nothing.

At the end the harness raises what the test did not see: an error of a handler or an effect, a
warning, a computed value that is not a function of its cells, an event that was never handled.
What a test expects, it declares (`expect_errors=1`), and then it has to happen.
"""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from offbook.errors import DeadlineExceeded, PatternError, UsageError
from offbook.patterns.cells import Cell
from offbook.patterns.definition import LoadedPattern, Pattern, building, load_pattern
from offbook.patterns.graph import Computed
from offbook.patterns.locations import caller, format_place
from offbook.patterns.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Mapping

    from offbook.trace.hub import Hub

__tracebackhide__ = True  # pytest shows the line of the test or the pattern
SETTLE_TIMEOUT = 5.0
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
    ) -> None:
        self._validate = validate_schemas
        self._expected_errors = expect_errors
        self._expected_warnings = expect_warnings
        self._expect_unstable = expect_non_idempotent
        self._hub = hub
        self.trace: list[tuple[str, dict[str, Any]]] = []
        self.warnings: list[str] = []
        self.runtime = Runtime(self._record, check_idempotent=True)
        self.runtime.start_task = self._start_task
        self._runner: asyncio.Runner | None = None
        self._watched: list[Callable[[], None]] = []
        self._disposed = False
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
            source = load_pattern(Path(caller()[0]).parent / source)
        elif not isinstance(source, Pattern):
            raise UsageError(
                f"expected a pattern, got {type(source).__name__}",
                hint='load a function with @pattern, or a path: h.load("counter.py")',
            )
        with self._pattern_code():
            return source.build(
                self.runtime, {} if state is None else state, validate=self._validate
            )

    def idle(self) -> Done:
        """Run effects and handlers until nothing is scheduled. Asynchronous work may go on."""
        if not self._disposed:
            with self._pattern_code():
                self.runtime.flush()
        return Done()

    def settled(self, timeout: float = SETTLE_TIMEOUT) -> Any:
        """Wait until nothing is scheduled and all asynchronous work has ended."""
        if self._disposed:
            return Done()
        work = self._settle(timeout)
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
        with self._pattern_code():
            if isinstance(target, (Cell, Computed)):
                stop = cast("Cell[Any]", target).sink(callback)
            elif callable(target):
                stop = self.runtime.computed(target).sink(callback)
            else:
                raise UsageError(
                    f"{target!r} is a value and does not change",
                    hint="subscribe to pattern.outputs.NAME, pattern.cells.NAME, or a function",
                )
        self._watched.append(stop)
        return stop

    @contextmanager
    def batch(self) -> Generator[None]:
        """Make all writes inside one transaction: an exception undoes them."""
        with self.runtime.batch():
            yield

    @contextmanager
    def building(self) -> Generator[None]:
        """Create cells and computed values of this harness outside of a pattern."""
        with building(self.runtime):
            yield

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
        return sorted(task.get_name() for task in self.runtime.tasks if not task.done())

    # --- the end

    def dispose(self, *, check: bool = True) -> Done:
        """Stop everything and raise what went wrong unnoticed. Calling it twice is allowed."""
        if self._disposed:
            return Done()
        pending = self.pending_events
        running = self.running_work
        for stop in self._watched:
            stop()
        self.runtime.close()
        self._disposed = True
        OPEN.pop(id(self), None)
        if self._runner is not None:
            self._runner.close()
            self._runner = None
        if check:
            self._raise_problems(pending, running)
        return Done()

    def _raise_problems(self, pending: list[str], running: list[str]) -> None:
        problems: list[str] = []
        cause: Exception | None = None
        if pending:
            problems.append(
                f"{_count(len(pending), 'event')} never handled: {', '.join(pending)}; "
                "call h.idle() after send"
            )
        if running:
            problems.append(f"still running: {', '.join(running)}; call h.settled()")
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
            return self
        self.dispose(check=False)
        raise UsageError("a harness in an `async def` needs `async with`")

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._leave(error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._leave(error)
        await asyncio.sleep(0)  # cancelled tasks end here, not in the next test

    def _leave(self, error: BaseException | None) -> None:
        if error is None:
            self.dispose()
            return
        # The failure of the test comes first; what may explain it is added.
        if pending := self.pending_events:
            error.add_note(
                f"{_count(len(pending), 'event')} not handled yet: {', '.join(pending)}; "
                "call h.idle() before reading"
            )
        if running := self.running_work:
            error.add_note(f"still running: {', '.join(running)}; call h.settled() before reading")
        for kept in self.errors:
            if kept is not error:
                error.add_note(f"the pattern reported: {kept!r} {_notes(kept)}")
        self.dispose(check=False)

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
        handler = _LogCollector(self)
        root = logging.getLogger()
        root.addHandler(handler)
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)
            root.removeHandler(handler)

    def _start_task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = self._loop_runner().get_loop()
        return loop.create_task(work)

    def _loop_runner(self) -> asyncio.Runner:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner

    async def _settle(self, seconds: float) -> None:
        """Alternate between flushing and waiting for tasks."""
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            with self._pattern_code():
                self.runtime.flush()
            tasks = [task for task in self.runtime.tasks if not task.done()]
            if not tasks:
                return
            left = deadline - asyncio.get_running_loop().time()
            with self._pattern_code():
                done, _ = await asyncio.wait(
                    tasks, timeout=max(left, 0), return_when=asyncio.FIRST_COMPLETED
                )
            if not done:
                raise DeadlineExceeded(
                    f"not settled after {seconds:g} s: {', '.join(self.running_work)}",
                    hint="the work never ends, or needs a longer h.settled(timeout=…)",
                )


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
    """
    known = ("expect_errors", "expect_non_idempotent", "expect_warnings", "hub", "validate_schemas")
    for name in options:
        if name not in known:
            from offbook.errors import did_you_mean

            raise UsageError(
                f"create_harness has no option {name!r}", hint=did_you_mean(name, known)
            )
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
