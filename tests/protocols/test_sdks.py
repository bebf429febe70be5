"""The official SDKs as the other side, installed by `./dev clients`."""

from pathlib import Path
from typing import Any

import pytest

from offbook import Command, Tool, call, drive, say, when
from offbook.errors import RunError, UsageError
from offbook.people import allow, deny, person
from offbook.protocols import A2a, AgUi, remote_agent
from tests.matrix.homes import HOMES
from tests.matrix.rows import WHOLE
from tests.protocols.test_scripted_agent import billing

HOME = HOMES["protocols"]
SDK = Path(__file__).with_name("sdk")
REASON = "the SDKs of A2A and AG-UI are not installed: run ./dev clients"
pytestmark = [pytest.mark.clients, pytest.mark.skipif(not (WHOLE or HOME.ready), reason=REASON)]


def program(name: str, *arguments: str) -> list[str]:
    assert HOME.ready, HOME.describe_missing()
    return [HOME.python, str(SDK / name), *arguments]


@pytest.mark.parametrize("way", ["stream", "plain"])
def test_an_agent_on_the_sdk_asks_a_person_and_remembers(way: str):
    agent = A2a(program("a2a_agent.py", "{port}", way))
    with drive(agent) as rehearsal:
        run = rehearsal.run(
            when("Pay", [say("Which account?"), person("Which account?", "7"), say("Paid.")]),
            when("Again", [say("Paid again.")]),
        )
        counts = [event.data["count"] for event in run.events.named("model.request")]
    assert run.output == "Paid again."
    assert counts == [1, 3, 5]


@pytest.mark.parametrize("way", ["stream", "plain"])
def test_a_caller_on_the_sdk_reaches_a_scripted_remote_agent(way: str):
    agent = remote_agent("billing", billing)
    command = Command(program("a2a_caller.py", "{prompt}", way))
    with drive(command, agents=[agent]) as rehearsal:
        run = rehearsal.run(when("Pay", [say("Done.")]))
        states = [event.data["state"] for event in run.events.named("remote.task")]
        (sent,) = [m.text for m in rehearsal.events.messages if m.role == "user"]
    assert agent.tasks == ["Pay", "7"]
    assert states == ["input-required", "completed"]
    assert "Pay: paid from 7" in sent


def ag_ui(**options: Any) -> AgUi:
    return AgUi(program("ag_ui_agent.py", "{port}"), path="/agent", **options)


def test_the_adapter_of_pydantic_ai_keeps_the_rules_and_the_conversation():
    with drive(ag_ui()) as rehearsal:
        run = rehearsal.run(
            when("Add", [[say("I add."), call("add", {"a": 2, "b": 3})], say("It is 5.")]),
            when("Again", [say("Still 5.")]),
        )
        kinds = {event.data["type"] for event in run.events.named("process.event")}
    assert run.results("add")[0].text == "5"
    assert run.output == "Still 5."
    assert {"RUN_STARTED", "TOOL_CALL_RESULT", "TEXT_MESSAGE_END", "RUN_FINISHED"} <= kinds


APPROVALS = [
    (allow, "refunded 7"),
    (allow({"order": 8}), "refunded 8"),
    (deny("too much"), "too much"),
]


@pytest.mark.parametrize("answer, result", APPROVALS)
def test_a_person_answers_an_interrupt_of_pydantic_ai(answer: Any, result: str):
    refund = call("refund", {"order": 7})
    with drive(ag_ui()) as rehearsal:
        run = rehearsal.run(when("Refund", [refund, person("refund", answer), say("Done.")]))
    assert run.results("refund")[0].text == result
    assert run.output == "Done."


def test_a_person_answers_a_tool_of_the_front_end_that_pydantic_ai_calls():
    tool = Tool("pick_color", "Pick a color.", {"type": "object", "properties": {}})
    with drive(ag_ui(tools=[tool])) as rehearsal:
        run = rehearsal.run(
            when("Paint", [call("pick_color"), person("pick_color", "red"), say("Painted.")])
        )
    assert run.results("pick_color")[0].text == "red"


OLD = HOMES["a2a-0.3"]
needs_old = pytest.mark.skipif(not (WHOLE or OLD.ready), reason="run ./dev clients")


@needs_old
@pytest.mark.parametrize("way", ["stream", "plain"])
def test_a_caller_on_the_sdk_of_a2a_0_3_is_told_the_version(way: str):
    command = Command([OLD.python, str(SDK / "a2a_old_caller.py"), "{prompt}", way])
    with (
        pytest.raises(RunError, match=r"unsupported version 0\.3 of A2A: update the client"),
        drive(command, agents=[remote_agent("billing", "paid")]) as rehearsal,
    ):
        rehearsal.run(when("Pay", [say("Done.")]))


@needs_old
def test_an_agent_on_the_sdk_of_a2a_0_3_is_refused_by_its_version():
    agent = A2a([OLD.python, str(SDK / "a2a_old_agent.py"), "{port}"])
    with (
        pytest.raises(UsageError, match=r"the agent speaks A2A 0\.3\.0, expected 1\.0"),
        drive(agent) as rehearsal,
    ):
        rehearsal.run(when("Pay", [say("Done.")]))
