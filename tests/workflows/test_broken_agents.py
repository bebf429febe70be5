"""A loop that failed or did nothing fails its scenario, unless the scenario expects it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offbook.errors import FormatError, UsageError
from offbook.workflows import check, read_scenario, report, run, run_scenario, setup
from tests.surfaces.conftest import workspaces

__all__ = ["workspaces"]

pytestmark = pytest.mark.usefixtures("workspaces")
QUIET = [{"type": "no_event", "topic": "db.drop"}, {"type": "duration", "max_secs": 60}]
BROKEN = {"exit 7": "failed with exit code 7", "kill -9 $$": "SIGKILL"}


def write_scenario(folder: Path, script: str, assertions: list[Any]) -> Path:
    path = folder / "flow.yaml"
    path.write_text(
        f"""run:
  task: Go
  backend: command
  command: [sh, -c, '{script}']
  max_iterations: 1
assert: {assertions!r}
"""
    )
    return path


@pytest.mark.parametrize("script", BROKEN)
async def test_a_crash_fails_the_scenario(script: str, tmp_path: Path):
    scenario = read_scenario(write_scenario(tmp_path, script, QUIET))
    result = await run_scenario(scenario, reports=tmp_path / "out")
    assert not result.passed
    assert BROKEN[script] in result.error
    assert result.suite is not None
    assert not result.suite.green


LIMIT = [
    {"type": "termination_reason", "expected": "MaxIterations"},
    {"type": "exit_code", "expected": 2},
]


@pytest.mark.parametrize("end", LIMIT, ids=["reason", "exit code"])
@pytest.mark.parametrize("script", [*BROKEN, "exit 0"])
async def test_an_expected_end_passes(script: str, end: dict[str, Any], tmp_path: Path):
    scenario = read_scenario(write_scenario(tmp_path, script, [*QUIET, end]))
    result = await run_scenario(scenario, reports=tmp_path / "out")
    assert result.passed, result.error


SUCCESS = [
    {"type": "exit_code", "expected": 0},
    {"type": "termination_reason", "expected": "CompletionPromise"},
]


@pytest.mark.parametrize("script", BROKEN)
async def test_an_expected_success_does_not_excuse_a_crash(script: str, tmp_path: Path):
    path = write_scenario(tmp_path, f"echo LOOP_COMPLETE; {script}", [*QUIET, *SUCCESS])
    result = await run_scenario(read_scenario(path), reports=tmp_path / "out")
    failed = {each.assertion: each.message for each in result.results if not each.passed}
    assert list(failed) == ["agent_end"]
    assert BROKEN[script] in failed["agent_end"]


@pytest.mark.parametrize(
    "script",
    ["echo hello", "echo hello >&2", "touch made.txt", "mkdir .ralph && echo {} > .ralph/x"],
)
async def test_an_agent_that_exits_with_0_at_a_limit_passes(script: str, tmp_path: Path):
    scenario = read_scenario(write_scenario(tmp_path, script, QUIET))
    result = await run_scenario(scenario, reports=tmp_path / "out")
    assert result.passed, result.error


async def test_an_agent_that_did_nothing_has_no_data(tmp_path: Path):
    scenario = read_scenario(write_scenario(tmp_path, "exit 0", QUIET))
    result = await run_scenario(scenario, reports=tmp_path / "out")
    assert [each.status for each in result.results] == ["pass", "pass", "no_data"]
    assert "no output, event, file or request of the agent" in result.error


FAILURES: dict[str, list[Any]] = {
    "ConsecutiveFailures": [{"output": f"{n}", "exit_code": 1} for n in range(5)],
    "LoopStale": ['<event topic="task.note">again</event>'] * 3,
}


@pytest.mark.parametrize("reason", FAILURES)
def test_a_loop_that_failed_fails_the_check(reason: str):
    setup("w")
    ran = run("w", "Go", mock_responses=FAILURES[reason], max_iterations=10)
    assert (ran.termination_reason, ran.error) == (reason, "")
    checked = check("w", QUIET)
    assert [each.status for each in checked.results] == ["pass", "pass", "fail"]
    assert f"expected: {reason}}}" in checked.results[-1].message
    expected = {"type": "termination_reason", "expected": reason}
    assert check("w", [*QUIET, expected]).passed


ON_THE_LOOP = [
    {"type": "no_event", "topic": "db.drop"},
    {"type": "event_occurred", "topic": "task.start"},
    {"type": "event_count", "topic": "task.start", "exact": 1},
    {"type": "event_sequence", "topics": ["task.start"]},
    {"type": "iterations", "max": 5},
    {"type": "iteration_count", "hat": "planner", "max": 5},
]


def test_a_loop_without_an_iteration_has_no_data():
    setup("w", fixtures={".ralph/stop-requested": ""})
    run("w", "Go", backend="command", command=["echo", "hello"])
    stopped = {"type": "termination_reason", "expected": "Stopped"}
    results = check("w", [*ON_THE_LOOP, stopped]).results
    assert [each.status for each in results] == [*["no_data"] * len(ON_THE_LOOP), "pass"]
    (_, end) = check("w", [{"type": "duration", "max_secs": 60}]).results
    assert (end.assertion, end.status) == ("agent_end", "no_data")


def test_a_crash_is_a_warning_of_the_run():
    setup("w")
    ran = run("w", "Go", backend="command", command=["sh", "-c", "exit 7"], max_iterations=1)
    assert ran.warnings == ("the agent ended with exit code 7 in iteration 1",)


def test_unused_mock_responses_fail_the_run():
    setup("w")
    ran = run("w", "Go", mock_responses=["LOOP_COMPLETE", {"hat": "builder", "output": "never"}])
    assert "playbook not fully consumed" in ran.error
    assert ran.mock_responses_remaining == 1


def test_the_count_of_an_unknown_hat_is_refused(tmp_path: Path):
    count = {"type": "iteration_count", "hat": "buildr", "max": 0}
    with pytest.raises(FormatError, match="unknown hat 'buildr'\ndid you mean 'builder'"):
        read_scenario(write_scenario(tmp_path, "true", [count]))
    setup("w")
    run("w", "Go", mock_responses=["LOOP_COMPLETE"])
    with pytest.raises(UsageError, match="did you mean 'builder'"):
        check("w", [count])
    assert check("w", [{**count, "hat": "builder"}]).passed


def test_a_report_keeps_the_assertions_of_earlier_runs():
    setup("w")
    done = {"type": "exit_code", "expected": 0}
    for assertions in (
        [{"type": "exit_code", "expected": 3}, {"type": "tool_called", "name": "bash"}],
        [done],
        [done],
    ):
        run("w", "Go", mock_responses=["LOOP_COMPLETE"])
        check("w", assertions)
    written = report("w", "tap", "flow")
    names = ["run 1: exit_code", "run 1: tool_called", "run 2: exit_code", "exit_code"]
    lines = Path(written.report_path).read_text().splitlines()
    cases = [line for line in lines if line.startswith(("ok", "not ok"))]
    assert [case.split(" - ")[1].partition(" ")[2] for case in cases] == names
    assert [case.startswith("ok") for case in cases] == [False, False, True, True]


def test_a_mocked_run_has_a_standard_error():
    setup("w")
    noisy = {"output": "LOOP_COMPLETE", "stderr": "deprecated: --fast"}
    assert run("w", "Go", mock_responses=[noisy]).stderr == "deprecated: --fast"
    found = check("w", [{"type": "stderr_contains", "pattern": text} for text in ("fast", "slow")])
    assert [each.status for each in found.results] == ["pass", "fail"]


def test_a_quiet_mocked_run_fails_an_assertion_on_its_standard_error():
    setup("w")
    run("w", "Go", mock_responses=["LOOP_COMPLETE"])
    (result,) = check("w", [{"type": "stderr_contains", "pattern": "warning"}]).results
    assert (result.status, result.actual) == ("fail", "")


def test_a_mocked_run_costs_nothing():
    setup("w")
    run("w", "Go", mock_responses=["LOOP_COMPLETE"])
    (result,) = check("w", [{"type": "cost_within", "max_dollars": 0}]).results
    assert (result.status, result.actual) == ("pass", 0.0)
