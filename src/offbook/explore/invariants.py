"""Invariants that suit many agents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from offbook.errors import CheckFailed, UsageError
from offbook.secrets import hide_secrets
from offbook.trace.events import REQUEST

if TYPE_CHECKING:
    from offbook.explore.playing import Invariant
    from offbook.runs.run import Run
    from offbook.trace.query import ExecutedTool


def never_before(tool: str, first: str) -> Invariant:
    """Return an invariant: `tool` never succeeds before `first` has succeeded."""

    def check(run: Run, _: Any) -> None:
        for executed in _known_or_decisive(run, tool):
            if executed.result.failed is True:
                continue
            if executed.name == first:
                return
            if executed.name == tool:
                raise CheckFailed(f"{tool} succeeded with {executed.input} before {first}")

    return _named(check, f"never {tool} before {first}", tool, first)


def at_most(count: int, tool: str, *parameters: str) -> Invariant:
    """Return an invariant: `tool` succeeds at most `count` times with equal `parameters`."""
    _check_limit(count)

    def check(run: Run, _: Any) -> None:
        counts: dict[str, int] = {}
        for executed in _known_or_decisive(run, tool):
            if executed.name != tool or executed.result.failed is True:
                continue
            key = repr([executed.input.get(parameter) for parameter in parameters])
            counts[key] = counts.get(key, 0) + 1
            if counts[key] > count:
                raise CheckFailed(f"{tool} succeeded {counts[key]} times with {executed.input}")

    per = f" per {', '.join(parameters)}" if parameters else ""
    return _named(check, f"at most {count} {tool}{per}", tool)


def _known_or_decisive(run: Run, tool: str) -> Iterator[ExecutedTool]:
    """Yield the tools that ran; raise at the end if it is unknown whether this one did, too."""
    yield from run.executed.known()
    if tool in run.executed.unknown:
        yield from run.executed


def ends_within(requests: int) -> Invariant:
    """Return an invariant: a run sends at most this many requests."""
    _check_limit(requests)

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


def _check_limit(limit: object) -> None:
    if type(limit) is not int or limit < 0:
        raise UsageError(f"expected a number of 0 or more, got {limit!r}")


def _named(check: Invariant, name: str, *tools: str) -> Invariant:
    check.__name__ = name
    vars(check)["tools"] = tools  # without them it would check nothing
    return check
