"""The goldens of the Open Harness project replay unchanged, in the mode of their manifest."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from offbook.goldens import (
    Component,
    FixtureStore,
    Harness,
    Inbox,
    read_scenarios,
    replay,
    replay_all,
)

pytestmark = pytest.mark.external


class GoldenHarness(Harness):
    """The code of the harness that the fixtures name."""

    def create_state(self, input: dict[str, Any]) -> Any:  # noqa: A002 - as in Harness
        states = {"factory": {"count": input.get("value")}, "run-lifecycle": {"initialized": True}}
        return states.get(self.scenario, {})

    async def execute(self) -> Any:
        return {"result": "success"}


class GoldenAgent(Harness):
    """Two runs of one agent; each gets a message when it has started."""

    async def execute(self) -> Any:
        async def receive(run_id: str, inbox: Inbox) -> dict[str, str]:
            self.hub.send_to_run(run_id, f"message:{run_id}")
            return {"runId": run_id, "message": await inbox.pop()}

        results = await asyncio.gather(*(self.agent("receiver", receive) for _ in range(2)))
        return {"runIds": [result["runId"] for result in results], "results": results}


COMPONENTS: dict[str, type[Component]] = {
    "hub": Component,
    "harness": GoldenHarness,
    "agent": GoldenAgent,
}


@pytest.fixture
def data(shared_data: Path) -> Path:
    return shared_data / "open-harness"


async def test_all_goldens_replay_as_recorded(data: Path):
    scenarios = FixtureStore(data).scenarios()
    listed = msgspec.json.decode((data / "MANIFEST.json").read_bytes())["fixtures"]
    assert len(scenarios) == len(listed) >= 11
    replays = await replay_all(scenarios, COMPONENTS.__getitem__)
    assert [replay.render() for replay in replays if not replay.ok] == []
    modes = {
        str(each.scenario.path.relative_to(data)): each.scenario.rule.match for each in replays
    }
    assert modes == {entry["file"]: entry["match"] for entry in listed}


@pytest.mark.parametrize("name", ["subscribe-filter", "unsubscribe", "pause-resume-full"])
async def test_golden_differs_when_compared_exactly_without_manifest(
    data: Path, tmp_path: Path, name: str
):
    path = tmp_path / "hub" / f"{name}.jsonl"
    path.parent.mkdir()
    shutil.copy(data / "golden" / "hub" / f"{name}.jsonl", path)
    (scenario,) = read_scenarios(path)
    assert scenario.rule.match == "exact"
    assert not (await replay(scenario, Component)).ok


@pytest.mark.parametrize("name", ["subscribe-filter", "unsubscribe"])
async def test_golden_matches_as_prefix_with_sidecar(data: Path, tmp_path: Path, name: str):
    path = tmp_path / "hub" / f"{name}.jsonl"
    path.parent.mkdir()
    shutil.copy(data / "golden" / "hub" / f"{name}.jsonl", path)
    path.with_name(f"{name}.match.json").write_text('{"match": "prefix"}')
    (scenario,) = read_scenarios(path)
    assert (await replay(scenario, Component)).differences == []
