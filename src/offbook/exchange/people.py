"""What agents ask people, and the answers: an approval of a tool call, or a text.

A subject asks by `RunContext.ask`, whatever its framework calls it (an approval, an interrupt, an
elicitation). The script answers: `person("refund", allow)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import msgspec

from offbook.errors import ScriptMismatch, UsageError

if TYPE_CHECKING:
    from offbook.exchange.model import ModelSource

T = TypeVar("T")


class PersonQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an agent asks a person: whether a `tool` may run with this `input`, or a `text`.

    `default` is the answer without a script.
    """

    text: str = ""
    tool: str = ""
    input: Any = None
    default: Any = None

    def __str__(self) -> str:
        if not self.tool:
            return repr(self.text)
        from offbook.exchange.messages import to_json  # late: few runs ask a person

        return f"{self.tool}({to_json(self.input).decode()})"


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


# --- A person who writes the prompts

DONE = "[done]"
MAX_TURNS = 8
INSTRUCTIONS = (
    "You are a person who talks with an assistant, to reach this goal: {goal}\n"
    "Write the next message of the person and nothing else: short, as people write. Do not help "
    "the assistant. Answer its questions in the person's place. When the goal is reached, or when "
    f"it cannot be reached, write {DONE}."
)
FIRST_REQUEST = "(The conversation begins.)"


class SimulatedPerson:
    """A person with a goal, who prompts the agent until it is reached, at most `turns` times.

        person = SimulatedPerson("Get the money for order 7 back.", source, reached=is_refunded)
        rehearsal.run(person)

    `speaker` plays the person: a list of messages, or a source, such as a cassette or a live
    model. A source gets the goal as its system prompt and the answers of the agent as messages; it
    ends the conversation with `[done]`. After each answer, `reached` gets the events of the run,
    and returns whether the goal is reached; without it, the word of the source decides.
    """

    def __init__(
        self,
        goal: str,
        speaker: Sequence[str] | ModelSource,
        *,
        reached: Callable[[Any], object] | None = None,
        turns: int = MAX_TURNS,
    ) -> None:
        scripted = isinstance(speaker, Sequence)
        if isinstance(speaker, str) or (scripted and not speaker):
            raise UsageError(
                "the messages of the person must be a list of texts",
                hint='write SimulatedPerson("Get a refund", ["I want my money back."], …)',
            )
        if scripted and reached is None:
            raise UsageError(
                "nothing says whether the goal is reached",
                hint='add reached=lambda events: events.tool_calls_for("refund")',
            )
        if turns < 1:
            raise UsageError(f"turns: expected an integer >= 1, got {turns}")
        self.goal = goal
        self.turns = turns
        self.is_done = False
        self.dialogue: list[tuple[str, str]] = []  # the person's message, and the agent's answer
        self._speaker = speaker
        self._reached = reached

    def is_reached(self, events: Any) -> bool:
        """Return whether the goal is reached, after these events of the run."""
        return self.is_done if self._reached is None else bool(self._reached(events))

    async def next_message(self) -> str | None:
        """Return the next message of the person, or None if they end the conversation."""
        if isinstance(self._speaker, Sequence):
            said = len(self.dialogue)
            return self._speaker[said] if said < len(self._speaker) else None
        from offbook.exchange.messages import History, Message, Text, user
        from offbook.exchange.model import Request

        # The roles are exchanged: what the agent answered is what the person is asked.
        messages = [user(FIRST_REQUEST)]
        for said, answer in self.dialogue:
            messages += [Message("assistant", (Text(said),)), user(answer)]
        request = Request(History(messages), INSTRUCTIONS.format(goal=self.goal))
        text = (await self._speaker.reply(request)).text
        self.is_done = DONE in text
        return None if self.is_done else text

    def describe(self) -> str:
        """Return the conversation, for an error message."""
        lines = [f"  person: {said}\n  agent: {answer}" for said, answer in self.dialogue]
        return "\n".join(lines)
