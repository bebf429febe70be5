"""A subscription to the events of a hub."""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Awaitable, Callable, Sequence
    from contextvars import Context

    from offbook.trace.events import Event

    Listener = Callable[[Event], object]


class Subscription:
    """A listener, its filter, and the events that an async listener has not handled yet."""

    __slots__ = ("backlog", "listener", "loop", "names", "on_close")

    def __init__(
        self,
        listener: Listener,
        names: str | Sequence[str],
        on_close: Callable[[], None] | None,
    ) -> None:
        self.listener = listener
        self.names = names
        self.on_close = on_close
        # events of other threads are handled in the loop in which the listener was subscribed
        self.loop = self.running_loop()
        self.backlog: deque[tuple[Awaitable[object], Event, Context]] = deque()

    @property
    def name(self) -> str:
        """The name of the listener, for messages."""
        return getattr(self.listener, "__qualname__", None) or repr(self.listener)

    @staticmethod
    def running_loop() -> AbstractEventLoop | None:
        """Return the event loop of this thread, or None if none runs."""
        # No loop runs in a process that has not imported asyncio, which takes 30 ms.
        asyncio: Any = sys.modules.get("asyncio")
        try:
            return asyncio and asyncio.get_running_loop()
        except RuntimeError:
            return None
