"""The hub: events are emitted into it, numbered, and delivered to its listeners in one order.

    hub = Hub()
    stop = hub.subscribe(print, "tool.*")
    hub.emit("order.shipped", {"id": 7})
    stop()

Every run has one. The trace on disk is written by one of its listeners, a viewer can be another.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from inspect import isawaitable
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec
from msgspec.structs import force_setattr

from offbook.determinism.run_context import (
    EMPTY,
    NO_SCOPES,
    Clock,
    ContextScope,
    SystemClock,
    context_scopes,
    current_context,
    keep_wire,
    live_listener,
    thread_variable,
    use_variable,
)
from offbook.errors import RunError, UsageError
from offbook.trace.events import Event, EventData, FileLine, Verdict

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import AsyncIterator, Awaitable, Coroutine
    from contextlib import AbstractContextManager
    from contextvars import Context, ContextVar

    from offbook.determinism.faults import FaultInjector
    from offbook.exchange.tool_track import HttpTrack, ToolTrack
    from offbook.trace.async_listeners import AsyncListeners, AsyncSubscription, EventStream
    from offbook.trace.correlation import Correlation

    Listener = Callable[[Event], object]

NameFilter = str | Sequence[str]
ALL = "*"
KEEP_WIRE = "OFFBOOK_WIRE"  # set to 1, all runs of a process record the bytes of exchanges
DEFAULT_TIMEOUT = 5.0
MAX_CASCADE = 10_000  # events that listeners may emit in answer to one emit before it is a loop
MAX_ROUTES = 1_000  # event names whose listeners are cached


class Subscription:
    """A listener, its filter, and the events that an async listener has not handled yet.

    One that is `plain` only encodes the event, whatever its data are, and emits nothing.
    """

    __slots__ = ("backlog", "listener", "loop", "names", "on_close", "plain")

    def __init__(
        self,
        listener: Listener,
        names: NameFilter,
        on_close: Callable[[], None] | None,
        *,
        plain: bool = False,
    ) -> None:
        self.listener = listener
        self.names = names
        self.on_close = on_close
        self.plain = plain
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


class WritesEvents(Protocol):
    """The recorder of a run."""

    observed: bool  # something reads each event when it is written

    def write(self, events: list[Event], /) -> object:
        """Write these events."""
        ...


class Hub:
    """Numbers events and delivers each to the listeners that were subscribed when it was emitted.

    - When `emit` returns, every listener was called. An event that a listener emits is queued
      until the current one was delivered to all, so all listeners see the same order.
    - A listener that is unsubscribed during a delivery still gets this event; one that is
      subscribed during a delivery starts with the next event.
    - An exception of a listener never reaches the caller of `emit`. It is kept in `errors`, and
      `raise_errors` fails the run with it unless `allow_errors` is set.
    - Async listeners run as tasks, one event after another; `idle` waits for them.

    With a `session_id`, every event has it in its context.
    """

    def __init__(
        self, clock: Clock | None = None, *, session_id: str = "", allow_errors: bool = False
    ) -> None:
        self._clock = clock or SystemClock()
        self._millis = self._clock.millis
        self.session_id = session_id
        self._base: dict[str, Any] = {"sessionId": session_id} if session_id else EMPTY
        self.correlation: Correlation | None = None
        self.place: FileLine | None = None  # where the present run is written
        self.recorder: WritesEvents | None = None  # of the run
        self._held: list[Event] = []  # not written yet
        self._holder = 0  # the thread that holds events back, or 0
        self.faults: FaultInjector | None = None  # what breaks the tools and host calls of the run
        self.tool_track: ToolTrack | None = None  # what records the tools of the run, or answers
        self.http_track: HttpTrack | None = None  # … its requests to other servers
        # set here: a server creates endpoints in another thread
        self.keeps_wire = keep_wire.get() or os.environ.get(KEEP_WIRE, "0") not in {"", "0"}
        # replaced, never changed in place: a delivery goes on with the tuple that it started with
        self._subscriptions: tuple[Subscription, ...] = ()
        self.is_heard = False  # whether anything listens
        self._routes: dict[str, tuple[Subscription, ...]] = {}
        self._writer: Subscription | None = None  # the only listener, if plain
        self._queue: deque[tuple[Event, tuple[Subscription, ...]]] = deque()
        self._lock = RLock()
        self._delivering = False
        self._written = 0  # the number of the last event that is not held back
        self.allow_errors = allow_errors
        self.closed = False
        self.errors: list[Exception] = []
        self._async_listeners: AsyncListeners | None = None  # made for the first one
        live = live_listener.get()
        if live is not None:
            from offbook.trace.correlation import new_correlation  # most runs are not watched

            self.correlation = new_correlation()
            self._base = {**self._base, **self.correlation.context}
            self.subscribe(live)

    def emit(
        self,
        event: str,
        data: dict[str, Any] | None = None,
        *,
        parent: str = "",
        context: dict[str, Any] | None = None,
    ) -> Event:
        """Deliver an event to its listeners and return it.

        `context` overrides single keys of the current context.
        """
        merged = current_context(self, self._base)
        if context:
            merged = {**merged, **context}
        with self._lock:
            holds = self._holder == get_ident()
            if not holds and (self._held or self._holder):
                self.release()
            seq = self.seq + 1
            emitted = Event(self._millis(), event, data or EMPTY, seq, "", merged, parent)
            if holds:
                self._held.append(emitted)
                return emitted
            self._written = seq
            # the cache makes an event for ten listeners three times as fast
            route = self._routes.get(event)
            if route is None:
                route = self._find_route(event)
            if self._delivering:  # a listener emits: its event waits for its turn
                self._queue.append((emitted, route))
            elif self._queue:  # a KeyboardInterrupt in a listener left these undelivered
                self._queue.append((emitted, route))
                self._deliver(*self._queue.popleft())
            else:
                self._deliver(emitted, route)
        return emitted

    def _find_route(self, name: str) -> tuple[Subscription, ...]:
        """Return the listeners of an event, and remember them."""
        if len(self._routes) >= MAX_ROUTES:
            self._routes.clear()
        route = tuple(
            subscription
            for subscription in self._subscriptions
            if name_matches(name, subscription.names)
        )
        self._routes[name] = route
        return route

    def _set_subscriptions(self, subscriptions: tuple[Subscription, ...]) -> None:
        self._subscriptions = subscriptions
        self.is_heard = bool(subscriptions)
        self._routes.clear()
        writers = [each for each in subscriptions if each.plain and each.names == ALL]
        self._writer = writers[0] if len(subscriptions) == len(writers) == 1 else None

    def _deliver(self, event: Event, route: tuple[Subscription, ...]) -> None:
        """Call the listeners of this event, then deliver what they emitted meanwhile."""
        self._delivering = True
        queue = self._queue
        delivered = 0
        try:
            while True:
                for subscription in route:
                    try:
                        result = subscription.listener(event)
                    except Exception as error:  # noqa: BLE001 - a listener must not stop the emitter
                        self._keep_error(error, subscription, event)
                    else:
                        if result is not None and isawaitable(result):
                            self._schedule(subscription, result, event)
                if not queue:
                    break
                delivered += 1
                if delivered > MAX_CASCADE:
                    names = sorted({queued.event for queued, _ in queue})[:5]
                    queue.clear()
                    self.errors.append(
                        RunError(
                            f"listeners emitted more than {MAX_CASCADE:,} events in answer to one,"
                            f" the last was {event.event!r}",
                            hint=f"a listener answers its own events: dropped {', '.join(names)}",
                        )
                    )
                    break
                event, route = queue.popleft()
        finally:
            self._delivering = False

    def _schedule(self, subscription: Subscription, work: Awaitable[object], event: Event) -> None:
        """Run the awaitable that an async listener returned."""
        if self._async_listeners is None:
            from offbook.trace.async_listeners import AsyncListeners

            self._async_listeners = AsyncListeners(self._keep_error)
        self._async_listeners.schedule(subscription, work, event)

    def emit_data(self, data: EventData | Verdict) -> None:
        """Emit one of Offbook's own events."""
        name = data.event_name
        if self._holder == get_ident():
            context = current_context(self, self._base) if context_scopes.get() else self._base
            self._held.append(Event(self._millis(), name, data, 0, "", context))  # type: ignore[arg-type] - encoded only
            return
        if not self._subscriptions or self._routes.get(name) == ():  # nothing listens
            with self._lock:
                self._written += 1
            return
        writer = self._writer
        # Usually only the recorder listens: it encodes the data as they are.
        if writer is None or context_scopes.get() is not NO_SCOPES:
            self.emit(name, data.as_dict())
            return
        with self._lock:
            if self._delivering or self._queue or self._holder or self._held:
                self.emit(name, data.as_dict())
                return
            self._written = seq = self._written + 1
            event = Event(self._millis(), name, data, seq, "", self._base)  # type: ignore[arg-type] - encoded only
            try:
                writer.listener(event)
            except Exception as error:  # noqa: BLE001 - as for all listeners
                self._keep_error(error, writer, event)

    @property
    def seq(self) -> int:
        """The number of the last event."""
        return self._written + len(self._held)

    @property
    def holds(self) -> bool:
        """Whether events are held back."""
        return self._holder != 0

    def hold(self) -> None:
        """Keep the next events of this thread, to encode and write them in `release`.

        Until then only Offbook's own code may run, without waiting: no other code changes the
        data, or notices an event that a killed process loses.
        """
        recorder = self.recorder
        if recorder is not None and len(self._subscriptions) == 1 and not recorder.observed:
            self._holder = get_ident()

    def release(self) -> None:
        """Write what was held back, before other code runs."""
        if self._holder or self._held:
            with self._lock:
                self._holder = 0
                events = self._held[:]  # the holding thread may append one meanwhile
                del self._held[: len(events)]
                # Numbered only now: another thread may have emitted some meanwhile.
                for number, event in enumerate(events, self._written + 1):
                    force_setattr(event, "seq", number)
                self._written += len(events)
                if events and self.recorder is not None:
                    self.recorder.write(events)

    def emit_verdict(self, verdict: Verdict, place: FileLine | None = None) -> None:
        """Emit the verdict of a check; a failed one has its place, by default that of the run."""
        place = place or self.place
        if place is not None and not verdict.holds:
            context = {**place.context, **verdict.context}
            verdict = msgspec.structs.replace(verdict, context=context)
        self.emit_data(verdict)

    def subscribe(
        self,
        listener: Listener,
        names: NameFilter = ALL,
        *,
        on_close: Callable[[], None] | None = None,
        plain: bool = False,
    ) -> Callable[[], None]:
        """Call the listener with each event whose name matches; return a function that stops it.

        `on_close` is called when the hub is closed. A `plain` listener only encodes the events: it
        may get the typed data of Offbook's own ones.
        """
        if not callable(listener):
            raise UsageError(
                f"subscribe needs a listener, got {listener!r}",
                hint='write subscribe(listener) or subscribe(listener, "agent:*")',
            )
        check_name_filter(names)
        frozen = names if isinstance(names, str) else tuple(names)
        subscription = Subscription(listener, frozen, on_close, plain=plain)
        with self._lock:  # two threads that subscribe at once must not lose each other's entry
            if self.closed:
                raise UsageError("the hub is closed: it delivers no more events")
            self.release()
            self._set_subscriptions((*self._subscriptions, subscription))

        def stop() -> None:
            with self._lock:
                self.release()
                self._set_subscriptions(
                    tuple(other for other in self._subscriptions if other is not subscription)
                )

        return stop

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables by which an agent's process knows its run, if it is watched."""
        return {} if self.correlation is None else self.correlation.variables

    @property
    def listener_count(self) -> int:
        """The number of current subscriptions."""
        return len(self._subscriptions)

    def scoped(self, **context: Any) -> ContextScope:
        """Add to the context of the events emitted in a `with` block, through awaits and tasks."""
        return ContextScope(self, self._base, context)

    def current(self) -> dict[str, Any]:
        """Return a copy of the current context."""
        return dict(current_context(self, self._base))

    def listen(self, names: NameFilter = ALL, *, timeout: float | None = None) -> EventStream:
        """Return the events from now on, for `async for`; the stream ends when the hub closes.

        With a timeout, waiting longer than that for one event raises DeadlineExceeded.
        """
        from offbook.trace.async_listeners import EventStream

        stream = EventStream(f"{names!r}", timeout)
        buffer = stream.buffer  # the stream itself is not referenced: see EventBuffer
        stream.stop = self.subscribe(buffer.put, names, on_close=buffer.close)
        return stream

    def __aiter__(self) -> AsyncIterator[Event]:
        return self.listen()

    def wait_for(
        self, names: NameFilter, *, timeout: float = DEFAULT_TIMEOUT
    ) -> Coroutine[Any, Any, Event]:
        """Wait for the next matching event, counted from this call and not from the `await`."""
        stream = self.listen(names, timeout=timeout)

        async def first() -> Event:
            with stream:
                async for event in stream:
                    return event
            raise RunError(f"the hub was closed while waiting for {stream.names}")

        return first()

    async def idle(self, *, timeout: float = DEFAULT_TIMEOUT) -> None:  # noqa: ASYNC109 - the error names the busy listeners
        """Wait until the async listeners have handled all events emitted so far."""
        if self._async_listeners is not None:
            await self._async_listeners.idle(timeout)

    def timer(self) -> float:
        """Return a time for durations, in milliseconds."""
        return self._clock.timer()

    def now(self) -> int:
        """Return the hub's time, in milliseconds since 1970."""
        return self._clock.millis()

    def raise_errors(self) -> None:
        """Raise the first exception of a listener with the others as notes, unless allowed."""
        if self.errors and not self.allow_errors:
            first, *others = self.errors
            for other in others:
                first.add_note(f"and another listener raised {type(other).__name__}: {other}")
            raise first

    def close(self) -> None:
        """End all subscriptions and streams. Idempotent."""
        with self._lock:
            self.release()
            self.closed = True
            ended = self._subscriptions
            self._set_subscriptions(())
        for subscription in ended:
            if subscription.on_close is not None:
                subscription.on_close()

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

    def _keep_error(self, error: Exception, subscription: AsyncSubscription, event: Event) -> None:
        error.add_note(f"raised by the listener {subscription.name} at {event.event} #{event.seq}")
        self.errors.append(error)


