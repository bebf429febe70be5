"""Behaviours of a generated model: how many a second, and what they cost in frameworks.

Budgets: at least 800 behaviours a second for a session with two tools of its own, with a process on
each of two processors. It is absolute, a time on the clock, so on a busy machine it says nothing;
the next lines have the rate for a second of CPU, with all behaviours and with those of one prompt,
and what a prompt costs in the same run in bare Python, which tells a slow machine from slow code.

In pydantic-ai, LangGraph and OpenAI Agents a behaviour takes at most 1.3 times the CPU of the
client of the SDK with the same responses and without Offbook, from a transport below that client,
measured in turns. Both make a new agent for each behaviour. A fake model of the framework is shown
too: it replaces that client, which Offbook leaves in place.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, cast

import httpx2
from agents import Agent as OpenAIAgent
from agents import Model, ModelResponse, Runner, Usage, function_tool
from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType] - it has no types
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse as PydanticResponse
from pydantic_ai.messages import TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from offbook import drive, session
from offbook.determinism.run_context import apply_patch
from offbook.exchange.dialects.dialect import HttpResponse
from offbook.exchange.messages import RAW_ARGUMENTS
from offbook.explore import explore, playing
from offbook.explore.argument_values import ArgumentValues
from offbook.explore.generated_model import GeneratedModel
from offbook.explore.moves import END, Move, resolve
from offbook.explore.playing import Job, Stage
from offbook.explore.sdk_conversions import SdkConversions, share_ssl_contexts
from offbook.runs.run import Run
from offbook.sources.server.endpoint import Endpoint
from offbook.trace.events import AGENT_START

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
os.environ["OPENAI_API_KEY"] = "none"
logging.disable()  # OpenAI Agents logs each error of a tool
PROMPT = "Refund order 7"
LEAST, MOST = 800, 1.3
SESSION_RUNS, RUNS, ROUNDS = 300, 20, 3
PARALLEL_RUNS, PROCESSES = 1000, 2
NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
Moves = tuple[Move, ...]


def find_order(number: int) -> str:
    """Find an order."""
    return f"order {number}"


def refund(number: int) -> str:
    """Refund an order."""
    return f"refunded {number}"


# --- a session


def extension(api: Any) -> None:
    """Register two tools."""

    @api.tool("find_order", "Find an order.", NUMBER)
    def run_find_order(params: dict[str, Any], _: object) -> str:
        return find_order(params["number"])

    @api.tool("refund", "Refund an order.", NUMBER)
    def run_refund(params: dict[str, Any], _: object) -> str:
        return refund(params["number"])


def make_session() -> Any:
    """Return a session with two tools beside the built-in ones, which are mocked."""
    mocks: dict[str, str] = dict.fromkeys(("bash", "edit", "read", "write"), "ok")
    return session(extensions=[extension], mock_tools=mocks)


def behaviours_on_the_clock() -> float:
    """Return the most behaviours that one second had in a round, in two processes."""
    rates: list[float] = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        explore(make_session, PROMPT, runs=PARALLEL_RUNS, jobs=PROCESSES)
        rates.append(PARALLEL_RUNS / (time.perf_counter() - start))
    return max(rates)


def behaviours_a_second() -> float:
    """Return the most behaviours that one second of CPU had in a round."""
    explore(make_session, PROMPT, runs=50)
    rates: list[float] = []
    for _ in range(ROUNDS):
        gc.collect()
        start = cpu_seconds()
        explore(make_session, PROMPT, runs=SESSION_RUNS)
        rates.append(SESSION_RUNS / (cpu_seconds() - start))
    return max(rates)


@contextmanager
def one_prompt() -> Generator[None]:
    """Let the user of every behaviour have one prompt only."""
    share, playing.SECOND_PROMPTS = playing.SECOND_PROMPTS, 0.0
    try:
        yield
    finally:
        playing.SECOND_PROMPTS = share


def size_of_a_behaviour() -> tuple[float, float]:
    """Return the average requests and prompts of a behaviour."""
    requests = prompts = 0
    with Stage(make_session, (PROMPT,), (), (Exception,)) as stage:
        for number in range(SESSION_RUNS):
            requests += stage.play(Job(seed=f"0:{number}", steps=5)).requests
            prompts += len(cast("Run", stage.last_run).events.named(AGENT_START))
    return requests / SESSION_RUNS, prompts / SESSION_RUNS


async def prompts_in_turns() -> tuple[list[float], list[float]]:
    """Return the costs of rounds of prompts in a session and in bare Python, in microseconds."""
    import session as prompts

    return await prompts.against_floor()


def floor_of_a_behaviour(requests: float) -> float:
    """Return the CPU seconds of so many requests in an open session.

    A prompt with one tool call has two requests. A search also makes a new session for each
    behaviour, chooses the moves and looks for bugs.
    """
    import session as prompts

    return asyncio.run(prompts.ours()) / 1e6 * requests / 2


def cpu_seconds() -> float:
    """Return the CPU of this process and of the workers that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


