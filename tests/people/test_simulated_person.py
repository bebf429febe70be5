"""A simulated person prompts the agent until a goal is reached."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from offbook import Cassette, Playbook, Recording, call, say, session, when
from offbook.errors import CheckFailed, ScriptExhausted, UsageError
from offbook.exchange.messages import Text
from offbook.exchange.model import Reply, Request
from offbook.people import SimulatedPerson

REFUND = [
    when("I want my money back.", [say("Which order?")]),
    when("Order 7.", [call("bash", {"command": "touch refunded"}), say("You get it back.")]),
]
GOAL = "Get the money for order 7 back."


class Person:
    """A source that plays a person: it says these texts, and notes what it was asked."""

    def __init__(self, *texts: str) -> None:
        self._texts = [*texts]
        self.requests: list[Request] = []

    async def reply(self, request: Request) -> Reply:
        self.requests.append(request)
        return Reply((Text(self._texts.pop(0)),))


def scripted(*turns: Any) -> Playbook:
    playbook = Playbook()
    playbook.load(*turns)
    return playbook


def is_refunded(events: Any) -> bool:
    return bool(events.tool_results_for("bash"))


SPEAKERS: list[Any] = [
    ["I want my money back.", "Order 7.", "Are you there?"],
    Person("I want my money back.", "Order 7.", "Are you there?"),
]


@pytest.mark.parametrize("speaker", SPEAKERS, ids=["messages", "source"])
def test_a_person_talks_until_the_goal_is_reached(speaker: Any):
    person = SimulatedPerson(GOAL, speaker, reached=is_refunded)
    with session(source=scripted(*REFUND)) as rehearsal:
        run = rehearsal.run(person)
        said = [event.data for event in rehearsal.events.named("person.said")]
    assert run.output == "You get it back."
    assert said == [
        {"text": "I want my money back.", "turn": 1},
        {"text": "Order 7.", "turn": 2},
    ]
    (verdict,) = [
        event.data
        for event in rehearsal.read_events()
        if event.event == "check.verdict" and event.data["check"] == "goal reached"
    ]
    assert verdict["status"] == "pass"


def test_a_source_gets_the_goal_and_the_answers_of_the_agent():
    person = Person("I want my money back.", "Order 7.", "Thanks. [done]")
    with session(source=scripted(*REFUND)) as rehearsal:
        rehearsal.run(SimulatedPerson(GOAL, person))
    last = person.requests[-1]
    assert GOAL in last.system
    assert [(message.role, message.text) for message in last.messages][1:] == [
        ("assistant", "I want my money back."),
        ("user", "Which order?"),
        ("assistant", "Order 7."),
        ("user", "You get it back."),
    ]


def test_without_a_check_the_source_decides():
    person = Person("I want my money back.", "[done]")
    with session(source=scripted(REFUND[0])) as rehearsal:
        run = rehearsal.run(SimulatedPerson(GOAL, person))
    assert run.output == "Which order?"


NOT_REACHED: list[tuple[Sequence[str] | Person, int, str]] = [
    (["I want my money back."], 8, "after 1 turn"),
    (["I want my money back.", "Order 7."], 1, "after 1 turn"),
    (Person("[done]"), 8, "after 0 turns"),
    (Person("I want my money back.", "I give up. [done]"), 8, "after 1 turn"),
]


@pytest.mark.parametrize("speaker, turns, message", NOT_REACHED)
def test_a_goal_that_is_not_reached_fails_with_the_conversation(
    speaker: Any, turns: int, message: str
):
    person = SimulatedPerson(GOAL, speaker, reached=is_refunded, turns=turns)
    rehearsal = session(source=scripted(*REFUND))
    with pytest.raises(CheckFailed, match=f"the goal was not reached {message}: {GOAL}") as raised:
        rehearsal.run(person)
    rehearsal.dispose(failed=True)
    if person.dialogue:
        assert "agent: Which order?" in str(raised.value)


def test_the_person_of_a_cassette_says_what_was_recorded(tmp_path: Path):
    tape = tmp_path / "person.yaml"
    live = Person("I want my money back.", "Order 7.", "[done]")
    with Recording(live, tape) as speaker, session(source=scripted(*REFUND)) as rehearsal:
        rehearsal.run(SimulatedPerson(GOAL, speaker))
    with session(source=scripted(*REFUND)) as rehearsal:
        run = rehearsal.run(SimulatedPerson(GOAL, Cassette(tape)))
        said = [event.data["text"] for event in rehearsal.events.named("person.said")]
    assert run.output == "You get it back."
    assert said == ["I want my money back.", "Order 7."]


def test_what_the_model_does_not_script_fails_the_run():
    person = SimulatedPerson(GOAL, ["I want my money back.", "Order 7."], reached=is_refunded)
    rehearsal = session(source=scripted(REFUND[0]))
    with pytest.raises(ScriptExhausted):
        rehearsal.run(person)
    rehearsal.dispose(failed=True)


WRONG = [
    (lambda: SimulatedPerson("g", "hello"), "must be a list of texts"),
    (lambda: SimulatedPerson("g", [], reached=is_refunded), "must be a list of texts"),
    (lambda: SimulatedPerson("g", ["hello"]), "nothing says whether the goal is reached"),
    (lambda: SimulatedPerson("g", Person(), turns=0), "turns: expected an integer >= 1, got 0"),
]


@pytest.mark.parametrize("make, message", WRONG)
def test_a_person_that_would_check_nothing_is_refused(make: Any, message: str):
    with pytest.raises(UsageError, match=message):
        make()
