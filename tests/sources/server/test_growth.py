"""The work for a request grows with what is new in it, counted in Python calls, not in time."""

import asyncio
import gc
import itertools
import json
import sys
from types import FrameType
from typing import Any

import pytest

from offbook.exchange.dialects.dialect import HttpRequest
from offbook.exchange.providers import detect_dialect
from offbook.sources.mocks.mocks import Mocks
from offbook.sources.server.endpoint import Endpoint
from offbook.trace.hub import Hub

TURNS = (20, 100, 1000)
NUMBERS = itertools.count()
LINE = "a line of a tool result\n" * 20


def make_endpoint(lines: int = 1) -> Endpoint:
    mocks = Mocks([{"match": f"*hello {n:04}*", "text": "ok"} for n in range(lines)])
    return Endpoint(mocks, url="", detect_dialect=detect_dialect, hub=Hub())


def make_messages(agent: int, turns: int) -> list[dict[str, Any]]:
    """Return a conversation of an agent whose client gives the calls ids of its own."""
    # No two are equal: decoded conversations are remembered, also from one test to the next.
    content = f"hello 0000 from {agent}, {next(NUMBERS)}"
    messages: list[dict[str, Any]] = [{"role": "user", "content": content}]
    for turn in range(turns):
        function = {"name": "read", "arguments": json.dumps({"path": f"{turn}.py"})}
        call = {"id": f"call_{turn}", "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{turn}", "content": LINE},
        ]
    return messages


async def count_calls(endpoint: Endpoint, messages: list[dict[str, Any]]) -> int:
    """Return the number of Python and C functions that are called for one request."""
    body = json.dumps({"model": "m", "messages": messages}).encode()
    request = HttpRequest("POST", "/v1/chat/completions", {}, body)
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    gc.disable()  # finalizers of other objects would be counted
    sys.setprofile(count)
    try:
        response = await endpoint.answer(request)
    finally:
        sys.setprofile(before)
        gc.enable()
    assert response.status == 200, response.body
    return calls


async def count_turns(agents: int) -> dict[int, int]:
    """Return the calls for one more turn after some turns, with several agents side by side."""
    # The cache of conversations is full in every test, and what is loaded on first use is loaded.
    for agent in range(40):
        await count_calls(make_endpoint(), make_messages(agent, 2))
    endpoint = make_endpoint()
    counted: dict[int, int] = {}
    conversations = [make_messages(agent, max(TURNS)) for agent in range(agents)]
    warm_up = range(14, 20)  # fills the caches, whose size is fixed
    for turn in sorted({*warm_up, *(n for turns in TURNS for n in (turns - 1, turns))}):
        for messages in conversations:
            counted[turn] = await count_calls(endpoint, messages[: 1 + 2 * turn])
    return {turn: counted[turn] for turn in TURNS}


@pytest.mark.parametrize("agents", [1, 2, 8])
def test_a_turn_costs_the_same_after_any_number_of_turns(agents: int):
    first, second, last = asyncio.run(count_turns(agents)).values()
    assert abs(second - first) <= first / 10
    assert abs(last - first) <= first / 10


def test_a_new_conversation_costs_linearly_in_its_length():
    async def count_new(turns: int) -> int:
        return await count_calls(make_endpoint(), make_messages(0, turns))

    base, ten, hundred, thousand = (asyncio.run(count_new(turns)) for turns in (0, 10, 100, 1000))
    assert (hundred - base) <= 11 * (ten - base)
    assert (thousand - base) <= 11 * (hundred - base)


def test_a_request_costs_the_same_with_any_number_of_mock_lines():
    async def count_second(lines: int) -> int:
        endpoint = make_endpoint(lines)
        await count_calls(endpoint, make_messages(0, 0))  # builds the index
        return await count_calls(endpoint, make_messages(1, 0))

    few, many = asyncio.run(count_second(10)), asyncio.run(count_second(1000))
    assert many <= few + few / 10


def test_a_chat_keeps_no_earlier_conversation():
    async def count_kept() -> int:
        endpoint = make_endpoint()
        for agent in range(3):
            await count_calls(endpoint, make_messages(agent, 10))
        return endpoint._conversations.count  # pyright: ignore[reportPrivateUsage] - what it keeps

    assert asyncio.run(count_kept()) == 0
