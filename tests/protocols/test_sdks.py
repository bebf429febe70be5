"""The official SDKs as the other side, installed by `./dev clients`."""

from pathlib import Path

import pytest

from offbook import Command, drive, say, when
from offbook.people import person
from offbook.protocols import A2a, remote_agent
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
