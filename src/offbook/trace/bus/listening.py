"""Events for `async for`: kept from the moment that the iteration is made, until the bus closes."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Self

from offbook.errors import DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import Callable

    from offbook.trace.events import Event


class Box:
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


class Listening:
    """The events that pass a filter, one after another; each iteration has all of them."""

    def __init__(self, wanted: str, timeout: float | None) -> None:
        self.wanted = wanted
        self.box = Box()
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
