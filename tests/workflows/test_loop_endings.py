"""A loop ends for every reason there is, each with the exit code that goes with it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbook.runs.backends import BackendResult
from offbook.trace.events import EXIT_CODES
from offbook.workflows.hat_loop import BusEvent, HatLoop, missing_evidence
from tests.workflows.test_hat_loop import play, stage

Do = Callable[[Path, int], BackendResult]


def tag(topic: str, payload: str = "") -> str:
    return f'<event topic="{topic}">{payload}</event>'


def block(_: Path, n: int) -> BackendResult:
    """One task is blocked until it is given up, and handed out again all the same."""
    return BackendResult(
        tag("build.task", "Do it") if n % 2 or n > 6 else tag("build.blocked", "Do it")
    )


def mark(name: str) -> Do:
    def do(folder: Path, n: int) -> BackendResult:
        place = folder / name
        place.parent.mkdir(exist_ok=True)
        place.touch()
        return BackendResult(f"{n}")

    return do


def remove(folder: Path, n: int) -> BackendResult:
    shutil.rmtree(folder)
    return BackendResult(f"{n}")


def scribble(folder: Path, n: int) -> BackendResult:
    (folder / ".ralph").mkdir(exist_ok=True)
    with (folder / ".ralph" / "events.jsonl").open("a") as log:
        log.write("{oops\n")
    return BackendResult(f"{n}")


ENDINGS: dict[str, tuple[Do, dict[str, Any]]] = {
    "CompletionPromise": (lambda _, n: BackendResult(f"{n}\nLOOP_COMPLETE"), {}),
    "Cancelled": (
        lambda _, __: BackendResult(tag("loop.cancel")),
        {"cancellation_promise": "loop.cancel"},
    ),
    "ConsecutiveFailures": (lambda _, n: BackendResult(f"{n}", 1), {}),
    "LoopThrashing": (block, {}),
    "LoopStale": (lambda _, __: BackendResult(tag("task.note", "again")), {}),
    "ValidationFailure": (scribble, {}),
    "Stopped": (mark(".ralph/stop-requested"), {}),
    "WorkspaceGone": (remove, {}),
    "MaxIterations": (lambda _, n: BackendResult(f"{n}"), {"max_iterations": 2}),
    "MaxRuntime": (lambda _, n: BackendResult(f"{n}"), {"max_runtime_seconds": 0}),
    "MaxCost": (lambda _, n: BackendResult(f"{n}", cost_usd=0.4), {"max_cost_usd": 1.0}),
    "RestartRequested": (mark(".ralph/restart-requested"), {}),
}


class Doing:
    """An agent that does the same in every iteration."""

    def __init__(self, folder: Path, do: Do) -> None:
        self._folder = folder
        self._do = do
        self._n = 0

    async def act(self, hat: str, prompt: str, seconds: float) -> BackendResult:  # noqa: ARG002 - whatever it is told
        self._n += 1
        return self._do(self._folder, self._n)


@pytest.mark.parametrize("reason", ENDINGS)
async def test_each_reason_has_its_exit_code_and_its_record(reason: str, tmp_path: Path):
    folder = tmp_path / "work"
    folder.mkdir()
    do, limits = ENDINGS[reason]
    place, events = stage(folder)
    loop = HatLoop({"event_loop": {"max_iterations": 40, **limits}}, backend=Doing(folder, do))
    await loop.open(place)
    await loop.prompt("Do it")
    assert loop.outcome is not None
    assert (loop.outcome.reason, loop.outcome.exit_code) == (reason, EXIT_CODES[reason])
    assert events[0].event == "_meta.loop_start"
    last = events[-1]
    assert (last.event, last.data["reason"]) == ("_meta.termination", reason)
    numbers = [event.data["n"] for event in events if event.event == "_meta.iteration"]
    assert numbers == list(range(1, loop.outcome.iterations + 1))


def test_no_reason_is_left_out():
    assert {*ENDINGS, "Interrupted"} == set(EXIT_CODES)


async def test_an_interrupted_loop_says_so_before_it_goes(tmp_path: Path):
    place, events = stage(tmp_path)
    started = asyncio.Event()

    class Waiting:
        async def act(self, hat: str, prompt: str, seconds: float) -> BackendResult:  # noqa: ARG002 - it waits
            started.set()
            await asyncio.Event().wait()
            raise AssertionError

    loop = HatLoop(backend=Waiting())
    await loop.open(place)
    running = asyncio.ensure_future(loop.prompt("Wait"))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    about = {"reason": "Interrupted", "exit_code": 130}
    assert events[-1].data | about == events[-1].data


async def test_a_hat_that_must_keep_to_its_topics_is_told_where_it_did_not(tmp_path: Path):
    said = [tag("build.done", "x"), tag("build.task"), "LOOP_COMPLETE"]
    heard = await play(tmp_path, said, enforce_hat_scope=True)
    assert heard.topics()[:3] == ["task.start", "planner.scope_violation", "build.task"]


PASSES = "tests: pass, lint: pass, typecheck: pass, audit: pass, coverage: pass, duplication: pass"


@pytest.mark.parametrize(
    "topic, payload, lacking",
    [
        ("build.done", f"{PASSES}, complexity: 8", []),
        ("build.done", f"{PASSES}, complexity: 11", ["complexity"]),
        ("build.done", PASSES, ["complexity"]),
        ("build.done", f"{PASSES}, complexity: 8".replace("lint: pass, ", ""), ["lint"]),
        ("review.done", "tests: pass, build: pass", []),
        ("review.done", "tests: pass", ["build"]),
    ],
)
def test_done_takes_evidence(topic: str, payload: str, lacking: list[str]):
    assert missing_evidence(BusEvent(topic, payload)) == lacking


async def test_what_a_killed_agent_had_said_promises_nothing(tmp_path: Path):
    def late(_: Path, n: int) -> BackendResult:
        return BackendResult(f"{n}\nLOOP_COMPLETE", -15, timed_out=True)

    place, events = stage(tmp_path)
    loop = HatLoop({"event_loop": {"max_iterations": 1}}, backend=Doing(tmp_path, late))
    await loop.open(place)
    await loop.prompt("Do it")
    assert loop.outcome is not None
    assert loop.outcome.reason == "MaxIterations"
    assert any(event.event == "process.output" for event in events)
