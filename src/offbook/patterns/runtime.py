"""The runtime of patterns: a graph of cells, computed values and effects, and a queue of events.

    runtime = Runtime()
    price = Cell(runtime, Store("price", 2))
    total = runtime.computed(lambda: price.get() * 3)
    total.sink(print)             # prints 6
    price.set(5)                  # visible at once to `get`
    runtime.flush()               # effects and handlers run: prints 15

An event is handled in one transaction. If the handler raises, its writes are undone.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter, deque
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from offbook.errors import LoopError, UsageError
from offbook.patterns.graph import Effect, Graph, Observer, Store
from offbook.patterns.locations import (
    caller,
    describe_function,
    format_place,
    locate_function,
    raised_at,
)
from offbook.patterns.values import freeze

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Mapping

__tracebackhide__ = True  # pytest shows the line of the test or the pattern
MAX_RUNS = 100  # runs of one effect in one flush before it is a loop
EMPTY: Mapping[str, Any] = MappingProxyType({})


class Stream:
    """Events for a handler. `send` queues an event; the handler runs in the next flush."""

    __slots__ = ("bound", "function", "is_named", "name", "runtime")

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        function: Callable[..., Any] | None,
        bound: dict[str, Any],
    ) -> None:
        self.runtime = runtime
        self.name = name
        self.is_named = False  # after its pattern and output
        self.function = function
        self.bound = bound

    def send(self, event: Any = None) -> None:
        """Queue an event."""
        if self.function is None:
            raise UsageError(f"the stream {self.name} has no handler, so the event is lost")
        self.runtime.require_open()
        where = self.runtime.actor or format_place(caller())
        self.runtime.events.append((self, freeze(event), where))
        self.runtime.report("cell.send", {"stream": self.name, "event": event, "by": where})

    @property
    def location(self) -> str:
        """The file and the line of the handler."""
        return locate_function(self.function) if self.function is not None else self.name


class Runtime(Graph):
    """A graph with events: handlers and effects run in a flush, each handler in a transaction."""

    def __init__(self, observer: Observer | None = None, *, check_idempotent: bool = False) -> None:
        super().__init__(observer, check_idempotent=check_idempotent)
        self.events: deque[tuple[Stream, Any, str]] = deque()
        self._pending_handler: asyncio.Task[None] | None = None
        self._flushing = False

    def stream(
        self,
        function: Callable[..., Any] | None,
        bound: Mapping[str, Any] = EMPTY,
        *,
        name: str = "",
    ) -> Stream:
        """Return a stream whose events a handler gets, together with what is bound to it."""
        label = name or (describe_function(function) if function is not None else "stream")
        return Stream(self, label, function, dict(bound))

    @contextmanager
    def batch(self) -> Generator[None]:
        """Make all writes inside one transaction: an exception undoes them."""
        if self.undo is not None:  # part of the outer transaction
            yield
            return
        undo = self.undo = []
        try:
            yield
        except BaseException:
            self.undo = None
            self._roll_back(undo)
            raise
        finally:
            self.undo = None

    def _roll_back(self, undo: list[tuple[Store, Any]]) -> None:
        for store, value in reversed(undo):
            # The whole value: other paths of the cell may have been written as well.
            self._replace(store, (), value)
            self.report("cell.undo", {"cell": store.name})

    def flush(self) -> None:
        """Run effects and handle events until nothing is scheduled: one event, then its effects."""
        if self._flushing:
            raise UsageError("flush was called by a handler or an effect of the same runtime")
        self._flushing = True
        runs: Counter[Effect] = Counter()
        try:
            while True:
                if self._queue:
                    effect = self._queue.popleft()
                    if not self._is_changed(effect):
                        effect.stale = False
                        continue
                    runs[effect] += 1
                    if runs[effect] > MAX_RUNS:
                        self._queue.clear()
                        names = {other.name for other, n in runs.items() if n >= MAX_RUNS - 1}
                        raise LoopError(
                            f"effects wake each other without end: {', '.join(sorted(names))}",
                            hint="an effect that writes a cell must stop writing at some value",
                        )
                    self._run_effect(effect)
                elif self.events and self._pending_handler is None:
                    self._handle(*self.events.popleft())
                else:
                    return
        finally:
            self._flushing = False

    def _handle(self, stream: Stream, event: Any, where: str) -> None:
        """Run a handler in one transaction."""
        undo: list[tuple[Store, Any]] = []
        actor, self.actor = self.actor, f"handler {stream.name}"
        self.undo = undo
        self.report("cell.handle", {"stream": stream.name, "event": event})
        try:
            result = stream.function(event, **stream.bound)  # type: ignore[misc] # checked by send
        except Exception as error:  # noqa: BLE001 - the next event is handled all the same
            self.undo = None
            self._roll_back(undo)
            place = f"in the handler {stream.name}{raised_at(error)}"
            self._keep_error(error, f"{place}, for the event sent at {where}")
            return
        finally:
            self.undo = None
            self.actor = actor
        if inspect.iscoroutine(result):
            task = self._track(
                self._finish_handler(stream, result, undo, where),
                f"the handler {stream.name} ({stream.location})",
            )
            # A task that is cancelled before its first step never reaches the coroutine.
            task.add_done_callback(lambda _: result.close())
            self._pending_handler = task

    async def _finish_handler(
        self,
        stream: Stream,
        work: Coroutine[Any, Any, Any],
        undo: list[tuple[Store, Any]],
        where: str,
    ) -> None:
        """Finish an asynchronous handler. The next event waits for it."""
        driver = _Segments(self, work, undo, f"handler {stream.name}")
        try:
            await driver
        except Exception as error:  # noqa: BLE001 - the next event is handled all the same
            # A cell that someone else wrote meanwhile keeps that value.
            self._roll_back(
                [entry for entry in undo if entry[0].writer == f"handler {stream.name}"]
            )
            place = f"in the handler {stream.name}{raised_at(error)}"
            self._keep_error(error, f"{place}, for the event sent at {where}")
        finally:
            self._pending_handler = None

    @property
    def pending_events(self) -> list[str]:
        """The events that are not handled yet, with the cells that their handlers may write."""
        return [_describe_event(stream, where) for stream, _, where in self.events]

    def close(self) -> None:
        """End all tasks and forget what is queued."""
        self.closed = True
        for task in list(self.tasks):
            task.cancel()
        self._queue.clear()
        self.events.clear()


class _Segments:
    """Drives a coroutine so that each part between two awaits runs in its transaction."""

    def __init__(
        self,
        runtime: Runtime,
        work: Coroutine[Any, Any, Any],
        undo: list[tuple[Store, Any]],
        actor: str,
    ) -> None:
        self._runtime = runtime
        self._work = work
        self._undo = undo
        self._actor = actor

    def __await__(self) -> Generator[Any, Any, Any]:
        sent: Any = None
        failure: BaseException | None = None
        runtime = self._runtime
        while True:
            # Between two awaits other code runs, whose writes belong to it.
            outer = runtime.undo, runtime.actor
            runtime.undo, runtime.actor = self._undo, self._actor
            try:
                awaited = self._work.send(sent) if failure is None else self._work.throw(failure)
            except StopIteration as done:
                return done.value
            finally:
                runtime.undo, runtime.actor = outer
            failure = None
            try:
                sent = yield awaited
            except BaseException as raised:  # noqa: BLE001 - it belongs to the handler
                failure = raised


def _describe_event(stream: Stream, where: str) -> str:
    cells = [bound.name for bound in stream.bound.values() if hasattr(bound, "last_writer")]
    binding = f" for {', '.join(cells)}" if cells else ""
    return f"{stream.name}{binding} (sent at {where})"
