"""The session hub: envelopes, commands, pausing, channels and inboxes."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from offbook.determinism import FrozenClock
from offbook.errors import OffbookError, RunError, UsageError
from offbook.goldens import Channel, Inbox, SessionHub
from offbook.trace import Event


def collect_events(hub: SessionHub) -> list[Event]:
    seen: list[Event] = []
    hub.subscribe(seen.append)
    return seen


def payloads(events: list[Event]) -> list[dict[str, Any]]:
    return [SessionHub.to_envelope(event)["event"] for event in events]


def test_envelope_has_id_timestamp_context_and_event():
    hub = SessionHub(FrozenClock(1_766_916_000_000), session_id="record-1")
    seen = collect_events(hub)
    hub.emit("harness:start", {"name": "test"})
    assert [SessionHub.to_envelope(event) for event in seen] == [
        {
            "id": "event-1",
            "timestamp": datetime(2025, 12, 28, 10, tzinfo=UTC),
            "context": {"sessionId": "record-1"},
            "event": {"type": "harness:start", "name": "test"},
        }
    ]


def send_all(hub: SessionHub) -> None:
    hub.send("m")
    hub.send_to("agent", "m")
    hub.send_to_run("run-1", "m")
    hub.reply("p", {"content": "yes", "choice": "y", "timestamp": "2025-12-28T10:00:00Z"})
    hub.reply("p", "no")
    hub.abort("enough")
    hub.abort()


def test_commands_emit_nothing_before_the_session_starts():
    hub = SessionHub(session_id="s")
    seen = collect_events(hub)
    send_all(hub)
    hub.abort(resumable=True)
    assert seen == []
    assert hub.status == "idle"
    assert not hub.session_active
    assert not hub.signal.fired


def test_commands_of_an_active_session_have_exact_payloads():
    hub = SessionHub(session_id="s")
    seen = collect_events(hub)
    hub.start_session()
    send_all(hub)
    assert payloads(seen) == [
        {"type": "session:message", "content": "m"},
        {"type": "session:message", "content": "m", "agentName": "agent"},
        {"type": "session:message", "content": "m", "runId": "run-1"},
        {"type": "session:reply", "promptId": "p", "content": "yes", "choice": "y"},
        {"type": "session:reply", "promptId": "p", "content": "no"},
        {"type": "session:abort", "reason": "enough"},
        {"type": "session:abort"},
    ]


def test_abort_sets_the_status_before_its_event_and_keeps_the_session_active():
    hub, statuses = SessionHub(session_id="s"), list[str]()
    hub.subscribe(lambda _: statuses.append(hub.status), "session:abort")
    hub.start_session()
    hub.abort("enough")
    assert statuses == ["aborted"]
    assert hub.session_active
    assert hub.signal.fired
    assert hub.signal.reason == "enough"


def test_reply_without_content_is_refused():
    with pytest.raises(UsageError, match="content"):
        SessionHub().reply("p", {"contents": "yes"})


def test_unknown_status_is_refused_with_a_suggestion():
    with pytest.raises(UsageError, match="'running'"):
        SessionHub().set_status("runing")  # pyright: ignore[reportArgumentType] - on purpose


def test_session_is_paused_once_and_resumed_with_a_message():
    hub = SessionHub(session_id="s")
    seen = collect_events(hub)
    hub.start_session()
    hub.set_status("running")
    hub.abort("wait", resumable=True, node="n1")
    hub.abort("wait", resumable=True, node="n1")
    assert hub.status == "paused"
    assert hub.signal.fired
    hub.resume("s", "go on")
    assert hub.status == "running"
    assert not hub.signal.fired
    assert hub.paused is not None
    hub.forget_paused("s")
    hub.forget_paused("s")
    assert hub.paused is None
    assert payloads(seen) == [
        {"type": "flow:paused", "sessionId": "s", "nodeId": "n1", "reason": "wait"},
        {"type": "session:message", "content": "go on"},
        {"type": "flow:resumed", "sessionId": "s", "nodeId": "n1", "injectedMessages": 1},
    ]


@pytest.mark.parametrize(
    "status, session, message, kind, what",
    [
        ("paused", "s", " ", UsageError, "needs a message"),
        ("running", "t", "", UsageError, "needs a message"),
        ("running", "t", "go", RunError, "already running"),
        ("paused", "t", "go", UsageError, "did you mean|no paused session 't'"),
    ],
)
def test_invalid_resume_is_refused_without_an_event(
    status: Any, session: str, message: str, kind: type[OffbookError], what: str
):
    hub = SessionHub(session_id="s")
    hub.start_session()
    hub.abort(resumable=True)
    hub.set_status(status)
    seen = collect_events(hub)
    with pytest.raises(kind, match=what):
        hub.resume(session, message)
    assert seen == []


def test_paused_session_can_be_aborted():
    hub = SessionHub(session_id="s")
    hub.start_session()
    hub.abort(resumable=True)
    hub.abort("enough")
    assert (hub.status, hub.paused) == ("aborted", None)


@pytest.mark.parametrize(
    "scope, node",
    [({}, {}), ({"task": {"id": "t1"}}, {"nodeId": "t1"}), ({"task": "t1"}, {})],
)
def test_the_node_of_a_pause_is_the_current_task_or_absent(
    scope: dict[str, Any], node: dict[str, str]
):
    hub = SessionHub(session_id="s")
    seen = collect_events(hub)
    hub.start_session()
    with hub.scoped(**scope):
        hub.abort(resumable=True)
    hub.resume("s", "go on")
    paused, _, resumed = payloads(seen)
    assert paused == {"type": "flow:paused", "sessionId": "s", **node}
    assert resumed == {"type": "flow:resumed", "sessionId": "s", **node, "injectedMessages": 1}


async def test_inbox_receives_messages_before_the_session_starts():
    hub = SessionHub(session_id="s")
    seen = collect_events(hub)
    inbox = hub.open_inbox("run-0")
    hub.send_to_run("run-0", "hello")
    hub.send_to_run("run-1", "no inbox")
    assert await inbox.pop() == "hello"
    assert seen == []


def count(event: Event, state: dict[str, int]) -> None:
    state[event.event] = state.get(event.event, 0) + 1


def test_channel_receives_events_between_start_and_stop():
    hub, calls = SessionHub(), list[str]()
    seen = collect_events(hub)

    def started(state: object) -> None:
        calls.append("start")

    def completed(state: object) -> None:
        calls.append("complete")

    hub.register_channel(
        Channel(
            "counter",
            {"tick*": count},
            on_start=started,
            on_complete=completed,
        )
    )
    hub.emit("tick1")
    hub.start()
    hub.start()
    hub.emit("tick2")
    hub.stop()
    hub.stop()
    hub.emit("tick3")
    assert hub.channels.state("counter") == {"tick2": 1}
    assert calls == ["start", "complete"]
    assert payloads(seen)[0] == {"type": "channel:registered", "name": "counter"}


def test_channel_registered_after_start_is_started():
    hub = SessionHub()
    hub.start()
    hub.register_channel(Channel("late", {"*": count}))
    hub.emit("tick")
    assert hub.channels.state("late")["tick"] == 1


@pytest.mark.parametrize("name", ["", " ", "twice"])
def test_channel_needs_a_unique_name(name: str):
    hub = SessionHub()
    hub.register_channel(Channel("twice", {}))
    with pytest.raises(UsageError, match="channel"):
        hub.register_channel(Channel(name, {}))


def boom(*_: object) -> None:
    raise ValueError("broken channel")


async def boom_later(*_: object) -> None:
    raise ValueError("broken channel")


@pytest.mark.parametrize("handler", [boom, boom_later])
async def test_exception_of_a_handler_is_an_event_and_the_others_run(handler: Any):
    hub = SessionHub()
    seen = collect_events(hub)
    hub.register_channel(Channel("bad", {"tick": handler}))
    hub.register_channel(Channel("good", {"tick": count}))
    hub.start()
    hub.emit("tick")
    await hub.idle()
    assert hub.channels.state("good") == {"tick": 1}
    assert {"type": "channel:error", "name": "bad", "error": "ValueError: broken channel"} in (
        payloads(seen)
    )
    with pytest.raises(ValueError, match="broken channel"):
        hub.raise_errors()


def test_channel_whose_on_start_raises_does_not_run():
    hub, states = SessionHub(allow_errors=True), list[object]()
    hub.register_channel(Channel("bad", {"tick": count}, on_start=boom, on_complete=states.append))
    hub.start()
    hub.emit("tick")
    hub.stop()
    assert hub.channels.state("bad") == {}
    assert states == []
    assert len(hub.errors) == 1


def test_exception_of_on_complete_is_an_event():
    hub = SessionHub(allow_errors=True)
    seen = collect_events(hub)
    hub.register_channel(Channel("bad", {"tick": count}, on_complete=boom))
    hub.start()
    hub.stop()
    assert seen[-1].event == "channel:error"


TIMEOUT = 300.0


async def test_inbox_serves_waiting_readers_in_order():
    inbox = Inbox()
    tasks = [asyncio.create_task(inbox.pop()) for _ in range(2)]
    await asyncio.sleep(0)
    inbox.push("one")
    inbox.push("two")
    inbox.push("three")
    assert await asyncio.wait_for(asyncio.gather(*tasks), TIMEOUT) == ["one", "two"]
    assert inbox.drain() == ["three"]
    assert inbox.drain() == []


async def test_inbox_yields_to_the_event_loop_even_with_a_message():
    inbox, order = Inbox(), list[str]()
    inbox.push("one")

    async def take() -> None:
        async for message in inbox:
            order.append(message)
            return

    task = asyncio.create_task(take())
    await asyncio.sleep(0)
    order.append("other task")
    await asyncio.wait_for(task, TIMEOUT)
    assert order == ["other task", "one"]


async def test_message_for_a_cancelled_reader_is_not_lost():
    inbox = Inbox()
    task = asyncio.create_task(inbox.pop())
    await asyncio.sleep(0)
    inbox.push("one")
    task.cancel()
    await asyncio.wait([task])
    task = asyncio.create_task(inbox.pop())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    inbox.push("two")
    assert inbox.drain() == ["one", "two"]
