"""Faults in a run: the injector that reports to the trace, and the summary at the end."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from offbook.determinism.faults import FaultInjector, Faults, no_fault, parse_faults
from offbook.errors import CheckFailed
from offbook.trace.events import FAULT, FaultData

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from offbook.trace.events import Event
    from offbook.trace.hub import Hub


def start_faults(plan: object, hub: Hub) -> FaultInjector:
    """Return the injector of a new run; each fault is an event of its trace."""
    parsed = parse_faults(plan) or Faults()
    return FaultInjector(parsed, lambda data: hub.emit_data(FaultData(**data)))


@contextmanager
def summarize_faults(
    plan: Faults, hub: Hub, echo: Callable[[str], object], *, strict: bool = True
) -> Generator[None]:
    """Report at the end of the block what the agent did about each fault.

    With `strict`, the run fails for a fault that it swallowed, for one whose outcome is unknown,
    because no assertion reads the answer, and for one that was never injected. A run without
    any fault fails too: it tested nothing.
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
    if strict and any(one.outcome == "unknown" for one in outcomes):
        hint = "end with an exit code other than 0, or print the error"
        raise CheckFailed(verdict.message, hint=hint)
    if strict and (unused := _find_unused(plan, events)):
        raise CheckFailed(f"never injected: {', '.join(unused)}; the run has no such request")
    if strict and not outcomes:
        raise CheckFailed(no_fault(plan))


def _find_unused(plan: Faults, events: list[Event]) -> list[str]:
    """Return the entries with a number that were never injected."""
    injected = {(e.data["kind"], e.data["number"]) for e in events if e.event == FAULT}
    numbered = [entry for entry in plan.entries() if entry.number]
    return [str(entry) for entry in numbered if (entry.kind, entry.number) not in injected]
