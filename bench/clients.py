"""Offbook as clients see it: a miss through the OpenAI SDK, and a run of a pydantic-ai agent.

Budgets: a request without a match fails the test within 10 ms, with the default client (a retry
would take a second or more). A run of a pydantic-ai agent with one tool call, answered in process
with the trace on disk, takes no more CPU than the same run with its FunctionModel plus two calls
of the SDK over its mock transport. That sum leaves out the agent's OpenAI model, so that a run
over the SDK's mock transport, without Offbook, exceeds it too. Hence a second budget: at most a
tenth more than that run. `bare` is that run with the same work in bare Python.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

import httpx2
import msgspec
import openai
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from offbook.determinism.network_guard import block_network
from offbook.exchange.messages import Text, ToolCall
from offbook.exchange.model import Reply, Request
from offbook.exchange.providers import detect_dialect
from offbook.sources.inprocess.patching import intercept
from offbook.sources.mocks.mocks import Mocks
from offbook.sources.server.endpoint import Endpoint
from offbook.sources.server.server import Server
from offbook.trace.hub import Hub
from offbook.trace.recorder import Recorder

RUNS, ROUNDS, MISSES, NEAR = 30, 7, 25, 1.1
_numbers = count()
ANSWER = "It is sunny."
MOCKED = "pydantic-ai over the SDK, mocked"
BARE = "  with a trace in bare Python"
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


def make_prompt() -> str:
    """Return a new prompt."""
    return f"Weather on day {next(_numbers)}?"


def to_messages(prompt: str) -> list[Any]:
    """Return the messages of a request."""
    return [{"role": "user", "content": prompt}]


# ----------------------------------------------------------------------------------- a miss


def time_miss() -> tuple[float, float]:
    """Return the median milliseconds until a call is answered, and until a miss has failed."""
    answered: list[float] = []
    missed: list[float] = []
    with Server() as server:
        for turn in range(MISSES + 1):
            endpoint = server.mount(Mocks([{"match": "*Weather?*", "text": ANSWER}]))
            with openai.OpenAI(base_url=endpoint.openai, api_key="none") as client:
                client.models.list()  # so that both use an open connection
                answered.append(wait_for(client, "Weather?"))
                missed.append(wait_for(client, "Something else"))
            endpoint.close()
            if not turn:  # the first round warms up
                answered.clear()
                missed.clear()
    return statistics.median(answered), statistics.median(missed)


def wait_for(client: openai.OpenAI, prompt: str) -> float:
    """Return the milliseconds of a call, whether it is answered or fails."""
    start = time.perf_counter()
    try:
        client.chat.completions.create(model="m", messages=to_messages(prompt))
    except openai.BadRequestError:
        assert prompt != "Weather?"
    else:
        assert prompt == "Weather?"
    return (time.perf_counter() - start) * 1e3


# ---------------------------------------------------------------------------------- an agent


class Script:
    """Calls the tool, then answers with a text, in turns."""

    async def reply(self, request: Request, /) -> Reply:
        """Return the call, or the text after its result."""
        if request.new_messages and request.new_messages[-1].role == "tool":
            return Reply((Text(ANSWER),), model=request.model)
        return Reply((ToolCall("call_1", "weather", {"city": "Rome"}),), "tool_use")


def play(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Return the same script as a function for FunctionModel."""
    del info
    if len(messages) > 1:
        return ModelResponse(parts=[TextPart(ANSWER)])
    return ModelResponse(parts=[ToolCallPart("weather", {"city": "Rome"})])


def make_agent(model: Any) -> Agent[None, str]:
    """Return an agent with one tool."""
    agent = Agent(model)

    @agent.tool_plain
    def weather(city: str) -> str:  # pyright: ignore[reportUnusedFunction] - registered by name
        """Return the weather in a city."""
        return f"sunny in {city}"

    return agent


async def cost(once: Callable[[], Awaitable[Any]]) -> float:
    """Return the CPU microseconds of one run."""
    gc.collect()
    start = time.process_time()
    for _ in range(RUNS):
        await once()
    return (time.process_time() - start) / RUNS * 1e6


