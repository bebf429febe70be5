"""A2A agents: prompts, tasks, questions to a person, and the rules of the protocol."""

import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from offbook.errors import (
    CheckFailed,
    DeadlineExceeded,
    OffbookError,
    RunError,
    ScriptMismatch,
    UsageError,
)
from offbook.people import allow, person
from offbook.protocols import A2a
from offbook.runs import drive
from offbook.sources.playbook import call, fail, say, when
from offbook.testing import SubjectConformance
from tests.protocols.plain_a2a_agent import PlainAgent
from tests.waiting import wait_until

AGENT = [sys.executable, str(Path(__file__).with_name("plain_a2a_agent.py")), "{port}"]
ADD = {"a": 2, "b": 3}


@pytest.fixture(autouse=True)
def no_base_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


class TestConformance(SubjectConformance):
    def subject(self) -> A2a:
        return A2a(PlainAgent())

    def call(self):
        return "add", ADD


@pytest.mark.parametrize("kind", ["", "polling", "no stream", "a message"])
def test_the_answer_is_that_of_the_task(kind: str):
    with drive(A2a(PlainAgent(kind))) as rehearsal:
        run = rehearsal.run(
            when("Add", [call("add", ADD), say("It is 5.")]), when("Again", [say("Still 5.")])
        )
        counts = [event.data["count"] for event in run.events.named("model.request")]
    assert run.output == "Still 5."
    assert run.results("add")[0].text == "5"
    assert counts == [1, 3, 5]  # one context for all prompts


def test_a_command_serves_the_agent():
    with drive(A2a(AGENT)) as rehearsal:
        run = rehearsal.run(when("Add", [call("add", ADD), say("It is 5.")]))
        (start,) = rehearsal.events.named("process.start")
    assert run.output == "It is 5."
    assert start.data["protocol"] == "a2a"


@pytest.mark.slow
@pytest.mark.parametrize("code, end", [(3, "failed with exit code 3"), (0, "ended")])
def test_a_command_that_ends_after_its_last_answer_fails_the_run(code: int, end: str):
    agent = A2a([*AGENT, str(code)])
    rehearsal = drive(agent)
    rehearsal.run(when("Add", [say("It is 5.")]))
    wait_until(lambda: not listens(agent.url))
    with pytest.raises(CheckFailed, match=f"a2a {end} before the end of the run\n  out of memory"):
        rehearsal.dispose()


def listens(url: str) -> bool:
    address = urlsplit(url)
    try:
        socket.create_connection((address.hostname, address.port)).close()
    except OSError:
        return False
    return True


def test_what_the_agent_sends_is_in_the_trace():
    with drive(A2a(PlainAgent())) as rehearsal:
        run = rehearsal.run(when("Add", [say("It is 5.")]))
        card, *updates = [event.data for event in rehearsal.events.named("process.event")]
        (result,) = run.events.named("process.result")
    assert card["agentCard"]["name"] == "adder"
    kinds = ["task", "artifactUpdate", "artifactUpdate", "statusUpdate"]
    assert [next(iter(update)) for update in updates] == kinds
    assert result.data == {"text": "It is 5.", "session": "context-1", "stop": "COMPLETED"}


def test_the_lifespan_of_an_app_is_that_of_the_rehearsal():
    app = PlainAgent()
    with drive(A2a(app)) as rehearsal:
        assert app.started
        rehearsal.run(when("Add", [say("5.")]))
    assert not app.started


# --- People


@pytest.mark.parametrize("kind", ["", "polling"])
@pytest.mark.parametrize("answer, sent", [("7", "7"), ({"account": 7}, '{"account": 7}')])
def test_a_person_gives_the_input_that_a_task_requires(kind: str, answer: Any, sent: str):
    with drive(A2a(PlainAgent(kind))) as rehearsal:
        run = rehearsal.run(
            when("Pay", [say("Which account?"), person("Which account?", answer), say("Paid.")])
        )
        (asked,) = run.events.named("person.asked")
        texts = [m.text for m in rehearsal.events.messages if m.role == "user"]
    assert run.output == "Paid."
    assert asked.data == {"question": "Which account?", "answer": answer}
    assert texts == ["Pay", sent]


WRONG_ANSWERS: list[tuple[list[Any], type[OffbookError], str]] = [
    ([], ScriptMismatch, r"asked a person 'Which account\?'"),
    ([person("Which account?", allow)], UsageError, "waits for a result"),
]