# --- the same moves by the fake model of each framework


class Player:
    """Returns the moves of one behaviour, then the end: the calls as (id, tool, arguments)."""

    def __init__(self, moves: Moves) -> None:
        self._moves = iter(moves)
        self._calls = 0

    def next(self) -> tuple[str, list[tuple[str, str, Any]]]:
        """Return the text and the calls of the next message."""
        move = next(self._moves, END)
        calls: list[tuple[str, str, Any]] = []
        for made in move.calls:
            self._calls += 1
            calls.append((f"call_{self._calls}", made.tool, resolve(made.arguments, [7])))
        return move.text or ("" if calls else END.text), calls


def as_json(arguments: Any) -> str:
    """Return arguments as a model sends them."""
    raw = arguments.get(RAW_ARGUMENTS)
    return raw if isinstance(raw, str) else json.dumps(arguments)


def make_pydantic_agent(model: Any = "openai-chat:gpt-4o") -> Any:
    """Return an agent of pydantic-ai."""
    return Agent(model, tools=[find_order, refund])


async def play_pydantic(moves: Moves) -> None:
    """Play moves with FunctionModel."""
    player = Player(moves)

    def reply(*_: Any) -> PydanticResponse:
        text, calls = player.next()
        parts: list[Any] = [TextPart(text)] if text else []
        return PydanticResponse(
            [*parts, *(ToolCallPart(name, as_json(args), call_id) for call_id, name, args in calls)]
        )

    await make_pydantic_agent(FunctionModel(reply)).run(PROMPT)


def make_graph(model: Any = None) -> Any:
    """Return an agent of LangChain, which is a graph of LangGraph."""
    model = model or ChatOpenAI(model="gpt-4o")
    graph: Any = cast("Any", create_agent)(model, [tool(find_order), tool(refund)])
    return graph


class FakeChatModel(BaseChatModel):
    """A chat model as the tests of LangChain have it."""

    player: Any

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        """Ignore the tools."""
        return self

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        text, calls = self.player.next()
        made: Any = [
            {"id": call_id, "name": name, "args": {} if RAW_ARGUMENTS in args else args}
            for call_id, name, args in calls
        ]
        return ChatResult(
            generations=[ChatGeneration(message=AIMessage(content=text, tool_calls=made))]
        )


async def play_graph(moves: Moves) -> None:
    """Play moves with a fake chat model."""
    graph = make_graph(FakeChatModel(player=Player(moves)))
    await graph.ainvoke({"messages": [{"role": "user", "content": PROMPT}]})


def make_openai_agent(model: Any = None) -> Any:
    """Return an agent of OpenAI Agents."""
    tools: list[Any] = [function_tool(find_order), function_tool(refund)]
    return OpenAIAgent(name="shop", tools=tools, model=model)


class FakeModel(Model):
    """A model as the tests of OpenAI Agents have it."""

    def __init__(self, player: Player) -> None:
        self._player = player

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        """Return the next move."""
        text, calls = self._player.next()
        output: list[Any] = [
            ResponseFunctionToolCall(
                arguments=as_json(args), call_id=call_id, name=name, type="function_call"
            )
            for call_id, name, args in calls
        ]
        if text:
            part = ResponseOutputText(annotations=[], text=text, type="output_text")
            output.append(
                ResponseOutputMessage(
                    id="m", content=[part], role="assistant", status="completed", type="message"
                )
            )
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        """Not used."""
        raise NotImplementedError


async def play_openai_agent(moves: Moves) -> None:
    """Play moves with a fake model."""
    await Runner.run(make_openai_agent(FakeModel(Player(moves))), PROMPT)


class Framework(NamedTuple):
    """A framework: its agent, a behaviour with its own fake model, and a plain run."""

    make_agent: Callable[[], Any]
    play: Callable[[Moves], Any]
    run: Callable[[Any], Any]


FRAMEWORKS = {
    "pydantic-ai": Framework(make_pydantic_agent, play_pydantic, lambda agent: agent.run(PROMPT)),
    "LangGraph": Framework(
        make_graph,
        play_graph,
        lambda graph: graph.ainvoke({"messages": [{"role": "user", "content": PROMPT}]}),
    ),
    "OpenAI Agents": Framework(
        make_openai_agent, play_openai_agent, lambda agent: Runner.run(agent, PROMPT)
    ),
}


class Played(NamedTuple):
    """A behaviour of the search: the moves of the model, and its responses on the wire."""

    moves: Moves
    responses: tuple[HttpResponse, ...]


