"""A hub that accepts the commands of a session: messages, replies, abort, pause and resume.

    hub = SessionHub(session_id="demo")
    hub.start_session()
    hub.send("use the blue one")            # the event session:message
    hub.abort(resumable=True, node="plan")  # the event flow:paused
    hub.resume("demo", "go on")

Channels are named groups of handlers on it; an inbox keeps the messages for one run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import msgspec

from offbook.errors import RunError, UsageError, did_you_mean, require_known
from offbook.trace.hub import Hub, check_name_filter

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from offbook.determinism.run_context import Clock
    from offbook.trace.events import Event

SessionStatus = Literal["idle", "running", "paused", "complete", "aborted"]
STATUSES: tuple[str, ...] = get_args(SessionStatus)


class PausedSession(msgspec.Struct, frozen=True):
    """The point at which a session was paused."""

    session_id: str
    node_id: str = ""
    reason: str = ""


class StopSignal:
    """Set when a session is aborted or paused; a resumed session gets a new one."""

    def __init__(self) -> None:
        self.fired = False
        self.reason = ""

    def fire(self, reason: str) -> None:
        """Set the signal."""
        self.fired = True
        self.reason = reason


class SessionHub(Hub):
    """A hub with the commands of a session.

    Commands emit nothing before `start_session`: until then there is no receiver for them.
    """

    def __init__(
        self, clock: Clock | None = None, *, session_id: str = "", allow_errors: bool = False
    ) -> None:
        super().__init__(clock, session_id=session_id, allow_errors=allow_errors)
        self.session_active = False
        self.signal = StopSignal()
        self.channels = Channels(self)
        self._status: SessionStatus = "idle"
        self._paused: dict[str, PausedSession] = {}
        self._inboxes: dict[str, Inbox] = {}

    @property
    def status(self) -> SessionStatus:
        """The status of the session."""
        return self._status

    @property
    def paused(self) -> PausedSession | None:
        """The point at which the session was paused last, until `abort` or `forget_paused`."""
        return self._paused.get(self.session_id)

    def set_status(self, status: SessionStatus) -> None:
        """Set the status of the session; no event is emitted."""
        require_known("unknown status", status, STATUSES)
        self._status = status

    def start_session(self) -> None:
        """Accept commands from now on."""
        self.session_active = True

    def send(self, message: str) -> None:
        """Send a message to the session."""
        self._command("session:message", content=message)

    def send_to(self, agent: str, message: str) -> None:
        """Send a message to one agent."""
        self._command("session:message", content=message, agentName=agent)

    def send_to_run(self, run_id: str, message: str) -> None:
        """Send a message to one run of an agent. Its inbox gets it even before `start_session`."""
        inbox = self._inboxes.get(run_id)
        if inbox is not None:
            inbox.push(message)
        self._command("session:message", content=message, runId=run_id)

    def reply(self, prompt_id: str, response: str | Mapping[str, Any]) -> None:
        """Answer a prompt with a text, or with `content` and an optional `choice`."""
        parts: Mapping[str, Any] = {"content": response} if isinstance(response, str) else response
        if "content" not in parts:
            raise UsageError("a reply needs its content", hint=did_you_mean("content", parts))
        self._command(
            "session:reply",
            promptId=prompt_id,
            content=parts["content"],
            choice=parts.get("choice"),
        )

    def abort(self, reason: str | None = None, *, resumable: bool = False, node: str = "") -> None:
        """Abort the session, or pause it at a node so that it can be resumed.

        The default of the node is the task of the current scope.
        """
        if not self.session_active or (resumable and self._status == "paused"):
            return
        # the status changes first: a listener of the event reads the new one
        if resumable:
            self._status = "paused"
            task = self.current().get("task")
            if not node and isinstance(task, dict):
                node = str(cast("dict[str, Any]", task).get("id", ""))
            self._paused[self.session_id] = PausedSession(self.session_id, node, reason or "")
            self._command(
                "flow:paused", sessionId=self.session_id, nodeId=node or None, reason=reason
            )
        else:
            self._status = "aborted"
            self.forget_paused(self.session_id)
            self._command("session:abort", reason=reason)
        self.signal.fire(reason or "")

    def resume(self, session_id: str, message: str) -> None:
        """Resume a paused session, with a message to it."""
        if not message.strip():
            raise UsageError("resume needs a message", hint="give the message to go on with")
        if self._status == "running":
            raise RunError(f"the session {session_id!r} is already running")
        require_known("no paused session", session_id, self._paused)
        paused = self._paused[session_id]
        self._status = "running"
        # the old signal stays fired for the code that was stopped by it
        self.signal = StopSignal()
        self.emit("session:message", {"content": message})
        node = {"nodeId": paused.node_id} if paused.node_id else {}
        self.emit("flow:resumed", {"sessionId": session_id, **node, "injectedMessages": 1})

    def forget_paused(self, session_id: str) -> None:
        """Make a paused session impossible to resume. Idempotent."""
        self._paused.pop(session_id, None)

    def open_inbox(self, run_id: str) -> Inbox:
        """Return the inbox of a run; the first call creates it."""
        return self._inboxes.setdefault(run_id, Inbox())

    def register_channel(self, channel: Channel) -> None:
        """Add a channel; its handlers are not called before `start`."""
        self.channels.register(channel)

    def start(self) -> None:
        """Start the channels. Idempotent."""
        self.channels.start()

    def stop(self) -> None:
        """Stop the channels. Idempotent."""
        self.channels.stop()

    @staticmethod
    def to_envelope(event: Event) -> dict[str, Any]:
        """Return an event in the format of the hub's protocol: id, timestamp, context and event."""
        return {
            "id": event.id or f"event-{event.seq}",
            "timestamp": datetime.fromtimestamp(event.ts / 1000, UTC),
            "context": dict(event.context),
            "event": event_data(event.event, event.data),
        }

    def _command(self, name: str, **data: Any) -> None:
        if self.session_active:
            self.emit(name, {key: value for key, value in data.items() if value is not None})


