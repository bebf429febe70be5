"""The steps of a playbook, and how they are told."""

from __future__ import annotations

import msgspec

from offbook.exchange.messages import AnyBlock, Text, Thinking, ToolCall, to_json
from offbook.sources.playbook.actions import Action, Call, Fail, Say, Think

SAID = 60
GIVEN = 80


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
            shown = "<late-bound>" if callable(params) else cut_text(_dump(params), GIVEN)
            return f'call("{tool}", {shown})'
        case Say(text):
            return f'say("{cut_text(text, SAID)}")'
        case Think(text):
            return f'think("{cut_text(text, SAID)}")'
        case Fail(message, status):
            return f'fail("{cut_text(message, SAID)}", status={status})'


def _dump(value: object) -> str:
    return to_json(value).decode()


def cut_text(text: str, length: int) -> str:
    """The text, cut to fit."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def weigh_block(block: AnyBlock) -> int:
    """Tokens, as a rule of thumb: four characters each."""
    match block:
        case Text(text) | Thinking(text):
            return len(text) // 4 + 1
        case ToolCall(_, name, arguments):
            return (len(name) + len(_dump(arguments))) // 4 + 1
        case _:
            return 0
