"""Invariants that suit many agents.

An invariant is a function of the run and of the state of the world. It fails by an assertion, or
by returning False. It must hold for every model, so it depends on the state: "a refund has an order
that was looked up", not "refund is called second".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offbook.errors import CheckFailed
from offbook.secrets import hide_secrets
from offbook.trace.events import REQUEST

if TYPE_CHECKING:
    from offbook.explore.playing import Invariant
    from offbook.runs.run import Run


def never_before(tool: str, first: str) -> Invariant:
    """Return an invariant: `tool` never succeeds before `first` has succeeded."""

    def check(run: Run, _: Any) -> None:
        for executed in run.executed:
            if executed.result.failed is True:
                continue
            if executed.name == first:
                return
            if executed.name == tool:
                raise CheckFailed(f"{tool} succeeded with {executed.input} before {first}")

    return _named(check, f"never {tool} before {first}")


def at_most(count: int, tool: str, *parameters: str) -> Invariant:
    """Return an invariant: `tool` succeeds at most `count` times with equal `parameters`."""

    def check(run: Run, _: Any) -> None:
        counts: dict[str, int] = {}
        for executed in run.executed:
            if executed.name != tool or executed.result.failed is True:
                continue
            key = repr([executed.input.get(parameter) for parameter in parameters])
            counts[key] = counts.get(key, 0) + 1
            if counts[key] > count:
                raise CheckFailed(f"{tool} succeeded {counts[key]} times with {executed.input}")

    per = f" per {', '.join(parameters)}" if parameters else ""
    return _named(check, f"at most {count} {tool}{per}")


def ends_within(requests: int) -> Invariant:
    """Return an invariant: a run sends at most this many requests."""

    def check(run: Run, _: Any) -> None:
        count = len(run.events.named(REQUEST))
        if count > requests:
            raise CheckFailed(f"the agent sent {count} requests")

    return _named(check, f"ends within {requests} requests")


def no_secret_in_answer(run: Run, _: Any) -> None:
    """The answer of the agent contains no secret: no known value, and no token."""
    text = str(run.output or "")
    if hide_secrets(text) != text:
        raise CheckFailed("the answer contains a secret")


def _named(check: Invariant, name: str) -> Invariant:
    check.__name__ = name
    return check
