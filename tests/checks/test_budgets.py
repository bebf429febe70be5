"""A budget is a limit on what runs use; a limit without data is no pass."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from offbook.checks import Budget, Spending, SpendingReader
from offbook.trace import Event


def spend(*events: tuple[str, dict[str, Any]]) -> Spending:
    spent = Spending()
    reader = SpendingReader(spent.add)
    for name, data in events:
        reader.on_event(Event(1, name, data))
    return spent


REQUEST = ("model.request", {"model": "gpt-5-mini"})
REPLY = ("model.reply", {"usage": {"input": 1_000_000, "output": 1_000_000}})
UNPRICED = ("model.request", {"model": "m"})
UNCOUNTED: tuple[str, dict[str, Any]] = ("model.reply", {})
SIDE = ("model.reply", {"role": "auxiliary (opencode title)", "model": "m"})
COST = ("_meta.iteration", {"cost_usd": 0.5})


@pytest.mark.parametrize(
    "events, expected",
    [
        ([], Spending()),
        ([REQUEST], Spending(requests=1)),
        ([REQUEST, REPLY], Spending(1, 2_000_000, 2.25)),
        ([REQUEST, REPLY, COST, COST], Spending(1, 2_000_000, 1.0)),
        ([COST, REQUEST, REPLY], Spending(1, 2_000_000, 0.5)),
        ([UNPRICED, REPLY], Spending(1, 2_000_000, unpriced={"m": 1})),
        ([UNPRICED, REPLY, COST], Spending(1, 2_000_000, 0.5, unpriced={"m": 0})),
        ([COST, UNPRICED, REPLY], Spending(1, 2_000_000, 0.5)),
        ([REQUEST, UNCOUNTED], Spending(1, uncounted=1, unpriced={"gpt-5-mini": 1})),
        ([REQUEST, SIDE, REQUEST, REPLY], Spending(2, 2_000_000, 2.25)),
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


@pytest.mark.parametrize(
    "limits, events, status, message",
    [
        ({"cost_usd": 3}, [REQUEST, REPLY], "pass", ""),
        (
            {"cost_usd": 3},
            [REQUEST, REPLY, UNPRICED, REPLY],
            "no_data",
            "no price or no tokens are known of m",
        ),
        ({"cost_usd": 2}, [REQUEST, REPLY, UNPRICED, REPLY], "fail", "exceeds the maximum 2"),
        ({"cost_usd": 3}, [REQUEST, REPLY, UNPRICED, REPLY, COST], "pass", ""),
        ({"cost_usd": 3}, [REQUEST, REPLY, REQUEST, UNCOUNTED], "no_data", "gpt-5-mini"),
        ({"tokens": 9_000_000}, [REQUEST, REPLY, REQUEST, UNCOUNTED], "no_data", "replies without"),
        ({"tokens": 9}, [REQUEST, REPLY, REQUEST, UNCOUNTED], "fail", "exceeds the maximum 9"),
        ({"requests": 2}, [REQUEST, REPLY, UNPRICED, UNCOUNTED], "pass", ""),
    ],
)
def test_a_part_of_a_figure_can_only_exceed_a_limit(
    limits: dict[str, Any], events: list[Any], status: str, message: str
):
    [verdict] = Budget(**limits).check(spend(*events))
    assert (verdict.status, message in verdict.message) == (status, True)


def test_the_gaps_of_runs_stay_when_they_are_added():
    total = spend(REQUEST, REPLY)
    total.add(spend(UNPRICED, REPLY))
    total.add(spend(REQUEST, REPLY))
    assert (total.known("cost_usd"), total.known("tokens")) == (None, 6_000_000)


@pytest.mark.parametrize("limits", [{}, {"tokens": -1}, {"token": 3}, {"requests": "many"}])
def test_a_budget_that_limits_nothing_is_refused(limits: dict[str, Any]):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(limits, Budget)
