"""Budgets: limits on the requests, tokens, cost and seconds of a test or of a suite.

    Budget(requests=5, tokens=2_000).check(spending)

A limit without data does not pass: a run without a price says nothing about its cost.
"""

from __future__ import annotations

import msgspec

from offbook.checks.assertion import Check
from offbook.checks.context import TotalCost
from offbook.exchange.model import Usage
from offbook.exchange.providers import cost_of, find_price
from offbook.trace.events import (
    PROCESS_OUTPUT,
    REPLY,
    REQUEST,
    TERMINAL_WRITE,
    Event,
    Verdict,
)

FIELDS = ("requests", "tokens", "cost_usd", "seconds")


class Spending(msgspec.Struct):
    """The usage of runs; None if no event has it. Costs are recorded, or tokens by price."""

    requests: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    seconds: float | None = None

    def add(self, other: Spending) -> None:
        """Add what other runs have used."""
        for field in FIELDS:
            value = getattr(other, field)
            if value is not None:
                setattr(self, field, (getattr(self, field) or 0) + value)


class Budget(Check, frozen=True):
    """The limits of a test or a suite; a value at its limit passes."""

    requests: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if all(getattr(self, field) is None for field in FIELDS):
            raise ValueError(f"a budget needs a limit: {', '.join(FIELDS)}")

    def check(self, spent: Spending, label: str = "") -> list[Verdict]:
        """Return a verdict for each limit."""
        return [
            check_limit(f"{label}budget of {field}", field, limit, getattr(spent, field))
            for field in FIELDS
            if (limit := getattr(self, field)) is not None
        ]


class SpendingReader:
    """Adds the requests, tokens and costs of one trace to a spending, while it is written."""

    def __init__(self, spent: Spending) -> None:
        self._spent = spent
        self._model = ""
        self._priced = 0.0  # the cost of this trace by price, which a recorded cost replaces
        self._recorded = False

    def wants(self, name: str) -> bool:
        """Return whether events of this name have figures: a cost can be in any."""
        return name not in {PROCESS_OUTPUT, TERMINAL_WRITE}

    def on_event(self, event: Event) -> None:
        """Add the figures of an event."""
        data, spent = event.data, Spending()
        if event.event == REQUEST:
            self._model = data.get("model") or self._model
            spent.requests = 1
        elif event.event == REPLY and "usage" in data:
            usage = msgspec.convert(data["usage"], Usage)
            spent.tokens = usage.input + usage.output
            price = find_price(data.get("model") or self._model, {})
            if price is not None and not self._recorded:
                spent.cost_usd = cost_of(usage, price)
                self._priced += spent.cost_usd
        else:
            recorded = TotalCost()
            recorded.on_event(event)
            spent.cost_usd = recorded.dollars
            if recorded.dollars is not None and not self._recorded:
                self._recorded = True
                spent.cost_usd = recorded.dollars - self._priced
        self._spent.add(spent)

    def on_close(self) -> None:
        """Do nothing: each event was added alone."""


def check_limit(
    title: str, metric: str, limit: float, actual: float | None, *, minimum: bool = False
) -> Verdict:
    """Return the verdict; a figure at its limit passes, and a missing one is no data."""
    if actual is None:
        message = f"no data: the run has no {metric.replace('_', ' ')}"
        return Verdict(title, "no_data", message, limit)
    ok = actual >= limit if minimum else actual <= limit
    word = "is below the minimum" if minimum else "exceeds the maximum"
    message = "" if ok else f"{metric} {actual:g} {word} {limit:g}"
    return Verdict(title, "pass" if ok else "fail", message, limit, actual)
