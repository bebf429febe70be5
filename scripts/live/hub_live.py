"""The scenarios of the hub, run on the real one: `offbook golden live hub`."""

from typing import Any

from offbook.goldens import scenario

START = {"type": "harness:start", "name": "test"}
COMPLETE = {"type": "harness:complete", "success": True, "durationMs": 100}
AGENT = {"type": "agent:start", "agentName": "planner", "runId": "run-1"}
Hub = Any  # a StepRecorder, which has the steps of the component and nothing else


@scenario()
def subscribe_basic(hub: Hub) -> None:
    """A listener without a filter receives every event."""
    hub.emit(START)


@scenario(filter="agent:*")
def subscribe_filter(hub: Hub) -> None:
    """A listener with a prefix receives events with that prefix only."""
    hub.emit(AGENT)
    hub.emit(START)
    hub.emit({"type": "agent:tool:start", "tool": "bash"})
    hub.emit({"type": "agent"})


@scenario(filter=["agent:*", "harness:complete"])
def subscribe_list(hub: Hub) -> None:
    """A listener with a list receives the events of any member, once."""
    hub.emit(AGENT)
    hub.emit(START)
    hub.emit(COMPLETE)


@scenario(unsubscribe_after_step=1)
def unsubscribe(hub: Hub) -> None:
    """An unsubscribed listener receives no more events."""
    hub.emit(START)
    hub.emit(COMPLETE)


@scenario()
def scoped_context(hub: Hub) -> None:
    """Scopes nest shallowly, are restored, and are replaced by an override."""
    hub.enter_scope({"phase": {"name": "Planning", "number": 1}, "task": {"id": "t1"}})
    hub.emit({"type": "task:start", "taskId": "t1"})
    hub.enter_scope({"phase": {"name": "Review"}})
    hub.emit({"type": "task:start", "taskId": "t1"})
    hub.leave_scope()
    hub.emit({"type": "task:complete", "taskId": "t1"}, {"agent": {"name": "reviewer"}})
    hub.leave_scope()
    hub.emit(COMPLETE, None)


@scenario()
def commands(hub: Hub) -> None:
    """Commands emit nothing before the session starts, and events after it."""
    hub.send("too early")
    hub.send_to("planner", "too early")
    hub.send_to_run("run-1", "too early")
    hub.reply("prompt-1", {"content": "too early"})
    hub.abort("too early")
    hub.start_session()
    hub.send("hello")
    hub.send_to("planner", "hello")
    hub.send_to_run("run-1", "hello")
    hub.reply("prompt-1", {"content": "yes", "choice": "y", "timestamp": "2026-01-01T00:00:00Z"})
    hub.reply("prompt-2", {"content": "no"})


@scenario()
def abort(hub: Hub) -> None:
    """An aborted session has a reason and stays active."""
    hub.start_session()
    hub.set_status("running")
    hub.abort("user cancelled")


@scenario()
def status(hub: Hub) -> None:
    """The status is set without an event."""
    hub.start_session()
    hub.set_status("running")


@scenario()
def pause_resume(hub: Hub) -> None:
    """A session is paused once and resumed with a message."""
    hub.start_session()
    hub.set_status("running")
    hub.abort(options={"resumable": True, "reason": "a question", "nodeId": "plan"})
    hub.abort(options={"resumable": True, "reason": "asked twice"})
    hub.resume("record-pause-resume", "use the blue one")
