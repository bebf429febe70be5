"""Live: the scenarios on the real thing, against what the replays expect."""

import asyncio
from pathlib import Path

import pytest

from offbook.goldens.project import Project, check_live
from tests.goldens.projects import LIVE, make_project


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_project(tmp_path)


def test_what_is_as_recorded_passes(root: Path):
    assert tell(root, LIVE) == ["passed  till/open-drawer"]


def tell(root: Path, script: str) -> list[str]:
    (root / "scripts" / "live" / "till_live.py").write_text(script)
    shown = asyncio.run(check_live(Project(root), "till", {}))
    return [line for one in shown for line in one.tell().splitlines()]


FAILING = {
    "another result": (LIVE.replace("till.put(1)", "till.put(7)"), "coins: expected 3, got 9"),
    "other steps": (
        LIVE.replace("till.put(1)\n", "till.put(0)\n    till.put(1)\n"),
        "the steps of the golden are not those of the scenario",
    ),
    "another way of comparing": (
        LIVE.replace("@scenario()", "@scenario(match='prefix')"),
        "the golden is compared otherwise",
    ),
    "an error of the real thing": (
        LIVE.replace("self.coins += coins", "raise OSError('stuck')"),
        "it raised OSError: stuck",
    ),
    "an error of ours": (LIVE.replace("till.put(1)", "till.pot(1)"), "'pot' is no step"),
    "a golden without a scenario": (
        LIVE.replace("@scenario()", "@scenario('other')"),
        "nothing shows that it is real",
    ),
    "a scenario without a golden": (
        LIVE.replace("@scenario()", "@scenario('other')"),
        "offbook fixture record till other",
    ),
}


@pytest.mark.parametrize("script, message", FAILING.values(), ids=FAILING)
def test_what_is_not_fails_and_says_why(root: Path, script: str, message: str):
    told = tell(root, script)
    assert any(message in line for line in told), told
    assert told[0].startswith("failed")


def test_without_credentials_it_is_skipped_with_the_reason_and_not_passed(root: Path):
    script = LIVE.replace("@scenario()", "@scenario(needs=['TILL_KEY'])")
    assert tell(root, script) == ["skipped till/open-drawer", "  TILL_KEY is not set"]


def test_a_script_without_scenarios_and_goldens_proves_nothing(root: Path):
    (root / "fixtures" / "golden" / "till" / "open-drawer.jsonl").unlink()
    told = tell(root, "x = 1\n")
    assert told[0] == "failed  till"
    assert "it proves nothing" in told[1]
