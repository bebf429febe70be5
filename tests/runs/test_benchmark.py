"""A benchmark fails only on a real difference."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from offbook import call, say, session, when
from offbook.checks import sign_flip_test
from offbook.errors import FormatError, UsageError
from offbook.runs import (
    MIN_PAIRS,
    Sample,
    compare,
    measure,
    read_baseline,
    save_baseline,
    summarize,
)


def simulate(generator: random.Random, mean: float, spread: float, runs: int = 10) -> list[Sample]:
    """Return samples whose times are noise around a mean, as a busy machine has them."""
    times = [mean * generator.lognormvariate(0, spread) for _ in range(2 * runs)]
    return [Sample(3, 900, None, *times[2 * n : 2 * n + 2]) for n in range(runs)]


def worse(before: list[Sample], after: list[Sample]) -> list[str]:
    return [comparison.metric for comparison in compare(before, after) if comparison.worse]


def test_equal_targets_rarely_fail():
    generator = random.Random(17)  # noqa: S311 - simulated numbers
    failed = sum(
        bool(worse(simulate(generator, 1, 0.3), simulate(generator, 1, 0.3))) for _ in range(300)
    )
    assert failed <= 6  # of 300: two times at 0.5 % each would be 3


def test_a_slower_target_fails():
    generator = random.Random(17)  # noqa: S311 - simulated numbers
    found = sum(
        "wall_seconds" in worse(simulate(generator, 1, 0.1), simulate(generator, 1.5, 0.1))
        for _ in range(50)
    )
    assert found == 50


def test_a_difference_below_the_minimum_effect_passes():
    generator = random.Random(17)  # noqa: S311 - simulated numbers
    assert worse(simulate(generator, 1, 0.001), simulate(generator, 1.03, 0.001)) == []


def test_a_faster_target_passes():
    generator = random.Random(17)  # noqa: S311 - simulated numbers
    assert worse(simulate(generator, 2, 0.01), simulate(generator, 1, 0.01)) == []


def test_one_more_request_in_every_run_fails():
    before = [Sample(3, 900, 0.5, 1, 1)] * MIN_PAIRS
    after = [Sample(4, 900, 0.5, 1, 1)] * MIN_PAIRS
    assert worse(before, after) == ["requests"]


def test_times_of_another_machine_are_not_compared():
    slow = [Sample(3, 900, None, 9, 9)] * MIN_PAIRS
    fast = [Sample(3, 900, None, 1, 1)] * MIN_PAIRS
    compared = compare(fast, slow, same_machine=False)
    assert not any(comparison.worse for comparison in compared)
    assert [c.note for c in compared if c.metric == "wall_seconds"] == [
        "another machine: not compared"
    ]


def test_too_few_runs_cannot_be_compared():
    few = [Sample(3, 900, None, 1, 1)] * (MIN_PAIRS - 1)
    with pytest.raises(UsageError, match="7 runs cannot show a difference"):
        compare(few, few)


@pytest.mark.parametrize(
    "differences, expected",
    [([1.0] * 7, 1 / 128), ([-1.0] * 7, 1.0), ([0.0] * 7, 1.0), ([1.0, -1.0], 0.75)],
)
def test_the_p_value_is_the_share_of_signs_with_a_sum_as_high(
    differences: list[float], expected: float
):
    assert sign_flip_test(differences) == pytest.approx(expected)


def test_many_pairs_are_estimated_and_repeatable():
    generator = random.Random(3)  # noqa: S311 - simulated numbers
    differences = [generator.gauss(0.2, 1) for _ in range(40)]
    assert sign_flip_test(differences) == sign_flip_test(differences)
    assert sign_flip_test([1.0] * 40) < 0.001


def test_a_figure_without_data_has_no_mean():
    summaries = {s.metric: s for s in summarize([Sample(None, None, None, 1, 1)] * 2)}
    assert summaries["cost_usd"].mean is None
    assert summaries["wall_seconds"].mean == 1


def test_a_run_is_measured_after_a_warm_up(tmp_path: Path):
    runs = 0

    def run(_folder: Path) -> None:
        nonlocal runs
        runs += 1
        with session() as rehearsal:
            rehearsal.run(when("Go", [call("bash", {"command": "true"}), say("Done.")]))

    [samples] = measure(run, repeat=2, folder=tmp_path)
    assert runs == 3
    assert [sample.requests for sample in samples] == [2, 2]
    assert all(sample.tokens and sample.cost_usd is None for sample in samples)


def test_targets_are_run_in_turns(tmp_path: Path):
    order: list[str] = []
    measure(lambda _: order.append("a"), lambda _: order.append("b"), repeat=2, folder=tmp_path)
    assert order == ["a", "b"] * 3


def test_a_baseline_is_read_as_it_was_saved(tmp_path: Path):
    samples = [Sample(3, 900, 0.5, 1.25, 1.5)] * 2
    save_baseline(tmp_path / "b.json", "shop:run", samples)
    baseline = read_baseline(tmp_path / "b.json")
    assert (baseline.target, baseline.samples) == ("shop:run", samples)


@pytest.mark.parametrize("text", ["{", "{}", '{"format": "x"}'])
def test_another_file_is_no_baseline(tmp_path: Path, text: str):
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(FormatError, match="not a baseline"):
        read_baseline(tmp_path / "b.json")


def test_a_baseline_of_a_newer_version_is_refused(tmp_path: Path):
    save_baseline(tmp_path / "b.json", "shop:run", [])
    content = json.loads((tmp_path / "b.json").read_text()) | {"version": 2}
    (tmp_path / "b.json").write_text(json.dumps(content))
    with pytest.raises(FormatError, match=r"expected offbook\.benchmark 1"):
        read_baseline(tmp_path / "b.json")
