"""Ralph: the loop is real, its agent is ours, the trace has the true termination."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from offbook.errors import CheckFailed, ScriptExhausted, UsageError
from offbook.runs import drive
from offbook.sources.playbook import say, when
from offbook.subjects.clis import Ralph
from offbook.trace import read_trace, read_verdicts
from offbook.workflows import check, report, run, setup
from tests.matrix.rows import WHOLE

assert Ralph.client is not None
CLIENT = Ralph.client
pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(
        CLIENT.find() is None and not WHOLE, reason="Ralph is not installed: run ./dev clients"
    ),
]
NAME = "exit code of ralph"
DONE = "All is built.\nLOOP_COMPLETE"
CASES = {
    "promise kept": (DONE, 3, "CompletionPromise", "pass"),
    "promise only mentioned": (
        "I will say LOOP_COMPLETE when all is built",
        3,
        "Stopped",
        "fail",
    ),
    "promise inside an event": (
        '<event topic="note">not LOOP_COMPLETE yet</event>',
        3,
        "Stopped",
        "fail",
    ),
    "never completed": ("Still at it.", 1, "MaxIterations", "fail"),
}


def run_ralph(
    output: str, max_iterations: int, trace: Path, cwd: Path | None = None, *, fails: bool = False
) -> None:
    """Run the loop with one scripted reply; a wrong exit code fails the test."""
    rehearsal = drive(Ralph(max_iterations=max_iterations, deadline=240), trace=trace, cwd=cwd)
    rehearsal.run(when("Build the API", [say(output)]))
    if fails:
        with pytest.raises(CheckFailed, match="exit code 0, but the loop ended with"):
            rehearsal.dispose()
    else:
        rehearsal.dispose()


@pytest.mark.parametrize("output, max_iterations, reason, status", CASES.values(), ids=CASES)
def test_the_termination_reason_does_not_depend_on_the_exit_code(
    tmp_path: Path, output: str, max_iterations: int, reason: str, status: str
):
    run_ralph(output, max_iterations, tmp_path / "t.jsonl", fails=status == "fail")
    events, faults = read_trace(tmp_path / "t.jsonl")
    assert not faults
    [end] = [event.data for event in events if event.event == "_meta.termination"]
    assert (end["reason"], end["iterations"], end["claimed_exit_code"]) == (reason, 1, 0)
    [verdict] = [v for v in read_verdicts(events) if v.check == NAME]
    assert (verdict.status, verdict.expected, verdict.actual) == (status, end["exit_code"], 0)


def test_the_report_shows_a_wrong_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    workspace = Path(setup("api").workspace_path)
    run_ralph(
        "I will say LOOP_COMPLETE when all is built",
        3,
        workspace.parent / "session.jsonl",
        workspace,
        fails=True,
    )
    checked = check(
        "api",
        [
            {"type": "exit_code", "expected": 0},
            {"type": "termination_reason", "expected": "completed"},
            {"type": "hat_sequence", "hats": ["ralph"]},
            {"type": "event_sequence", "topics": ["task.start"]},
            {"type": "stdout_contains", "pattern": "Completion promise matched"},
        ],
    )
    assert [result.passed for result in checked.results] == [False, False, True, True, True]
    report_path = report("api", "junit", "api").report_path
    cases = ET.parse(report_path).iter("testcase")  # noqa: S314 - report_path right here
    failed = {case.get("name", ""): case.find("failure") for case in cases}
    failure_of_verdict = next(failure for name, failure in failed.items() if NAME in name)
    assert failure_of_verdict is not None
    assert failure_of_verdict.get("message") == "exit code 0, but the loop ended with Stopped"
    assert sum(failure is not None for failure in failed.values()) == 3


def test_an_exhausted_script_ends_the_loop(tmp_path: Path):
    with pytest.raises(ScriptExhausted):
        run_ralph("Still at it.", 50, tmp_path / "t.jsonl")
    events, _ = read_trace(tmp_path / "t.jsonl")
    assert sum(event.event == "_meta.iteration" for event in events) == 2


async def test_the_run_tool_can_use_ralph_as_its_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    setup("api")
    replies = [
        '<event topic="build.task">handlers</event>',
        "Words of quite another kind.\n" + DONE,
    ]
    result = await run("api", "Build the API", orchestrator="ralph", mock_responses=replies)
    assert (result.termination_reason, result.exit_code, result.iterations) == (
        "CompletionPromise",
        0,
        2,
    )
    assert (result.mock_responses_consumed, result.mock_responses_remaining) == (2, 0)
    assertions = [
        {"type": "event_sequence", "topics": ["task.start", "build.task"]},
        {"type": "iteration_count", "hat": "ralph", "exact": 2},
    ]
    assert check("api", assertions).passed


@pytest.mark.parametrize(
    "options, message",
    [
        ({"orchestrator": "ralf", "mock_responses": ["x"]}, "did you mean 'ralph'"),
        ({"orchestrator": "ralph", "backend": "command"}, "takes no orchestrator"),
    ],
)
async def test_invalid_use_of_ralph_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    setup("api")
    with pytest.raises(UsageError, match=message):
        await run("api", "Build the API", **options)
