"""A reply on its way: its events may be heard while its source still gets them.

A source gives a reply when it is whole. One that gets it from a real provider, event by event,
tells each to whoever listens, in the provider's own words; only then can a stream be handed on as
it comes. Whether a source may do so, it says itself: `relays`.
"""

from __future__ import annotations

import asyncio
import re
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from offbook.exchange.reply import Reply

    Listener = Callable[[bytes], object]

_listener: ContextVar[Listener | None] = ContextVar("offbook-listener", default=None)
_LAST = re.compile(
    rb'\[DONE\]|"type": ?"(?:message_stop|response\.(?:completed|incomplete|failed))"'
)


def find_listener() -> Listener | None:
    """Who wants to hear the events of the reply that is being given in this context."""
    return _listener.get()


def relays(source: object) -> bool:
    """Whether this source may tell events before its reply is whole."""
    return bool(getattr(source, "relays", False))


class Relay:
    """A reply that is being given, in a task of its own, and the events of it that came so far."""

    def __init__(self, work: Coroutine[None, None, Reply]) -> None:
        self._events: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._next: bytes | None = None
        context = copy_context()
        context.run(_listener.set, self._events.put_nowait)
        self.reply = asyncio.get_running_loop().create_task(work, context=context)
        self.reply.add_done_callback(lambda _: self._events.put_nowait(None))

    async def begins(self) -> bool:
        """Whether something of it comes before it is whole."""
        try:
            self._next = await self._events.get()
        except asyncio.CancelledError:
            self.reply.cancel()
            raise
        return self._next is not None

    async def follow(self) -> AsyncIterator[bytes]:
        """The events as they come; the last one when the reply is whole, and so is kept.

        Whoever has heard the last one may be gone at once, and everything with it.
        """
        try:
            while self._next is not None and _LAST.search(self._next) is None:
                yield self._next
                self._next = await self._events.get()
            await self.reply
            while self._next is not None:
                yield self._next
                self._next = await self._events.get()
        finally:
            self.reply.cancel()
