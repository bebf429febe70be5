"""The answers of people in a playbook file."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import FormatError, ScriptMismatch
from offbook.exchange.people import Allow, Deny, PersonQuestion
from offbook.sources.loading import open_source, read_script
from offbook.sources.playbook.actions import Person, Turn

SCRIPT = (
    "- when: Pay\n  do:\n    - {{call: pay, with: {{amount: 7}}}}\n    - {entry}\n    - say: K.\n"
)


def read(tmp_path: Path, entry: str) -> Any:
    path = tmp_path / "pay.yaml"
    path.write_text(SCRIPT.format(entry=entry))
    return read_script(path)


ANSWERS: list[tuple[str, Any]] = [
    ("{person: pay, allow: true}", Allow()),
    ("{person: pay, allow: {amount: 5}}", Allow({"amount": 5})),
    ("{person: pay, deny: true}", Deny()),
    ("{person: pay, deny: too much}", Deny("too much")),
    ("{person: pay, answer: A7}", "A7"),
    ("{person: pay, answer: {account: A7}}", {"account": "A7"}),
]


@pytest.mark.parametrize("entry, answer", ANSWERS)
def test_a_file_has_the_answers_of_people(tmp_path: Path, entry: str, answer: Any):
    (turn,) = read(tmp_path, entry)
    assert isinstance(turn, Turn)
    action = turn.actions[1]
    assert action == Person("pay", answer)
    assert isinstance(action, Person)
    assert action.matches(PersonQuestion(tool="pay"))


WRONG = [
    ("{person: pay}", "person: has no single answer"),
    ("{person: pay, allow: false}", "person: has no single answer"),
    ("{person: pay, allow: true, deny: true}", "person: has no single answer"),
    ("{person: pay, status: 3}", "person: does not go with status:"),
    ("{say: pay, allow: true}", "say: does not go with allow:"),
    ("{person: pay, say: pay}", "has say: and person:, expected one of"),
]


@pytest.mark.parametrize("entry, message", WRONG)
def test_a_wrong_answer_in_a_file_is_reported(tmp_path: Path, entry: str, message: str):
    with pytest.raises(FormatError, match=message):
        read(tmp_path, entry)


def test_the_fix_for_a_missing_answer_is_written_as_in_the_file(tmp_path: Path):
    path = tmp_path / "pay.yaml"
    path.write_text("- {when: Pay, do: [{say: K.}]}\n")
    source: Any = open_source(path)()
    with pytest.raises(ScriptMismatch, match=r"(?s)pay.yaml.*- {person: pay, allow: true}"):
        asyncio.run(source.answer(PersonQuestion(tool="pay")))
