"""Where the messages for one run wait until it takes them."""

from __future__ import annotations

import asyncio
from collections import deque


class Inbox:
    """The messages for one run, first in, first out; whoever waits longest is served first."""

    def __init__(self) -> None:
        self._messages: deque[str] = deque()
        self._waiting: deque[asyncio.Future[str]] = deque()

    def push(self, message: str) -> None:
        """Put a message in."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(message)
                return
        self._messages.append(message)

    async def pop(self) -> str:
        """Take the next message, when it comes.

        Others get their turn even if one is there already: a run never overtakes those that
        started beside it.
        """
        waiter: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        if self._messages:
            waiter.set_result(self._messages.popleft())
        else:
            self._waiting.append(waiter)
        try:
            await asyncio.sleep(0)
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._messages.appendleft(waiter.result())  # it came, and nobody took it
            raise

    def drain(self) -> list[str]:
        """Take all that is there, without waiting."""
        taken = list(self._messages)
        self._messages.clear()
        return taken

    def __aiter__(self) -> Inbox:
        return self

    async def __anext__(self) -> str:
        return await self.pop()