async def run_ours(agent: Agent[None, str]) -> float:
    """Measure the unchanged agent, answered in process with everything enabled."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        hub = Hub()
        recorder = Recorder(Path(folder) / "trace.jsonl", ts=0, subject="bench")
        stack.callback(recorder.close)
        hub.subscribe(recorder.record)
        endpoint = Endpoint(Script(), url="", detect_dialect=detect_dialect, hub=hub)
        stack.enter_context(block_network())
        stack.enter_context(intercept(endpoint.answer))
        return await cost(lambda: agent.run(make_prompt()))


async def compare_agents() -> dict[str, float]:
    """Return the least CPU microseconds of each variant, measured in turns."""
    recorded = await _record()
    mocked = openai.AsyncOpenAI(
        api_key="none", http_client=httpx2.AsyncClient(transport=httpx2.MockTransport(recorded))
    )
    with tempfile.TemporaryFile(buffering=0) as trace:
        bare = openai.AsyncOpenAI(
            api_key="none",
            http_client=httpx2.AsyncClient(
                transport=httpx2.MockTransport(_record_in_bare_python(recorded, trace))
            ),
        )
        return await _measure_agents(mocked, bare)


async def _measure_agents(mocked: openai.AsyncOpenAI, bare: openai.AsyncOpenAI) -> dict[str, float]:
    scripted = make_agent(FunctionModel(play))
    canned = make_agent(make_model(mocked))
    noted = make_agent(make_model(bare))
    served = make_agent(make_model(openai.AsyncOpenAI(api_key="none")))
    chat = mocked.chat.completions
    measures: dict[str, Callable[[], Awaitable[float]]] = {
        "FunctionModel": lambda: cost(lambda: scripted.run(make_prompt())),
        "the SDK, mocked": lambda: cost(
            lambda: chat.create(model="gpt-5", messages=to_messages(make_prompt()))
        ),
        MOCKED: lambda: cost(lambda: canned.run(make_prompt())),
        BARE: lambda: cost(lambda: noted.run(make_prompt())),
        "ours": lambda: run_ours(served),
    }
    costs: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(ROUNDS):
        for name, measure in measures.items():
            costs[name].append(await measure())
    return {name: min(values) for name, values in costs.items()}


def make_model(client: openai.AsyncOpenAI) -> OpenAIChatModel:
    """Return pydantic-ai's model for OpenAI."""
    return OpenAIChatModel("gpt-5", provider=OpenAIProvider(openai_client=client))


async def _record() -> Callable[[httpx2.Request], httpx2.Response]:
    """Return our dialect's responses, for the mock transport to send too."""
    answers: list[tuple[dict[str, str], bytes]] = []
    client = openai.AsyncOpenAI(api_key="none")
    after: list[Any] = [
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    endpoint = Endpoint(Script(), url="", detect_dialect=detect_dialect)
    with block_network(), intercept(endpoint.answer):
        for messages in (to_messages(make_prompt()), [*to_messages(make_prompt()), *after]):
            create = client.chat.completions.with_raw_response.create
            raw = await create(model="gpt-5", messages=messages)
            answers.append((dict(raw.headers), raw.content))

    def respond(request: httpx2.Request) -> httpx2.Response:
        headers, content = answers[b'"tool"' in request.content]
        return httpx2.Response(200, headers=headers, content=content)

    return respond


def _record_in_bare_python(
    respond: Callable[[httpx2.Request], httpx2.Response], trace: BinaryIO
) -> Callable[[httpx2.Request], httpx2.Response]:
    """Return a handler that does what an answer needs: the floor of what a driven run can cost.

    It decodes a request, digests its messages, chooses a reply, writes an event for each, at once,
    and encodes the reply. It hides no secrets, checks nothing and emits no tools.
    """

    def handle(request: httpx2.Request) -> httpx2.Response:
        asked = msgspec.json.decode(request.content)
        digest = sha256(msgspec.json.encode(asked["messages"])).hexdigest()
        event = {"type": "model.request", "data": {**asked, "digest": digest}}
        trace.write(msgspec.json.encode(event) + b"\n")
        response = respond(request)
        reply = msgspec.json.decode(response.content)
        event = {"type": "model.reply", "data": {"after": digest, "reply": reply["choices"]}}
        trace.write(msgspec.json.encode(event) + b"\n")
        body = msgspec.json.encode(reply)
        return httpx2.Response(200, headers={"content-type": "application/json"}, content=body)

    return handle


def main() -> int:
    """Measure, print, and return 1 if a budget is exceeded."""
    answered, missed = time_miss()
    fast = missed <= 10 or missed <= 1.5 * answered  # on a busy machine all calls are slow
    print(f"a call of the OpenAI SDK over loopback  {answered:7.2f} ms")
    print(f"a miss, until it has failed             {missed:7.2f} ms   of 10 {_verdict(fast)}")
    costs = asyncio.run(compare_agents())
    for name, micros in costs.items():
        print(f"{name:39} {micros:7.0f} µs")
    floor = costs["FunctionModel"] + 2 * costs["the SDK, mocked"]
    ratio, share = costs["ours"] / floor, costs["ours"] / costs[MOCKED]
    cheap, near = ratio <= 1, share <= NEAR
    print(f"ours to FunctionModel and two SDK calls {ratio:7.3f}      of 1  {_verdict(cheap)}")
    print(f"pydantic-ai over the SDK, mocked, to it {costs[MOCKED] / floor:7.3f}")
    print(f"ours to pydantic-ai over the SDK        {share:7.3f}      of {NEAR} {_verdict(near)}")
    return int(not (fast and cheap and near))


def _verdict(holds: bool) -> str:  # noqa: FBT001 - a verdict
    return "ok" if holds else "OVER BUDGET"


if __name__ == "__main__":
    sys.exit(main())
