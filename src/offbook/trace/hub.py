"""The live bus: whoever does something tells the hub, whoever listens hears it, in one order."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from offbook.determinism.clock import Clock, SystemClock
from offbook.trace.events import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    Listener = Callable[[Event], object]

NOTHING: dict[str, Any] = {}
_scope: ContextVar[dict[str, Any]] = ContextVar("offbook_scope", default=NOTHING)


class Hub:
    """Numbers events and delivers each to a snapshot of the listeners, in the order they came.

    An error of a listener never reaches whoever emitted: it is kept in `errors`, and the run that
    owns the hub fails with it.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._listeners: tuple[tuple[str, Listener], ...] = ()
        self._seq = 0
        self.errors: list[Exception] = []

    def emit(self, event: str, data: dict[str, Any] | None = None, *, parent: str = "") -> Event:
        """Tell what happened."""
        self._seq += 1
        told = Event(
            self._clock.millis(), event, data or NOTHING, self._seq, "", _scope.get(), parent
        )
        for prefix, listener in self._listeners:
            if event.startswith(prefix):
                try:
                    listener(told)
                except Exception as error:  # noqa: BLE001 - a listener must not harm the speaker
                    self.errors.append(error)
        return told

    def subscribe(self, listener: Listener, prefix: str = "") -> Callable[[], None]:
        """Hear every event from now on whose name begins so; call the answer to stop."""
        entry = (prefix, listener)
        self._listeners = (*self._listeners, entry)

        def stop() -> None:
            self._listeners = tuple(other for other in self._listeners if other is not entry)

        return stop

    @contextmanager
    def scoped(self, **context: Any) -> Generator[None]:
        """Add to the context of whatever is emitted inside, through awaits and tasks."""
        token = _scope.set({**_scope.get(), **context})
        try:
            yield
        finally:
            _scope.reset(token)
