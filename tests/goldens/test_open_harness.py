"""The goldens of another project, unchanged, each in the mode that its manifest gives."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from offbook.goldens.components import Component, Harness
from offbook.goldens.fixture_store import FixtureStore, read_scenarios
from offbook.goldens.golden_replay import replay, replay_all
from offbook.goldens.session_hub import Inbox

pytestmark = pytest.mark.external


class GoldenHarness(Harness):
    """The code that these fixtures only name."""

    def begin(self, given: dict[str, Any]) -> Any:
        begun = {"factory": {"count": given.get("value")}, "run-lifecycle": {"initialized": True}}
        return begun.get(self.scenario, {})

    async def work(self) -> Any:
        return {"result": "success"}


class GoldenAgent(Harness):
    """Two runs of one agent; each is sent a message as soon as it has started."""

    async def work(self) -> Any:
        async def receive(run_id: str, inbox: Inbox) -> dict[str, str]:
            self.hub.send_to_run(run_id, f"message:{run_id}")
            return {"runId": run_id, "message": await inbox.pop()}

        results = await asyncio.gather(*(self.agent("receiver", receive) for _ in range(2)))
        return {"runIds": [result["runId"] for result in results], "results": results}


KINDS: dict[str, type[Component]] = {
    "hub": Component,
    "harness": GoldenHarness,
    "agent": GoldenAgent,
}


@pytest.fixture
def data(shared_data: Path) -> Path:
    return shared_data / "open-harness"


async def test_every_golden_replays_as_recorded(data: Path):
    scenarios = FixtureStore(data).scenarios()
    listed = msgspec.json.decode((data / "MANIFEST.json").read_bytes())["fixtures"]
    assert len(scenarios) == len(listed) >= 11
    replayed = await replay_all(scenarios, KINDS.__getitem__)
    assert [one.tell() for one in replayed if not one.ok] == []
    modes = {str(one.scenario.path.relative_to(data)): one.scenario.rule.match for one in replayed}
    assert modes == {one["file"]: one["match"] for one in listed}


@pytest.mark.parametrize("name", ["subscribe-filter", "unsubscribe", "pause-resume-full"])
async def test_without_its_manifest_a_golden_is_compared_exactly_and_differs(
    data: Path, tmp_path: Path, name: str
):
    path = tmp_path / "hub" / f"{name}.jsonl"
    path.parent.mkdir()
    shutil.copy(data / "golden" / "hub" / f"{name}.jsonl", path)
    (scenario,) = read_scenarios(path)
    assert scenario.rule.match == "exact"
    assert not (await replay(scenario, Component)).ok


@pytest.mark.parametrize("name", ["subscribe-filter", "unsubscribe"])
async def test_as_a_beginning_those_two_hold_without_their_sidecar(
    data: Path, tmp_path: Path, name: str
):
    path = tmp_path / "hub" / f"{name}.jsonl"
    path.parent.mkdir()
    shutil.copy(data / "golden" / "hub" / f"{name}.jsonl", path)
    path.with_name(f"{name}.match.json").write_text('{"match": "prefix"}')
    (scenario,) = read_scenarios(path)
    assert (await replay(scenario, Component)).differences == []
