"""Runs that are held to contracts given in Python."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from offbook.checks.budgets import Budget, Spending
from offbook.trace.event_contracts import ContractReader, Contracts
from offbook.trace.recorder import observe_traces

__all__ = ["Budget", "Contracts", "Spending", "hold_to"]


@contextmanager
def hold_to(contracts: Contracts) -> Generator[Contracts]:
    """Hold all runs that are opened inside to these contracts.

    with hold_to(Contracts(topics={"build.done": BuildDone})) as contracts:
        ...
    assert not contracts.unused
    """
    with observe_traces(lambda: ContractReader(contracts)):
        yield contracts
