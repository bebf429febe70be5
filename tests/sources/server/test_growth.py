"""The work for a request grows with what is new in it, counted in Python calls, not in time."""

import asyncio
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from offbook.exchange import detect_dialect
from offbook.exchange.dialects import HttpRequest
from offbook.sources.cassette import Cassette, Recording
from offbook.sources.mocks import Mocks
from offbook.sources.server import Endpoint
from offbook.trace import Hub
from tests.counting import count_calls, count_steps
from tests.thorough import THOROUGH

TURNS = (10, 100, 1000, 10_000)
# One call more for each earlier turn or conversation is far more than a tenth with these, too.
MANY = 10_000 if THOROUGH else 1000
MANY_CONVERSATIONS = 1000 if THOROUGH else 200
NUMBERS = itertools.count()
CHAT, MESSAGES, RESPONSES = "chat/completions", "messages", "responses"
LINE = "a line of a tool result\n" * 20


def make_mocks(lines: int = 1) -> Mocks:
    return Mocks([{"match": f"*hello {n:04}*", "text": "ok"} for n in range(lines)])


def make_endpoint(lines: int = 1) -> Endpoint:
    return Endpoint(make_mocks(lines), url="", detect_dialect=detect_dialect, hub=Hub())


def make_messages(agent: int, turns: int, dialect: str = CHAT) -> list[dict[str, Any]]:
    """Return a conversation of an agent whose client gives the calls ids of its own."""
    # No two are equal: decoded conversations are remembered, also from one test to the next.
    content = f"hello 0000 from {agent}, {next(NUMBERS)}"
    messages: list[dict[str, Any]] = [{"role": "user", "content": content}]
    for turn in range(turns):
        messages += TURN[dialect](f"call_{turn}", {"path": f"{turn}.py"})
    return messages


def make_chat_turn(call_id: str, arguments: dict[str, str]) -> list[dict[str, Any]]:
    function = {"name": "read", "arguments": json.dumps(arguments)}
    call = {"id": call_id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": LINE},
    ]


def make_messages_turn(call_id: str, arguments: dict[str, str]) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": call_id, "name": "read", "input": arguments}
    result = {"type": "tool_result", "tool_use_id": call_id, "content": LINE}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def make_responses_turn(call_id: str, arguments: dict[str, str]) -> list[dict[str, Any]]:
    call = {"name": "read", "arguments": json.dumps(arguments)}
    return [
        {"type": "function_call", "call_id": call_id, **call},
        {"type": "function_call_output", "call_id": call_id, "output": LINE},
    ]


TURN = {CHAT: make_chat_turn, MESSAGES: make_messages_turn, RESPONSES: make_responses_turn}


async def answer(endpoint: Endpoint, messages: list[dict[str, Any]], dialect: str = CHAT) -> int:
    """Return the number of functions that are called for one request."""
    response, calls = await count_calls(endpoint.answer(make_request(messages, dialect)))
    assert response.status == 200, response.body
    return calls


async def send(endpoint: Endpoint, messages: list[dict[str, Any]], dialect: str = CHAT) -> None:
    """Send a request, and count nothing."""
    response = await endpoint.answer(make_request(messages, dialect))
    assert response.status == 200, response.body


def make_request(messages: list[dict[str, Any]], dialect: str = CHAT) -> HttpRequest:
    name = "input" if dialect == RESPONSES else "messages"
    more = {"max_tokens": 100} if dialect == MESSAGES else {}
    body = json.dumps({"model": "m", name: messages, **more}).encode()
    return HttpRequest("POST", f"/v1/{dialect}", {}, body)


def turns_to_send(measured: Sequence[int]) -> list[int]:
    """Return the measured turns and those before them; the first ones fill caches of fixed size."""
    return sorted({*range(2, 10), *(n for turns in measured for n in (turns - 1, turns))})


async def count_turns(
    endpoint: Endpoint,
    conversations: list[list[dict[str, Any]]],
    measured: Sequence[int],
    dialect: str = CHAT,
) -> dict[int, int]:
    """Return the calls for one more turn after some turns, with several agents side by side."""
    # The cache of conversations is full in every test, and what is loaded on first use is loaded.
    for agent in range(40):
        await send(make_endpoint(), make_messages(agent, 2, dialect), dialect)
    counted: dict[int, int] = {}
    for turn in turns_to_send(measured):
        for messages in conversations[:-1]:
            await send(endpoint, messages[: 1 + 2 * turn], dialect)
        counted[turn] = await answer(endpoint, conversations[-1][: 1 + 2 * turn], dialect)
    return {turn: counted[turn] for turn in measured}


@pytest.mark.parametrize(
    "agents, most, dialect",
    [
        (1, MANY, CHAT),
        (2, 10_000, CHAT),
        (2, MANY, MESSAGES),
        (2, MANY, RESPONSES),
        (8, 1000, CHAT),
    ],
)
def test_a_turn_costs_the_same_after_any_number_of_turns(agents: int, most: int, dialect: str):
    turns = [turn for turn in TURNS if turn <= most]
    conversations = [make_messages(agent, most, dialect) for agent in range(agents)]
    counted = asyncio.run(count_turns(make_endpoint(), conversations, turns, dialect))
    first, *others = counted.values()
    assert all(abs(other - first) <= first / 10 for other in others), counted