current_hub: ContextVar[Hub | None] = thread_variable("offbook_hub")
"""The hub of the current run, in all its tasks and threads; None outside of a run."""

run_watchers: list[Callable[[Hub], None]] = []
"""Called with the hub of a run when it starts and before it ends; fake programs add theirs."""


def current_faults() -> FaultInjector | None:
    """Return what injects faults into the current run, if something does."""
    hub = current_hub.get()
    return None if hub is None else hub.faults


def release_held() -> None:
    """Write what the current run holds back, before code of a test runs."""
    hub = current_hub.get()
    if hub is not None:
        hub.release()


def use_hub(hub: Hub) -> AbstractContextManager[None]:
    """Make this the current hub in a `with` block."""
    return use_variable(current_hub, hub)


def name_matches(name: str, names: NameFilter) -> bool:
    """Return whether an event name matches a filter.

    `*` matches all; `agent:*` is a plain prefix, so it matches `agent:tool:start` and not `agent`;
    anything else is compared as a whole; a list matches if any member does.
    """
    if isinstance(names, str):
        return name.startswith(names[:-1]) if names.endswith(ALL) else name == names
    return any(name_matches(name, member) for member in names)


def check_name_filter(names: object) -> None:
    """Reject a filter that can match nothing by mistake. An empty list is allowed."""
    if isinstance(names, str):
        if not names or names[-1] in ".:":
            raise UsageError(
                f"no event is called {names!r}", hint=f'to match a prefix, write "{names}*"'
            )
        return
    if not isinstance(names, Sequence):
        raise UsageError(
            f"a filter must be a name or a list of names, got {type(names).__name__}",
            hint='write "*", "agent:*", "agent:start" or ["agent:*", "harness:start"]',
        )
    for member in names:  # pyright: ignore[reportUnknownVariableType] - any value of a caller
        if not isinstance(member, str):
            raise UsageError(f"a filter in a list must be a name, got {type(member).__name__}")  # pyright: ignore[reportUnknownArgumentType] - as above
        check_name_filter(member)
