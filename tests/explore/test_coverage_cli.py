"""`offbook coverage` reads stored traces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from offbook import call, say, session, when
from offbook.errors import FormatError, UsageError
from offbook.explore import coverage_command


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(
        coverage_command, [str(a) for a in arguments], standalone_mode=False
    )
    if result.exception is not None:
        raise result.exception
    return result.return_value, result.output  # pyright: ignore[reportReturnType] - of click


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    for name, tool in (("a", "read"), ("b", "bash")):
        with session(trace=tmp_path / f"{name}.jsonl", mock_tools={tool: "ok"}) as rehearsal:
            arguments = {"path": "x"} if tool == "read" else {"command": "x"}
            rehearsal.run(when("Go", [call(tool, arguments), say("Done.")]))
    return tmp_path


def test_the_traces_of_a_folder_are_added_up(traces: Path):
    code, output = run(traces, "--json")
    coverage = json.loads(output)
    assert code == 0
    assert (coverage["traces"], coverage["covered"], coverage["offered"]) == (2, 2, 4)
    assert coverage["percent"] == 50


@pytest.mark.parametrize("percent, expected", [(50, 0), (51, 1)])
def test_the_limit_decides_the_exit_code(traces: Path, percent: int, expected: int):
    assert run(traces / "a.jsonl", traces / "b.jsonl", "--fail-under", percent)[0] == expected


def test_a_limit_that_is_no_number_is_refused(traces: Path):
    with pytest.raises(UsageError, match="--fail-under: expected a number from 0 to 100, got nan"):
        run(traces, "--fail-under", "nan")


def test_a_trace_without_an_agent_is_no_data_and_not_green(tmp_path: Path):
    trace = tmp_path / "t.jsonl"
    trace.write_text('{"ts":1,"event":"x","data":{}}\n')
    code, output = run(trace)
    assert code == 1
    assert output.startswith("no data: 1 traces")


def test_a_folder_without_traces_is_a_usage_error(tmp_path: Path):
    with pytest.raises(UsageError, match="no trace in this folder"):
        run(tmp_path)


def test_a_damaged_trace_is_an_error(traces: Path):
    trace = traces / "a.jsonl"
    lines = trace.read_text().splitlines()
    trace.write_text("\n".join([lines[0], "{broken", *lines[1:]]) + "\n")
    with pytest.raises(FormatError):
        run(trace)
