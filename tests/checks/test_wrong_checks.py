"""Checks that cannot be meant are refused, with a message that names the mistake."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbook.checks import (
    Evaluation,
    assert_receipt_field,
    compare_paired,
    parse_assertion,
    parse_transcript,
    pass_at_k,
    pass_hat_k,
    read_transcript,
)
from offbook.errors import CheckFailed, FormatError, UsageError


@pytest.mark.parametrize(
    "fields, message",
    [
        ({}, "expected min, max or exact"),
        ({"min": 3, "max": 2}, "min 3 is greater than max 2"),
    ],
)
def test_a_count_needs_bounds_that_a_number_can_meet(fields: dict[str, int], message: str):
    with pytest.raises(UsageError, match=message):
        parse_assertion({"type": "iteration_count", "hat": "builder", **fields})


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: pass_at_k(2, 1, 3), r"pass@3 needs at least 3 trials, got 2"),
        (lambda: pass_at_k(0, 0, 0), r"pass@0 needs at least 0 trials, got 0"),
        (lambda: pass_hat_k(2, 1, 3), r"pass\^3 needs at least 3 trials, got 2"),
        (lambda: compare_paired([1.0], [1.0, 2.0]), "expected pairs, got 1 and 2 values"),
        (lambda: compare_paired([], []), "expected pairs, got 0 and 0 values"),
        (lambda: Evaluation("plan_qualty", "x"), "unknown criterion 'plan_qualty': did you mean"),
        (lambda: Evaluation("custom", "x"), "custom_prompt is required for the criterion custom"),
    ],
)
def test_a_wrong_value_is_named(call: Callable[[], Any], message: str):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_receipt_that_differs_shows_the_field():
    with pytest.raises(CheckFailed, match="the receipt differs at /total") as caught:
        assert_receipt_field({"total": 3}, "/total", 4)
    assert "3" in caught.value.hint


def test_an_empty_transcript_is_refused(tmp_path: Path):
    with pytest.raises(FormatError, match="the transcript is empty"):
        parse_transcript("\n", tmp_path / "t.jsonl")
    with pytest.raises(FormatError, match=r"no event_log\*\.jsonl in this folder"):
        read_transcript(tmp_path)