def event_data(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the name and the data of an event as one object, as the hub's protocol has it.

    `type` is the name. A key `type` of the data is called `data.type`.
    """
    return {"type": name} | {
        ("data.type" if key == "type" else key): value for key, value in data.items()
    }


ChannelHandler = Callable[..., object]


class Channel(msgspec.Struct, frozen=True):
    """A named group of handlers: `on` maps a filter to a handler of the event and the state.

    `state` creates the state for each registration; `on_start` and `on_complete` are called
    with it.
    """

    name: str
    on: Mapping[str, ChannelHandler]
    state: Callable[[], Any] = dict
    on_start: ChannelHandler | None = None
    on_complete: ChannelHandler | None = None


class _Registration:
    """A channel on one hub: its state, and its subscriptions while it runs."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.state = channel.state()
        self.stops: list[Callable[[], None]] = []

    def unsubscribe(self) -> None:
        for stop in self.stops:
            stop()
        self.stops.clear()


class Channels:
    """The channels of one hub.

    An exception of a handler is emitted as `channel:error` and kept in the hub's errors; the
    other handlers still run. A channel whose `on_start` raises does not run.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._registrations: dict[str, _Registration] = {}
        self.running = False

    def register(self, channel: Channel) -> None:
        """Add a channel; if the channels are running, start it now."""
        if not channel.name.strip():
            raise UsageError("a channel needs a name")
        if channel.name in self._registrations:
            raise UsageError(f"the channel {channel.name!r} is already registered")
        for names in channel.on:
            check_name_filter(names)
        registration = _Registration(channel)
        self._registrations[channel.name] = registration
        self._hub.emit("channel:registered", {"name": channel.name})
        if self.running:
            self._start(registration)

    def state(self, name: str) -> Any:
        """Return the state of a channel."""
        return self._registrations[name].state

    def start(self) -> None:
        """Subscribe the handlers of all channels. Idempotent."""
        if not self.running:
            self.running = True
            for registration in self._registrations.values():
                self._start(registration)

    def stop(self) -> None:
        """Unsubscribe the handlers of all channels. Idempotent."""
        if not self.running:
            return
        self.running = False
        for registration in self._registrations.values():
            if not registration.stops:  # its on_start raised
                continue
            registration.unsubscribe()
            channel = registration.channel
            try:
                if channel.on_complete is not None:
                    channel.on_complete(registration.state)
            except Exception as error:  # noqa: BLE001 - one channel must not stop the others
                self._report(channel, error)

    def _start(self, registration: _Registration) -> None:
        channel = registration.channel
        for names, handler in channel.on.items():
            listener = self._listener(registration, handler)
            registration.stops.append(self._hub.subscribe(listener, names))
        try:
            if channel.on_start is not None:
                channel.on_start(registration.state)
        except Exception as error:  # noqa: BLE001 - as in stop
            registration.unsubscribe()
            self._report(channel, error)

    def _listener(
        self, registration: _Registration, handler: ChannelHandler
    ) -> Callable[[Event], object]:
        """Return the handler as a listener of the hub that reports its exceptions."""

        def listen(event: Event) -> object:
            try:
                result = handler(event, registration.state)
            except Exception as error:  # noqa: BLE001 - as in stop
                self._report(registration.channel, error)
                return None
            return wait(result) if isawaitable(result) else None

        async def wait(work: Awaitable[object]) -> None:
            try:
                await work
            except Exception as error:  # noqa: BLE001 - as in stop
                self._report(registration.channel, error)

        return listen

    def _report(self, channel: Channel, error: Exception) -> None:
        error.add_note(f"raised in the channel {channel.name!r}")
        # kept by the hub, so that the run fails at its end
        self._hub.errors.append(error)
        self._hub.emit(
            "channel:error",
            {"name": channel.name, "error": f"{type(error).__name__}: {error}"},
        )


class Inbox:
    """The messages for one run, first in, first out. Waiting readers are served in order."""

    def __init__(self) -> None:
        self._messages: deque[str] = deque()
        self._waiters: deque[asyncio.Future[str]] = deque()

    def push(self, message: str) -> None:
        """Add a message, or give it to the reader that has waited longest."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():  # done here means cancelled
                waiter.set_result(message)
                return
        self._messages.append(message)

    async def pop(self) -> str:
        """Return the next message; wait for one if there is none.

        It yields to the event loop even if there is a message, so that a run never overtakes
        those that were started at the same time.
        """
        waiter: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        if self._messages:
            waiter.set_result(self._messages.popleft())
        else:
            self._waiters.append(waiter)
        try:
            await asyncio.sleep(0)
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._messages.appendleft(waiter.result())  # received, but not read
            raise

    def drain(self) -> list[str]:
        """Remove and return all messages, without waiting."""
        messages = list(self._messages)
        self._messages.clear()
        return messages

    def __aiter__(self) -> Inbox:
        return self

    async def __anext__(self) -> str:
        return await self.pop()
