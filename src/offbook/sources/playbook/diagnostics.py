"""The steps of a playbook, and how they are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from offbook.errors import (
    PlaybookError,
    ScriptExhausted,
    ScriptMismatch,
    ScriptUnfinished,
    did_you_mean,
)
from offbook.exchange.messages import AnyBlock, Text, Thinking, ToolCall, to_json
from offbook.sources.playbook.actions import Action, Actions, Call, Fail, Role, Say, Think, Turn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from offbook.exchange.messages import Message
    from offbook.exchange.model import Request


# --- The steps of a playbook, and how they are told.

TEXT_LIMIT = 60
PARAMS_LIMIT = 80


class Step(msgspec.Struct, frozen=True):
    """One message of the model, with its place in the whole playbook (counted from 1)."""

    number: int
    actions: tuple[Action, ...]
    place: str

    @property
    def calls(self) -> list[Call]:
        """The tools that it calls."""
        return [action for action in self.actions if isinstance(action, Call)]

    def __str__(self) -> str:
        return f"{self.number}. {' + '.join(map(describe, self.actions))}"


def describe(action: Action) -> str:
    """An action as its author wrote it, cut to fit a line."""
    match action:
        case Call(tool, params):
            shown = "<late-bound>" if callable(params) else cut_text(_dump(params), PARAMS_LIMIT)
            return f'call("{tool}", {shown})'
        case Say(text):
            return f'say("{cut_text(text, TEXT_LIMIT)}")'
        case Think(text):
            return f'think("{cut_text(text, TEXT_LIMIT)}")'
        case Fail(message, status):
            return f'fail("{cut_text(message, TEXT_LIMIT)}", status={status})'


def _dump(value: object) -> str:
    return to_json(value).decode()


def cut_text(text: str, length: int) -> str:
    """The text, cut to fit."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def estimate_tokens(block: AnyBlock) -> int:
    """Tokens, as a rule of thumb: four characters each."""
    match block:
        case Text(text) | Thinking(text):
            return len(text) // 4 + 1
        case ToolCall(_, name, arguments):
            return (len(name) + len(_dump(arguments))) // 4 + 1
        case _:
            return 0


# --- Playbooks that could never run, refused before they do.


def validate(
    script: Iterable[Turn | Role],
    *,
    tools: Iterable[str] | None = None,
    commands: Iterable[str] = (),
) -> None:
    """Refuse a playbook that could never run: an empty turn, a word after the last, no such tool.

    `tools` are those the subject has, when it knows them beforehand; `commands` those that it
    answers without asking the model.
    """
    known = None if tools is None else set(tools)
    for item in script:
        if isinstance(item, Turn):
            _check_turn(item, set(commands))
            _check_tools(item.actions, f"when({cut_text(item.text, TEXT_LIMIT)!r})", known)


def list_called_tools(script: Iterable[Turn | Role]) -> set[str]:
    """The tools that a script calls."""
    return {
        part.tool
        for item in script
        for action in item.actions
        for part in _group(action)
        if isinstance(part, Call)
    }


def _check_turn(turn: Turn, commands: set[str]) -> None:
    place = f"when({cut_text(turn.text, TEXT_LIMIT)!r})"
    command = turn.text.startswith("/") and turn.text[1:].partition(" ")[0] in commands
    if not turn.actions and not command:
        slash = turn.text.startswith("/")
        hint = f"no command has this name: {did_you_mean(turn.text[1:], commands)}" if slash else ""
        raise PlaybookError(
            "a turn with no actions", where=place, hint=hint or "end it with say(…)"
        )
    for at, action in enumerate(turn.actions[:-1], 1):
        if _ends(action):
            raise PlaybookError(
                f"{_show(turn.actions[at])} comes after {_show(action)}, which ends the turn",
                where=f"{place}, action {at + 1}",
                hint="put it before the say(…), into one list with it, or into its own when(…)",
            )


def _ends(action: Action | Sequence[Action]) -> bool:
    """Whether the agent stops after this message: it says something and calls nothing."""
    group = _group(action)
    spoken = any(isinstance(part, Say) for part in group)
    return spoken and not any(isinstance(part, Call) for part in group)


def _show(action: Action | Sequence[Action]) -> str:
    return " + ".join(map(describe, _group(action)))


def _group(action: Action | Sequence[Action]) -> Sequence[Action]:
    return (action,) if isinstance(action, (Call, Say, Think, Fail)) else action


