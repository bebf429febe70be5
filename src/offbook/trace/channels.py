"""Channels: named groups of handlers with a state of their own, started and stopped together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import UsageError
from offbook.trace.event_bus import check_name_filter

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from offbook.trace.event_bus import Bus
    from offbook.trace.events import Event


# --- Channels: named groups of handlers with a state of their own, started and stopped together.

ChannelHandler = Callable[..., object]


class Channel(msgspec.Struct, frozen=True):
    """What a channel does: `on` has a handler for each filter, called with the event and the state.

    `state` makes the state anew for each registration; `on_start` and `on_complete` are called
    with it.
    """

    name: str
    on: Mapping[str, ChannelHandler]
    state: Callable[[], Any] = dict
    on_start: ChannelHandler | None = None
    on_complete: ChannelHandler | None = None


class _Registered:
    """One channel of one hub: its state, and its subscriptions while it runs."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.state = channel.state()
        self.stops: list[Callable[[], None]] = []


class Channels:
    """The channels of one hub: silent until they are started.

    A handler that raises is told as `channel:error` and kept among the hub's errors; the others
    go on. A channel whose `on_start` raises does not run.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._registered: dict[str, _Registered] = {}
        self.running = False

    def register(self, channel: Channel) -> None:
        """Add a channel; while the others run, it starts at once."""
        if not channel.name.strip():
            raise UsageError("a channel needs a name")
        if channel.name in self._registered:
            raise UsageError(f"the channel {channel.name!r} is registered already")
        for wanted in channel.on:
            check_name_filter(wanted)
        registered = _Registered(channel)
        self._registered[channel.name] = registered
        self._bus.emit("channel:registered", {"name": channel.name})
        if self.running:
            self._start(registered)

    def state(self, name: str) -> Any:
        """The state of a channel."""
        return self._registered[name].state

    def start(self) -> None:
        """Let all channels hear; a second time is nothing."""
        if not self.running:
            self.running = True
            for registered in self._registered.values():
                self._start(registered)

    def stop(self) -> None:
        """Let none hear any more; a second time is nothing."""
        if self.running:
            self.running = False
            for registered in self._registered.values():
                self._stop(registered)

    def _start(self, registered: _Registered) -> None:
        channel = registered.channel
        for wanted, handler in channel.on.items():
            listener = self._guard(registered, handler)
            registered.stops.append(self._bus.subscribe(listener, wanted))
        try:
            if channel.on_start is not None:
                channel.on_start(registered.state)
        except Exception as error:  # noqa: BLE001 - one channel must not harm the others
            self._silence(registered)
            self._complain(channel, error)

    def _stop(self, registered: _Registered) -> None:
        if not registered.stops:  # it never came to run
            return
        self._silence(registered)
        channel = registered.channel
        try:
            if channel.on_complete is not None:
                channel.on_complete(registered.state)
        except Exception as error:  # noqa: BLE001 - as in _start
            self._complain(channel, error)

    def _silence(self, registered: _Registered) -> None:
        for stop in registered.stops:
            stop()
        registered.stops.clear()

    def _guard(self, registered: _Registered, handler: ChannelHandler) -> Callable[[Event], object]:
        def listen(event: Event) -> object:
            try:
                answer = handler(event, registered.state)
            except Exception as error:  # noqa: BLE001 - as in _start
                self._complain(registered.channel, error)
                return None
            return self._await(registered, answer) if isawaitable(answer) else None

        return listen

    async def _await(self, registered: _Registered, work: Awaitable[object]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - as in _start
            self._complain(registered.channel, error)

    def _complain(self, channel: Channel, error: Exception) -> None:
        error.add_note(f"raised in the channel {channel.name!r}")
        self._bus.errors.append(error)
        self._bus.emit(
            "channel:error",
            {"name": channel.name, "error": f"{type(error).__name__}: {error}"},
        )


# --- Where the messages for one run wait until it takes them.


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
