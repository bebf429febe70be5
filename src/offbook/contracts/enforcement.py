"""Contracts given in Python, for the runs of a `with` block."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from offbook.trace.event_contracts import ContractReader, Contracts
from offbook.trace.recorder import observe_traces


@contextmanager
def enforce(contracts: Contracts) -> Generator[Contracts]:
    """Fail each run that is opened inside and breaks one of these contracts.

    with enforce(Contracts(topics={"build.done": BuildDone})) as contracts:
        ...
    assert not contracts.unused
    """
    with observe_traces(lambda: ContractReader(contracts)):
        yield contracts
