"""The loop ends for each termination reason, with its exit code."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import DeadlineExceeded
from offbook.runs import ModelAgent
from offbook.subjects import RunContext
from offbook.trace import EXIT_CODES
from offbook.workflows import BusEvent, HatLoop, missing_evidence
from tests.workflows.test_hat_loop import make_context, run_hat_loop

Turn = Callable[[RunContext, int], str]


def tag(topic: str, payload: str = "") -> str:
    return f'<event topic="{topic}">{payload}</event>'


def block(_: RunContext, n: int) -> str:
    """Block one task until it is abandoned, then dispatch it again."""
    return tag("build.task", "Turn it") if n % 2 or n > 6 else tag("build.blocked", "Turn it")


def touch(name: str) -> Turn:
    def do(context: RunContext, n: int) -> str:
        path = context.cwd / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        return f"{n}"

    return do


def remove(context: RunContext, n: int) -> str:
    shutil.rmtree(context.cwd)
    return f"{n}"


def write_malformed_event(context: RunContext, n: int) -> str:
    (context.cwd / ".ralph").mkdir(exist_ok=True)
    with (context.cwd / ".ralph" / "events.jsonl").open("a") as log:
        log.write("{oops\n")
    return f"{n}"


def exit_with_1(context: RunContext, n: int) -> str:
    context.hub.emit("process.exit", {"code": 1})
    return f"{n}"


def cost_40_cents(context: RunContext, n: int) -> str:
    context.hub.emit("iteration.summary", {"cost_usd": 0.4})
    return f"{n}"


ENDINGS: dict[str, tuple[Turn, dict[str, Any]]] = {
    "CompletionPromise": (lambda _, n: f"{n}\nLOOP_COMPLETE", {}),
    "Cancelled": (
        lambda _, __: tag("loop.cancel"),
        {"cancellation_promise": "loop.cancel"},
    ),
    "ConsecutiveFailures": (exit_with_1, {}),
    "LoopThrashing": (block, {}),
    "LoopStale": (lambda _, __: tag("task.note", "again"), {}),
    "ValidationFailure": (write_malformed_event, {}),
    "Stopped": (touch(".ralph/stop-requested"), {}),
    "WorkspaceGone": (remove, {}),
    "MaxIterations": (lambda _, n: f"{n}", {"max_iterations": 2}),
    "MaxRuntime": (lambda _, n: f"{n}", {"max_runtime_seconds": 0}),
    "MaxCost": (cost_40_cents, {"max_cost_usd": 1.0}),
    "RestartRequested": (touch(".ralph/restart-requested"), {}),
}


class RepeatingAgent(ModelAgent):
    """An agent that does the same in every iteration."""

    def __init__(self, do: Turn) -> None:
        self._do = do
        self._n = 0

    async def prompt(self, _: str, /) -> str:
        self._n += 1
        return self._do(self.context, self._n)


@pytest.mark.parametrize("reason", ENDINGS)
async def test_each_reason_has_its_exit_code_and_termination_event(reason: str, tmp_path: Path):
    folder = tmp_path / "work"
    folder.mkdir()
    do, limits = ENDINGS[reason]
    context, events = make_context(folder)
    loop = HatLoop({"event_loop": {"max_iterations": 40, **limits}}, agent=RepeatingAgent(do))
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

    class WaitingAgent(ModelAgent):
        async def prompt(self, _: str, /) -> str:
            started.set()
            await asyncio.Event().wait()
            raise AssertionError

    loop = HatLoop(agent=WaitingAgent())
    await loop.open(context)
    running = asyncio.ensure_future(loop.prompt("Wait"))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    expected = {"reason": "Interrupted", "exit_code": 130}
    assert events[-1].data | expected == events[-1].data


@pytest.mark.parametrize("promise", ["completion_promise", "cancellation_promise"])
@pytest.mark.parametrize("topic", ["", " "])
async def test_an_empty_topic_is_no_event_and_no_promise(promise: str, topic: str, tmp_path: Path):
    answers = [tag(topic, "x"), tag("task.note")]
    run = await run_hat_loop(tmp_path, answers, **{promise: topic}, max_iterations=2)
    assert run.outcome.reason == "MaxIterations"
    assert run.topics() == ["task.start", "task.note"]
    assert [event.event for event in run.events].count("event.malformed") == 1


async def test_a_line_of_an_event_file_with_an_empty_topic_is_malformed(tmp_path: Path):
    def write_line(context: RunContext, n: int) -> str:
        (context.cwd / ".ralph").mkdir()
        (context.cwd / ".ralph" / "events.jsonl").write_text('{"topic": "", "payload": "x"}\n')
        return f"{n}"

    context, events = make_context(tmp_path)
    loop = HatLoop({"event_loop": {"max_iterations": 1}}, agent=RepeatingAgent(write_line))
    await loop.open(context)
    await loop.prompt("Turn it")
    assert [event.data["line"] for event in events if event.event == "event.malformed"] == [1]


@pytest.mark.parametrize(
    "name, reason",
    [("stop-requested", "Stopped"), ("restart-requested", "RestartRequested")],
)
async def test_a_request_ends_one_loop(name: str, reason: str, tmp_path: Path):
    (tmp_path / ".ralph").mkdir()
    (tmp_path / ".ralph" / name).touch()
    first = await run_hat_loop(tmp_path, ["LOOP_COMPLETE"])
    second = await run_hat_loop(tmp_path, ["LOOP_COMPLETE"])
    assert (first.outcome.reason, first.outcome.iterations) == (reason, 0)
    assert second.outcome.reason == "CompletionPromise"


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
    def truncated(context: RunContext, n: int) -> str:
        context.hub.emit("process.output", {"stream": "stdout", "text": f"{n}\nLOOP_COMPLETE"})
        context.hub.emit("process.exit", {"code": -15, "timed_out": True})
        raise DeadlineExceeded("it was still running")

    context, events = make_context(tmp_path)
    loop = HatLoop({"event_loop": {"max_iterations": 1}}, agent=RepeatingAgent(truncated))
    await loop.open(context)
    await loop.prompt("Turn it")
    assert loop.outcome is not None
    assert loop.outcome.reason == "MaxRuntime"
    assert any(event.event == "process.output" for event in events)