@pytest.mark.parametrize(
    "dialect, most",
    [(CHAT, 1000), (MESSAGES, MANY_CONVERSATIONS), (RESPONSES, MANY_CONVERSATIONS)],
)
def test_a_turn_costs_the_same_with_any_number_of_conversations_side_by_side(
    dialect: str, most: int
):
    async def count_last(agents: int) -> int:
        endpoint = make_endpoint()
        # Long enough for the cache of prefixes; one more loads what is loaded on first use.
        first, *conversations = [make_messages(n, 12, dialect) for n in range(agents + 1)]
        await send(make_endpoint(), first, dialect)
        for turn in (2, 10, 11):
            for messages in conversations:
                await send(endpoint, messages[: 1 + 2 * turn], dialect)
        for messages in conversations[:-1]:
            await send(endpoint, messages, dialect)
        return await answer(endpoint, conversations[-1], dialect)

    one, ten, many = (asyncio.run(count_last(agents)) for agents in (1, 10, most))
    assert ten <= one + one / 10
    assert many <= one + one / 10


def test_a_turn_costs_the_same_with_a_thousand_chats_side_by_side():
    def make_chat(agent: int) -> list[dict[str, Any]]:
        messages = make_messages(agent, 0)
        for turn in range(3):
            messages += [
                {"role": "assistant", "content": "ok"},  # as the mock says
                {"role": "user", "content": f"hello 0000, turn {turn}"},
            ]
        return messages

    async def count_last(agents: int) -> int:
        endpoint = make_endpoint()
        chats = [make_chat(agent) for agent in range(agents)]
        await answer(make_endpoint(), chats[0])  # what is loaded on first use is loaded
        for turn in range(3):
            for messages in chats:
                await send(endpoint, messages[: 1 + 2 * turn])
        for messages in chats[:-1]:
            await send(endpoint, messages)
        return await answer(endpoint, chats[-1])

    one, ten, thousand = (asyncio.run(count_last(agents)) for agents in (1, 10, 1000))
    assert ten <= one + one / 10
    assert thousand <= one + one / 10


def test_a_replayed_turn_costs_the_same_after_any_number_of_turns(tmp_path: Path):
    async def record_and_replay() -> dict[int, int]:
        messages = make_messages(0, 1000)
        with Recording(make_mocks(), tmp_path / "c.yaml") as recording:
            recorder = Endpoint(recording, url="", detect_dialect=detect_dialect)
            for turn in turns_to_send(turns):
                await send(recorder, messages[: 1 + 2 * turn])
        endpoint = Endpoint(
            Cassette(tmp_path / "c.yaml"), url="", detect_dialect=detect_dialect, hub=Hub()
        )
        return await count_turns(endpoint, [messages], turns)

    turns = [10, 100, 1000]
    counted = asyncio.run(record_and_replay())
    first, *others = counted.values()
    assert all(abs(other - first) <= first / 10 for other in others), counted


def test_a_new_conversation_costs_linearly_in_its_length():
    async def count_new(turns: int) -> int:
        return await answer(make_endpoint(), make_messages(0, turns))

    base, ten, hundred, thousand = (asyncio.run(count_new(turns)) for turns in (0, 10, 100, 1000))
    assert (hundred - base) <= 11 * (ten - base)
    assert (thousand - base) <= 11 * (hundred - base)


def change_first(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    first = {"role": "user", "content": f"hello 0000, {next(NUMBERS)}"}
    return [first, *messages[1:]]


def change_last(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*messages, {"role": "user", "content": f"hello 0000, {next(NUMBERS)}"}]


def repeat_the_reply(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    said = {"role": "assistant", "content": "a text that the model says"}
    return [*change_first(messages), said, {"role": "user", "content": "hello 0001"}]


@pytest.mark.parametrize(
    "change, most",
    [(change_first, 2), (change_last, 2), (repeat_the_reply, 12)],  # the last one is compared
)
def test_a_new_conversation_costs_little_more_next_to_others(
    change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], most: int
):
    async def count_new(turns: int, others: int) -> int:
        mocks = Mocks([{"match": "*hello*", "text": "a text that the model says"}])
        # Lenient: after a change that fails the run, no other is looked for.
        endpoint = Endpoint(
            mocks, url="", detect_dialect=detect_dialect, hub=Hub(), lenient_history=True
        )
        messages = make_messages(0, turns)
        for _ in range(others):
            await send(endpoint, change(messages))
        response, steps = await count_steps(endpoint.answer(make_request(change(messages))))
        assert response.status == 200, response.body
        return steps

    asyncio.run(count_new(1, 10))  # what is loaded on first use is loaded
    for turns in (10, 100, 400):
        alone, next_to_others = (asyncio.run(count_new(turns, others)) for others in (0, 10))
        assert next_to_others <= most * alone, turns


def test_a_request_costs_the_same_with_any_number_of_mock_lines():
    async def count_second(lines: int) -> int:
        endpoint = make_endpoint(lines)
        await answer(endpoint, make_messages(0, 0))  # builds the index
        return await answer(endpoint, make_messages(1, 0))

    few, many = asyncio.run(count_second(10)), asyncio.run(count_second(1000))
    assert many <= few + few / 10


def test_a_chat_keeps_no_earlier_conversation():
    async def count_kept() -> int:
        endpoint = make_endpoint()
        for agent in range(3):
            await answer(endpoint, make_messages(agent, 10))
        return endpoint._conversations.count  # pyright: ignore[reportPrivateUsage] - what it keeps

    assert asyncio.run(count_kept()) == 0
