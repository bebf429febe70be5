"""The work for a prompt does not grow with the session, counted in calls, not in time."""

import ast
from pathlib import Path

import pytest

from offbook import call, say, session, when
from offbook.subjects.session import Api
from tests.counting import count_calls
from tests.forked import run_python

TURNS = (10, 100, 1000)
MANY_TURNS = (*TURNS, 10_000)
BUDGET = 650  # calls of a prompt with one tool, of which there were 954 before events were grouped


def register_weather(api: Api) -> None:
    @api.tool("weather", "The weather in a city.", {"type": "object"})
    def get_weather(_params: dict[str, object], _context: object) -> str:
        return "sunny"


async def count_prompts(measured: tuple[int, ...]) -> dict[int, int]:
    counted: dict[int, int] = {}
    async with session(extensions=[register_weather]) as rehearsal:
        for turn in range(1, max(measured) + 1):
            steps = [call("weather", {"city": f"Rome {turn}"}), say(f"Sunny on day {turn}.")]
            work = rehearsal.run(when(f"Weather on day {turn}?", steps))
            if turn in measured:
                _, counted[turn] = await count_calls(work)
            else:
                await work
    return counted


def test_a_prompt_costs_the_same_after_any_number_of_prompts():
    assert_flat(TURNS)


@pytest.mark.slow
def test_a_prompt_costs_the_same_after_ten_thousand_prompts():
    assert_flat(MANY_TURNS)


def assert_flat(measured: tuple[int, ...]) -> None:
    # In a new process: what other tests have imported and left behind is not counted.
    program = (
        f"import asyncio; from {__name__} import count_prompts;"
        f" print(asyncio.run(count_prompts({measured})))"
    )
    ended = run_python("-c", program, cwd=Path(__file__).parents[3])
    assert ended.stderr == ""
    counted: dict[int, int] = ast.literal_eval(ended.stdout)
    first, *later = counted.values()
    assert all(abs(calls - first) <= first / 10 for calls in later), counted
    assert first <= BUDGET, counted
