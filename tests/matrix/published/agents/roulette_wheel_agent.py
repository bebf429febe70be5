"""pydantic-ai-examples: the roulette game, which streams and prompts itself twice."""

from breaks import Break, drop_tool, replace_tool
from pydantic_ai_examples import roulette_wheel

from offbook import call, when


def test_eighteen_wins_and_five_loses(offbook, capsys):
    run = offbook.drive(roulette_wheel.main).run(
        when(
            "Put my money on square eighteen",
            [
                call("roulette_wheel", {"square": 18}),
                call("final_result", {"response": True}, unanswered=True),
            ],
        ),
        when(
            "I bet five is the winner",
            [
                call("roulette_wheel", {"square": 5}),
                call("final_result", {"response": False}, unanswered=True),
            ],
        ),
    )
    assert [(tool.input, tool.result.text) for tool in run.executed.known()] == [
        ({"square": 18}, "winner"),
        ({"square": 5}, "loser"),
    ]
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if line.startswith("Bet")] == [
        "Bet on 18: True",
        "Bet on 5: False",
    ]
    assert "Use the `roulette_wheel` function" in run.requests[0].system


async def always_win(_context, square):
    return "winner"


async def main_with_one_bet():
    deps = roulette_wheel.Deps(winning_number=18)
    async with roulette_wheel.roulette_agent.run_stream(
        "Put my money on square eighteen", deps=deps
    ) as response:
        print("Bet on 18:", await response.get_output())


AGENT = roulette_wheel.roulette_agent
BREAKS = {
    "every bet wins": replace_tool(
        AGENT, "roulette_wheel", always_win, "({'square': 5}, 'winner')"
    ),
    "the tool is dropped": drop_tool(AGENT, "roulette_wheel"),
    "the second bet is forgotten": Break(
        lambda patch: patch.setattr(roulette_wheel, "main", main_with_one_bet),
        "I bet five is the winner",
    ),
    "the winning number is lost": Break(
        lambda patch: patch.setattr(roulette_wheel, "Deps", lambda **_: None),
        "'NoneType' object has no attribute 'winning_number'",
    ),
}
