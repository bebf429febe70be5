"""The result of a scripted call must come back to the model, in a run of any kind."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbook import Mocks, call, drive, say, when
from offbook.errors import PlaybookError, ScriptMismatch, ScriptUnfinished
from offbook.surfaces.cli import main
from offbook.trace import Trace
from tests.forked import forked_command
from tests.runs import losing_agents
from tests.runs.losing_agents import CHANGING, LOSING, RENAMING, stops_after_the_call

Agent = Callable[[str], object]
SCRIPT = when("Find order 7", [call("find_order", {"number": 7}), say("It is a lamp.")])
FILE = """\
- when: Find order 7
  do:
    - {call: find_order, with: {number: 7}}
    - {say: It is a lamp.}
"""


MOCKS = """\
{"tool_calls": [{"name": "find_order", "arguments": {"number": 7}}]}
{"text": "It is a lamp."}
"""


def run_command(
    folder: Path, script: str, agent: Agent, option: str = "--playbook", *options: str
) -> object:
    """Return the exit code of `offbook run` with this script and this agent as a command."""
    file = folder / ("playbook.yaml" if option == "--playbook" else "mocks.jsonl")
    file.write_text(script)
    program = forked_command(losing_agents.__file__, agent.__name__)
    trace = ["--trace", str(folder / "t.jsonl")]
    with pytest.raises(SystemExit) as exit_:
        main(["run", option, str(file), *trace, *options, "--", *program])
    return exit_.value.code


@pytest.mark.parametrize("agent", LOSING)
def test_a_call_of_a_mock_file_whose_result_never_comes_back_fails_the_run(agent: Agent):
    lines = [json.loads(line) for line in MOCKS.splitlines()]
    with (
        drive(agent, source=Mocks(lines)) as rehearsal,
        pytest.raises(ScriptUnfinished, match="mocks:1: the result of call find_order never came"),
    ):
        rehearsal.run("Find order 7")


def test_a_call_of_a_mock_file_whose_result_never_comes_back_fails_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert run_command(tmp_path, MOCKS, LOSING[0], "--mocks") == 1
    stderr = capsys.readouterr().err
    assert "mocks.jsonl:1: the result of call find_order never came back" in stderr
    [end] = [event for event in Trace(tmp_path / "t.jsonl") if event.event == "_meta.run_end"]
    assert "the result of call find_order never came back" in end.data["error"]


@pytest.mark.parametrize("agent", CHANGING)
def test_the_result_of_a_mocked_call_is_matched_if_the_client_changed_the_ids(agent: Agent):
    source = Mocks([json.loads(line) for line in MOCKS.splitlines()])
    with drive(agent, source=source, lenient=["history"]) as rehearsal:
        rehearsal.run("Find order 7")


def test_a_call_of_a_mock_file_that_is_meant_to_stay_unanswered_says_so(tmp_path: Path):
    line: dict[str, Any] = {
        "tool_calls": [{"name": "find_order", "arguments": {}, "unanswered": True}]
    }
    with drive(stops_after_the_call, source=Mocks([line])) as rehearsal:
        rehearsal.run("Find order 7")
    assert run_command(tmp_path, json.dumps(line), stops_after_the_call, "--mocks") == 0


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


@pytest.mark.parametrize("agent", RENAMING)
def test_a_call_under_another_name_is_a_changed_conversation(agent: Agent):
    with (
        drive(agent) as rehearsal,
        pytest.raises(ScriptMismatch, match="got: find_customer"),
    ):
        rehearsal.run(SCRIPT)


@pytest.mark.parametrize("agent", RENAMING)
def test_a_renamed_call_whose_result_never_comes_back_fails_although_it_may_change(agent: Agent):
    with (
        drive(agent, lenient=["history"]) as rehearsal,
        pytest.raises(ScriptUnfinished, match="the result of call find_order never came back"),
    ):
        rehearsal.run(SCRIPT)


def test_the_error_names_the_call_that_came_instead():
    with (
        drive(losing_agents.renames_the_call, lenient=["history"]) as rehearsal,
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

    with drive(agent, lenient=["history"]) as rehearsal:
        run = rehearsal.run(when("Find order 7", [find(7), find(8), say("Lamps.")]))
        assert [result.text for result in run.results("find_order")] == seen
        assert [("7" in text, "8" in text) for text in seen] == [(True, False), (False, True)]


@pytest.mark.parametrize("agent", CHANGING)
def test_a_changed_id_is_noted_in_the_trace(
    tmp_path: Path, agent: Agent, capsys: pytest.CaptureFixture[str]
):
    assert run_command(tmp_path, FILE, agent, "--playbook", "--lenient", "history") == 0
    with pytest.raises(SystemExit):
        main(["show", str(tmp_path / "t.jsonl")])
    assert "the client changed an id: call_" in capsys.readouterr().out
