"""Faults in a run: the injector that reports to the trace, and the summary at the end."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from offbook.determinism.faults import FaultInjector, Faults, parse_faults
from offbook.errors import CheckFailed
from offbook.trace.events import FAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from offbook.trace.events import Event
    from offbook.trace.hub import Hub


def start_faults(plan: object, hub: Hub) -> FaultInjector:
    """Return the injector of a new run; each fault is an event of its trace."""
    parsed = parse_faults(plan) or Faults()
    return FaultInjector(parsed, lambda data: hub.emit(FAULT, data))


@contextmanager
def summarize_faults(
    plan: Faults, hub: Hub, echo: Callable[[str], object], *, strict: bool = True
) -> Generator[None]:
    """Report at the end of the block what the agent did about each fault.

    With `strict`, a fault that it swallowed fails the run.
    """
    from offbook.checks.fault_outcomes import find_outcomes, judge_faults, summarize

    events: list[Event] = []
    hub.subscribe(events.append)
    try:
        yield
    finally:
        outcomes = find_outcomes(events)
        verdict = judge_faults(events)
        hub.emit_verdict(verdict)
        for one in outcomes:
            echo(f"offbook: {one}")
        echo(f"offbook: {summarize(outcomes)} (seed {plan.seed})")
    if strict and verdict.status == "fail":
        raise CheckFailed(verdict.message, hint="repeat it with the same --fault options")
