"""Verdicts are events, and only pass and warn let a run pass."""

import pytest

from offbook.errors import FormatError
from offbook.trace import (
    Event,
    Hub,
    RunEndData,
    ToolCallData,
    Verdict,
    VerdictStatus,
    read_verdicts,
)


@pytest.mark.parametrize(
    "status, passes",
    [("pass", "yes"), ("warn", "yes"), ("fail", "no"), ("no_data", "no"), ("error", "no")],
)
def test_a_run_passes_only_with_pass_or_warn(status: VerdictStatus, passes: str):
    assert Verdict("c", status).holds is (passes == "yes")


def test_an_emitted_verdict_can_be_read_back_from_its_event():
    hub, events = Hub(), list[Event]()
    hub.subscribe(events.append)
    verdict = Verdict("c", "fail", "why", {"a": 1}, [2], {"file": "x"})
    hub.emit_verdict(verdict)
    hub.emit_verdict(Verdict("odd", "pass", actual=object))
    hub.emit("other")
    first, second = read_verdicts(events)
    assert first == verdict
    assert second.actual == "<class 'object'>"


def emitted(data: RunEndData | ToolCallData) -> Event:
    hub, events = Hub(), list[Event]()
    hub.subscribe(events.append)
    hub.emit_data(data)
    return events[0]


def test_own_events_have_typed_data_and_leave_out_what_is_not_set():
    event = emitted(RunEndData(ok=True, output=None))
    assert (event.event, event.data) == ("_meta.run_end", {"ok": True, "output": None})
    with pytest.raises(TypeError, match="answer"):
        RunEndData(ok=True, answer="Done.")  # pyright: ignore[reportCallIssue] - that is the point


def test_the_data_of_an_event_are_read_as_they_were_written():
    data = ToolCallData("c1", "bash", {"command": "ls"}, 2)
    event = emitted(data)
    assert ToolCallData.read(event) == data
    newer = Event(1, event.event, {**event.data, "of_a_later_version": 1})
    assert ToolCallData.read(newer) == data
    with pytest.raises(FormatError, match=r"event 0, tool.call, cannot be read"):
        ToolCallData.read(Event(1, event.event, {"tool": "bash"}))


def test_events_that_nobody_listens_to_are_numbered():
    hub, events = Hub(), list[Event]()
    for _ in range(2):
        hub.emit_data(RunEndData(ok=True))
    hub.subscribe(events.append)
    hub.emit_data(RunEndData(ok=True))
    assert [event.seq for event in events] == [3]
