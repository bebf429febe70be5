"""What agents ask people, and the answers: an approval of a tool call, or a text.

A subject asks by `RunContext.ask`, whatever its framework calls it (an approval, an interrupt, an
elicitation). The script answers: `person("refund", allow)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec

from offbook.errors import ScriptMismatch, UsageError

T = TypeVar("T")


class PersonQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an agent asks a person: whether a `tool` may run with this `input`, or a `text`."""

    text: str = ""
    tool: str = ""
    input: Any = None

    def __str__(self) -> str:
        if not self.tool:
            return repr(self.text)
        return f"{self.tool}({msgspec.json.encode(self.input, enc_hook=repr).decode()})"


class Allow(msgspec.Struct, frozen=True):
    """The person allows it; with `params`, after they have changed the parameters of the call.

    person("refund", allow)
    person("refund", allow({"amount": 5}))
    """

    params: Mapping[str, Any] | None = None

    def __call__(self, params: Mapping[str, Any]) -> Allow:
        """Return the answer of a person who changes the parameters."""
        return Allow(dict(params))


class Deny(msgspec.Struct, frozen=True):
    """The person refuses it, with a reason: `person("refund", deny("too much"))`."""

    reason: str = ""

    def __call__(self, reason: str) -> Deny:
        """Return the answer of a person who gives a reason."""
        return Deny(reason)


allow = Allow()
deny = Deny()

Answer = Any  # `Allow`, `Deny`, or the value that the person gives


@runtime_checkable
class AnswersPeople(Protocol):
    """A source that also answers what the agent asks a person."""

    async def answer(self, question: PersonQuestion, /) -> Answer:
        """Return the person's answer, or raise if the script has none."""
        ...


async def ask_source(source: object, question: PersonQuestion) -> Answer:
    """Return the answer of a source to a question, or raise if it answers none."""
    if not isinstance(source, AnswersPeople):
        raise ScriptMismatch(
            f"the agent asked a person {question}, and {type(source).__name__} has no answers",
            hint='script it: person("…", allow) in a playbook',
        )
    return await source.answer(question)


class Ask(Protocol):
    """Asks a person."""

    async def __call__(self, question: PersonQuestion, /) -> Answer:
        """Return the answer."""
        ...


def require_decision(
    answer: Answer,
    tool: str,
    *,
    allow: Callable[[Mapping[str, Any] | None], T],
    deny: Callable[[str], T],
) -> T:
    """Return what a framework makes of an approval: `allow` gets the changed parameters."""
    if isinstance(answer, Allow):
        return allow(answer.params)
    if isinstance(answer, Deny):
        return deny(answer.reason)
    raise UsageError(
        f"{tool} waits for an approval, and person({tool!r}, {answer!r}) is none",
        hint=f"write person({tool!r}, allow) or person({tool!r}, deny)",
    )


def require_value(answer: Answer, tool: str) -> Any:
    """Return the value that a person gives, for a call whose result is theirs."""
    if isinstance(answer, (Allow, Deny)):
        raise UsageError(
            f"{tool} waits for a result, and person({tool!r}, …) has an approval",
            hint=f'write person({tool!r}, "the result")',
        )
    return answer


def describe_answer(answer: Answer) -> str:
    """Return an answer as the script writes it."""
    if isinstance(answer, Allow):
        return "allow" if answer.params is None else f"allow({dict(answer.params)!r})"
    if isinstance(answer, Deny):
        return f"deny({answer.reason!r})" if answer.reason else "deny"
    return repr(answer)