def _check_tools(actions: Actions, place: str, known: set[str] | None) -> None:
    for at, action in enumerate(actions, 1):
        for part in action if isinstance(action, tuple) else (action,):
            if known is not None and isinstance(part, Call) and part.tool not in known:
                raise PlaybookError(
                    f"the agent has no tool {part.tool!r}",
                    where=f"{place}, action {at}",
                    hint=did_you_mean(part.tool, known),
                )


# --- What went wrong between a playbook and an agent, and what would have been right.

STEPS_SHOWN = 5


def no_matching_role_error(roles: list[Role], request: Request) -> ScriptMismatch:
    """The error for a request that no part of the playbook answers."""
    return ScriptMismatch(
        f"nobody in the playbook answers this request: {describe_request(request)}",
        hint="\n".join(
            (
                f'  system: "{cut_text(request.system, TEXT_LIMIT)}"',
                *_nearest_role(roles, request),
                "  fix: let a role(…) match it, or mend what it is known by",
            )
        ),
    )


def unexpected_prompt_error(said: str, texts: list[str], request: Request) -> ScriptMismatch:
    """The error for a prompt that is not the one of the next turn; these are the turns'."""
    later = next((text for text in texts if text in said), None)
    known = (
        f"when({cut_text(later, TEXT_LIMIT)!r}) comes later" if later else did_you_mean(said, texts)
    )
    return ScriptMismatch(
        "the agent was told something else than the next turn",
        where=f"when({cut_text(texts[0], TEXT_LIMIT)!r})",
        hint="\n".join(
            (
                f"  expected: a user message with {cut_text(texts[0], PARAMS_LIMIT)!r} in it",
                f"  got: {describe_request(request)}",
                f"  nearest: {known}",
                "  fix: mend the prompt or the playbook; a call beside it needs a role(…)",
            )
        ),
    )


def exhausted_error(
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
                f"  got: {describe_request(request)}",
                *_list_steps(left),
                "  fix: end the turn with say(…), or script what the model does next",
            )
        ),
    )


def unfinished_error(left: Sequence[Step], consumed: int, last: Step | None) -> ScriptUnfinished:
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
                f"  got: it stopped {stopped}",
                *_list_steps(left),
                "  fix: remove what is never reached, or find out why the agent stopped",
            )
        ),
    )


def missing_result_error(step: Step) -> ScriptUnfinished:
    """The error for a callback whose result never came."""
    return ScriptUnfinished(
        f"the result of step {step} never came back, so its .then() did not run",
        where=step.place,
        hint="  fix: end the turn with say(…), so that the agent reports its results",
    )


def _list_steps(steps: Sequence[Step]) -> list[str]:
    if not steps:
        return ["  remaining: nothing"]
    lines = ["  remaining:", *(f"    {step}" for step in steps[:STEPS_SHOWN])]
    more = len(steps) - STEPS_SHOWN
    return [*lines, f"    ... +{more} more"] if more > 0 else lines


def _nearest_role(roles: list[Role], request: Request) -> list[str]:
    """The role that lacks least of being this request's, and what it lacks."""
    if not roles:
        return ["  roles: none"]
    nearest_ = min(roles, key=lambda role_: _distance(role_.misfits(request)))
    lines = [f"  nearest role: {nearest_.name!r}"]
    for by, wanted, came_ in nearest_.misfits(request):
        lines.append(
            f"    its {by} {cut_text(repr(wanted), TEXT_LIMIT)} is not in {cut_text(repr(came_), TEXT_LIMIT)}"
        )
    return lines


def _distance(misfits: list[tuple[str, object, object]]) -> float:
    from difflib import SequenceMatcher

    ratios = (SequenceMatcher(None, str(w), str(c)[:500]).ratio() for _, w, c in misfits)
    return sum(1 - ratio for ratio in ratios)


def describe_request(request: Request) -> str:
    """What a request brought, in one line."""
    fresh = request.new_messages
    return _describe_message(fresh[-1]) if fresh else "a request with nothing new in it"


def _describe_message(message: Message) -> str:
    results = message.results
    if results:
        kind = "an error" if results[-1].is_error else "a result"
        return (
            f'{kind} of {results[-1].name or "a tool"}: "{cut_text(results[-1].text, TEXT_LIMIT)}"'
        )
    return f'a {message.role} message: "{cut_text(message.text, TEXT_LIMIT)}"'
