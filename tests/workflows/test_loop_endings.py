"""The loop ends for each termination reason, with its exit code."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbook.runs import BackendResult
from offbook.trace import EXIT_CODES
from offbook.workflows import BusEvent, HatLoop, missing_evidence
from tests.workflows.test_hat_loop import make_context, run_hat_loop

Turn = Callable[[Path, int], BackendResult]


def tag(topic: str, payload: str = "") -> str:
    return f'<event topic="{topic}">{payload}</event>'


def block(_: Path, n: int) -> BackendResult:
    """Block one task until it is abandoned, then dispatch it again."""
    return BackendResult(
        tag("build.task", "Turn it") if n % 2 or n > 6 else tag("build.blocked", "Turn it")
    )


def touch(name: str) -> Turn:
    def do(folder: Path, n: int) -> BackendResult:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        return BackendResult(f"{n}")

    return do


def remove(folder: Path, n: int) -> BackendResult:
    shutil.rmtree(folder)
    return BackendResult(f"{n}")


def write_malformed_event(folder: Path, n: int) -> BackendResult:
    (folder / ".ralph").mkdir(exist_ok=True)
    with (folder / ".ralph" / "events.jsonl").open("a") as log:
        log.write("{oops\n")
    return BackendResult(f"{n}")


ENDINGS: dict[str, tuple[Turn, dict[str, Any]]] = {
    "CompletionPromise": (lambda _, n: BackendResult(f"{n}\nLOOP_COMPLETE"), {}),
    "Cancelled": (
        lambda _, __: BackendResult(tag("loop.cancel")),
        {"cancellation_promise": "loop.cancel"},
    ),
    "ConsecutiveFailures": (lambda _, n: BackendResult(f"{n}", 1), {}),
    "LoopThrashing": (block, {}),
    "LoopStale": (lambda _, __: BackendResult(tag("task.note", "again")), {}),
    "ValidationFailure": (write_malformed_event, {}),
    "Stopped": (touch(".ralph/stop-requested"), {}),
    "WorkspaceGone": (remove, {}),
    "MaxIterations": (lambda _, n: BackendResult(f"{n}"), {"max_iterations": 2}),
    "MaxRuntime": (lambda _, n: BackendResult(f"{n}"), {"max_runtime_seconds": 0}),
    "MaxCost": (lambda _, n: BackendResult(f"{n}", cost_usd=0.4), {"max_cost_usd": 1.0}),
    "RestartRequested": (touch(".ralph/restart-requested"), {}),
}


class RepeatingBackend:
    """A backend that does the same in every iteration."""

    def __init__(self, folder: Path, do: Turn) -> None:
        self._folder = folder
        self._do = do
        self._n = 0

    async def run_turn(self, hat: str, prompt: str, deadline: float) -> BackendResult:  # noqa: ARG002 - the protocol's
        self._n += 1
        return self._do(self._folder, self._n)


@pytest.mark.parametrize("reason", ENDINGS)
async def test_each_reason_has_its_exit_code_and_termination_event(reason: str, tmp_path: Path):
    folder = tmp_path / "work"
    folder.mkdir()
    do, limits = ENDINGS[reason]
    context, events = make_context(folder)
    loop = HatLoop(
        {"event_loop": {"max_iterations": 40, **limits}}, backend=RepeatingBackend(folder, do)
    )
    await loop.open(context)
    await loop.prompt("Turn it")
    assert loop.outcome is not None
    assert (loop.outcome.reason, loop.outcome.exit_code) == (reason, EXIT_CODES[reason])
    assert events[0].event == "_meta.loop_start"
    last = events[-1]
    assert (last.event, last.data["reason"]) == ("_meta.termination", reason)
    numbers = [event.data["n"] for event in events if event.event == "_meta.iteration"]
    assert numbers == list(range(1, loop.outcome.iterations + 1))


def test_every_termination_reason_is_tested():
    assert {*ENDINGS, "Interrupted"} == set(EXIT_CODES)


async def test_an_interrupted_loop_emits_its_termination(tmp_path: Path):
    context, events = make_context(tmp_path)
    started = asyncio.Event()

    class WaitingBackend:
        async def run_turn(self, hat: str, prompt: str, deadline: float) -> BackendResult:  # noqa: ARG002 - the protocol's
            started.set()
            await asyncio.Event().wait()
            raise AssertionError

    loop = HatLoop(backend=WaitingBackend())
    await loop.open(context)
    running = asyncio.ensure_future(loop.prompt("Wait"))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    expected = {"reason": "Interrupted", "exit_code": 130}
    assert events[-1].data | expected == events[-1].data


async def test_a_topic_outside_the_hats_scope_becomes_a_violation(tmp_path: Path):
    outputs = [tag("build.done", "x"), tag("build.task"), "LOOP_COMPLETE"]
    run = await run_hat_loop(tmp_path, outputs, enforce_hat_scope=True)
    assert run.topics()[:3] == ["task.start", "planner.scope_violation", "build.task"]


PASSES = "tests: pass, lint: pass, typecheck: pass, audit: pass, coverage: pass, duplication: pass"


@pytest.mark.parametrize(
    "topic, payload, missing",
    [
        ("build.done", f"{PASSES}, complexity: 8", []),
        ("build.done", f"{PASSES}, complexity: 11", ["complexity"]),
        ("build.done", PASSES, ["complexity"]),
        ("build.done", f"{PASSES}, complexity: 8".replace("lint: pass, ", ""), ["lint"]),
        ("review.done", "tests: pass, build: pass", []),
        ("review.done", "tests: pass", ["build"]),
    ],
)
def test_done_events_need_evidence(topic: str, payload: str, missing: list[str]):
    assert missing_evidence(BusEvent(topic, payload)) == missing


async def test_a_promise_in_truncated_output_does_not_count(tmp_path: Path):
    def truncated(_: Path, n: int) -> BackendResult:
        return BackendResult(f"{n}\nLOOP_COMPLETE", -15, timed_out=True)

    context, events = make_context(tmp_path)
    loop = HatLoop(
        {"event_loop": {"max_iterations": 1}}, backend=RepeatingBackend(tmp_path, truncated)
    )
    await loop.open(context)
    await loop.prompt("Turn it")
    assert loop.outcome is not None
    assert loop.outcome.reason == "MaxRuntime"
    assert any(event.event == "process.output" for event in events)
