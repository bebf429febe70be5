"""One prompt with one tool call: our session with its trace, against the fake models of peers.

Budgets: at least 20 times less CPU than pydantic-ai with its TestModel, 10 times less than
openai-agents with a fake model; 10,000 turns in one session cost the same per turn, within 20 %,
at the end as at the beginning, and the harness keeps nothing of them in memory but their events.
These it must keep: an agent can change the file, and the file has masks instead of secrets. Each
takes as many bytes as its line in the trace.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from floors.prompt import Prompts, Search, search_secrets

from offbook import call, say, session, when
from offbook.exchange.messages import History

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}


async def cost(once: Callable[[], Awaitable[object]], runs: int) -> float:
    """Return the CPU microseconds of one run: the best of five rounds, after a warm-up."""
    for _ in range(max(3, runs // 10)):
        await once()
    rounds: list[float] = []
    for _ in range(5):
        gc.collect()
        start = time.process_time()
        for _ in range(runs):
            await once()
        rounds.append((time.process_time() - start) / runs * 1e6)
    return min(rounds)


def weather(api: Any) -> None:
    """Register one tool, as an extension."""

    @api.tool("weather", "The weather in a city.", SCHEMA)
    def get_weather(params: dict[str, Any], _: object) -> str:
        return f"sunny in {params['city']}"


async def ours() -> float:
    """Measure our session: playbook, loop, schema check, trace on disk, automatic assertions."""
    async with session(extensions=[weather]) as rehearsal:

        async def once() -> None:
            await rehearsal.run(
                when("Weather?", [call("weather", {"city": "Rome"}), say("It is sunny.")])
            )

        return await cost(once, 300)


async def bare(search: Search | None) -> float:
    """Measure the same work in bare Python: the least that a prompt with this trace can cost.

    See `floors/prompt.py`; without a `search`, no secrets are searched in the trace.
    """
    with tempfile.TemporaryFile(buffering=0) as file:
        return await cost(Prompts(SCHEMA, file.fileno(), search).run, 300)


async def against_floor(rounds: int = 9) -> tuple[list[float], list[float]]:
    """Return the costs of rounds of our session and of the same work in bare Python, in turns.

    Each ratio is of two rounds that follow each other: a neighbour who is busy slows both.
    """
    costs: tuple[list[float], list[float]] = ([], [])
    with tempfile.TemporaryFile(buffering=0) as file:
        async with session(extensions=[weather]) as rehearsal:

            async def once() -> None:
                await rehearsal.run(
                    when("Weather?", [call("weather", {"city": "Rome"}), say("It is sunny.")])
                )

            floor = Prompts(SCHEMA, file.fileno(), search_secrets())
            for number in range(rounds + 1):  # the first one warms up
                for run, column in zip((once, floor.run), costs, strict=True):
                    gc.collect()
                    start = time.process_time()
                    for _ in range(300):
                        await run()
                    taken = (time.process_time() - start) / 300 * 1e6
                    column.extend([taken] * bool(number))
    return costs


async def pydantic_ai() -> float:
    """Measure pydantic-ai with its TestModel, which calls the tool and answers."""
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    agent = Agent(TestModel(custom_output_text="It is sunny."))

    @agent.tool_plain
    def weather(city: str) -> str:  # pyright: ignore[reportUnusedFunction] - registered by name
        """Return the weather in a city."""
        return f"sunny in {city}"

    return await cost(lambda: agent.run("Weather?"), 60)


async def openai_agents() -> float:
    """Measure openai-agents with a model of two scripted replies."""
    from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    class Fake(Model):
        def __init__(self) -> None:
            self.requests = 0

        async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
            self.requests += 1
            if self.requests % 2:
                item = ResponseFunctionToolCall(
                    arguments='{"city":"Rome"}',
                    call_id=f"call_{self.requests}",
                    name="weather",
                    type="function_call",
                )
            else:
                text = ResponseOutputText(annotations=[], text="It is sunny.", type="output_text")
                item = ResponseOutputMessage(
                    id="m", content=[text], role="assistant", status="completed", type="message"
                )
            return ModelResponse(output=[item], usage=Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    @function_tool
    def weather(city: str) -> str:
        """Return the weather in a city."""
        return f"sunny in {city}"

    agent = Agent(name="a", instructions="Help.", tools=[weather], model=Fake())
    return await cost(lambda: Runner.run(agent, "Weather?"), 60)


async def many_turns(total: int) -> tuple[float, float, int, int]:
    """CPU microseconds a turn at the beginning and the end; bytes kept and of events per turn."""
    marks: dict[int, float] = {}
    kept: dict[int, int] = {}
    window = total // 10

    def scripted(count: int) -> list[Any]:
        steps = [call("weather", {"city": "Rome"}), say("It is sunny.")]
        return [when(f"Weather on day {n}?", steps) for n in range(count)]

    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "t.jsonl"
        async with session(extensions=[weather], trace=trace) as rehearsal:
            await rehearsal.run(*scripted(window))
            for done in range(window, total, window):
                gc.collect()
                start = time.process_time()
                await rehearsal.run(*scripted(window))
                marks[done] = (time.process_time() - start) / window * 1e6
            tracemalloc.start()
            for extra in range(2):
                await rehearsal.run(*scripted(window))
                forget(rehearsal)
                gc.collect()
                kept[extra] = tracemalloc.get_traced_memory()[0]
            tracemalloc.stop()
        written = trace.stat().st_size
    costs = [marks[at] for at in sorted(marks)]
    third = max(1, len(costs) // 3)
    return (
        sum(costs[:third]) / third,
        sum(costs[-third:]) / third,
        (kept[1] - kept[0]) // window,
        written // (total + 2 * window),
    )


def forget(rehearsal: Any) -> None:
    """Drop the conversation, which belongs to the agent, and the events, which are evidence.

    The trace refers to the latest request of each open conversation: a thousand of them at most.
    """
    rehearsal.session._history = History()  # noqa: SLF001 - no public API
    rehearsal.session._source._source._open.clear()  # noqa: SLF001 - no public API
    rehearsal.read_events()
    rehearsal._trace._events.clear()  # noqa: SLF001 - no public API


async def main() -> int:
    """Measure, print, and return 1 if a budget is exceeded."""
    mine = await ours()
    floor = await bare(search_secrets())
    pydantic = await pydantic_ai()
    agents = await openai_agents()
    first, last, kept, events = await many_turns(10_000)
    lines = [
        ("prompt with one tool call", f"{mine:.0f} µs of CPU", True),
        ("  the same work in bare Python", f"{floor:.0f} µs, {mine / floor:.1f} x", True),
        ("  pydantic-ai TestModel", f"{pydantic / mine:.1f} x", pydantic / mine >= 20),
        ("  openai-agents, fake model", f"{agents / mine:.1f} x", agents / mine >= 10),
        ("10,000 turns: last / first third", f"{last / first:.2f}", last / first <= 1.2),
        ("  bytes kept by the harness per turn", f"{kept}", kept < 64),
        ("  bytes of events per turn, kept as well", f"{events}", True),
    ]
    for name, value, holds in lines:
        print(f"{name:45} {value:>20}  {'ok' if holds else 'OVER BUDGET'}")
    return 0 if all(holds for *_, holds in lines) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
