"""AG-UI agents: messages, tool calls, state, interrupts, and the rules of the order of events."""

from typing import Any

import pytest

from offbook import Tool
from offbook.errors import DeadlineExceeded, OffbookError, RunError, ScriptMismatch, UsageError
from offbook.people import allow, deny, person
from offbook.protocols import AgUi
from offbook.protocols.ag_ui_subject import apply_patch
from offbook.runs import drive
from offbook.sources.playbook import call, fail, say, when
from offbook.testing import SubjectConformance
from tests.protocols.plain_ag_ui_agent import PlainAgUiAgent

ADD = {"a": 2, "b": 3}
REFUND = call("refund", {"order": 7})


@pytest.fixture(autouse=True)
def no_base_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


class TestConformance(SubjectConformance):
    def subject(self) -> AgUi:
        return AgUi(PlainAgUiAgent())

    def call(self):
        return "add", ADD


@pytest.mark.parametrize("kind", ["", "chunks"])
def test_the_front_end_keeps_the_conversation(kind: str):
    with drive(AgUi(PlainAgUiAgent(kind))) as rehearsal:
        run = rehearsal.run(
            when("Add", [[say("I add."), call("add", ADD)], say("It is 5.")]),
            when("Again", [say("Still 5.")]),
        )
        counts = [event.data["count"] for event in run.events.named("model.request")]
    assert run.output == "Still 5."
    assert run.results("add")[0].text == "5"
    assert counts == [1, 3, 5]


