"""`check_live` runs scenarios on the real component and compares them with the goldens."""

import asyncio
from pathlib import Path

import pytest

from offbook.goldens import Project, check_live
from tests.goldens.sample_project import LIVE, make_project


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_project(tmp_path)


def test_scenario_as_recorded_passes(root: Path):
    assert live_lines(root, LIVE) == ["passed  till/open-drawer"]


def live_lines(root: Path, script: str) -> list[str]:
    (root / "scripts" / "live" / "till_live.py").write_text(script)
    results = asyncio.run(check_live(Project(root), "till", {}))
    return [line for result in results for line in result.render().splitlines()]


FAILING = {
    "other result": (LIVE.replace("till.put(1)", "till.put(7)"), "coins: expected 3, got 9"),
    "other steps": (
        LIVE.replace("till.put(1)\n", "till.put(0)\n    till.put(1)\n"),
        "the golden has other steps than the scenario",
    ),
    "other match rule": (
        LIVE.replace("@scenario()", "@scenario(match='prefix')"),
        "the golden has another match rule",
    ),
    "exception of the component": (
        LIVE.replace("self.coins += coins", "raise OSError('stuck')"),
        "raised OSError: stuck",
    ),
    "not a step": (LIVE.replace("till.put(1)", "till.pot(1)"), "no step 'pot'"),
    "golden without scenario": (
        LIVE.replace("@scenario()", "@scenario('other')"),
        "the golden has no scenario in scripts/live/till_live.py",
    ),
    "scenario without golden": (
        LIVE.replace("@scenario()", "@scenario('other')"),
        "offbook golden update till/other",
    ),
}


@pytest.mark.parametrize("script, message", FAILING.values(), ids=FAILING)
def test_difference_fails_with_reason(root: Path, script: str, message: str):
    lines = live_lines(root, script)
    assert any(message in line for line in lines), lines
    assert lines[0].startswith("failed")


def test_scenario_without_credentials_is_skipped_with_reason(root: Path):
    script = LIVE.replace("@scenario()", "@scenario(needs=['TILL_KEY'])")
    assert live_lines(root, script) == ["skipped till/open-drawer", "  TILL_KEY is not set"]


def test_script_without_scenarios_fails(root: Path):
    (root / "fixtures" / "golden" / "till" / "open-drawer.jsonl").unlink()
    lines = live_lines(root, "x = 1\n")
    assert lines == ["failed  till", "  scripts/live/till_live.py has no scenario"]
