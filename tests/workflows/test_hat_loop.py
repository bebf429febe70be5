"""The loop routes events to hats, and ends for the right reason with the right code."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import FormatError, ScriptExhausted, ScriptMismatch, UsageError
from offbook.exchange.model import ModelSource
from offbook.runs.backends import Backend, BackendResult, CommandBackend, MockBackend
from offbook.subjects.subject import RunContext
from offbook.trace.agent_output import has_completion_promise, parse_event_tags
from offbook.trace.events import EXIT_CODES, Event, canonical_termination, topic_matches
from offbook.trace.hub import Hub
from offbook.workflows.hat_loop import BusEvent, HatBus, HatLoop, LoopOutcome
from offbook.workflows.presets import DEFAULT_HATS, Hat, read_preset
from offbook.yaml_files import parse_yaml

TASK = '<event topic="build.task">Build it</event>'
DONE = '<event topic="build.done">tests: pass</event>'
PROMISE = "All done.\nLOOP_COMPLETE"


class Nobody:
    async def reply(self, _: Any) -> Any:
        raise AssertionError("nobody asks the model")


class Heard:
    """A loop that ran, and what it told."""

    def __init__(self, events: list[Event], loop: HatLoop, backend: MockBackend) -> None:
        self.events = events
        self.backend = backend
        assert loop.outcome is not None
        self.outcome: LoopOutcome = loop.outcome

    def topics(self) -> list[str]:
        return [e.data["topic"] for e in self.events if e.event == "bus.publish"]

    def hats(self) -> list[str]:
        return [e.data["hat"] for e in self.events if e.event == "_meta.iteration"]


def stage(tmp_path: Path) -> tuple[RunContext, list[Event]]:
    hub = Hub()
    events: list[Event] = []
    hub.subscribe(events.append)
    source: ModelSource = Nobody()
    return RunContext(source, hub, tmp_path), events


async def play(tmp_path: Path, responses: list[Any], preset: Any = None, **limits: Any) -> Heard:
    place, events = stage(tmp_path)
    backend = MockBackend(responses)
    config: dict[str, Any] = {"event_loop": {"max_iterations": 5, **limits}, **(preset or {})}
    loop = HatLoop(config, backend=backend)
    await loop.open(place)
    await loop.prompt("Add auth")
    return Heard(events, loop, backend)


async def test_a_task_goes_from_planner_to_builder_and_is_complete(tmp_path: Path):
    heard = await play(tmp_path, [TASK, f"{DONE}\n{PROMISE}"])
    assert heard.hats() == ["planner", "builder"]
    assert heard.topics() == ["task.start", "build.task", "build.done"]
    assert heard.outcome.reason == "CompletionPromise"
    assert heard.outcome.exit_code == 0
    assert (heard.backend.consumed, heard.backend.remaining) == (2, 0)


async def test_a_promise_on_the_last_allowed_iteration_counts(tmp_path: Path):
    heard = await play(tmp_path, [PROMISE], max_iterations=1)
    assert heard.outcome.reason == "CompletionPromise"


async def test_the_last_allowed_iteration_without_a_promise_is_a_limit(tmp_path: Path):
    heard = await play(tmp_path, [TASK], max_iterations=1)
    assert (heard.outcome.reason, heard.outcome.exit_code) == ("MaxIterations", 2)


async def test_a_slow_answer_is_stopped_at_the_wall_clocks_limit(tmp_path: Path):
    responses = [{"output": "late", "delay_ms": 60_000}]
    heard = await asyncio.wait_for(play(tmp_path, responses, max_runtime_seconds=0.2), timeout=30)
    assert (heard.outcome.reason, heard.outcome.exit_code) == ("MaxRuntime", 2)
    assert heard.events[-1].event == "_meta.termination"


async def test_an_answer_for_another_hat_stays_in_the_queue(tmp_path: Path):
    responses = [
        {"hat": "builder", "output": PROMISE},
        {"hat": "planner", "output": TASK},
    ]
    heard = await play(tmp_path, responses)
    assert heard.hats() == ["planner", "builder"]


async def test_exhausted_answers_are_an_error_with_the_count(tmp_path: Path):
    with pytest.raises(ScriptExhausted, match="all 1 mock responses are used"):
        await play(tmp_path, [TASK])


async def test_answers_that_do_not_fit_are_told_with_the_prompt(tmp_path: Path):
    responses = [{"output": "x", "trigger_pattern": "never there"}]
    with pytest.raises(ScriptMismatch, match="no mock response fits") as caught:
        await play(tmp_path, responses)
    assert "## Task" in str(caught.value)


def test_a_wrong_pattern_is_refused_before_anything_runs():
    with pytest.raises(UsageError, match=r"mock_responses\[2\].trigger_pattern"):
        MockBackend(["fine", {"output": "x", "trigger_pattern": "["}])


async def test_failing_again_and_again_ends_the_loop(tmp_path: Path):
    failing = [{"output": f"try {n}", "exit_code": 3} for n in range(9)]
    heard = await play(tmp_path, failing, max_iterations=20)
    assert (heard.outcome.reason, heard.outcome.iterations) == ("ConsecutiveFailures", 5)


async def test_saying_the_same_again_and_again_is_stale(tmp_path: Path):
    same = '<event topic="task.note">again</event>'
    heard = await play(tmp_path, [same] * 9, max_iterations=20)
    assert (heard.outcome.reason, heard.outcome.exit_code) == ("LoopStale", 1)


async def test_lines_of_the_events_file_are_read_whatever_their_payload_is(tmp_path: Path):
    lines = [
        '\ufeff{"topic":"a.text","payload":"one\u2028two","ts":"2026-01-01T00:00:00Z"}\r',
        '{"topic":"a.number","payload":0}',
        '{"topic":"a.nothing","payload":null}',
        "",
        '{"topic":null}',
        "[1]",
        '{"topic":"a.list","payload":[],"wave_id":"w","target":null}',
    ]

    class Writer:
        async def act(self, hat: str, prompt: str, seconds: float) -> BackendResult:  # noqa: ARG002 - the protocol's
            (tmp_path / ".agent").mkdir(exist_ok=True)
            (tmp_path / ".agent" / "events.jsonl").write_text("\n".join(lines), "utf-8")
            return BackendResult("LOOP_COMPLETE")

    place, events = stage(tmp_path)
    writer: Backend = Writer()
    loop = HatLoop(backend=writer)
    await loop.open(place)
    await loop.prompt("Go")
    told = [e.data for e in events if e.event == "bus.publish"][1:]
    assert {data["topic"]: data.get("payload", "") for data in told} == {
        "a.text": "one\u2028two",
        "a.number": "0",
        "a.nothing": "",
        "a.list": "[]",
    }
    assert [e.data["line"] for e in events if e.event == "event.malformed"] == [5, 6]


@pytest.mark.parametrize("name", ["events.jsonl", "events-20260114.jsonl"])
async def test_the_events_file_is_read_like_the_tags(tmp_path: Path, name: str):
    (tmp_path / ".ralph").mkdir()
    (tmp_path / ".ralph" / "current-events").write_text(f".ralph/{name}\n")
    log = tmp_path / ".ralph" / name
    log.write_text('{"topic":"old","payload":"before the run"}\n')

    class Writer:
        said = 0

        async def act(self, hat: str, prompt: str, seconds: float) -> BackendResult:
            assert hat in prompt
            assert seconds > 0
            self.said += 1
            with log.open("a") as file:
                topic = "build.task" if self.said == 1 else "LOOP_COMPLETE"
                file.write(f'{{"topic":"{topic}","payload":{{"n":{self.said}}}}}\n')
            return BackendResult("no tags here")

    place, events = stage(tmp_path)
    writer: Backend = Writer()
    loop = HatLoop(backend=writer)
    await loop.open(place)
    await loop.prompt("Go")
    topics = [e.data["topic"] for e in events if e.event == "bus.publish"]
    assert topics == ["task.start", "build.task", "LOOP_COMPLETE"]
    assert loop.outcome is not None
    assert loop.outcome.reason == "CompletionPromise"


async def test_a_marker_that_leads_out_is_not_followed(tmp_path: Path):
    folder = tmp_path / "work"
    (folder / ".ralph").mkdir(parents=True)
    (folder / ".ralph" / "current-events").write_text("../secret.jsonl")
    (tmp_path / "secret.jsonl").write_text('{"topic":"secret"}\n')
    heard = await play(folder, [TASK, PROMISE])
    assert heard.topics() == ["task.start", "build.task"]


async def test_work_without_evidence_is_blocked_under_backpressure(tmp_path: Path):
    heard = await play(tmp_path, [TASK, DONE, PROMISE], backpressure=True)
    assert heard.topics() == ["task.start", "build.task", "build.blocked"]


async def test_completion_waits_for_the_required_events(tmp_path: Path):
    heard = await play(tmp_path, [PROMISE, TASK, DONE, PROMISE], required_events=["build.done"])
    assert heard.topics() == ["task.start", "task.resume", "build.task", "build.done"]
    assert heard.outcome.reason == "CompletionPromise"


async def test_a_hat_is_worn_no_more_often_than_it_may(tmp_path: Path):
    hats = {"a": {"triggers": ["task.*", "again"], "max_activations": 1}}
    again = '<event topic="again">{}</event>'
    heard = await play(
        tmp_path, [again.format(1), again.format(2), PROMISE], {"hats": hats}, max_iterations=4
    )
    assert "a.exhausted" in heard.topics()
    assert heard.hats().count("a") == 1


async def test_a_real_command_is_an_agent_too(tmp_path: Path):
    code = "import sys; p=sys.stdin.read(); print(p.splitlines()[1]); print('LOOP_COMPLETE')"
    place, events = stage(tmp_path)

    def command(on: RunContext) -> Backend:
        return CommandBackend([sys.executable, "-c", code], on.cwd, tmp_path / "home", {}, on.hub)

    loop = HatLoop(backend=command)
    await loop.open(place)
    await loop.prompt("Say so")
    text = "".join(e.data["text"] for e in events if e.event == "process.output")
    assert "Say so" in text
    assert loop.outcome is not None
    assert loop.outcome.reason == "CompletionPromise"


@pytest.mark.parametrize(
    "text, kept",
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
def test_a_promise_is_the_last_line_and_nothing_else(text: str, kept: bool):  # noqa: FBT001 - a column
    assert has_completion_promise(text, "LOOP_COMPLETE") is kept
    assert not has_completion_promise(text, "   ")


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
def test_event_tags_are_read_by_their_grammar(text: str, tags: list[Any]):
    assert [tuple(tag) for tag in parse_event_tags(text)] == tags


@pytest.mark.parametrize(
    "pattern, topic, fits",
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
def test_a_star_stands_for_one_segment(pattern: str, topic: str, fits: bool):  # noqa: FBT001 - a column
    assert topic_matches(pattern, topic) is fits


def test_events_go_to_the_one_named_or_to_those_who_listen():
    bus = HatBus({**DEFAULT_HATS, "any": Hat(triggers=("*",))})
    assert bus.route(BusEvent("build.task")) == ["builder"]
    assert bus.route(BusEvent("unheard.of")) == ["any"]
    assert bus.route(BusEvent("build.task", target="planner")) == ["planner"]
    assert bus.route(BusEvent("build.task", target="nobody")) == []
    assert HatBus(DEFAULT_HATS).route(BusEvent("unheard.of")) == ["ralph"]


async def test_what_a_person_says_is_for_whoever_acts_next(tmp_path: Path):
    said = TASK + '<event topic="human.guidance">Be quick</event>'
    heeded = '<event topic="human.guidance.ack">Quick it is</event>\n' + PROMISE
    heard = await play(
        tmp_path, [said, {"output": heeded, "trigger_pattern": "human.guidance: Be quick"}]
    )
    assert heard.hats() == ["planner", "builder"]
    assert heard.outcome.reason == "CompletionPromise"


async def test_an_event_that_nobody_listens_for_is_told(tmp_path: Path):
    heard = await play(tmp_path, ['<event topic="odd.thing">x</event>', PROMISE])
    assert [e.data["topic"] for e in heard.events if e.event == "event.orphaned"] == ["odd.thing"]
    assert heard.hats() == ["planner", "ralph"]


def test_work_under_way_goes_before_a_new_start():
    bus = HatBus({"a": Hat(triggers=("task.start",)), "b": Hat(triggers=("build.done",))})
    bus.route(BusEvent("task.start"))
    bus.route(BusEvent("build.done"))
    assert bus.next_hat() == "b"


@pytest.mark.parametrize("reason", EXIT_CODES)
def test_every_reason_is_known_in_all_its_spellings(reason: str):
    snake = "".join(f"_{s.lower()}" if s.isupper() else s for s in reason).lstrip("_")
    assert (
        canonical_termination(reason)
        == canonical_termination(snake)
        == canonical_termination(snake.upper())
        == reason
    )


def test_a_wrong_preset_is_told_with_its_line(tmp_path: Path):
    path = tmp_path / "preset.yml"
    path.write_text("event_loop:\n  max_iterations: many\n")
    with pytest.raises(FormatError, match=r"preset\.yml:2: Expected `int`"):
        read_preset(path)


@pytest.mark.external
async def test_ralphs_own_scenarios_come_out_as_they_say(shared_data: Path, tmp_path: Path):
    found = sorted((shared_data / "ralph/crates/ralph-core/tests/scenarios").glob("*.yml"))
    assert found
    for path in found:
        scenario = parse_yaml(path.read_text(), path)
        place, events = stage(tmp_path)
        loop = HatLoop(scenario["config"], backend=MockBackend(scenario["mock_responses"]))
        await loop.open(place)
        await loop.prompt("Go")
        expected = scenario["expected"]
        topics = [e.data["topic"] for e in events if e.event == "bus.publish"][1:]
        assert loop.outcome is not None, path.name
        assert loop.outcome.iterations == expected["iterations"], path.name
        assert topics == [event["topic"] for event in expected["events"]], path.name
        assert (loop.outcome.reason == "CompletionPromise") is expected["completion"], path.name


@pytest.mark.external
def test_ralphs_presets_read_unchanged(shared_data: Path):
    found = [*(shared_data / "ralph/presets").rglob("*.yml"), shared_data / "ralph/ralph.yml"]
    assert found
    for path in found:
        preset = read_preset(path)
        assert preset.hats, path.name
        assert all(hat.topics for hat in preset.hats.values()), path.name
