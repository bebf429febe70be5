"""The goldens of the Open Harness project replay unchanged, in the mode of their manifest."""

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from offbook.goldens import (
    Component,
    ComponentRegistry,
    FixtureStore,
    Project,
    read_scenarios,
    replay,
    replay_all,
)

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "goldens"


@pytest.fixture
def data(shared_data: Path) -> Path:
    return shared_data / "open-harness"


@pytest.mark.external
async def test_all_goldens_replay_as_recorded(data: Path):
    scenarios = FixtureStore(data).scenarios()
    listed = msgspec.json.decode((data / "MANIFEST.json").read_bytes())["fixtures"]
    assert len(scenarios) == len(listed) >= 11
    replays = await replay_all(scenarios, Project(EXAMPLE).registry.find)
    assert [replay.render() for replay in replays if not replay.ok] == []
    modes = {
        str(each.scenario.path.relative_to(data)): each.scenario.rule.match for each in replays
    }
    assert modes == {entry["file"]: entry["match"] for entry in listed}


@pytest.mark.external
@pytest.mark.parametrize("name", ["subscribe-filter", "unsubscribe", "pause-resume-full"])
async def test_golden_differs_when_compared_exactly_without_manifest(
    data: Path, tmp_path: Path, name: str
):
    path = tmp_path / "hub" / f"{name}.jsonl"
    path.parent.mkdir()
    shutil.copy(data / "golden" / "hub" / f"{name}.jsonl", path)
    (scenario,) = read_scenarios(path)
    assert scenario.rule.match == "exact"
    differences = (await replay(scenario, Component)).differences
    mode = "subset" if name == "pause-resume-full" else "prefix"
    assert differences[1:] == [f'the events match with {{"match": "{mode}"}} in its sidecar']


@pytest.mark.external
@pytest.mark.parametrize("name", ["subscribe-filter", "unsubscribe"])
async def test_golden_matches_as_prefix_with_sidecar(data: Path, tmp_path: Path, name: str):
    path = tmp_path / "hub" / f"{name}.jsonl"
    path.parent.mkdir()
    shutil.copy(data / "golden" / "hub" / f"{name}.jsonl", path)
    path.with_name(f"{name}.match.json").write_text('{"match": "prefix"}')
    (scenario,) = read_scenarios(path)
    assert (await replay(scenario, Component)).differences == []


# Written here in the format of the project: the parts of a run, and the ways to read an inbox.
START = {"type": "harness:start", "name": "test-harness"}
COMPLETE = {"type": "harness:complete", "success": True, "durationMs": 0}
PLANNING = {"phase": {"name": "Planning"}}


def agent_events(name: str, runs: int) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    agents = [{"agentName": name, "runId": f"run-{number}"} for number in range(runs)]
    starts = [{"type": "agent:start", **agent} for agent in agents]
    ends = [{"type": "agent:complete", "success": True, **agent} for agent in agents]
    return [(event, {}) for event in [*starts, *ends]]


RUNS: dict[str, tuple[list[tuple[dict[str, Any], dict[str, Any]]], dict[str, Any]]] = {
    "harness/phase-task": (
        [
            ({"type": "phase:start", "name": "Planning"}, {}),
            ({"type": "task:start", "taskId": "plan"}, PLANNING),
            ({"type": "custom:event", "data": "test"}, {**PLANNING, "task": {"id": "plan"}}),
            ({"type": "task:complete", "taskId": "plan", "result": "planned"}, PLANNING),
            ({"type": "phase:complete", "name": "Planning"}, {}),
        ],
        {"ok": True},
    ),
    "harness/inbox-routing": (
        agent_events("echo", 2),
        {"runIds": ["run-0", "run-1"], "results": ["one:first", "two:second"]},
    ),
    "agent/inbox-basic": (
        agent_events("receiver", 1),
        {
            "runId": "run-0",
            "result": {"first": "first", "drained": ["second"], "iter": "third"},
        },
    ),
}


@pytest.mark.parametrize("name", RUNS)
async def test_phases_tasks_and_inboxes_replay_on_the_component_of_the_example(
    tmp_path: Path, name: str
):
    events, result = RUNS[name]
    session = {"sessionId": "s1"}
    path = tmp_path / f"{name}.jsonl"
    path.parent.mkdir()
    fixture: dict[str, Any] = {
        **session,
        "scenario": path.stem,
        "steps": [{"type": "create", "name": "test-harness", "input": {}}, {"type": "run"}],
        "expect": {
            "events": [
                {"event": event, "context": {**session, **context}}
                for event, context in [(START, {}), *events, (COMPLETE, {})]
            ],
            "result": result,
            "status": "complete",
        },
    }
    path.write_bytes(msgspec.json.encode(fixture))
    registry = ComponentRegistry(EXAMPLE / "scripts" / "live")
    replays = await replay_all(read_scenarios(path), registry.find)
    assert [each.differences for each in replays] == [[]]
