"""The orchestrator of others: its loop is real, its agent is ours, and the trace is not fooled."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from offbook.errors import ScriptExhausted, UsageError
from offbook.runs.api import drive
from offbook.runs.rehearsal import Rehearsal
from offbook.sources.playbook import say, when
from offbook.subjects.clis.ralph import Ralph
from offbook.trace.events import read_verdicts
from offbook.trace.reader import read_trace
from offbook.workflows.loop_tools import run
from offbook.workflows.tools import check, report, setup

assert Ralph.client is not None
CLIENT = Ralph.client
pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(CLIENT.find() is None, reason="Ralph is not installed: run ./dev clients"),
]
NAME = "exit code of ralph"
DONE = "All is built.\nLOOP_COMPLETE"
CASES = {
    "a promise that is kept": (DONE, 3, "CompletionPromise", "pass"),
    "a promise that is only mentioned": (
        "I will say LOOP_COMPLETE when all is built",
        3,
        "Stopped",
        "fail",
    ),
    "a promise inside an event": (
        '<event topic="note">not LOOP_COMPLETE yet</event>',
        3,
        "Stopped",
        "fail",
    ),
    "work that is never done": ("Still at it.", 1, "MaxIterations", "fail"),
}


def play(said: str, most: int, trace: Path, cwd: Path | None = None) -> Rehearsal:
    """Let its agent say this once."""
    with drive(Ralph(max_iterations=most, deadline=60), trace=trace, cwd=cwd) as rehearsal:
        rehearsal.run(when("Build the API", [say(said)]))
    return rehearsal


@pytest.mark.parametrize("said, most, reason, status", CASES.values(), ids=CASES)
def test_why_it_ended_is_told_whatever_its_exit_code(
    tmp_path: Path, said: str, most: int, reason: str, status: str
):
    play(said, most, tmp_path / "t.jsonl")
    events, faults = read_trace(tmp_path / "t.jsonl")
    assert not faults
    [end] = [event.data for event in events if event.event == "_meta.termination"]
    assert (end["reason"], end["iterations"], end["claimed_exit_code"]) == (reason, 1, 0)
    [verdict] = [one for one in read_verdicts(events) if one.check == NAME]
    assert (verdict.status, verdict.expected, verdict.actual) == (status, end["exit_code"], 0)


def test_a_report_tells_what_the_exit_code_hides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = Path(setup("api").workspace_path)
    play("I will say LOOP_COMPLETE when all is built", 3, made / "session.jsonl", made)
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
    assert [one.passed for one in checked.results] == [False, False, True, True, True]
    written = report("api", "junit", "api").report_path
    told = ET.parse(written).iter("testcase")  # noqa: S314 - written right here
    failed = {case.get("name", ""): case.find("failure") for case in told}
    hidden = next(failure for name, failure in failed.items() if NAME in name)
    assert hidden is not None
    assert hidden.get("message") == "exit code 0, but the loop ended with Stopped"
    assert sum(failure is not None for failure in failed.values()) == 3


def test_a_script_that_is_over_ends_the_loop_at_once(tmp_path: Path):
    with pytest.raises(ScriptExhausted):
        play("Still at it.", 50, tmp_path / "t.jsonl")
    events, _ = read_trace(tmp_path / "t.jsonl")
    assert sum(event.event == "_meta.iteration" for event in events) == 2


async def test_the_run_tool_takes_its_loop_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    setup("api")
    said = ['<event topic="build.task">handlers</event>', "Words of quite another kind.\n" + DONE]
    ran = await run("api", "Build the API", orchestrator="ralph", mock_responses=said)
    assert (ran.termination_reason, ran.exit_code, ran.iterations) == ("CompletionPromise", 0, 2)
    assert (ran.mock_responses_consumed, ran.mock_responses_remaining) == (2, 0)
    asked = [
        {"type": "event_sequence", "topics": ["task.start", "build.task"]},
        {"type": "iteration_count", "hat": "ralph", "exact": 2},
    ]
    assert check("api", asked).passed


@pytest.mark.parametrize(
    "options, told",
    [
        ({"orchestrator": "ralf", "mock_responses": ["x"]}, "did you mean 'ralph'"),
        ({"orchestrator": "ralph", "backend": "command"}, "takes no orchestrator"),
    ],
)
async def test_an_orchestrator_that_cannot_be_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], told: str
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    setup("api")
    with pytest.raises(UsageError, match=told):
        await run("api", "Build the API", **options)
