"""Annotations of stored traces are at the line of the test, the playbook or the scenario."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from offbook import Trace, call, drive, say, session, when
from offbook.errors import OffbookError
from offbook.reports import GitHubReport, annotation, collect_suite
from offbook.runs import place_of_error
from offbook.trace import FileLine
from offbook.workflows import read_scenario, run_scenario
from tests.surfaces.conftest import Offbook
from tests.workflow_commands import WorkflowCommand, read_commands

SHOP = """\
- when: Greet me
  do:
    - say: Hello.
- when: Refund order 7
  do:
    - call: find_order
    - say: Done.
"""
SCENARIO = """\
name: one
run:
  task: Go
  mock_responses:
    - output: LOOP_COMPLETE
assert:
  - type: exit_code
    expected: 0
  - type: exit_code
    expected: 7
"""


def read_annotations(trace: Path | str) -> list[WorkflowCommand]:
    suite = collect_suite(Trace(Path(trace)), "suite")
    return read_commands(GitHubReport().render(suite))


def place(command: WorkflowCommand) -> tuple[str, int]:
    return command.properties["file"], int(command.properties["line"])


def agent(prompt: str) -> str:
    return prompt


def line_of(mark: str) -> int:
    """Return the number of the line of this file that ends with a mark."""
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))


def run_session(trace: Path) -> None:
    with session(trace=trace) as rehearsal:
        rehearsal.run(when("Greet me", [say("Hello."), say("never")]))  # run_session


def run_agent(trace: Path) -> None:
    with drive(agent, trace=trace) as rehearsal:
        rehearsal.run(when("Greet me", [call("nothing")]))  # run_agent


async def run_async(trace: Path) -> None:
    async with session(trace=trace) as rehearsal:
        await rehearsal.run(when("Greet me", [say("Hello."), say("never")]))  # run_async


@pytest.mark.parametrize("run", [run_session, run_agent])
def test_a_failed_run_is_annotated_at_the_line_of_the_test(
    tmp_path: Path, run: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(Path(__file__).parent)
    with pytest.raises(OffbookError):
        run(tmp_path / "trace.jsonl")
    [command] = read_annotations(tmp_path / "trace.jsonl")
    assert (command.name, place(command)) == ("error", (Path(__file__).name, line_of(run.__name__)))


async def test_an_async_run_has_its_line_too(tmp_path: Path):
    with pytest.raises(OffbookError):
        await run_async(tmp_path / "trace.jsonl")
    [command] = read_annotations(tmp_path / "trace.jsonl")
    assert place(command)[1] == line_of("run_async")


def test_a_verdict_that_holds_has_no_place(tmp_path: Path):
    with session(trace=tmp_path / "trace.jsonl") as rehearsal:
        rehearsal.run(when("Greet me", [say("Hello.")]))
    contexts = [e.data.get("context") for e in Trace(tmp_path / "trace.jsonl")]
    assert not any(contexts)


def test_a_failed_command_is_annotated_at_the_turn_of_its_playbook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offbook_command: Offbook
):
    monkeypatch.chdir(tmp_path)
    Path("shop.yaml").write_text(SHOP.partition("- when: Refund")[0].replace("Greet", "Meet"))
    outcome = offbook_command(
        *("run", "--script", "shop.yaml", "--trace", "t.jsonl", "--", sys.executable, "-c", "0")
    )
    assert outcome.code == 1
    [command] = read_commands(offbook_command("report", "t.jsonl", "--format", "github").out)
    assert place(command) == ("shop.yaml", 1)
    assert "playbook not fully consumed" in command.message


@pytest.mark.parametrize(
    "where", ["when('Refund order 7')", "shop.yaml: when: Refund order 7", "when: Refund …"]
)
def test_a_turn_in_the_middle_of_a_playbook_is_found(tmp_path: Path, where: str):
    path = tmp_path / "shop.yaml"
    path.write_text(SHOP)
    found = place_of_error(where, FileLine(str(path)))
    assert found == FileLine(str(path), 4)


@pytest.mark.parametrize("where", ["", "when('unknown')", "tool bash", "when('a"])
def test_a_location_that_is_not_in_the_file_leaves_the_line_open(tmp_path: Path, where: str):
    path = tmp_path / "shop.yaml"
    path.write_text(SHOP)
    found = place_of_error(where, FileLine(str(path)))
    assert found == FileLine(str(path), 0)


def test_an_error_that_names_a_line_is_there(tmp_path: Path):
    path = tmp_path / "golden.yaml"
    path.touch()
    assert place_of_error(f"{path}:7", FileLine("test.py", 3)) == FileLine(str(path), 7)


def test_a_failed_assertion_of_a_scenario_is_annotated_at_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    Path("one.yaml").write_text(SCENARIO)
    scenario = read_scenario(Path("one.yaml"))
    result = asyncio.run(run_scenario(scenario, reports=tmp_path / "reports"))
    [command] = read_annotations(result.session)
    assert place(command) == ("one.yaml", 9)


def test_a_path_is_relative_to_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    [command] = read_commands(annotation("error", "m", file="test_it.py", line=2))
    assert place(command) == ("sub/test_it.py", 2)


def test_a_path_outside_of_the_repository_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path / "repository"))
    [command] = read_commands(annotation("error", "m", file=f"{tmp_path}/a,b:c.py", line=2))
    assert place(command) == (f"{tmp_path}/a,b:c.py", 2)
