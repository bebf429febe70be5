"""The clock of a harness: time that passes when the test says so.

Handlers and computed values of a harness wait with `asyncio.sleep`, `asyncio.timeout` and
`loop.call_later` as everywhere. In their tasks these are timers of a `VirtualClock`: `h.advance(3)`
runs the timers of the next three seconds, in order and at once.

`Work` drives the coroutine of a task. It knows what the task waits for: a task that only sleeps
needs no real time. The tasks that a handler starts, as `asyncio.gather` does, are its work too.
"""

from __future__ import annotations

import asyncio
import inspect
from contextvars import Context, ContextVar, copy_context
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

Delay = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
MAX_AT_ONCE = 10_000  # timers without a delay at one moment, before it is a loop
DIGITS = 9  # of a time in seconds: 0.35 + 0.05 is 0.4
MAX_TIMERS = 1_000_000  # in one `advance`

# The clock of the harness whose code is running in this task.
current_clock: ContextVar[VirtualClock | None] = ContextVar("offbook-clock", default=None)


class Timer:
    """A call at a time of the clock, with the methods of `asyncio.TimerHandle`."""

    __slots__ = ("_cancelled", "_when", "call", "context", "has_delay", "name", "sleeper")

    def __init__(self, when: float, call: Callable[[], Any], context: Context) -> None:
        self._when = when
        self.call = call
        self.context = context
        self.sleeper: object = None  # the future that the call completes, of `asyncio.sleep`
        self.has_delay = True
        self.name = ""  # of the stream that gets an event
        self._cancelled = False

    def cancel(self) -> None:
        """Never make the call."""
        self._cancelled = True

    def cancelled(self) -> bool:
        """Return whether it was cancelled."""
        return self._cancelled

    def when(self) -> float:
        """Return the time of the call."""
        return self._when


class VirtualClock:
    """A time in seconds, and the timers that are due later."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, int, Timer]] = []
        self._sleepers: set[object] = set()
        self._numbers = count()
        self._at_once = 0  # timers without a delay that were run at this moment

    @property
    def is_stuck(self) -> bool:
        """Return whether timers without a delay start each other, so that time does not pass."""
        return self._at_once > MAX_AT_ONCE

    def call_at(
        self, when: float, call: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Timer:
        """Call a function at a time, after the others of the same time."""
        when = round(when, DIGITS)
        timer = Timer(when, partial(call, *args), context or copy_context())
        timer.has_delay = when > self.now
        futures: list[object] = [arg for arg in args if isinstance(arg, asyncio.Future)]
        timer.sleeper = futures[0] if futures else None
        self._sleepers.add(timer.sleeper)
        heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    @property
    def next_time(self) -> float | None:
        """The time of the next timer."""
        while self._timers and self._timers[0][2].cancelled():
            self._sleepers.discard(heappop(self._timers)[2].sleeper)
        return self._timers[0][0] if self._timers else None

    def run_next(self) -> Timer:
        """Move to the time of the next timer, make its call and return it."""
        when, _, timer = heappop(self._timers)
        self._at_once = 0 if when > self.now else self._at_once + (not timer.has_delay)
        self.now = max(self.now, when)
        self._sleepers.discard(timer.sleeper)
        timer.context.run(timer.call)
        return timer

    def completes(self, future: object) -> bool:
        """Return whether a future waits for nothing but this clock."""
        return isinstance(future, asyncio.Future) and not future.done() and future in self._sleepers

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give the tasks of a harness the time of their clock. All others have that of the loop."""
        if getattr(loop, "offbook_clock", False):
            return
        loop_time, loop_call_at, loop_call_later = loop.time, loop.call_at, loop.call_later

        def call_at(when: float, callback: Any, *args: Any, context: Any = None) -> Any:
            call = loop_call_at if (clock := current_clock.get()) is None else clock.call_at
            return call(when, callback, *args, context=context)

        def call_later(delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
            if (clock := current_clock.get()) is None:
                return loop_call_later(delay, callback, *args, context=context)
            return clock.call_at(clock.now + delay, callback, *args, context=context)

        def read_time() -> float:
            return loop_time() if (clock := current_clock.get()) is None else clock.now

        make_task: Any = loop.get_task_factory() or _make_task

        def create_task(loop: Any, coroutine: Any, **options: Any) -> Any:
            parent = current_work.get()
            if parent is None or getattr(coroutine, "cr_code", None) is Work.run.__code__:
                return make_task(loop, coroutine, **options)
            work = parent.make_child(coroutine)
            task = make_task(loop, work.drive(), **options)
            parent.on_child(task, work)
            return task

        loop.set_task_factory(create_task)
        changed: Any = loop
        changed.time, changed.call_at, changed.call_later = read_time, call_at, call_later
        changed.offbook_clock = True


# The work of a harness whose code is running in this task.
current_work: ContextVar[Work | None] = ContextVar("offbook-work", default=None)
# The files of `asyncio.TaskGroup`, `asyncio.wait` and `asyncio.wait_for`.
WAITING = frozenset(
    function.__code__.co_filename for function in (asyncio.TaskGroup.__aexit__, asyncio.wait)
)


class Work:
    """Drives a coroutine, whose errors are passed on to a function.

    `enter` and `leave` are called around each part between two awaits, also of the tasks that the
    coroutine starts; `on_child` gets these tasks.
    """

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        on_error: Callable[[Exception], None],
        enter: Callable[[], Any] = lambda: None,
        leave: Callable[[Any], object] = lambda _: None,
    ) -> None:
        self.coroutine = coroutine
        self.name = ""  # a loop of Python 3.13 names a task after it was made
        self.waits_for: object = None
        self.parent: Work | None = None
        self.on_child: Callable[[asyncio.Task[Any], Work], object] = lambda _task, _work: None
        self._on_error = on_error
        self._enter = enter
        self._leave = leave

    def make_child(self, coroutine: Coroutine[Any, Any, Any]) -> Work:
        """Return the work of a task that this one starts."""
        child = Work(coroutine, self._on_error, self._enter, self._leave)
        child.parent, child.on_child = self, self.on_child
        return child

    @property
    def waits_for_tasks(self) -> bool:
        """Whether it waits in `gather`, `wait`, a task group or for a task."""
        if type(self.waits_for) is not asyncio.Future:
            return isinstance(self.waits_for, asyncio.Future)
        inner: Any = self.coroutine
        while inspect.iscoroutine(inner) and inspect.iscoroutine(inner.cr_await):
            inner = inner.cr_await
        return inspect.iscoroutine(inner) and inner.cr_code.co_filename in WAITING

    async def run(self) -> None:
        """Run it to its end, and pass an error on."""
        try:
            await self.drive()
        except Exception as error:  # noqa: BLE001 - it is reported
            self._on_error(error)

    async def drive(self) -> Any:
        """Run it to its end."""
        current_work.set(self)  # in the context of its task
        return await self

    def __await__(self) -> Generator[Any, Any, Any]:
        sent: Any = None
        failure: BaseException | None = None
        while True:
            outer = self._enter()
            try:
                coroutine = self.coroutine
                awaited = coroutine.send(sent) if failure is None else coroutine.throw(failure)
            except StopIteration as done:
                return done.value
            finally:
                self._leave(outer)
            failure = None
            self.waits_for = awaited
            try:
                sent = yield awaited
            except BaseException as raised:  # noqa: BLE001 - it belongs to the coroutine
                failure = raised
            self.waits_for = None


def _make_task(loop: Any, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    return asyncio.Task(coroutine, loop=loop, **options)
