"""Delivery of events to async code: listeners that are `async def`, and `async for` over a hub.

The hub delivers synchronously, in whatever thread emits. Here the events wait until the event
loop of an async listener or of a stream gets to them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import copy_context
from threading import Lock
from typing import TYPE_CHECKING, Protocol, Self

from offbook.errors import DeadlineExceeded, RunError, UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextvars import Context

    from offbook.trace.events import Event

    KeepError = Callable[[Exception, "AsyncSubscription", Event], None]


class AsyncSubscription(Protocol):
    """The subscription of an async listener: a protocol of the hub's subscriptions.

    `loop` is the event loop in which the listener was subscribed, `backlog` the work for the
    events that it has not handled yet.
    """

    loop: asyncio.AbstractEventLoop | None
    backlog: deque[tuple[Awaitable[object], Event, Context]]

    @property
    def name(self) -> str:
        """The name of the listener, for messages."""
        ...

    def running_loop(self) -> asyncio.AbstractEventLoop | None:
        """Return the event loop of this thread, or None if none runs."""
        ...


class AsyncListeners:
    """Runs the async listeners of a hub: one worker task per busy subscription.

    `keep_error` is called with each exception that a listener raises.
    """

    def __init__(self, keep_error: KeepError) -> None:
        self._keep_error = keep_error
        # Guards the moment in which a worker finds its backlog empty and ends: an event that
        # another thread adds just then would wait for ever.
        self._lock = Lock()
        self._workers: dict[AsyncSubscription, asyncio.Task[None] | None] = {}

    def schedule(
        self, subscription: AsyncSubscription, work: Awaitable[object], event: Event
    ) -> None:
        """Queue the awaitable that a listener returned for this event."""
        current_loop = subscription.running_loop()
        loop = current_loop or subscription.loop
        if loop is None or loop.is_closed():
            _discard(work)
            self._keep_error(
                UsageError(f"no event loop runs the async listener {subscription.name}"),
                subscription,
                event,
            )
            return
        with self._lock:
            subscription.backlog.append((work, event, copy_context()))
            if subscription in self._workers:
                return
            self._workers[subscription] = None  # its task is about to start
        if current_loop is not None:
            self._start_worker(subscription)
        else:
            loop.call_soon_threadsafe(self._start_worker, subscription)

    def _start_worker(self, subscription: AsyncSubscription) -> None:
        self._workers[subscription] = asyncio.ensure_future(self._run_worker(subscription))

    async def _run_worker(self, subscription: AsyncSubscription) -> None:
        """Handle the backlog of one subscription, one event after another."""
        backlog = subscription.backlog
        while True:
            with self._lock:
                if not backlog:
                    del self._workers[subscription]
                    return
                work, event, context = backlog.popleft()
            try:
                # its own task, since only a task can run in the context of the emit
                await asyncio.get_running_loop().create_task(_wait(work), context=context)
            except asyncio.CancelledError:
                self._keep_error(
                    RunError(f"the async listener {subscription.name} was cancelled"),
                    subscription,
                    event,
                )
                task = asyncio.current_task()
                if task is not None and task.cancelling():  # this worker is cancelled, too
                    self._drop_backlog(subscription)
                    raise
                # otherwise the listener cancelled itself: its later events are still delivered
            except Exception as error:  # noqa: BLE001 - a listener must not stop the emitter
                self._keep_error(error, subscription, event)

    def _drop_backlog(self, subscription: AsyncSubscription) -> None:
        """End a worker whose event loop shuts down; report each event that it did not handle."""
        with self._lock:
            dropped = list(subscription.backlog)
            subscription.backlog.clear()
            del self._workers[subscription]
        for work, event, _ in dropped:
            _discard(work)
            error = RunError(f"the async listener {subscription.name} did not run: cancelled")
            self._keep_error(error, subscription, event)

    async def idle(self, timeout: float) -> None:  # noqa: ASYNC109 - the error names the busy listeners
        """Wait until all backlogs are empty."""
        try:
            async with asyncio.timeout(timeout):
                while self._workers:
                    tasks = [task for task in self._workers.values() if task is not None]
                    await (asyncio.wait(tasks) if tasks else asyncio.sleep(0))
        except TimeoutError as error:
            busy = ", ".join(subscription.name for subscription in self._workers)
            raise DeadlineExceeded(
                f"async listeners are still busy after {timeout:g} s: {busy}",
                hint="an async listener must return; or wait longer: idle(timeout=…)",
            ) from error


async def _wait(work: Awaitable[object]) -> None:
    await work


def _discard(work: Awaitable[object]) -> None:
    """Close a coroutine that will not run: Python warns of one that is never awaited."""
    close = getattr(work, "close", None)
    if close is not None:
        close()


class EventBuffer:
    """The events of a stream that were not read yet.

    The hub references the buffer, never the stream: so a stream that is dropped, as after
    `break`, is collected and ends its subscription.
    """

    __slots__ = ("closed", "events", "waiters")

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self.waiters: list[asyncio.Future[None]] = []
        self.closed = False

    def put(self, event: Event) -> None:
        """Add an event and wake the readers; may be called in any thread."""
        self.events.append(event)
        self._wake()

    def close(self) -> None:
        """Wake the readers: they read the remaining events, and then the stream ends."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            loop = waiter.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, waiter)

    async def wait(self) -> None:
        """Wait until there is an event or the buffer is closed."""
        while not self.events and not self.closed:
            waiter = asyncio.get_running_loop().create_future()
            self.waiters.append(waiter)
            if self.events or self.closed:  # another thread was faster than the line above
                return
            await waiter


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():  # it may have been cancelled meanwhile
        waiter.set_result(None)


class EventStream:
    """The matching events, one after another; each stream gets all of them."""

    def __init__(self, names: str, timeout: float | None) -> None:
        self.names = names
        self.buffer = EventBuffer()
        self.stop: Callable[[], None] = lambda: None
        self._timeout = timeout

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        try:
            async with asyncio.timeout(self._timeout):
                await self.buffer.wait()
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"no event matched {self.names} within {self._timeout:g} s",
                hint="check the name, or wait longer: timeout=…",
            ) from error
        if self.buffer.events:
            return self.buffer.events.popleft()
        raise StopAsyncIteration

    def close(self) -> None:
        """End the subscription; what was received can still be read. Idempotent."""
        self.stop()
        self.buffer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.stop()
