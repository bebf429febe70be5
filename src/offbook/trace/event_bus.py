"""The moving parts of the hub: who hears what, in which order, and what waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from inspect import isawaitable
from threading import RLock
from typing import TYPE_CHECKING, Any, Self

from offbook.determinism.clock import Clock, SystemClock
from offbook.errors import RunError, UsageError
from offbook.trace.async_listeners import AsyncListeners, EventStream, Subscription
from offbook.trace.context import NOTHING, ContextScope, current_context
from offbook.trace.events import Event

# --- The moving parts of the hub: who hears what, in which order, and what waits.


# --- Which events a listener hears: all, those that begin alike, one name, or a list of these.

NameFilter = str | Sequence[str]
ALL = "*"


def name_matches(name: str, wanted: NameFilter) -> bool:
    """Whether an event of this name passes.

    `*` passes all; `agent:*` is a plain prefix, so `agent:tool:start` passes and `agent` does not;
    anything else is compared as it stands; a list passes what any of its members does.
    """
    if isinstance(wanted, str):
        return name.startswith(wanted[:-1]) if wanted.endswith(ALL) else name == wanted
    return any(name_matches(name, one) for one in wanted)


def check_name_filter(wanted: object) -> None:
    """Refuse what could never pass by mistake; an empty list never passes on purpose."""
    if isinstance(wanted, str):
        if not wanted or wanted[-1] in ".:":
            raise UsageError(
                f"no event is called {wanted!r}", hint=f'to hear a family, write "{wanted}*"'
            )
        return
    if not isinstance(wanted, Sequence):
        raise UsageError(
            f"a filter is a name or a list of names, not {type(wanted).__name__}",
            hint='write "*", "agent:*", "agent:start" or ["agent:*", "harness:start"]',
        )
    for one in wanted:  # pyright: ignore[reportUnknownVariableType] - whatever a caller gave
        if not isinstance(one, str):
            raise UsageError(f"a filter in a list is a name, not {type(one).__name__}")  # pyright: ignore[reportUnknownArgumentType] - as above
        check_name_filter(one)


# --- Delivers events: each to everyone who listened when it was emitted, all in one order.

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    Listener = Callable[[Event], object]

PATIENCE = 5.0
CASCADE = 10_000  # events that one emit may bring about before it counts as endless
NAMES = 1_000  # names of events whose listeners are remembered


class Bus:
    """Numbers events and delivers each to a snapshot of the listeners, in the order they came.

    - When `emit` returns, every listener has heard the event. Only an event that a listener emits
      waits until the present one has been heard by all: so all hear the same order.
    - Whoever listened at the moment of `emit` hears the event, even if a listener before it ends
      the subscription meanwhile; whoever comes during it starts with the next.
    - An error of a listener never reaches whoever emitted: it is kept in `errors`, and the run
      that owns the bus fails with it, unless `allow_errors` is set. Async listeners run in order
      as tasks; `idle` waits for them.
    """

    def __init__(self, clock: Clock | None = None, *, allow_errors: bool = False) -> None:
        self._clock = clock or SystemClock()
        self._base: dict[str, Any] = NOTHING
        self._subscriptions: tuple[Subscription, ...] = ()
        self._routes: dict[str, tuple[Subscription, ...]] = {}
        self._waiting: deque[tuple[Event, tuple[Subscription, ...]]] = deque()
        self._lock = RLock()
        self._delivering = False
        self._seq = 0
        self.allow_errors = allow_errors
        self.closed = False
        self.errors: list[Exception] = []
        self._workers = AsyncListeners(self._keep)

    def emit(
        self,
        event: str,
        data: dict[str, Any] | None = None,
        *,
        parent: str = "",
        context: dict[str, Any] | None = None,
    ) -> Event:
        """Tell what happened; `context` is laid over the context of here."""
        around = current_context(self, self._base)
        if context:
            around = {**around, **context}
        with self._lock:
            self._seq = seq = self._seq + 1
            told = Event(self._clock.millis(), event, data or NOTHING, seq, "", around, parent)
            route = self._routes.get(event)
            if route is None:
                route = self._find_route(event)
            if self._delivering:
                self._waiting.append((told, route))
            elif self._waiting:  # an interrupt left them behind
                self._waiting.append((told, route))
                self._deliver(*self._waiting.popleft())
            else:
                self._deliver(told, route)
        return told

    def _deliver(self, event: Event, route: tuple[Subscription, ...]) -> None:
        """Deliver an event, and what the listeners add to it."""
        self._delivering = True
        waiting = self._waiting
        delivered = 0
        try:
            while True:
                for subscription in route:
                    try:
                        answer = subscription.listener(event)
                    except Exception as error:  # noqa: BLE001 - a listener must not harm the speaker
                        self._keep(error, subscription, event)
                    else:
                        if answer is not None and isawaitable(answer):
                            self._workers.follow(subscription, answer, event)
                if not waiting:
                    break
                delivered += 1
                if delivered > CASCADE:
                    self._stop_cascade(event)
                    break
                event, route = waiting.popleft()
        finally:
            self._delivering = False

    def _find_route(self, name: str) -> tuple[Subscription, ...]:
        if len(self._routes) >= NAMES:
            self._routes.clear()
        found = tuple(one for one in self._subscriptions if name_matches(name, one.wanted))
        self._routes[name] = found
        return found

    def _stop_cascade(self, last: Event) -> None:
        names = sorted({event.event for event, _ in self._waiting})[:5]
        self._waiting.clear()
        self.errors.append(
            RunError(
                f"one emit brought about more than {CASCADE:,} others, the last {last.event!r}",
                hint=f"a listener answers its own events: dropped {', '.join(names)}",
            )
        )

    def subscribe(
        self, listener: Listener, wanted: NameFilter = ALL, *, end: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Hear the events that pass the filter, from now on; call the answer to stop.

        `end` is called when the bus closes.
        """
        if not callable(listener):
            raise UsageError(
                f"subscribe needs a listener, not {listener!r}",
                hint='write subscribe(listener) or subscribe(listener, "agent:*")',
            )
        check_name_filter(wanted)
        if self.closed:
            raise UsageError("the hub is closed: nothing will be heard any more")
        entry = Subscription(listener, wanted if isinstance(wanted, str) else tuple(wanted), end)
        self._replace((*self._subscriptions, entry))

        def stop() -> None:
            self._replace(tuple(one for one in self._subscriptions if one is not entry))

        return stop

    def _replace(self, subscriptions: tuple[Subscription, ...]) -> None:
        with self._lock:
            self._subscriptions = subscriptions
            self._routes.clear()

    @property
    def listeners(self) -> int:
        """How many listen now."""
        return len(self._subscriptions)

    def scoped(self, **context: Any) -> ContextScope:
        """Add to the context of whatever is emitted inside a `with`, through awaits and tasks."""
        return ContextScope(self, self._base, context)

    def current(self) -> dict[str, Any]:
        """The context of here."""
        return dict(current_context(self, self._base))

    def listen(self, wanted: NameFilter = ALL, *, timeout: float | None = None) -> EventStream:
        """The events from now on, for `async for`; it ends when the bus closes.

        With a timeout, waiting longer than that for one event is an error.
        """
        listening = EventStream(f"{wanted!r}", timeout)
        box = listening.box
        listening.stop = self.subscribe(box.put, wanted, end=box.close)
        return listening

    def __aiter__(self) -> AsyncIterator[Event]:
        return self.listen()

    def wait_for(
        self, wanted: NameFilter, *, timeout: float = PATIENCE
    ) -> Coroutine[Any, Any, Event]:
        """The next event from now on that passes; it is an error when none comes in time."""
        return self._first(self.listen(wanted, timeout=timeout))

    async def _first(self, listening: EventStream) -> Event:
        with listening:
            async for event in listening:
                return event
        raise RunError(f"the hub closed while somebody waited for {listening.wanted}")

    async def idle(self, *, timeout: float = PATIENCE) -> None:  # noqa: ASYNC109 - it names who is late
        """Wait until the async listeners have finished with all that was emitted."""
        await self._workers.idle(timeout)

    def now(self) -> int:
        """The time of the bus, in milliseconds since 1970."""
        return self._clock.millis()

    def raise_errors(self) -> None:
        """Fail with the first error of a listener, unless errors are allowed."""
        if self.errors and not self.allow_errors:
            first, *others = self.errors
            for other in others:
                first.add_note(f"and another listener raised {type(other).__name__}: {other}")
            raise first

    def close(self) -> None:
        """End all subscriptions and iterations; a second time is nothing."""
        self.closed = True
        ended, self._subscriptions = self._subscriptions, ()
        self._routes.clear()
        for one in ended:
            if one.end is not None:
                one.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close()
        if kind is None:
            self.raise_errors()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            await self.idle()
        self.__exit__(kind)

    def _keep(self, error: Exception, subscription: Subscription, event: Event) -> None:
        error.add_note(f"raised by the listener {subscription.name} at {event.event} #{event.seq}")
        self.errors.append(error)
