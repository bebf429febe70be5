"""All output of an agent is searched for events, though only its beginning is kept."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from offbook.errors import RunError
from offbook.workflows import RunResult, check, record, run, setup

LIMIT = 10_000
NOISE = f"print('noise\\n' * {LIMIT})"
FORBIDDEN = """print('<event topic="db.drop">all</event>')"""


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("offbook.subjects.process.MAX_OUTPUT", LIMIT)
    setup("w")


def run_python(*lines: str) -> RunResult:
    command = [sys.executable, "-c", "\n".join(lines)]
    return run("w", "Go", backend="command", command=command, max_iterations=1)


def test_a_forbidden_event_after_the_kept_output_is_seen():
    run_python(NOISE, FORBIDDEN)
    [result] = check("w", [{"type": "no_event", "topic": "db.drop"}]).results
    assert result.status == "fail"


def test_a_promise_after_the_kept_output_ends_the_loop():
    ran = run_python(NOISE, "print('LOOP_COMPLETE')")
    assert (ran.termination_reason, ran.exit_code) == ("CompletionPromise", 0)
    assert len(ran.stdout) == LIMIT


def test_a_promise_in_the_kept_output_is_not_the_last_line_of_the_whole():
    ran = run_python("print('LOOP_COMPLETE')", NOISE)
    assert ran.termination_reason == "MaxIterations"


def test_a_pattern_that_the_kept_output_does_not_match_has_no_data():
    run_python("print('first')", NOISE, "print('last')")
    first, last = check(
        "w",
        [
            {"type": "stdout_contains", "pattern": "first"},
            {"type": "stdout_contains", "pattern": "last"},
        ],
    ).results
    assert (first.status, last.status) == ("pass", "no_data")
    assert "too large to be kept" in last.message


def test_an_output_that_is_not_kept_is_not_recorded():
    command = [sys.executable, "-c", NOISE]
    with pytest.raises(RunError, match="too much output to be recorded"):
        record("w", "large", "Go", "command", command=command)
