"""Listeners that are `async def`: each takes its events one after another, as tasks."""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context, copy_context
from typing import TYPE_CHECKING

from offbook.errors import DeadlineExceeded, UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from offbook.trace.bus.filters import Filter
    from offbook.trace.events import Event

    Listener = Callable[[Event], object]
    Keep = Callable[[Exception, "Subscription", Event], None]


class Subscription:
    """One listener and what it wants to hear; what an async one has still to do."""

    __slots__ = ("backlog", "end", "listener", "loop", "wanted")

    def __init__(self, listener: Listener, wanted: Filter, end: Callable[[], None] | None) -> None:
        self.listener = listener
        self.wanted = wanted
        self.end = end
        self.loop = running_loop()
        self.backlog: deque[tuple[Awaitable[object], Event, Context]] = deque()

    @property
    def name(self) -> str:
        """What the listener calls itself."""
        return getattr(self.listener, "__qualname__", None) or repr(self.listener)


class Workers:
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
