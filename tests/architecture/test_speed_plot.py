"""The plot of the speed goals in the documentation, and the comparison with their history."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def goals() -> ModuleType:
    spec = importlib.util.spec_from_file_location("goals", ROOT / "bench" / "goals.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["goals"] = module
    spec.loader.exec_module(module)
    return module


def test_the_plot_shows_the_recorded_history(goals: ModuleType):
    assert goals.PLOT.read_text(encoding="utf-8") == goals.draw(goals.read_history()), (
        "draw it again with ./dev bench --plot"
    )


def test_a_goal_has_a_point_for_each_run_that_measured_it(goals: ModuleType):
    runs = [
        {"machine": "m", "commit": "a", "ratios": {"start": 1.5, "chat <1>": 0.5}},
        {"machine": "m", "commit": "b", "ratios": {"start": 0.9}},
    ]
    image = ET.fromstring(goals.draw(runs))  # noqa: S314 - drawn above
    circles = [e for e in image if e.tag.endswith("circle")]
    texts = [e.text for e in image if e.tag.endswith("text")]
    assert len(circles) == 3
    assert {"start", "chat <1>", "0.90"} <= set(texts)


def recorded(*ratios: float, machine: str = "m") -> list[dict[str, object]]:
    return [{"machine": machine, "commit": "c", "ratios": {"chat": ratio}} for ratio in ratios]


@pytest.mark.parametrize(
    "runs, slower",
    [
        (recorded(1, 1, 1, 1, 1, 1.16), ["chat"]),
        (recorded(1, 1, 1, 1, 1, 1.14), []),
        (recorded(0.5, 1, 1, 1, 1, 1, 1.1), []),  # only the last five count
        (recorded(2, 1, 1, 1, 3, 1.2), ["chat"]),  # the median, not the mean
        (recorded(0.5, 0.58), ["chat"]),  # a goal that is met can be lost as well
        (recorded(0.5, machine="other") + recorded(1), []),
        (recorded(1), []),
    ],
)
def test_a_ratio_that_is_much_worse_than_the_last_records_fails(
    goals: ModuleType, runs: list[dict[str, object]], slower: list[str]
):
    assert [loss.partition(":")[0] for loss in goals.find_losses(runs)] == slower
