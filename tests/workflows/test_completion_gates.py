"""A kept promise does not end a loop that has something left to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.workflows.test_hat_loop import PROMISE, play

ACK = '<event topic="human.guidance.ack">Done so</event>'
SAID = '<event topic="human.guidance">Use tabs</event>'


def keep_tasks(folder: Path, *tasks: dict[str, Any], owner: str = "") -> None:
    place = folder / ".ralph" / "agent" / "tasks.jsonl"
    place.parent.mkdir(parents=True)
    place.write_text("".join(f"{json.dumps(task)}\n" for task in tasks) + "{no task\n")
    if owner:
        (folder / ".ralph" / "current-loop-id").write_text(f"{owner}\n")


def task(status: str, **more: Any) -> dict[str, Any]:
    return {"id": "task-1", "title": "Add tests", "status": status, "priority": 2, **more}


def resumed(heard: Any) -> list[str]:
    """Why the loop went on."""
    told = [e.data for e in heard.events if e.event == "bus.publish"]
    return [data["payload"] for data in told if data["topic"] == "task.resume"]


@pytest.mark.parametrize("said", [SAID + PROMISE, SAID + SAID + PROMISE])
async def test_guidance_has_to_be_acknowledged(tmp_path: Path, said: str):
    told = {"output": f"{ACK}\n{PROMISE}", "trigger_pattern": "publish human.guidance.ack first"}
    heard = await play(tmp_path, [said, PROMISE, told])
    assert (heard.outcome.reason, heard.outcome.iterations) == ("CompletionPromise", 3)
    assert [why.count("- Use tabs") for why in resumed(heard)] == [said.count(SAID)] * 2


async def test_guidance_after_an_acknowledgement_counts_again(tmp_path: Path):
    heard = await play(tmp_path, [f"{SAID}{ACK}{SAID}\n{PROMISE}", f"{ACK}\n{PROMISE}"])
    assert (len(resumed(heard)), heard.outcome.reason) == (1, "CompletionPromise")


async def test_a_persistent_loop_ends_only_at_a_limit(tmp_path: Path):
    heard = await play(tmp_path, [PROMISE] * 5, persistent=True, max_iterations=5)
    assert (heard.outcome.reason, heard.outcome.exit_code) == ("MaxIterations", 2)
    assert len(resumed(heard)) == 5
    assert "persistent" in resumed(heard)[0]


@pytest.mark.parametrize("status", ["open", "in_progress"])
async def test_tasks_that_are_open_keep_the_loop_going(tmp_path: Path, status: str):
    keep_tasks(tmp_path, task("closed"), task(status))
    heard = await play(tmp_path, [PROMISE] * 2, max_iterations=2)
    assert heard.outcome.reason == "MaxIterations"
    assert resumed(heard)[0].endswith("close or fail these tasks: task-1 Add tests")


@pytest.mark.parametrize(
    "tasks, owner, config",
    [
        ([task("closed"), task("failed")], "", {}),
        ([task("open")], "", {"memories": {"enabled": False}}),
        ([task("open")], "", {"memories": {"inject": "auto"}}),
        ([task("open", loop_id="theirs"), task("open")], "mine", {}),
        ([], "", {}),
    ],
)
async def test_tasks_that_are_over_or_of_others_do_not(
    tmp_path: Path, tasks: list[Any], owner: str, config: dict[str, Any]
):
    keep_tasks(tmp_path, *tasks, owner=owner)
    heard = await play(tmp_path, [PROMISE], config)
    assert (heard.outcome.reason, resumed(heard)) == ("CompletionPromise", [])


async def test_the_gates_come_in_their_order(tmp_path: Path):
    keep_tasks(tmp_path, task("open"))
    answers = [
        f"{SAID}\n{PROMISE}",
        f'<event topic="a.b">x</event>\n{PROMISE}',
        f"{ACK}\n{PROMISE}",
    ]
    heard = await play(tmp_path, answers, required_events=["a.b"], max_iterations=3)
    first, second, third = resumed(heard)
    assert "a.b did not come" in first
    assert "human.guidance.ack first" in second
    assert "close or fail" in third
    assert heard.outcome.reason == "MaxIterations"


async def test_a_cancelled_loop_passes_every_gate(tmp_path: Path):
    keep_tasks(tmp_path, task("open"))
    cancel = f'{SAID}<event topic="loop.cancel">enough</event>'
    heard = await play(tmp_path, [cancel], cancellation_promise="loop.cancel", persistent=True)
    assert (heard.outcome.reason, heard.outcome.exit_code) == ("Cancelled", 0)
