"""A budget is a limit on what runs use; a limit without data is no pass."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from offbook.checks import Budget, Spending, SpendingReader
from offbook.trace import Event


def spend(*events: tuple[str, dict[str, Any]]) -> Spending:
    spent = Spending()
    reader = SpendingReader(spent)
    for name, data in events:
        reader.on_event(Event(1, name, data))
    return spent


REQUEST = ("model.request", {"model": "gpt-5-mini"})
REPLY = ("model.reply", {"usage": {"input": 1_000_000, "output": 1_000_000}})
COST = ("_meta.iteration", {"cost_usd": 0.5})


@pytest.mark.parametrize(
    "events, expected",
    [
        ([], Spending()),
        ([REQUEST], Spending(requests=1)),
        ([REQUEST, REPLY], Spending(1, 2_000_000, 2.25)),
        ([REQUEST, REPLY, COST, COST], Spending(1, 2_000_000, 1.0)),
        ([COST, REQUEST, REPLY], Spending(1, 2_000_000, 0.5)),
        ([("model.request", {"model": "m"}), REPLY], Spending(1, 2_000_000, None)),
    ],
)
def test_requests_tokens_and_costs_are_added_up(events: list[Any], expected: Spending):
    assert spend(*events) == expected


@pytest.mark.parametrize(
    "spent, status",
    [(Spending(tokens=10), "pass"), (Spending(tokens=11), "fail"), (Spending(), "no_data")],
)
def test_a_limit_has_three_outcomes(spent: Spending, status: str):
    [verdict] = Budget(tokens=10).check(spent)
    assert verdict.status == status


@pytest.mark.parametrize("limits", [{}, {"tokens": -1}, {"token": 3}, {"requests": "many"}])
def test_a_budget_that_limits_nothing_is_refused(limits: dict[str, Any]):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(limits, Budget)
