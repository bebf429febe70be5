"""Playbooks that could never run, refused before they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbook.errors import PlaybookError, nearest
from offbook.sources.playbook.actions import Action, Actions, Call, Fail, Role, Say, Think, Turn
from offbook.sources.playbook.steps import SAID, cut_text, describe

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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
            _check_tools(item.actions, f"when({cut_text(item.text, SAID)!r})", known)


def list_called(script: Iterable[Turn | Role]) -> set[str]:
    """The tools that a script calls."""
    return {
        part.tool
        for item in script
        for action in item.actions
        for part in _group(action)
        if isinstance(part, Call)
    }


def _check_turn(turn: Turn, commands: set[str]) -> None:
    place = f"when({cut_text(turn.text, SAID)!r})"
    command = turn.text.startswith("/") and turn.text[1:].partition(" ")[0] in commands
    if not turn.actions and not command:
        slash = turn.text.startswith("/")
        hint = f"no command has this name: {nearest(turn.text[1:], commands)}" if slash else ""
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
                    hint=nearest(part.tool, known),
                )
