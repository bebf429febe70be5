"""What this process does to the world outside, told before it happens.

Python announces every connection, look-up and opened file as an audit event. A hook for these can
never be taken out again, so there is one for the process, put in when it is first needed; whoever
wants to watch some events is asked about those alone, and may leave again. A handler that raises
keeps the thing from happening.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

Handler = Callable[[str, tuple[Any, ...]], None]


class Auditor:
    """The hook, and who watches which events."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._installed = False
        # replaced, never changed: the hook reads it in any thread, without the lock
        self._watchers: dict[str, tuple[Handler, ...]] = {}

    def watch(self, events: Iterable[str], handler: Handler) -> Callable[[], None]:
        """Ask `handler` before each of these events; call the answer to stop."""
        names = frozenset(events)
        with self._lock:
            self._watchers = self._watchers | {
                name: (*self._watchers.get(name, ()), handler) for name in names
            }
            if not self._installed:
                self._installed = True
                sys.addaudithook(self._make_hook())

        def stop() -> None:
            with self._lock:
                self._watchers = {
                    name: left
                    for name, handlers in self._watchers.items()
                    if (left := _without(handlers, handler) if name in names else handlers)
                }

        return stop

    def _make_hook(self) -> Handler:
        """The hook. It is called for much that nobody watches: a method would take twice as long.

        Python asks it each time whether it may be traced, which a method denies by an exception.
        """

        def hear(event: str, args: tuple[Any, ...]) -> None:
            for handler in self._watchers.get(event, ()):
                handler(event, args)

        return hear


def _without(handlers: tuple[Handler, ...], handler: Handler) -> tuple[Handler, ...]:
    """All but one of these: whoever watches twice, stops twice."""
    at = handlers.index(handler) if handler in handlers else len(handlers)
    return handlers[:at] + handlers[at + 1 :]


watch = Auditor().watch
