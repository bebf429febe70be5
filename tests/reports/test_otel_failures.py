"""Spans of runs that fail: each tool, run and verdict has its own error."""

from typing import Any

import pytest

from offbook.reports import export_spans
from offbook.trace import Event
from offbook.trace import events as names
from tests.reports.test_otel_spans import Document, attributes_of, spans_of

START = (names.RUN_START, {"subject": "shop"})
CALL = (names.TOOL_CALL, {"tool": "refund", "call_id": "1", "input": {"id": 7}})
IMAGE = {"type": "image", "data": "QQ==", "media_type": "image/png"}
LINKED = {"type": "image", "data": "", "media_type": "image/png", "url": "https://a/b.png"}


def export(*events: tuple[str, dict[str, Any]]) -> dict[str, Document]:
    """Return the spans by name."""
    made = [Event(ts, name, data, seq=ts) for ts, (name, data) in enumerate(events, 1)]
    return {span["name"]: span for span in spans_of(export_spans(made))}


def result(*content: dict[str, Any], **fields: Any) -> tuple[str, dict[str, Any]]:
    return names.TOOL_RESULT, {"call_id": "1", "content": list(content), **fields}


@pytest.mark.parametrize(
    "events, kind, message",
    [
        ([(names.TOOL_BLOCKED, {"call_id": "1", "reason": "not now"})], "blocked", "not now"),
        (
            [(names.TOOL_ERROR, {"call_id": "1", "error": "KeyError: 7"}), result(is_error=True)],
            "KeyError",
            "KeyError: 7",
        ),
        ([result({"type": "text", "text": "no"}, is_error=True)], "tool_error", "no"),
        ([], "unfinished", "the trace has no end of it"),
    ],
)
def test_a_tool_that_fails_has_its_error(
    events: list[tuple[str, dict[str, Any]]], kind: str, message: str
):
    span = export(START, CALL, *events)["execute_tool refund"]
    assert attributes_of(span)["error.type"] == kind
    assert span["status"]["message"] == message


def test_the_arguments_are_those_that_a_hook_changed():
    changed = (names.HOOK_TOOL_CALL, {"call_id": "1", "input": {"id": 8}})
    span = export(START, CALL, changed, result())["execute_tool refund"]
    assert attributes_of(span)["gen_ai.tool.call.arguments"] == '{"id":8}'


@pytest.mark.parametrize(
    "block, part",
    [
        (IMAGE, '"mime_type":"image/png","content":"QQ=="'),
        (LINKED, '"type":"uri","modality":"image","uri":"https://a/b.png"'),
    ],
)
def test_an_image_of_a_result_is_a_part_of_it(block: dict[str, Any], part: str):
    span = export(START, CALL, result(block))["execute_tool refund"]
    assert part in attributes_of(span)["gen_ai.tool.call.result"]


def test_a_run_that_fails_has_its_error_and_its_verdicts():
    span = export(
        START,
        (names.VERDICT, {"check": "refunds", "status": "fail", "message": "two refunds"}),
        (names.RUN_END, {"ok": False, "error": "RunError: it broke"}),
    )["invoke_agent shop"]
    assert attributes_of(span)["error.type"] == "RunError"
    assert span["status"]["message"] == "RunError: it broke"
    (event,) = span["events"]
    assert attributes_of(event)["gen_ai.evaluation.explanation"] == "two refunds"


@pytest.mark.parametrize(
    "event",
    [
        result(),
        (names.RUN_END, {"ok": True}),
        (names.VERDICT, {}),
        (names.REPLY, {"exchange": "1"}),
        (names.ERROR, {"exchange": "1"}),
        (names.HOOK_TOOL_CALL, {"call_id": "1"}),
        (names.TOOL_ERROR, {"call_id": "1"}),
        (names.TOOL_BLOCKED, {"call_id": "1"}),
        (names.FAULT, {"kind": "reset"}),
    ],
    ids=lambda event: event[0],
)
def test_the_end_of_something_that_did_not_start_is_no_span(event: tuple[str, dict[str, Any]]):
    assert export(event, START).keys() == {"invoke_agent shop"}


def test_an_injected_fault_is_an_event_of_the_run():
    span = export(START, (names.FAULT, {"kind": "reset", "number": 1}))["invoke_agent shop"]
    (event,) = span["events"]
    assert event["name"] == names.FAULT
    assert attributes_of(event) == {"offbook.data": '{"kind":"reset","number":1}'}


def test_a_call_without_an_id_has_no_id():
    call = (names.TOOL_CALL, {"tool": "refund"})
    attributes = attributes_of(export(START, call)["execute_tool refund"])
    assert "gen_ai.tool.call.id" not in attributes
    assert attributes["gen_ai.tool.call.arguments"] == "{}"


REQUEST = (names.REQUEST, {"exchange": "1", "before": "", "after": "a", "head": "h", "system": ""})


def test_an_error_without_a_status_has_its_category():
    error = (names.ERROR, {"exchange": "1", "category": "timeout", "message": "no answer"})
    span = export(START, REQUEST, error)["chat"]
    assert attributes_of(span)["error.type"] == "timeout"
    assert "http.response.status_code" not in attributes_of(span)
    assert span["status"]["message"] == "no answer"


def test_a_reply_without_tokens_has_none():
    reply = (names.REPLY, {"exchange": "1", "after": "a", "stop": "stop"})
    span = export(START, REQUEST, reply)["chat"]
    assert not [name for name in attributes_of(span) if "usage" in name]


def test_a_block_of_one_provider_is_a_part_as_it_was_sent():
    block = {"type": "foreign", "kind": "document", "data": {"title": "Prices"}}
    span = export(START, CALL, result(block))["execute_tool refund"]
    shown = attributes_of(span)["gen_ai.tool.call.result"]
    assert shown == '[{"title":"Prices","type":"document"}]'