@pytest.mark.parametrize("people, error, message", WRONG_ANSWERS)
def test_a_wrong_answer_fails_the_run(people: list[Any], error: type[OffbookError], message: str):
    with pytest.raises(error, match=message), drive(A2a(PlainAgent())) as rehearsal:
        rehearsal.run(when("Pay", [say("Which account?"), *people, say("Paid.")]))


# --- Agents that break the protocol, and other failures

BROKEN = [
    ("a card", "the agent card must have version"),
    ("a skill", "the skill 'add' must have tags"),
    ("an id", "a response must have the id of its request"),
    ("no task", "statusUpdate before the task"),
    ("two kinds", "a response must have one of task"),
    ("another task", "statusUpdate of another task: 'task-99', not 'task-1'"),
    ("a state", "unknown state of a task 'TASK_STATE_TIRED'"),
    ("no parts", "an artifact must have parts"),
    ("an artifact", "an addition to the unknown artifact 'answer'"),
    ("no end", "the stream ended while the task is SUBMITTED"),
    ("more after the end", "statusUpdate after the task is COMPLETED"),
    ("no JSON", "a message is not JSON: 'thinking'"),
    ("an error", r"failed in SendStreamingMessage: out of ideas \(code -32603\)"),
]


@pytest.mark.parametrize("kind, message", BROKEN)
def test_an_agent_that_breaks_the_protocol_fails_the_run(kind: str, message: str):
    with pytest.raises(RunError, match=message), drive(A2a(PlainAgent(kind))) as rehearsal:
        rehearsal.run(when("Add", [say("It is 5.")]))


def test_the_messages_of_an_agent_that_keeps_the_rules_are_counted():
    with drive(A2a(PlainAgent())) as rehearsal:
        rehearsal.run(when("Add", [say("It is 5.")]))
    (verdict,) = [
        event.data
        for event in rehearsal.read_events()
        if event.event == "check.verdict" and event.data["check"] == "A2A protocol"
    ]
    assert (verdict["status"], verdict["actual"]) == ("pass", 5)


def test_a_failed_task_fails_the_run_with_its_reason():
    with (
        pytest.raises(RunError, match=r"ended its task as failed: .*400"),
        drive(A2a(PlainAgent())) as rehearsal,
    ):
        rehearsal.run(when("Add", [fail("not today", status=400)]))


def test_an_agent_of_an_older_version_is_refused():
    with (
        pytest.raises(UsageError, match=r"no A2A 1.0 over JSON-RPC, only \[\('JSONRPC', '0.3'\)\]"),
        drive(A2a(PlainAgent("an old version"))) as rehearsal,
    ):
        rehearsal.run(when("Add", [say("It is 5.")]))


def test_an_agent_that_does_not_answer_is_ended():
    with (
        pytest.raises(DeadlineExceeded, match="did not answer within 1 s"),
        drive(A2a(PlainAgent("silence"), deadline=1)) as rehearsal,
    ):
        rehearsal.run(when("Add", [say("It is 5.")]))


COMMANDS = [
    ("an exit", RunError, r"(?s)failed with exit code 1 before it listened.*no agent today"),
    ("another address", RunError, "the agent card names http://127.0.0.1:1/a2a, and the agent is"),
]


@pytest.mark.slow
@pytest.mark.parametrize("kind, error, message", COMMANDS)
def test_a_command_that_cannot_be_reached_fails(kind: str, error: type[Exception], message: str):
    with pytest.raises(error, match=message), drive(A2a([*AGENT, kind])) as rehearsal:
        rehearsal.run(when("Add", [say("It is 5.")]))


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    ([], {}, "expected a URL, a command or an ASGI app"),
    (7, {}, "expected a URL, a command or an ASGI app"),
    ("http://127.0.0.1:1", {"env": {"A": "1"}}, "takes 'env' for a command only"),
]


@pytest.mark.parametrize("agent, options, message", WRONG)
def test_a_wrong_agent_is_refused(agent: Any, options: dict[str, Any], message: str):
    with pytest.raises(UsageError, match=message):
        A2a(agent, **options)


def test_an_address_without_an_agent_is_reported():
    with (
        pytest.raises(RunError, match=r"lost the connection to a2a at 127.0.0.1:1"),
        drive(A2a("http://127.0.0.1:1")) as rehearsal,
    ):
        rehearsal.run(when("Add", [say("It is 5.")]))
