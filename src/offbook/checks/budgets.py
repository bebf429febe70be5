"""Budgets: limits on the requests, tokens, cost and seconds of a test or of a suite.

    Budget(requests=5, tokens=2_000).check(spending)

A limit without data does not pass: a run without a price says nothing about its cost, nor does one
in which a single reply has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from offbook.checks.assertion import Check
from offbook.checks.context import TotalCost
from offbook.exchange.model import SIDE_REPLY, Usage
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
    """The usage of runs; None if no event has it. Costs are recorded, or tokens by price.

    A figure to which some replies add nothing is a part of the usage: `uncounted` is the number of
    replies without tokens, and `unpriced` that of replies without a cost, by model.
    """

    requests: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    seconds: float | None = None
    uncounted: int = 0
    unpriced: dict[str, int] = {}

    def add(self, other: Spending) -> None:
        """Add what other runs have used."""
        for field in FIELDS:
            value = getattr(other, field)
            if value is not None:
                setattr(self, field, (getattr(self, field) or 0) + value)
        self.uncounted += other.uncounted
        for model, count in other.unpriced.items():
            self.unpriced[model] = self.unpriced.get(model, 0) + count

    def known(self, field: str) -> Any:
        """Return a figure; None if no event has it, or if it is only a part."""
        return None if self.gap(field) else getattr(self, field)

    def gap(self, field: str) -> str:
        """Return why a figure is only a part of the usage; empty if it is not."""
        if field == "tokens" and self.uncounted:
            return f"replies without a number of tokens: {self.uncounted}"
        unpriced = [name for name, count in self.unpriced.items() if count]
        if field == "cost_usd" and unpriced:
            names = ", ".join(sorted(unpriced))
            return f"no cost was recorded, and no price or no tokens are known of {names}"
        return ""


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
        verdicts: list[Verdict] = []
        for field in FIELDS:
            limit, actual = getattr(self, field), getattr(spent, field)
            if limit is None:
                continue
            title, gap = f"{label}budget of {field}", spent.gap(field)
            if gap and (actual is None or actual <= limit):  # a part can only exceed a limit
                verdicts.append(Verdict(title, "no_data", f"no data: {gap}", limit))
            else:
                verdicts.append(check_limit(title, field, limit, actual))
        return verdicts


class SpendingReader:
    """Reads the requests, tokens and costs of one trace while it is written.

    `add` receives each figure: `SpendingReader(spent.add)`.
    """

    def __init__(self, add: Callable[[Spending], object]) -> None:
        self._add = add
        self._model = ""
        # The cost of this trace by price, which a recorded cost replaces.
        self._by_price = Spending(cost_usd=0.0)
        self._recorded = False

    def wants(self, name: str) -> bool:
        """Return whether events of this name have figures: a cost can be in any."""
        return name not in {PROCESS_OUTPUT, TERMINAL_WRITE}

    def on_event(self, event: Event) -> None:
        """Add the figures of an event."""
        data = event.data
        if event.event == REQUEST:
            self._model = data.get("model") or self._model
            self._add(Spending(requests=1))
        elif event.event == REPLY:
            if not str(data.get("role", "")).startswith(SIDE_REPLY):
                self._add_reply(data.get("usage"), data.get("model") or self._model)
        else:
            recorded = TotalCost()
            recorded.on_event(event)
            if recorded.dollars is not None:
                self._add_recorded(recorded.dollars)

    def _add_reply(self, usage: object, model: str) -> None:
        if usage is None:
            self._add(Spending(uncounted=1))
            cost = None
        else:
            tokens = msgspec.convert(usage, Usage)
            self._add(Spending(tokens=tokens.input + tokens.output))
            price = find_price(model, {})
            cost = None if price is None else cost_of(tokens, price)
        if not self._recorded:
            unpriced = {model or "an unnamed model": 1} if cost is None else {}
            spent = Spending(cost_usd=cost, unpriced=unpriced)
            self._by_price.add(spent)
            self._add(spent)

    def _add_recorded(self, dollars: float) -> None:
        if not self._recorded:
            self._recorded = True
            dollars -= self._by_price.cost_usd or 0.0
            unpriced = {model: -count for model, count in self._by_price.unpriced.items()}
            self._add(Spending(unpriced=unpriced))
        self._add(Spending(cost_usd=dollars))

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
