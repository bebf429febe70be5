"""The live bus of a session: events for whoever listens, commands for whoever runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from offbook.errors import RunError, UsageError, did_you_mean
from offbook.trace.channels import Channel, Channels, Inbox
from offbook.trace.event_bus import Bus

if TYPE_CHECKING:
    from offbook.determinism.clock import Clock
    from offbook.trace.events import Event

SessionStatus = Literal["idle", "running", "paused", "complete", "aborted"]
STATUSES: tuple[str, ...] = get_args(SessionStatus)


class PausedSession(msgspec.Struct, frozen=True):
    """Where a session stood when it was paused."""

    session_id: str
    node_id: str = ""
    reason: str = ""


class StopSignal:
    """Says to whoever runs that the session was aborted or paused; a resumed one has a new one."""

    def __init__(self) -> None:
        self.fired = False
        self.reason = ""

    def fire(self, reason: str) -> None:
        """Say it."""
        self.fired = True
        self.reason = reason


class Hub(Bus):
    """The bus under a session, with the commands that people and programs send into it.

    A hub with a `session_id` puts it into the context of every event. Commands are silent until
    `start_session`: before it, nobody is there to take them.
    """

    def __init__(
        self, clock: Clock | None = None, *, session_id: str = "", allow_errors: bool = False
    ) -> None:
        super().__init__(clock, allow_errors=allow_errors)
        self.session_id = session_id
        if session_id:
            self._base = {"sessionId": session_id}
        self.session_active = False
        self.signal = StopSignal()
        self.channels = Channels(self)
        self._status: SessionStatus = "idle"
        self._paused: dict[str, PausedSession] = {}
        self._inboxes: dict[str, Inbox] = {}

    @property
    def status(self) -> SessionStatus:
        """How the session stands."""
        return self._status

    @property
    def paused(self) -> PausedSession | None:
        """Where the session was paused last, until it is forgotten."""
        return self._paused.get(self.session_id)

    def set_status(self, status: SessionStatus) -> None:
        """Say how the session stands."""
        if status not in STATUSES:
            raise UsageError(f"there is no status {status!r}", hint=did_you_mean(status, STATUSES))
        self._status = status

    def start_session(self) -> None:
        """Take commands from now on."""
        self.session_active = True

    def send(self, message: str) -> None:
        """Say something to whoever runs."""
        self._command("session:message", content=message)

    def send_to(self, agent: str, message: str) -> None:
        """Say something to one agent."""
        self._command("session:message", content=message, agentName=agent)

    def send_to_run(self, run_id: str, message: str) -> None:
        """Say something to one run of an agent; its inbox gets it without a session, too."""
        inbox = self._inboxes.get(run_id)
        if inbox is not None:
            inbox.push(message)
        self._command("session:message", content=message, runId=run_id)

    def reply(self, prompt_id: str, response: str | Mapping[str, Any]) -> None:
        """Answer a prompt: a text, or `content` and perhaps a `choice`."""
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
        """End the session, or pause it at a node so that it can be resumed."""
        if not self.session_active or (resumable and self._status == "paused"):
            return
        if resumable:
            self._status = "paused"
            self._paused[self.session_id] = PausedSession(self.session_id, node, reason or "")
            self._command("flow:paused", sessionId=self.session_id, nodeId=node, reason=reason)
        else:
            self._status = "aborted"
            self._command("session:abort", reason=reason)
        self.signal.fire(reason or "")

    def resume(self, session_id: str, message: str) -> None:
        """Go on with a paused session, and say something to it first."""
        if not message.strip():
            raise UsageError("resume needs a message", hint="say how to go on")
        if self._status == "running":
            raise RunError(f"the session {session_id!r} is running already")
        paused = self._paused.get(session_id)
        if paused is None:
            raise UsageError(
                f"no session {session_id!r} is paused", hint=did_you_mean(session_id, self._paused)
            )
        self._status = "running"
        self.signal = StopSignal()
        self.emit("session:message", {"content": message})
        about = {"sessionId": session_id, "nodeId": paused.node_id, "injectedMessages": 1}
        self.emit("flow:resumed", about)

    def forget_paused(self, session_id: str) -> None:
        """Give up the chance to resume a session; one that is not paused is nothing."""
        self._paused.pop(session_id, None)

    def open_inbox(self, run_id: str) -> Inbox:
        """The inbox of a run, made when it is first asked for."""
        return self._inboxes.setdefault(run_id, Inbox())

    def register_channel(self, channel: Channel) -> None:
        """Add a channel; it hears nothing until `start`."""
        self.channels.register(channel)

    def start(self) -> None:
        """Start the channels; a second time is nothing."""
        self.channels.start()

    def stop(self) -> None:
        """Stop the channels; a second time is nothing."""
        self.channels.stop()

    def _command(self, name: str, **data: Any) -> None:
        if self.session_active:
            self.emit(name, {key: value for key, value in data.items() if value is not None})


def event_envelope(event: Event) -> dict[str, Any]:
    """An event as the hub's protocol writes it: id, timestamp, context, and the event itself."""
    return {
        "id": event.id or f"event-{event.seq}",
        "timestamp": datetime.fromtimestamp(event.ts / 1000, UTC),
        "context": dict(event.context),
        "event": {"type": event.event, **event.data},
    }
