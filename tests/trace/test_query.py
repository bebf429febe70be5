"""Queries of a trace, answered from its events alone."""

from collections.abc import Iterator
from typing import Any

import pytest

from offbook.exchange import Message, Text, ToolCall, user
from offbook.trace import Event, Events, UICallRecord, Verdict, query

TEXT = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]


def tool_call(call_id: str, tool: str, step: int) -> Event:
    data = {"call_id": call_id, "tool": tool, "input": {"n": step}, "step": step}
    return Event(step, "tool.call", data, step)


def tool_result(call_id: str, tool: str, step: int, *, mocked: bool = False) -> Event:
    data = {"call_id": call_id, "tool": tool, "content": TEXT, "step": step, "mocked": mocked}
    return Event(step, "tool.result", {**data, "is_error": False, "details": None}, step)


def blocked(call_id: str, reason: str) -> Event:
    return Event(1, "tool.blocked", {"call_id": call_id, "reason": reason})


EVENTS = [
    tool_call("1", "bash", 1),
    blocked("1", "nope"),
    tool_call("2", "read", 2),
    tool_result("2", "read", 2, mocked=True),
    tool_call("3", "bash", 3),
    tool_result("3", "bash", 3),
]


def test_calls_are_listed_in_order_blocked_or_not():
    events = Events(EVENTS)
    assert events.tool_sequence() == ["bash", "read", "bash"]
    assert [(c.blocked, c.block_reason) for c in events.tool_calls_for("bash")] == [
        (True, "nope"),
        (False, None),
    ]
    assert [call.tool_call_id for call in events.blocked_calls()] == ["1"]


def test_results_have_their_call_their_step_and_whether_they_are_mocked():
    events = Events(EVENTS)
    assert [(r.tool_call_id, r.step, r.mocked) for r in events.tool_results] == [
        ("2", 2, True),
        ("3", 3, False),
    ]
    assert [r.text for r in events.tool_results_for("read")] == ["one\ntwo"]


def test_executions_are_read_again_only_if_there_are_more_events(monkeypatch: pytest.MonkeyPatch):
    read: list[int] = []
    read_executions = query.read_executions

    def count(events: Any, *args: Any, **options: Any) -> Any:
        read.append(len(events))
        return read_executions(events, *args, **options)

    monkeypatch.setattr(query, "read_executions", count)
    live = EVENTS[:4]
    events = Events(live)
    assert len(events.executed) == len(events.tool_results) == 1
    live += EVENTS[4:]
    assert len(events.executed) == len(events.tool_results) == 2
    assert read == [4, 6]


def test_an_error_result_of_a_tool_that_did_not_run_is_no_change(monkeypatch: pytest.MonkeyPatch):
    call: dict[str, Any] = {"call_id": "1", "tool": "bash", "input": {}, "observed": True}
    refused = [Event(1, "tool.call", call, 1), tool_result("1", "bash", 2)]
    assert [change.what for change in Events(refused).changes] == ["unexecuted"]
    refused[1].data["is_error"] = True
    monkeypatch.delattr(query, "read_executions")  # what is known at once is not read in detail
    assert Events(refused).changes == []


def test_messages_are_the_new_ones_of_each_request_and_each_reply():
    request = {"new": [{"role": "user", "blocks": [{"type": "text", "text": "hi"}]}]}
    reply = {"blocks": [{"type": "tool_call", "id": "1", "name": "bash"}]}
    recorded = [Event(1, "model.request", request), Event(2, "model.reply", reply)]
    assert Events(recorded).messages == [
        user("hi"),
        Message("assistant", (ToolCall("1", "bash"),)),
    ]


def test_ui_calls_have_their_arguments_and_answers():
    recorded = [
        Event(1, "ui.confirm", {"method": "confirm", "args": ["Sure?", ""], "answer": False}),
        Event(2, "ui.notify", {"method": "notify", "args": ["hi", "info"]}),
    ]
    events = Events(recorded)
    assert events.ui_calls_for("confirm") == [UICallRecord("confirm", ["Sure?", ""], False)]
    assert [(call.method, call.return_value) for call in events.ui] == [
        ("confirm", False),
        ("notify", None),
    ]


def test_verdicts_are_read_from_the_trace():
    recorded = [Event(1, "check.verdict", {"check": "c", "status": "no_data"})]
    assert Events(recorded).verdicts == [Verdict("c", "no_data")]


def test_each_query_of_a_live_trace_reads_the_new_events():
    incoming = iter([[EVENTS[0]], [EVENTS[2]], []])

    class Live:
        def __iter__(self) -> Iterator[Event]:
            return iter(next(incoming))

    events = Events(Live())
    assert events.tool_sequence() == ["bash"]
    assert events.tool_sequence() == ["bash", "read"]
    assert events.tool_sequence() == ["bash", "read"]


def test_the_returned_list_is_a_copy():
    events = Events(EVENTS)
    events.all.clear()
    assert len(events.all) == len(EVENTS)


def test_the_text_of_an_image_result_is_empty():
    image = {"type": "image", "data": "eA==", "media_type": "image/png"}
    data = {**tool_result("1", "read", 1).data, "content": [image]}
    (result,) = Events([Event(1, "tool.result", data)]).tool_results
    assert result.text == ""
    assert not isinstance(result.content[0], Text)