def test_events_and_the_state_are_in_the_trace():
    agent = AgUi(PlainAgUiAgent(), state={"user": "Ada"})
    with drive(agent) as rehearsal:
        run = rehearsal.run(when("Add", [call("add", ADD), say("It is 5.")]))
        events = [event.data for event in run.events.named("process.event")]
        (result,) = run.events.named("process.result")
    assert [event["type"] for event in events] == [
        *["RUN_STARTED", "STEP_STARTED", "STATE_SNAPSHOT"],
        *["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "STATE_DELTA", "TOOL_CALL_RESULT"],
        *["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"],
        *["STEP_FINISHED", "RUN_FINISHED"],
    ]
    assert agent.state == {"user": "Ada", "calls": ["add"]}
    assert result.data == {
        "text": "It is 5.",
        "session": "thread-1",
        "stop": "RUN_FINISHED",
        "state": agent.state,
    }


# --- People

APPROVALS = [
    (allow, "refunded 7"),
    (allow({"order": 8}), "refunded 8"),
    (deny("too much"), "refused: too much"),
]


@pytest.mark.parametrize("answer, result", APPROVALS)
def test_a_person_answers_an_interrupt(answer: Any, result: str):
    with drive(AgUi(PlainAgUiAgent())) as rehearsal:
        run = rehearsal.run(when("Refund", [REFUND, person("refund", answer), say("Done.")]))
        (asked,) = run.events.named("person.asked")
    assert run.output == "Done."
    assert run.results("refund")[0].text == result
    assert (asked.data["question"], asked.data["input"]) == ("May I?", {"order": 7})


def test_a_person_answers_the_call_of_a_tool_of_the_front_end():
    agent = AgUi(PlainAgUiAgent(), tools=[Tool("pick_color", "Pick a color.")])
    with drive(agent) as rehearsal:
        run = rehearsal.run(
            when("Paint", [call("pick_color"), person("pick_color", "red"), say("Painted red.")])
        )
    assert run.results("pick_color")[0].text == "red"
    assert run.output == "Painted red."


WRONG_ANSWERS: list[tuple[list[Any], type[OffbookError], str]] = [
    ([], ScriptMismatch, "asked an approval of refund"),
    ([person("refund", "yes")], UsageError, "does not match the schema of the interrupt"),
]


@pytest.mark.parametrize("people, error, message", WRONG_ANSWERS)
def test_a_wrong_answer_fails_the_run(people: list[Any], error: type[OffbookError], message: str):
    with pytest.raises(error, match=message), drive(AgUi(PlainAgUiAgent())) as rehearsal:
        rehearsal.run(when("Refund", [REFUND, *people, say("Done.")]))


def test_a_call_without_a_result_fails_if_the_front_end_has_no_such_tool():
    script = when("Paint", [call("pick_color", unknown=True, unanswered=True)])
    with (
        pytest.raises(RunError, match="the call of pick_color has no result"),
        drive(AgUi(PlainAgUiAgent())) as rehearsal,
    ):
        rehearsal.run(script)


# --- Agents that break the rules, and other failures

BROKEN = [
    ("no start", "STATE_SNAPSHOT before RUN_STARTED"),
    ("two starts", "RUN_STARTED twice"),
    ("another run", "RUN_STARTED of another runId: 'run-99'"),
    ("the end of another run", "RUN_FINISHED of another runId: 'run-99'"),
    ("an end without ids", "RUN_FINISHED must have a text as threadId"),
    ("an unknown event", "unknown event 'DANCE'"),
    ("an open step", "RUN_FINISHED while STEP 'think' is open"),
    ("no end", "the stream ended without RUN_FINISHED or RUN_ERROR"),
    ("more after the end", "CUSTOM after RUN_FINISHED"),
    ("no message start", "TEXT_MESSAGE_CONTENT of 'message-4', which is not open"),
    ("two messages", "TEXT_MESSAGE_START of 'message-4', which is open"),
    ("a message twice", "TEXT_MESSAGE_START of 'message-4', which has ended"),
    ("no message end", "RUN_FINISHED while TEXT_MESSAGE 'message-4' is open"),
    ("an empty delta", "TEXT_MESSAGE_CONTENT must have a delta"),
    ("no name", "TOOL_CALL_START must have a text as toolCallName"),
    ("torn arguments", "the arguments of add must be JSON"),
    ("arguments after the end", "TOOL_CALL_ARGS of 'call_.*', which is not open"),
    ("an early result", "TOOL_CALL_RESULT of 'call_.*' before its TOOL_CALL_END"),
    ("an unknown call", "TOOL_CALL_RESULT of 'unknown', which was not called"),
    ("a patch", "STATE_DELTA does not fit the state: 'nothing'"),
]


CHUNK = {"type": "TOOL_CALL_CHUNK", "toolCallId": "c1", "toolCallName": "add"}
RESULT = {"type": "TOOL_CALL_RESULT", "toolCallId": "c1", "messageId": "m1", "content": "5"}
WRONG_EVENTS: list[tuple[list[dict[str, Any]], str]] = [
    ([{"type": "STATE_DELTA"}], "STATE_DELTA must have a list as delta"),
    ([{"type": "STATE_DELTA", "delta": {}}], "STATE_DELTA must have a list as delta"),
    (
        [{"type": "STATE_DELTA", "delta": [{"op": "add", "path": "count", "value": 1}]}],
        "STATE_DELTA does not fit the state: expected a JSON pointer such as /name, got 'count'",
    ),
    ([{**CHUNK, "delta": '{"a":'}, RESULT], "the arguments of add must be JSON"),
    ([{"type": "TOOL_CALL_CHUNK", "toolCallId": "c1"}], "TOOL_CALL_CHUNK must have toolCallName"),
    ([CHUNK, {**RESULT, "content": None}], "TOOL_CALL_RESULT must have a text or a list as conten"),
    ([CHUNK, RESULT, RESULT], "TOOL_CALL_RESULT of 'c1', which has a result"),
    ([{"type": "MESSAGES_SNAPSHOT"}], "MESSAGES_SNAPSHOT must have a list as messages"),
    (
        [{"type": "MESSAGES_SNAPSHOT", "messages": ["x", 5]}],
        "a message of MESSAGES_SNAPSHOT must have a role",
    ),
    ([{"type": "ACTIVITY_SNAPSHOT"}], "ACTIVITY_SNAPSHOT must have a text as activityType"),
    ([{"type": "CUSTOM"}], "CUSTOM must have a text as name"),
    ([{"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "Hm."}], "which is not open"),
    (
        [{"type": "RUN_FINISHED", "threadId": {"id": 1}, "runId": ["r"]}],
        r"RUN_FINISHED of another threadId: \{'id': 1\}",
    ),
]


@pytest.mark.parametrize("events, message", WRONG_EVENTS)
def test_an_event_that_has_not_its_fields_fails_the_run(events: Any, message: str):
    agent = AgUi(PlainAgUiAgent(events=events))
    with pytest.raises(RunError, match=message), drive(agent) as rehearsal:
        rehearsal.run(when("Add", [say("It is 5.")]))


def test_the_earlier_events_of_reasoning_are_known():
    thought = [
        {"type": "THINKING_START"},
        {"type": "THINKING_TEXT_MESSAGE_START"},
        {"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "Hm."},
        {"type": "THINKING_TEXT_MESSAGE_END"},
        {"type": "THINKING_END"},
    ]
    with drive(AgUi(PlainAgUiAgent(events=thought * 2))) as rehearsal:
        run = rehearsal.run(when("Add", [say("It is 5.")]))
    assert run.output == "It is 5."


@pytest.mark.parametrize("kind, message", BROKEN)
def test_an_agent_that_breaks_a_rule_fails_the_run(kind: str, message: str):
    with pytest.raises(RunError, match=message), drive(AgUi(PlainAgUiAgent(kind))) as rehearsal:
        rehearsal.run(when("Add", [call("add", ADD), say("It is 5.")]))


def test_the_events_of_an_agent_that_keeps_the_rules_are_counted():
    with drive(AgUi(PlainAgUiAgent())) as rehearsal:
        rehearsal.run(when("Add", [say("5.")]))
    (verdict,) = [
        event.data
        for event in rehearsal.read_events()
        if event.event == "check.verdict" and event.data["check"] == "AG-UI protocol"
    ]
    assert (verdict["status"], verdict["actual"]) == ("pass", 9)


def test_an_error_of_the_run_fails_with_its_message():
    with (
        pytest.raises(RunError, match=r"(?s)the agent failed: .*400.* \(code model\)"),
        drive(AgUi(PlainAgUiAgent())) as rehearsal,
    ):
        rehearsal.run(when("Add", [fail("not today", status=400)]))


def test_an_agent_that_does_not_answer_is_ended():
    with (
        pytest.raises(DeadlineExceeded, match="did not answer within 1 s"),
        drive(AgUi(PlainAgUiAgent("silence"), deadline=1)) as rehearsal,
    ):
        rehearsal.run(when("Add", [say("It is 5.")]))


PATCHES: list[tuple[Any, list[dict[str, Any]], Any]] = [
    ({"a": 1}, [{"op": "replace", "path": "/a", "value": 2}], {"a": 2}),
    ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
    ({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}),
    ({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}),
    ({"a": 1}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": 1, "b": 1}),
    ({"a/b": 1}, [{"op": "test", "path": "/a~1b", "value": 1}], {"a/b": 1}),
    ({"a": 1}, [{"op": "replace", "path": "", "value": []}], []),
]


@pytest.mark.parametrize("document, operations, expected", PATCHES)
def test_a_patch_changes_a_document(document: Any, operations: list[Any], expected: Any):
    before = repr(document)
    assert apply_patch(document, operations) == expected
    assert repr(document) == before


WRONG_PATCHES: list[tuple[Any, dict[str, Any]]] = [
    ({"count": 1}, {"op": "replace", "path": "count", "value": 2}),
    ({}, {"op": "add", "value": 2}),
    ({}, {"op": "add", "path": "/a"}),
    ({"a": 1}, {"op": "copy", "path": "/b"}),
    ({"a": [1, 2]}, {"op": "add", "path": "/a/-1", "value": 2}),
    ({"a": [1, 2]}, {"op": "replace", "path": "/a/01", "value": 2}),
    ({"a": 1}, {"op": "test", "path": "/a", "value": True}),
    ({"a": [{"b": True}]}, {"op": "test", "path": "/a", "value": [{"b": 1}]}),
    ({}, {"op": "replace", "path": "/a", "value": 1}),
    ({}, {"op": "remove", "path": "/a"}),
    ({"a": 1}, {"op": "test", "path": "/a", "value": 2}),
    ({"a": [1]}, {"op": "add", "path": "/a/7", "value": 2}),
    ({"a": 1}, {"op": "add", "path": "/a/b", "value": 2}),
    ({}, {"op": "dance", "path": "/a"}),
]


@pytest.mark.parametrize("document, operation", WRONG_PATCHES)
def test_a_patch_that_does_not_fit_is_refused(document: Any, operation: dict[str, Any]):
    with pytest.raises((LookupError, TypeError, ValueError)):
        apply_patch(document, [operation])
