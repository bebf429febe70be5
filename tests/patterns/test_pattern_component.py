"""Patterns in golden fixtures: the steps of a file, recorded, promoted and replayed."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from offbook.determinism import SystemClock
from offbook.errors import CheckFailed, OffbookError
from offbook.goldens import Project, promote, read_scenarios, record, replay_all

COUNTER = """
import asyncio
from offbook.patterns import Cell, computed, default, handler, pattern

@handler
async def add(event, value):
    await asyncio.sleep(0)
    value.set(value.get() + event["by"])

@handler
def fail(event):
    raise ValueError("refused")

@pattern
def counter(value: Cell[int] = default(0)):
    return {
        "value": value,
        "double": computed(lambda: value.get() * 2),
        "add": add(value=value),
        "fail": fail(),
    }
"""
STEPS = [
    {"send": "add", "event": {"by": 2}},
    {"settle": True},
    {"assert": "value == 7 and double == 14"},
    {"set": "value", "to": 1},
    {"assert": "double == 2"},
]
LIVE = """
from offbook.goldens import scenario
from offbook.patterns import PatternComponent

class Counter(PatternComponent):
    pattern = "../../counter.py"

@scenario()
async def counts(component):
    component.load({{"value": 5}})
    await component.run_steps({steps!r})
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "scripts" / "live").mkdir(parents=True)
    (tmp_path / "counter.py").write_text(COUNTER)
    (tmp_path / "scripts/live/counter_live.py").write_text(LIVE.format(steps=STEPS))
    return Project(tmp_path)


def make_golden(project: Project) -> Path:
    async def work() -> Path:
        clock, registry = SystemClock(), project.registry
        await record(project.fixtures, registry, "counter", "counts", clock, {})
        return (await promote(project.fixtures, "counter/counts", registry.find))[0]

    return asyncio.run(work())


def replay(root: Path) -> list[str]:
    """Replay the golden in a new process' worth of state, and return the differences."""
    project = Project(root)
    scenarios = read_scenarios(root / "fixtures/golden/counter/counts.jsonl")
    (result,) = asyncio.run(replay_all(scenarios, project.registry.find))
    return result.differences


def test_steps_are_recorded_as_they_are_with_every_event_and_the_state(project: Project):
    fixture: dict[str, Any] = json.loads(make_golden(project).read_text())
    assert fixture["steps"] == [
        {"type": "load", "state": {"value": 5}},
        {"type": "runSteps", "steps": STEPS},
    ]
    assert fixture["expect"]["cells"] == {"value": 1}
    assert fixture["expect"]["outputs"] == {"double": 2, "value": 1}
    events = [each["event"] for each in fixture["expect"]["events"]]
    written = [event["by"] for event in events if event["type"] == "cell.write"]
    assert written == ["handler counter.add", "step 4"]


def test_a_golden_of_a_pattern_replays(project: Project):
    make_golden(project)
    assert replay(project.root) == []


@pytest.mark.parametrize(
    "working, broken, message",
    [
        ("* 2", "* 3", "double == 14 (after settle): value is 7, double is 21"),
        ('event["by"])', 'event["by"]); value.set(7)', ""),
        ("value.get() * 2", "value.get() + value.get()", ""),
    ],
)
def test_a_golden_fails_for_another_result_and_only_then(
    project: Project, working: str, broken: str, message: str
):
    make_golden(project)
    assert working in COUNTER
    (project.root / "counter.py").write_text(COUNTER.replace(working, broken))
    differences = replay(project.root)
    assert bool(differences) is bool(message)
    assert message in "".join(differences)


def test_an_error_that_the_steps_do_not_see_fails_the_recording(project: Project):
    steps = [{"send": "fail"}, {"assert": "value == 5"}]
    (project.root / "scripts/live/counter_live.py").write_text(LIVE.format(steps=steps))
    with pytest.raises(OffbookError, match="expected 0 errors, got 1"):
        make_golden(project)


def test_a_false_assertion_fails_the_recording(project: Project):
    steps = [{"assert": "value == 6"}]
    (project.root / "scripts/live/counter_live.py").write_text(LIVE.format(steps=steps))
    with pytest.raises(CheckFailed, match="assert value == 6: value is 5"):
        make_golden(project)


@pytest.mark.parametrize(
    "text, message",
    [
        ('    component.load({"value": 5})\n', "no pattern is loaded"),
        ('    pattern = "../../counter.py"\n', "Counter has no pattern"),
    ],
)
def test_a_component_without_a_pattern_is_explained(project: Project, text: str, message: str):
    script = LIVE.format(steps=STEPS)
    assert text in script
    (project.root / "scripts/live/counter_live.py").write_text(script.replace(text, "    ...\n"))
    with pytest.raises(OffbookError, match=message):
        make_golden(project)
