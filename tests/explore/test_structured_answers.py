"""Tools of a structured answer: a call of one ends the run, so it has no result."""

from __future__ import annotations

from typing import Any, cast

import openai
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry

from offbook import drive
from offbook.explore.moves import GeneratedCall, Move
from offbook.explore.playing import Job, Stage

PROMPT = "How many lamps?"
ANSWER = GeneratedCall("final_result", {"lamps": 7})


class Answer(BaseModel):
    lamps: int


def world() -> Any:
    return drive(Agent("openai-chat:gpt-4o", output_type=Answer))


def refusing_world() -> Any:
    agent = Agent("openai-chat:gpt-4o", output_type=Answer, retries=9)

    @agent.output_validator
    def refuse(_: Answer) -> Answer:  # pyright: ignore[reportUnusedFunction]
        raise ModelRetry("Error: there are no lamps")

    return drive(agent)


def reads_one_text(prompt: str) -> str:
    """Return the text of one message, whatever else it has."""
    function = {"name": "final_result", "parameters": {"type": "object"}}
    reply = openai.OpenAI(api_key="none").chat.completions.create(
        model="gpt-4o",
        messages=[{"role": "user", "content": prompt}],
        tools=[{"type": "function", "function": cast("Any", function)}],
    )
    return reply.choices[0].message.content or ""


@pytest.mark.parametrize(
    "agent, move, succeeded",
    [
        (world, Move((ANSWER,)), ("final_result",)),
        (refusing_world, Move((ANSWER,)), ()),
        (lambda: reads_one_text, Move((ANSWER,), "Let me", "length"), ()),
    ],
    ids=["accepted", "refused", "cut short"],
)
def test_a_call_that_ends_the_run_has_succeeded(agent: Any, move: Move, succeeded: tuple[str, ...]):
    with Stage(agent, (PROMPT,), ()) as stage:
        assert stage.play(Job(moves=(move,))).succeeded == succeeded
