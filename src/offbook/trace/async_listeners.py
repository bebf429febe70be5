"""Listeners that are `async def`: each takes its events one after another, as tasks."""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Self

from offbook.errors import DeadlineExceeded, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from offbook.trace.events import Event


# --- Listeners that are `async def`: each takes its events one after another, as tasks.

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from offbook.trace.event_bus import NameFilter
    from offbook.trace.events import Event

    Listener = Callable[[Event], object]
    Keep = Callable[[Exception, "Subscription", Event], None]


class Subscription:
    """One listener and what it wants to hear; what an async one has still to do."""

    __slots__ = ("backlog", "end", "listener", "loop", "wanted")

    def __init__(
        self, listener: Listener, wanted: NameFilter, end: Callable[[], None] | None
    ) -> None:
        self.listener = listener
        self.wanted = wanted
        self.end = end
        self.loop = running_loop()
        self.backlog: deque[tuple[Awaitable[object], Event, Context]] = deque()

    @property
    def name(self) -> str:
        """What the listener calls itself."""
        return getattr(self.listener, "__qualname__", None) or repr(self.listener)


class AsyncListeners:
    """What the async listeners of a bus have still to do; `keep` is told what they raise."""

    def __init__(self, keep: Keep) -> None:
        self._keep = keep
        self._working: dict[Subscription, asyncio.Task[None] | None] = {}

    def follow(self, subscription: Subscription, work: Awaitable[object], event: Event) -> None:
        """Let an async listener work, one event after another."""
        here = running_loop()
        loop = here or subscription.loop
        if loop is None or loop.is_closed():
            close = getattr(work, "close", None)
            if close is not None:
                close()
            nowhere = UsageError(f"no event loop runs the async listener {subscription.name}")
            self._keep(nowhere, subscription, event)
            return
        subscription.backlog.append((work, event, copy_context()))
        if subscription in self._working:
            return
        self._working[subscription] = None
        if here is not None:
            self._start(subscription)
        else:
            loop.call_soon_threadsafe(self._start, subscription)

    def _start(self, subscription: Subscription) -> None:
        self._working[subscription] = asyncio.ensure_future(self._work_off(subscription))

    async def _work_off(self, subscription: Subscription) -> None:
        backlog = subscription.backlog
        try:
            while backlog:
                work, event, context = backlog.popleft()
                try:
                    await asyncio.get_running_loop().create_task(_finish(work), context=context)
                except Exception as error:  # noqa: BLE001 - as in _deliver
                    self._keep(error, subscription, event)
        finally:
            del self._working[subscription]

    async def idle(self, timeout: float) -> None:  # noqa: ASYNC109 - it names who is late
        """Wait until all have finished."""
        try:
            async with asyncio.timeout(timeout):
                while self._working:
                    tasks = [task for task in self._working.values() if task is not None]
                    await (asyncio.wait(tasks) if tasks else asyncio.sleep(0))
        except TimeoutError as error:
            busy = ", ".join(one.name for one in self._working)
            raise DeadlineExceeded(
                f"listeners are still busy after {timeout:g} s: {busy}",
                hint="an async listener has to come to an end; or wait longer: idle(timeout=…)",
            ) from error


async def _finish(work: Awaitable[object]) -> None:
    await work


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop of here, if one runs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


# --- Events for `async for`: kept from the moment that the iteration is made, until the bus closes.


class EventBuffer:
    """What was heard and not yet taken.

    The bus holds the box, never the iteration itself: so an iteration that nobody holds any more,
    as after `break`, ends its subscription.
    """

    __slots__ = ("closed", "events", "waiters")

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self.waiters: list[asyncio.Future[None]] = []
        self.closed = False

    def put(self, event: Event) -> None:
        """Keep an event, and wake whoever waits for it, in whatever thread."""
        self.events.append(event)
        self._wake()

    def close(self) -> None:
        """Take no more; what is there may still be taken."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            loop = waiter.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, waiter)

    async def wait(self) -> None:
        """Come back when something is there, or nothing will be any more."""
        while not self.events and not self.closed:
            waiter = asyncio.get_running_loop().create_future()
            self.waiters.append(waiter)
            if self.events or self.closed:  # it came from another thread just now
                return
            await waiter


def _settle(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class EventStream:
    """The events that pass a filter, one after another; each iteration has all of them."""

    def __init__(self, wanted: str, timeout: float | None) -> None:
        self.wanted = wanted
        self.box = EventBuffer()
        self.stop: Callable[[], None] = _nothing
        self._timeout = timeout

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        try:
            async with asyncio.timeout(self._timeout):
                await self.box.wait()
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"no event passed {self.wanted} within {self._timeout:g} s",
                hint="check the name, or wait longer: timeout=…",
            ) from error
        if self.box.events:
            return self.box.events.popleft()
        raise StopAsyncIteration

    def close(self) -> None:
        """Hear no more; a second time is nothing."""
        self.stop()
        self.box.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.stop()


def _nothing() -> None:
    """What an iteration that never began has to stop."""
