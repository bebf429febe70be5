"""The hat loop routes events to hats, and ends with the right reason and exit code."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from offbook.errors import FormatError, ScriptExhausted, ScriptMismatch, UsageError
from offbook.exchange import ModelSource, Reply, Request
from offbook.files import parse_yaml
from offbook.runs import ModelAgent
from offbook.sources.playbook import Playbook
from offbook.subjects import RunContext
from offbook.subjects.clis import Command
from offbook.trace import EXIT_CODES, Event, Hub, canonical_termination, scan_output, topic_matches
from offbook.workflows import (
    DEFAULT_HATS,
    BusEvent,
    Hat,
    HatBus,
    HatLoop,
    LoopOutcome,
    MockResponses,
    read_preset,
)

TASK = '<event topic="build.task">Build it</event>'
DONE = '<event topic="build.done">tests: pass</event>'
PROMISE = "All done.\nLOOP_COMPLETE"


class WithHat:
    """A model whose requests have the hat of the loop, as a rehearsal adds it."""

    def __init__(self, model: ModelSource, loop: HatLoop) -> None:
        self._model = model
        self._loop = loop

    async def reply(self, request: Request, /) -> Reply:
        metadata = dict(self._loop.request_metadata)
        return await self._model.reply(msgspec.structs.replace(request, metadata=metadata))


class LoopRun:
    """A finished loop and its events."""

    def __init__(self, events: list[Event], loop: HatLoop, model: MockResponses) -> None:
        self.events = events
        self.model = model
        assert loop.outcome is not None
        self.outcome: LoopOutcome = loop.outcome

    def topics(self) -> list[str]:
        return [e.data["topic"] for e in self.events if e.event == "bus.publish"]

    def hats(self) -> list[str]:
        return [e.data["hat"] for e in self.events if e.event == "_meta.iteration"]


def make_context(
    tmp_path: Path, model: ModelSource | None = None
) -> tuple[RunContext, list[Event]]:
    hub = Hub()
    events: list[Event] = []
    hub.subscribe(events.append)
    return RunContext(model or Playbook(), hub, tmp_path), events


async def run_hat_loop(
    tmp_path: Path, responses: Any, preset: Any = None, **limits: Any
) -> LoopRun:
    model = MockResponses(responses)
    config: dict[str, Any] = {"event_loop": {"max_iterations": 5, **limits}, **(preset or {})}
    loop = HatLoop(config)
    context, events = make_context(tmp_path, WithHat(model, loop))
    await loop.open(context)
    await loop.prompt("Add auth")
    return LoopRun(events, loop, model)


async def test_planner_and_builder_complete_a_task(tmp_path: Path):
    run = await run_hat_loop(tmp_path, [TASK, f"{DONE}\n{PROMISE}"])
    assert run.hats() == ["planner", "builder"]
    assert run.topics() == ["task.start", "build.task", "build.done"]
    assert run.outcome.reason == "CompletionPromise"
    assert run.outcome.exit_code == 0
    assert (run.model.consumed, run.model.remaining) == (2, 0)


async def test_a_promise_on_the_last_allowed_iteration_counts(tmp_path: Path):
    run = await run_hat_loop(tmp_path, [PROMISE], max_iterations=1)
    assert run.outcome.reason == "CompletionPromise"


async def test_the_last_allowed_iteration_without_a_promise_is_a_limit(tmp_path: Path):
    run = await run_hat_loop(tmp_path, [TASK], max_iterations=1)
    assert (run.outcome.reason, run.outcome.exit_code) == ("MaxIterations", 2)


async def test_a_slow_answer_is_stopped_at_the_time_limit(tmp_path: Path):
    responses = [{"output": "late", "delay_ms": 600_000}]
    run = await asyncio.wait_for(
        run_hat_loop(tmp_path, responses, max_runtime_seconds=0.2), timeout=300
    )
    assert (run.outcome.reason, run.outcome.exit_code) == ("MaxRuntime", 2)
    assert run.events[-1].event == "_meta.termination"


async def test_a_response_for_another_hat_stays_unused(tmp_path: Path):
    responses = [
        {"hat": "builder", "output": PROMISE},
        {"hat": "planner", "output": TASK},
    ]
    run = await run_hat_loop(tmp_path, responses)
    assert run.hats() == ["planner", "builder"]


async def test_a_response_for_a_pattern_is_used_for_the_prompt_that_matches(tmp_path: Path):
    responses = [
        {"trigger_pattern": r"build\.task", "output": PROMISE},
        {"trigger_pattern": r"## Task\s+Add auth", "output": TASK},
    ]
    run = await run_hat_loop(tmp_path, responses)
    assert run.hats() == ["planner", "builder"]


async def test_the_responses_of_a_file_may_have_a_name(tmp_path: Path):
    for written in ({"responses": [TASK, PROMISE]}, [{"responses": [TASK, PROMISE]}]):
        assert (await run_hat_loop(tmp_path, written)).hats() == ["planner", "builder"]


async def test_exhausted_responses_are_an_error_with_their_count(tmp_path: Path):
    with pytest.raises(ScriptExhausted, match="all 1 mock responses are used"):
        await run_hat_loop(tmp_path, [TASK])


async def test_responses_that_do_not_match_are_reported_with_the_prompt(tmp_path: Path):
    responses = [{"output": "x", "trigger_pattern": "never there"}]
    with pytest.raises(ScriptMismatch, match="no mock response matches") as caught:
        await run_hat_loop(tmp_path, responses)
    assert "## Task" in str(caught.value)


def test_an_invalid_pattern_is_rejected_before_the_run():
    with pytest.raises(UsageError, match=r"mock_responses\[2\].trigger_pattern"):
        MockResponses(["fine", {"output": "x", "trigger_pattern": "["}])


async def test_consecutive_failures_end_the_loop(tmp_path: Path):
    failing = [{"output": f"try {n}", "exit_code": 3} for n in range(9)]
    run = await run_hat_loop(tmp_path, failing, max_iterations=20)
    assert (run.outcome.reason, run.outcome.iterations) == ("ConsecutiveFailures", 5)


async def test_a_repeated_event_makes_the_loop_stale(tmp_path: Path):
    same = '<event topic="task.note">again</event>'
    run = await run_hat_loop(tmp_path, [same] * 9, max_iterations=20)
    assert (run.outcome.reason, run.outcome.exit_code) == ("LoopStale", 1)


async def test_event_file_lines_may_have_any_payload(tmp_path: Path):
    lines = [
        '\ufeff{"topic":"a.text","payload":"one\u2028two","ts":"2026-01-01T00:00:00Z"}\r',
        '{"topic":"a.number","payload":0}',
        '{"topic":"a.nothing","payload":null}',
        "",
        '{"topic":null}',
        "[1]",
        '{"topic":"a.list","payload":[],"wave_id":"w","target":null}',
    ]

    class Writer(ModelAgent):
        async def prompt(self, _: str, /) -> str:
            (tmp_path / ".agent").mkdir(exist_ok=True)
            (tmp_path / ".agent" / "events.jsonl").write_text("\n".join(lines), "utf-8")
            return "LOOP_COMPLETE"

    context, events = make_context(tmp_path)
    loop = HatLoop(agent=Writer())
    await loop.open(context)
    await loop.prompt("Go")
    published = [e.data for e in events if e.event == "bus.publish"][1:]
    assert {data["topic"]: data.get("payload", "") for data in published} == {
        "a.text": "one\u2028two",
        "a.number": "0",
        "a.nothing": "",
        "a.list": "[]",
    }
    assert [e.data["line"] for e in events if e.event == "event.malformed"] == [5, 6]


@pytest.mark.parametrize("name", ["events.jsonl", "events-20260114.jsonl"])
async def test_event_files_are_read_like_tags(tmp_path: Path, name: str):
    (tmp_path / ".ralph").mkdir()
    (tmp_path / ".ralph" / "current-events").write_text(f".ralph/{name}\n")
    log = tmp_path / ".ralph" / name
    log.write_text('{"topic":"old","payload":"before the run"}\n')

    class Writer(ModelAgent):
        turns = 0

        async def prompt(self, text: str, /) -> str:
            assert self.context.variables["OFFBOOK_HAT"] in text
            assert self.context.deadline
            assert self.context.deadline > 0
            self.turns += 1
            with log.open("a") as file:
                topic = "build.task" if self.turns == 1 else "LOOP_COMPLETE"
                file.write(f'{{"topic":"{topic}","payload":{{"n":{self.turns}}}}}\n')
            return "no tags here"

    context, events = make_context(tmp_path)
    loop = HatLoop(agent=Writer())
    await loop.open(context)
    await loop.prompt("Go")
    topics = [e.data["topic"] for e in events if e.event == "bus.publish"]
    assert topics == ["task.start", "build.task", "LOOP_COMPLETE"]
    assert loop.outcome is not None
    assert loop.outcome.reason == "CompletionPromise"


async def test_a_marker_to_a_file_outside_is_ignored(tmp_path: Path):
    folder = tmp_path / "work"
    (folder / ".ralph").mkdir(parents=True)
    (folder / ".ralph" / "current-events").write_text("../secret.jsonl")
    (tmp_path / "secret.jsonl").write_text('{"topic":"secret"}\n')
    run = await run_hat_loop(folder, [TASK, PROMISE])
    assert run.topics() == ["task.start", "build.task"]


async def test_work_without_evidence_is_blocked_under_backpressure(tmp_path: Path):
    run = await run_hat_loop(tmp_path, [TASK, DONE, PROMISE], backpressure=True)
    assert run.topics() == ["task.start", "build.task", "build.blocked"]


async def test_completion_requires_the_required_events(tmp_path: Path):
    run = await run_hat_loop(
        tmp_path, [PROMISE, TASK, DONE, PROMISE], required_events=["build.done"]
    )
    assert run.topics() == ["task.start", "task.resume", "build.task", "build.done"]
    assert run.outcome.reason == "CompletionPromise"


async def test_a_hat_is_limited_to_its_activations(tmp_path: Path):
    hats = {"a": {"triggers": ["task.*", "again"], "max_activations": 1}}
    again = '<event topic="again">{}</event>'
    run = await run_hat_loop(
        tmp_path, [again.format(1), again.format(2), PROMISE], {"hats": hats}, max_iterations=4
    )
    assert "a.exhausted" in run.topics()
    assert run.hats().count("a") == 1


async def test_a_command_can_be_the_agent(tmp_path: Path):
    code = "import sys; p=sys.stdin.read(); print(p.splitlines()[1]); print('LOOP_COMPLETE')"
    context, events = make_context(tmp_path)
    loop = HatLoop(agent=Command([sys.executable, "-c", code]))
    await loop.open(context)
    await loop.prompt("Say so")
    text = "".join(e.data["text"] for e in events if e.event == "process.output")
    assert "Say so" in text
    assert text.count("LOOP_COMPLETE") == 1
    assert loop.outcome is not None
    assert loop.outcome.reason == "CompletionPromise"


@pytest.mark.parametrize(
    "text, promised",
    [
        ("LOOP_COMPLETE", True),
        ("done\n  LOOP_COMPLETE  \n\n", True),
        ('LOOP_COMPLETE\n<event topic="a">b</event>', True),
        ("LOOP_COMPLETE\nMore", False),
        ("I will say LOOP_COMPLETE when done", False),
        ("loop_complete", False),
        ('<event topic="a">LOOP_COMPLETE</event>\nLOOP_COMPLETE', False),
        ("", False),
    ],
)
def test_a_promise_is_exactly_the_last_line(text: str, promised: bool):  # noqa: FBT001 - a column
    assert scan_output(text).ends_with("LOOP_COMPLETE") is promised
    assert not scan_output(text).ends_with("   ")


@pytest.mark.parametrize(
    "text, tags",
    [
        ('<event topic="a">x</event>', [("a", "x", None)]),
        ('<event topic="a" target="b">\n x \n</event>', [("a", "x", "b")]),
        (
            '<event topic="a">1</event> <event topic="b">2</event>',
            [("a", "1", None), ("b", "2", None)],
        ),
        ("<event>x</event>", []),
        ("<event topic='a'>x</event>", []),
        ('<event topic="a">never closed', []),
        ('<event other="1">x</event><event topic="b">y</event>', [("b", "y", None)]),
    ],
)
def test_event_tags_are_parsed(text: str, tags: list[Any]):
    assert [tuple(tag) for tag in scan_output(text).tags] == tags


@pytest.mark.parametrize(
    "pattern, topic, matches",
    [
        ("*", "anything.at.all", True),
        ("build.*", "build.done", True),
        ("build.*", "build.task.abandoned", False),
        ("*.done", "build.done", True),
        ("impl.*", "impl.sub.done", False),
        ("build.d*", "build.done", False),
        ("build.done", "build.done", True),
    ],
)
def test_a_star_matches_one_segment(pattern: str, topic: str, matches: bool):  # noqa: FBT001 - a column
    assert topic_matches(pattern, topic) is matches


def test_events_are_routed_to_their_target_or_subscribers():
    bus = HatBus({**DEFAULT_HATS, "any": Hat(triggers=("*",))})
    assert bus.route(BusEvent("build.task")) == ["builder"]
    assert bus.route(BusEvent("unheard.of")) == ["any"]
    assert bus.route(BusEvent("build.task", target="planner")) == ["planner"]
    assert bus.route(BusEvent("build.task", target="nobody")) == []
    assert HatBus(DEFAULT_HATS).route(BusEvent("unheard.of")) == ["ralph"]


async def test_human_guidance_reaches_the_next_hat(tmp_path: Path):
    guidance = TASK + '<event topic="human.guidance">Be quick</event>'
    acknowledged = '<event topic="human.guidance.ack">Quick it is</event>\n' + PROMISE
    run = await run_hat_loop(
        tmp_path,
        [guidance, {"output": acknowledged, "trigger_pattern": "human.guidance: Be quick"}],
    )
    assert run.hats() == ["planner", "builder"]
    assert run.outcome.reason == "CompletionPromise"


async def test_an_event_without_subscribers_is_reported_as_orphaned(tmp_path: Path):
    run = await run_hat_loop(tmp_path, ['<event topic="odd.thing">x</event>', PROMISE])
    assert [e.data["topic"] for e in run.events if e.event == "event.orphaned"] == ["odd.thing"]
    assert run.hats() == ["planner", "ralph"]


def test_work_in_progress_comes_before_a_new_start():
    bus = HatBus({"a": Hat(triggers=("task.start",)), "b": Hat(triggers=("build.done",))})
    bus.route(BusEvent("task.start"))
    bus.route(BusEvent("build.done"))
    assert bus.next_hat() == "b"


@pytest.mark.parametrize("reason", EXIT_CODES)
def test_every_reason_is_recognized_in_all_spellings(reason: str):
    snake = "".join(f"_{s.lower()}" if s.isupper() else s for s in reason).lstrip("_")
    assert (
        canonical_termination(reason)
        == canonical_termination(snake)
        == canonical_termination(snake.upper())
        == reason
    )


def test_an_invalid_preset_is_reported_with_its_line(tmp_path: Path):
    path = tmp_path / "preset.yml"
    path.write_text("event_loop:\n  max_iterations: many\n")
    with pytest.raises(FormatError, match=r"preset\.yml:2: expected an integer"):
        read_preset(path)


@pytest.mark.external
async def test_ralphs_own_scenarios_have_their_expected_results(shared_data: Path, tmp_path: Path):
    paths = sorted((shared_data / "ralph/crates/ralph-core/tests/scenarios").glob("*.yml"))
    assert paths
    for path in paths:
        scenario = parse_yaml(path.read_text(), path)
        loop = HatLoop(scenario["config"])
        model = WithHat(MockResponses(scenario["mock_responses"]), loop)
        context, events = make_context(tmp_path, model)
        await loop.open(context)
        await loop.prompt("Go")
        expected = scenario["expected"]
        topics = [e.data["topic"] for e in events if e.event == "bus.publish"][1:]
        assert loop.outcome is not None, path.name
        assert loop.outcome.iterations == expected["iterations"], path.name
        assert topics == [event["topic"] for event in expected["events"]], path.name
        assert (loop.outcome.reason == "CompletionPromise") is expected["completion"], path.name


@pytest.mark.external
def test_ralphs_presets_are_read_unchanged(shared_data: Path):
    paths = [*(shared_data / "ralph/presets").rglob("*.yml"), shared_data / "ralph/ralph.yml"]
    assert paths
    for path in paths:
        preset = read_preset(path)
        assert preset.hats, path.name
        assert all(hat.topics for hat in preset.hats.values()), path.name
