"""The events of a reply in progress, passed on while they arrive.

A source returns a whole reply. One that receives it event by event (a live provider) also passes
each event to a listener: `Relay` runs such a source and yields its events.
"""

from __future__ import annotations

import asyncio
import re
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from offbook.exchange.model import Reply

    Listener = Callable[[bytes], object]

_listener: ContextVar[Listener | None] = ContextVar("offbook-listener", default=None)
_LAST_EVENT = re.compile(
    rb'\[DONE\]|"type": ?"(?:message_stop|response\.(?:completed|incomplete|failed))"'
)


def current_listener() -> Listener | None:
    """Return the listener for the events of the reply in progress in this context."""
    return _listener.get()


class Relay:
    """A reply in progress, run as a task, and its events so far."""

    def __init__(self, work: Coroutine[None, None, Reply]) -> None:
        self._events: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._next: bytes | None = None
        # Only the source of this reply may see the listener, so it is set in a copy.
        context = copy_context()
        context.run(_listener.set, self._events.put_nowait)
        self.reply = asyncio.get_running_loop().create_task(work, context=context)
        # None marks the end of the events, also if the source fails.
        self.reply.add_done_callback(lambda _: self._events.put_nowait(None))

    async def has_early_events(self) -> bool:
        """Wait for the first event; False if the reply is complete without any."""
        try:
            self._next = await self._events.get()
        except asyncio.CancelledError:
            self.reply.cancel()
            raise
        return self._next is not None

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the events as they arrive.

        The last event is delayed until the reply is complete and recorded: a client may exit as
        soon as it has received it, and end the run.
        """
        try:
            while self._next is not None and _LAST_EVENT.search(self._next) is None:
                yield self._next
                self._next = await self._events.get()
            # Raises the error of the source, if it failed.
            await self.reply
            while self._next is not None:
                yield self._next
                self._next = await self._events.get()
        finally:
            self.reply.cancel()
