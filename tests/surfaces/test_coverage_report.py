"""`offbook report --format coverage` reads stored traces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from offbook import call, say, session, when
from tests.surfaces.conftest import Offbook


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    for name, tool in (("a", "read"), ("b", "bash")):
        with session(trace=tmp_path / f"{name}.jsonl", mock_tools={tool: "ok"}) as rehearsal:
            arguments = {"path": "x"} if tool == "read" else {"command": "x"}
            rehearsal.run(when("Go", [call(tool, arguments), say("Done.")]))
    return tmp_path


def test_the_traces_of_a_folder_are_added_up(traces: Path, offbook_command: Offbook):
    outcome = offbook_command("report", traces, "--format", "coverage-json")
    coverage = json.loads(outcome.out)
    assert outcome.code == 0
    assert (coverage["traces"], coverage["covered"], coverage["offered"]) == (2, 2, 4)
    assert coverage["percent"] == 50


@pytest.mark.parametrize("percent, expected", [(50, 0), (51, 1)])
def test_the_limit_decides_the_exit_code(
    traces: Path, offbook_command: Offbook, percent: int, expected: int
):
    words = ("report", traces / "a.jsonl", traces / "b.jsonl", "--format", "coverage")
    assert offbook_command(*words, "--fail-under", percent).code == expected


def test_the_limit_is_refused_for_other_formats(traces: Path, offbook_command: Offbook):
    outcome = offbook_command("report", traces, "--format", "junit", "--fail-under", 80)
    assert (outcome.code, "--fail-under is a limit of the coverage" in outcome.err) == (2, True)


def test_a_trace_without_an_agent_is_no_data_and_not_green(
    tmp_path: Path, offbook_command: Offbook
):
    trace = tmp_path / "t.jsonl"
    trace.write_text('{"ts":1,"event":"x","data":{}}\n')
    outcome = offbook_command("report", trace, "--format", "coverage")
    assert outcome.code == 1
    assert outcome.out.startswith("no data: 1 trace,")


def test_a_folder_without_traces_is_a_usage_error(tmp_path: Path, offbook_command: Offbook):
    outcome = offbook_command("report", tmp_path, "--format", "coverage")
    assert (outcome.code, "no trace in this folder" in outcome.err) == (2, True)


def test_a_damaged_trace_is_an_error(traces: Path, offbook_command: Offbook):
    trace = traces / "a.jsonl"
    lines = trace.read_text().splitlines()
    trace.write_text("\n".join([lines[0], "{broken", *lines[1:]]) + "\n")
    assert offbook_command("report", trace, "--format", "coverage").code == 2


def test_a_limit_that_is_no_number_is_refused(traces: Path, offbook_command: Offbook):
    outcome = offbook_command("report", traces, "--format", "coverage", "--fail-under", "nan")
    assert (outcome.code, "got nan" in outcome.err) == (2, True)
