"""Two conversations with one agent at the same time, as a server has them with two users."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from offbook.explore.generated_model import SECOND_CALLS, GeneratedModel, PatientPlaybook
from offbook.explore.moves import Move

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from offbook.exchange.model import Reply, Request
    from offbook.exchange.people import Answer, PersonQuestion
    from offbook.runs.rehearsal import Rehearsal
    from offbook.sources.playbook.actions import Turn

Model = GeneratedModel | PatientPlaybook


class SideBySide:
    """A source with two models: a request gets its reply from the one of its conversation.

    The first prompt of a request says which conversation it belongs to.
    """

    releases_held = True  # as both models do
    has_people = True

    def __init__(self, first: Model, second: Model, prompts: tuple[str, str]) -> None:
        self.first = first
        self.second = second
        self.prompts = prompts
        self.is_open = False

    async def reply(self, request: Request, /) -> Reply:
        """Return the reply of the model of this conversation."""
        is_second = self.is_open and request.first_prompt == self.prompts[1]
        return await (self.second if is_second else self.first).reply(request)

    async def answer(self, question: PersonQuestion, /) -> Answer:
        """Return the answer of the first model: a question does not name its conversation."""
        return await self.first.answer(question)

    def begin(self, rehearsal: Rehearsal) -> bool:
        """Let the first prompt begin both conversations; return False if the agent has only one.

        An agent in a thread has only one: what two threads do is not the same in every run.
        """
        subject: Any = rehearsal.subject
        prompt: Callable[[str], Awaitable[object]] = subject.prompt
        restart: Callable[[], bool] | None = getattr(subject, "start_conversation", None)
        if restart is None or not getattr(subject.adapter, "concurrent", False):
            return False

        async def prompt_second() -> object:
            # The first conversation has begun: it keeps its history.
            return await prompt(self.prompts[1]) if restart() else None

        async def prompt_both(text: str) -> object:
            results = await asyncio.gather(prompt(text), prompt_second(), return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result
            return results[0]

        subject.prompt = prompt_both
        self.is_open = True
        return True

    @property
    def moves(self) -> tuple[Move, ...]:
        """The moves of both models, if they are generated."""
        models = [m for m in (self.first, self.second) if isinstance(m, GeneratedModel)]
        first, second = (model.moves for model in models)
        if not self.is_open:
            return tuple(first)
        return (*first, Move(prompt=self.prompts[1], fresh=True, beside=True), *second)


def load_turns(turns: tuple[Turn, Turn]) -> SideBySide:
    """Return the source for a script of two conversations side by side."""
    playbooks = (PatientPlaybook(), PatientPlaybook(SECOND_CALLS))
    for playbook, turn in zip(playbooks, turns, strict=True):
        playbook.load(turn)
        playbook.open(turn)
    return SideBySide(*playbooks, (turns[0].text, turns[1].text))
