"""The result of a scripted call must come back to the model, in a run of any kind."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbook import call, drive, say, when
from offbook.errors import PlaybookError, ScriptUnfinished
from offbook.surfaces.cli import main
from tests.runs import losing_agents
from tests.runs.losing_agents import CHANGING, LOSING, stops_after_the_call

Agent = Callable[[str], object]
SCRIPT = when("Find order 7", [call("find_order", {"number": 7}), say("It is a lamp.")])
FILE = """\
- when: Find order 7
  do:
    - {call: find_order, with: {number: 7}}
    - {say: It is a lamp.}
"""


def run_command(folder: Path, script: str, agent: Agent) -> object:
    """Return the exit code of `offbook run` with this playbook and this agent as a command."""
    playbook = folder / "playbook.yaml"
    playbook.write_text(script)
    program = [sys.executable, losing_agents.__file__, agent.__name__]
    with pytest.raises(SystemExit) as exit_:
        main(
            ["run", "--playbook", str(playbook), "--trace", str(folder / "t.jsonl"), "--", *program]
        )
    return exit_.value.code


@pytest.mark.parametrize("agent", LOSING)
def test_a_call_whose_result_never_comes_back_fails_the_run(agent: Agent):
    with (
        drive(agent) as rehearsal,
        pytest.raises(ScriptUnfinished, match="the result of call find_order never came back"),
    ):
        rehearsal.run(SCRIPT)


@pytest.mark.parametrize("agent", LOSING)
def test_a_call_whose_result_never_comes_back_fails_a_command(
    tmp_path: Path, agent: Agent, capsys: pytest.CaptureFixture[str]
):
    assert run_command(tmp_path, FILE, agent) == 1
    assert "the result of call find_order never came back" in capsys.readouterr().err


def test_the_error_names_the_call_that_came_instead():
    with (
        drive(losing_agents.renames_the_call) as rehearsal,
        pytest.raises(ScriptUnfinished, match="got: the result of a call of 'find_customer'"),
    ):
        rehearsal.run(SCRIPT)


def test_a_call_that_is_meant_to_stay_unanswered_says_so(tmp_path: Path):
    with drive(stops_after_the_call) as rehearsal:
        rehearsal.run(when("Find order 7", [call("find_order", {"number": 7}, unanswered=True)]))
        with pytest.raises(ScriptUnfinished, match="unanswered=True"):
            rehearsal.run(when("Find order 7", [call("find_order", {"number": 7})]))
    unanswered = "- {when: Find order 7, do: [{call: find_order, unanswered: true}]}"
    assert run_command(tmp_path, unanswered, stops_after_the_call) == 0


def test_a_callback_on_an_unanswered_call_is_refused():
    with pytest.raises(PlaybookError, match="has no result to pass"):
        call("find_order", unanswered=True).then(print)


@pytest.mark.parametrize("agent", CHANGING)
def test_a_result_is_matched_by_name_and_position_if_the_client_changed_the_ids(agent: Agent):
    seen: list[str] = []

    def find(number: int) -> Any:
        return call("find_order", {"number": number}).then(lambda result: seen.append(result.text))

    with drive(agent) as rehearsal:
        run = rehearsal.run(when("Find order 7", [find(7), find(8), say("Lamps.")]))
        assert [result.text for result in run.results("find_order")] == seen
        assert [("7" in text, "8" in text) for text in seen] == [(True, False), (False, True)]


@pytest.mark.parametrize("agent", CHANGING)
def test_a_changed_id_is_noted_in_the_trace(
    tmp_path: Path, agent: Agent, capsys: pytest.CaptureFixture[str]
):
    assert run_command(tmp_path, FILE, agent) == 0
    with pytest.raises(SystemExit):
        main(["show", str(tmp_path / "t.jsonl")])
    assert "the client changed an id: call_" in capsys.readouterr().out
