"""A completion promise ends the loop only if all gates are open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.workflows.test_hat_loop import PROMISE, run_hat_loop

ACK = '<event topic="human.guidance.ack">Done so</event>'
GUIDANCE = '<event topic="human.guidance">Use tabs</event>'


def write_tasks(folder: Path, *tasks: dict[str, Any], loop_id: str = "") -> None:
    path = folder / ".ralph" / "agent" / "tasks.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{json.dumps(task)}\n" for task in tasks) + "{no task\n")
    if loop_id:
        (folder / ".ralph" / "current-loop-id").write_text(f"{loop_id}\n")


def task(status: str, **more: Any) -> dict[str, Any]:
    return {"id": "task-1", "title": "Add tests", "status": status, "priority": 2, **more}


def resume_reasons(run: Any) -> list[str]:
    """Return the reasons why the loop continued."""
    published = [e.data for e in run.events if e.event == "bus.publish"]
    return [data["payload"] for data in published if data["topic"] == "task.resume"]


@pytest.mark.parametrize("output", [GUIDANCE + PROMISE, GUIDANCE + GUIDANCE + PROMISE])
async def test_guidance_must_be_acknowledged(tmp_path: Path, output: str):
    answer = {
        "output": f"{ACK}\n{PROMISE}",
        "trigger_pattern": "follow this, and publish human.guidance.ack",
    }
    run = await run_hat_loop(tmp_path, [output, PROMISE, answer])
    assert (run.outcome.reason, run.outcome.iterations) == ("CompletionPromise", 3)
    assert [why.count("- Use tabs") for why in resume_reasons(run)] == [output.count(GUIDANCE)] * 2


async def test_guidance_after_an_acknowledgement_counts_again(tmp_path: Path):
    run = await run_hat_loop(
        tmp_path, [f"{GUIDANCE}{ACK}{GUIDANCE}\n{PROMISE}", f"{ACK}\n{PROMISE}"]
    )
    assert (len(resume_reasons(run)), run.outcome.reason) == (1, "CompletionPromise")


async def test_a_persistent_loop_ends_only_at_a_limit(tmp_path: Path):
    run = await run_hat_loop(tmp_path, [PROMISE] * 5, persistent=True, max_iterations=5)
    assert (run.outcome.reason, run.outcome.exit_code) == ("MaxIterations", 2)
    assert len(resume_reasons(run)) == 5
    assert "persistent" in resume_reasons(run)[0]


@pytest.mark.parametrize("status", ["open", "in_progress"])
async def test_open_tasks_continue_the_loop(tmp_path: Path, status: str):
    write_tasks(tmp_path, task("closed"), task(status))
    run = await run_hat_loop(tmp_path, [PROMISE] * 2, max_iterations=2)
    assert run.outcome.reason == "MaxIterations"
    assert resume_reasons(run)[0].endswith("close or fail these tasks: task-1 Add tests")


@pytest.mark.parametrize(
    "tasks, loop_id, config",
    [
        ([task("closed"), task("failed")], "", {}),
        ([task("open")], "", {"memories": {"enabled": False}}),
        ([task("open")], "", {"memories": {"inject": "auto"}}),
        ([task("open", loop_id="theirs"), task("open")], "mine", {}),
        ([], "", {}),
    ],
)
async def test_closed_tasks_and_tasks_of_other_loops_do_not_continue_the_loop(
    tmp_path: Path, tasks: list[Any], loop_id: str, config: dict[str, Any]
):
    write_tasks(tmp_path, *tasks, loop_id=loop_id)
    run = await run_hat_loop(tmp_path, [PROMISE], config)
    assert (run.outcome.reason, resume_reasons(run)) == ("CompletionPromise", [])


async def test_the_gates_are_checked_in_order(tmp_path: Path):
    write_tasks(tmp_path, task("open"))
    answers = [
        f"{GUIDANCE}\n{PROMISE}",
        f'<event topic="a.b">x</event>\n{PROMISE}',
        f"{ACK}\n{PROMISE}",
    ]
    run = await run_hat_loop(tmp_path, answers, required_events=["a.b"], max_iterations=3)
    first, second, third = resume_reasons(run)
    assert "missing events a.b" in first
    assert "publish human.guidance.ack" in second
    assert "close or fail" in third
    assert run.outcome.reason == "MaxIterations"


async def test_cancellation_ignores_all_gates(tmp_path: Path):
    write_tasks(tmp_path, task("open"))
    cancel = f'{GUIDANCE}<event topic="loop.cancel">enough</event>'
    run = await run_hat_loop(
        tmp_path, [cancel], cancellation_promise="loop.cancel", persistent=True
    )
    assert (run.outcome.reason, run.outcome.exit_code) == ("Cancelled", 0)
