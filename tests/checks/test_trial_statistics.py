"""Statistics of trials and judges."""

from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.checks import cohen_kappa, compare_paired, pass_at_k, pass_hat_k, sign_test, wilson
from offbook.evals import CalibrationRow, plot_interval, report_agreement


def test_wilson_is_the_published_interval():
    low, high = wilson(8, 10)
    assert isclose(low, 0.4902, abs_tol=1e-4)
    assert isclose(high, 0.9433, abs_tol=1e-4)


def test_without_trials_nothing_is_known():
    assert wilson(0, 0) == (0.0, 1.0)


@given(st.integers(1, 200), st.data())
def test_the_rate_is_inside_its_interval(total: int, data: st.DataObject):
    successes = data.draw(st.integers(0, total))
    low, high = wilson(successes, total)
    assert 0 <= low <= successes / total + 1e-12
    assert successes / total - 1e-12 <= high <= 1


@given(st.integers(1, 30), st.data())
def test_all_of_k_pass_less_often_than_one_of_k(trials: int, data: st.DataObject):
    passes = data.draw(st.integers(0, trials))
    k = data.draw(st.integers(1, trials))
    assert 0 <= pass_hat_k(trials, passes, k) <= pass_at_k(trials, passes, k) <= 1


def test_pass_at_1_is_the_rate():
    assert pass_at_k(10, 3, 1) == pytest.approx(0.3)
    assert pass_hat_k(10, 3, 1) == pytest.approx(0.3)


def test_k_beyond_the_trials_is_refused():
    with pytest.raises(ValueError, match="at least 5 trials"):
        pass_at_k(4, 2, 5)


def test_the_sign_test_is_exact():
    assert sign_test(0, 6) == pytest.approx(2 / 64)
    assert sign_test(3, 3) == 1.0
    assert sign_test(0, 0) == 1.0


def test_a_consistent_change_is_significant_and_a_mixed_one_is_not():
    fell = compare_paired([1.0] * 8 + [0.0] * 2, [0.0] * 8 + [0.0] * 2)
    mixed = compare_paired([1.0, 0.0] * 4, [0.0, 1.0] * 4)
    assert fell.significant
    assert fell.mean == pytest.approx(-0.8)
    assert not mixed.significant
    assert "o" in plot_interval(fell)


def test_kappa_is_0_for_chance_and_1_for_agreement():
    assert cohen_kappa([[25, 25], [25, 25]]) == 0
    assert cohen_kappa([[10, 0], [0, 10]]) == 1
    assert cohen_kappa([[20, 5], [10, 15]]) == pytest.approx(0.4)


def test_a_judge_that_likes_long_texts_has_a_bias_by_length():
    rows = [
        CalibrationRow(number, 0.5, 1.0 if length > 50 else 0.25, length)
        for number, length in enumerate([10, 100, 20, 120, 30, 90], 1)
    ]
    report = report_agreement(rows, 0.5)
    assert report.length_bias == pytest.approx(0.75)
    assert report.table == ((0, 0), (3, 3))
