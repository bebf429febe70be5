"""A search finds each planted bug, and reports a short script that fails until it is fixed."""

from __future__ import annotations

from typing import cast

import pytest

from offbook.errors import InvariantBroken
from offbook.explore import Exploration, Finding, explore, replay
from offbook.explore.scripts import run_rendered
from tests.explore.planted_bugs import PLANTED, PlantedBug

RUNS = 400
MAX_MESSAGES = 3


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")


def find(bug: PlantedBug) -> Finding:
    with pytest.raises(InvariantBroken) as caught:
        explore(
            bug.broken,
            bug.prompt,
            *bug.invariants,
            runs=RUNS,
            gives_up=bug.gives_up,
            values=bug.values,
        )
    return cast("Exploration", caught.value.exploration).findings[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found_shrunk_and_gone_when_it_is_fixed(name: str):
    bug = PLANTED[name]
    finding = find(bug)
    assert finding.repeats
    assert len(finding.moves) <= MAX_MESSAGES
    with pytest.raises(InvariantBroken):
        replay(bug.broken, run_rendered(finding.script), *bug.invariants, gives_up=bug.gives_up)
    replay(bug.fixed, run_rendered(finding.script), *bug.invariants, gives_up=bug.gives_up)