def cost_of_search(framework: Framework) -> tuple[float, list[Played]]:
    """Return the CPU seconds of a search, and what was played."""
    played: list[Played] = []
    responses: list[HttpResponse] = []
    values = ArgumentValues({}, PROMPT)

    async def answer(original: Callable[..., Any], *args: Any) -> HttpResponse:
        responses.append(response := await original(*args))
        return response

    gc.collect()
    undo = apply_patch(Endpoint, "answer", answer)
    start = time.process_time()
    with Stage(lambda: drive(framework.make_agent()), (PROMPT,), (), (Exception,)) as stage:
        for number in range(RUNS):
            model = GeneratedModel(values, seed=f"0:{number}", steps=5)
            stage.play_model(model, Job("a plain run"))
            played.append(Played(tuple(model.moves), tuple(responses)))
            responses.clear()
    cost = time.process_time() - start
    undo()
    return cost, played


def cost_of_fake(framework: Framework, played: list[Played]) -> float:
    """Return the CPU seconds of the same behaviours with the framework's own fake model."""
    return cost_of_all([partial(framework.play, moves) for moves, _ in played])


def cost_of_client(framework: Framework, played: list[Played], *, skip: bool = False) -> float:
    """Return the CPU seconds of the same behaviours without Offbook, with the SDK's own client.

    Its transport returns the responses of the search. As in a search, the agents share the
    certificates, and a client is made for each. With `skip`, known conversions are skipped, too.
    """
    canned: list[HttpResponse] = []

    async def respond(_: Any, transport: Any, request: Any) -> Any:  # noqa: ARG001 - the signature of httpx
        response = canned.pop(0)
        return httpx2.Response(response.status, headers=response.headers, content=response.body)

    async def play(responses: tuple[HttpResponse, ...]) -> None:
        canned[:] = responses
        await framework.run(framework.make_agent())

    undo = [apply_patch(httpx2.AsyncHTTPTransport, "handle_async_request", respond)]
    undo.append(share_ssl_contexts())
    conversions = SdkConversions()
    undo.append(conversions.stop)
    if skip:
        conversions.start()
    try:
        return cost_of_all([partial(play, responses) for _, responses in played])
    finally:
        for restore in undo:
            restore()


def cost_of_all(behaviours: list[Callable[[], Any]]) -> float:
    """Return the CPU seconds of behaviours, one after the other in one event loop."""

    async def play_all() -> float:
        start = time.process_time()
        for play in behaviours:
            with suppress(Exception):  # the agent gives up, as in the search
                await play()
        return time.process_time() - start

    gc.collect()
    return asyncio.run(play_all())


def main() -> int:
    """Measure, print, and return 1 if a budget is exceeded."""
    rate = behaviours_a_second()
    clock = behaviours_on_the_clock()
    each, prompts = size_of_a_behaviour()
    floor = floor_of_a_behaviour(each)
    figure = (
        f"{rate:.0f} a second of CPU; the {each:.1f} requests of a behaviour alone,"
        f" in an open session, allow {1 / floor:.0f}"
    )
    name = f"session, {PROCESSES} processes"
    lines = [(name, f"{clock:.0f} a second", clock >= LEAST), ("  of one processor", figure, True)]
    mine, bare = asyncio.run(prompts_in_turns())
    ratio = statistics.median(own / floor for own, floor in zip(mine, bare, strict=True))
    figure = (
        f"{min(bare):.0f} µs; in an open session {min(mine):.0f} µs, {ratio:.1f} x: a slow"
        f" machine slows both, slow code only the second (44 µs where {LEAST} a second was set)"
    )
    lines.append(("  a prompt in bare Python", figure, True))
    with one_prompt():
        rate, (requests, _) = behaviours_a_second(), size_of_a_behaviour()
    figure = f"{rate:.0f} a second of CPU, {requests:.1f} requests; above, {prompts:.2f} prompts"
    lines.append(("  with one prompt", figure, True))
    for name, framework in FRAMEWORKS.items():
        _, played = cost_of_search(framework)  # the first one warms up
        cost_of_fake(framework, played)
        cost_of_client(framework, played)
        cost_of_client(framework, played, skip=True)
        rounds = [
            (
                cost_of_search(framework)[0],
                cost_of_fake(framework, played),
                cost_of_client(framework, played),
                cost_of_client(framework, played, skip=True),
            )
            for _ in range(ROUNDS)
        ]
        ours, fake, client, least = (
            min(column) / RUNS * 1e3 for column in zip(*rounds, strict=True)
        )
        requests = sum(len(responses) for _, responses in played) / RUNS
        figure = (
            f"{ours:.1f} ms, its fake model {fake:.1f} ms, {requests:.1f} requests;"
            f" its client with canned responses {client:.1f} ms,"
            f" {least:.1f} ms with known conversions skipped"
        )
        lines.append((f"{name}: {ours / client:.2f} x", figure, ours / client <= MOST))
    for name, value, holds in lines:
        print(f"{name:28} {value:145} {'ok' if holds else 'OVER BUDGET'}")
    return 0 if all(holds for *_, holds in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
