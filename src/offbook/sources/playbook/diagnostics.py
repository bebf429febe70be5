"""What went wrong between a playbook and an agent, and what would have been right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbook.errors import ScriptExhausted, ScriptMismatch, ScriptUnfinished, nearest
from offbook.sources.playbook.steps import GIVEN, SAID, cut_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offbook.exchange.messages import Message
    from offbook.exchange.request import Request
    from offbook.sources.playbook.actions import Role
    from offbook.sources.playbook.steps import Step

SHOWN = 5


def say_uncast(roles: list[Role], request: Request) -> ScriptMismatch:
    """The error for a request that no part of the playbook answers."""
    return ScriptMismatch(
        f"nobody in the playbook answers this request: {came(request)}",
        hint="\n".join(
            (
                f'  system: "{cut_text(request.system, SAID)}"',
                *_nearest_role(roles, request),
                "  do: let a role(…) match it, or mend what it is known by",
            )
        ),
    )


def say_unexpected(said: str, texts: list[str], request: Request) -> ScriptMismatch:
    """The error for a prompt that is not the one of the next turn; these are the turns'."""
    later = next((text for text in texts if text in said), None)
    known = f"when({cut_text(later, SAID)!r}) comes later" if later else nearest(said, texts)
    return ScriptMismatch(
        "the agent was told something else than the next turn",
        where=f"when({cut_text(texts[0], SAID)!r})",
        hint="\n".join(
            (
                f"  expected: a user message with {cut_text(texts[0], GIVEN)!r} in it",
                f"  came: {came(request)}",
                f"  nearest: {known}",
                "  do: mend the prompt or the playbook; a call beside it needs a role(…)",
            )
        ),
    )


def say_exhausted(
    last: Step | None, part: str, left: Sequence[Step], request: Request
) -> ScriptExhausted:
    """The error for an agent that asks for more than its part has."""
    after = f"after step {last}" if last else "before any step"
    place = last.place if last else part
    return ScriptExhausted(
        f"playbook exhausted: the agent asked the model again {after}",
        where=place,
        hint="\n".join(
            (
                f"  expected: nothing more in {place}",
                f"  came: {came(request)}",
                *_list_steps(left),
                "  do: end the turn with say(…), or script what the model does next",
            )
        ),
    )


def say_unfinished(left: Sequence[Step], consumed: int, last: Step | None) -> ScriptUnfinished:
    """The error for steps that nobody asked for."""
    number = len(left)
    stopped = f"after step {last}" if last else "before the first step"
    return ScriptUnfinished(
        f"playbook not fully consumed: {number} action{'s' * (number != 1)} remaining",
        where=left[0].place,
        hint="\n".join(
            (
                f"  consumed: {consumed} of {consumed + number}",
                f"  expected: the agent to ask for step {left[0]}",
                f"  came: it stopped {stopped}",
                *_list_steps(left),
                "  do: remove what is never reached, or find out why the agent stopped",
            )
        ),
    )


def say_unheard(step: Step) -> ScriptUnfinished:
    """The error for a callback whose result never came."""
    return ScriptUnfinished(
        f"the result of step {step} never came back, so its .then() did not run",
        where=step.place,
        hint="  do: end the turn with say(…), so that the agent reports its results",
    )


def _list_steps(steps: Sequence[Step]) -> list[str]:
    if not steps:
        return ["  remaining: nothing"]
    lines = ["  remaining:", *(f"    {step}" for step in steps[:SHOWN])]
    more = len(steps) - SHOWN
    return [*lines, f"    ... +{more} more"] if more > 0 else lines


def _nearest_role(roles: list[Role], request: Request) -> list[str]:
    """The role that lacks least of being this request's, and what it lacks."""
    if not roles:
        return ["  roles: none"]
    nearest_ = min(roles, key=lambda role_: _distance(role_.misfits(request)))
    lines = [f"  nearest role: {nearest_.name!r}"]
    for by, wanted, came_ in nearest_.misfits(request):
        lines.append(
            f"    its {by} {cut_text(repr(wanted), SAID)} is not in {cut_text(repr(came_), SAID)}"
        )
    return lines


def _distance(misfits: list[tuple[str, object, object]]) -> float:
    from difflib import SequenceMatcher

    ratios = (SequenceMatcher(None, str(w), str(c)[:500]).ratio() for _, w, c in misfits)
    return sum(1 - ratio for ratio in ratios)


def came(request: Request) -> str:
    """What a request brought, in one line."""
    fresh = request.fresh
    return _tell(fresh[-1]) if fresh else "a request with nothing new in it"


def _tell(message: Message) -> str:
    results = message.results
    if results:
        kind = "an error" if results[-1].is_error else "a result"
        return f'{kind} of {results[-1].name or "a tool"}: "{cut_text(results[-1].text, SAID)}"'
    return f'a {message.role} message: "{cut_text(message.text, SAID)}"'
