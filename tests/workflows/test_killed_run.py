"""A run whose process was killed has no data, whatever is asserted."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from offbook.sources.playbook import Playbook
from offbook.workflows import check, evaluate_with_source, run, setup
from tests.surfaces.conftest import workspaces

__all__ = ["workspaces"]

ASSERTIONS: list[dict[str, Any]] = [
    {"type": "no_event", "topic": "db.drop"},
    {"type": "iterations", "max": 5},
    {"type": "event_count", "topic": "db.drop", "max": 0},
    {"type": "iteration_count", "hat": "planner", "max": 3},
    {"type": "hat_sequence", "hats": ["planner", "ralph"]},
    {"type": "exit_code", "expected": 0},
    {"type": "duration", "max_secs": 600},
    {"type": "event_occurred", "topic": "task.start"},
    {"type": "stdout_contains", "pattern": "first"},
    {"type": "file_exists", "path": "a.txt"},
]


@pytest.fixture
def killed(workspaces: Path) -> Path:
    """Return the agent's folder of a run that was killed in its second iteration."""
    folder = Path(setup("w", fixtures={"a.txt": "a\n"}).workspace_path)
    pipe = workspaces / "pipe"
    os.mkfifo(pipe)
    agent = workspaces / "agent.sh"
    # The first iteration exits with 0. The second one reports its start and waits.
    agent.write_text(f"mkdir seen && echo first && exit 0\necho $$ > {pipe}\nsleep 600\n")
    words = ["workspace", "run", "w", "--task", "Go", "--command", f"sh {agent}"]
    running = subprocess.Popen([sys.executable, "-m", "offbook", *words])
    agent_pid = int(pipe.read_text())
    # The run is in a child of the command, which ends when the command is killed.
    [child] = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    run_ended = os.pidfd_open(int(child))
    running.kill()
    running.wait()
    select.select([run_ended], [], [])
    os.close(run_ended)
    with suppress(ProcessLookupError):  # it may have died with its parent
        os.killpg(agent_pid, signal.SIGKILL)
    return folder


@pytest.mark.usefixtures("killed")
def test_every_assertion_on_a_killed_run_has_no_data():
    results = check("w", ASSERTIONS).results
    assert {(result.assertion, result.status) for result in results} == {
        (raw["type"], "no_data") for raw in ASSERTIONS
    }
    assert {result.message for result in results} == {
        "no data: the run did not end, so its trace is incomplete"
    }


@pytest.mark.usefixtures("killed")
def test_no_judge_is_asked_about_a_killed_run():
    judge = Playbook()  # it fails if it is asked
    result = evaluate_with_source(judge, "w", [{"criterion": "safety", "target": "session"}])
    assert not result.all_passed
    assert result.overall_score is None
    assert [score.error for score in result.evaluations] == [
        "no data: the run did not end, so its trace is incomplete"
    ]
    assert judge.failure is None


@pytest.mark.usefixtures("killed")
def test_a_killed_run_does_not_block_the_next_one():
    ran = run("w", "Go", mock_responses=["LOOP_COMPLETE"])
    assert ran.warnings == (
        "the workspace was used before: its session is kept as session-1.jsonl",
    )
    assert check("w", [{"type": "exit_code", "expected": 0}]).passed
