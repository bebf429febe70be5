"""Streams have every field and event that a client requires.

Each row is a part that was taken away from a stream on purpose, after which a real client failed.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from offbook.exchange import Reply, Request, StopReason, Text, Thinking, ToolCall
from offbook.exchange.dialects import parse_sse
from offbook.exchange.dialects.chat.chat_dialect import Chat
from offbook.exchange.dialects.responses.responses_dialect import Responses

Event = dict[str, Any]
CALLS = (ToolCall("call_1", "f", {"a": "x" * 99}), ToolCall("call_2", "g", {}))
REPLIES = {
    "text": Reply((Text("a few words"),)),
    "call": Reply(CALLS[:1], "tool_use"),
    "calls": Reply(CALLS, "tool_use"),
    "all": Reply((Thinking("hm hm"), Text("a few words"), *CALLS), "tool_use"),
    "custom": Reply((ToolCall("call_1", "f", {"input": "x" * 99}, custom=True),), "tool_use"),
    "nothing": Reply(),
}
ENDS: list[StopReason] = ["stop", "length", "refusal"]
EVERY = {**REPLIES, **{stop: Reply((Text("a few words"),), stop) for stop in ENDS}}


def read_chat(reply: Reply) -> list[Event]:
    request = Request(model="m", stream=True, parameters={"stream_options": {"include_usage": 1}})
    response = Chat().encode(reply, request)
    assert response.chunks[-1] == b"data: [DONE]\n\n"
    assert all(chunk.endswith(b"\n\n") and chunk.count(b"\n") == 2 for chunk in response.chunks)
    return [json.loads(event.data) for event in parse_sse(b"".join(response.chunks[:-1]))]


def read_responses(reply: Reply) -> list[Event]:
    response = Responses().encode(reply, Request(model="m", stream=True))
    events = list(parse_sse(b"".join(response.chunks)))
    assert len(events) == len(response.chunks)
    read = [json.loads(event.data) for event in events]
    assert [event.name for event in events] == [event["type"] for event in read]
    return read


def deltas(chunks: list[Event]) -> list[Event]:
    return [choice["delta"] for chunk in chunks for choice in chunk["choices"]]


def calls_of(chunks: list[Event]) -> list[Event]:
    return [call for delta in deltas(chunks) for call in delta.get("tool_calls", ())]


def every_chunk_is_named(chunks: list[Event]) -> bool:
    return all(
        c["id"] and c["object"] == "chat.completion.chunk" and c["created"] and c["model"]
        for c in chunks
    )


def each_call_has_an_id_once(chunks: list[Event]) -> bool:
    calls = calls_of(chunks)
    ids = [call["id"] for call in calls if "id" in call]
    return all(ids) and len(ids) == len(set(ids)) == len({call.get("index") for call in calls})


def each_piece_has_an_index(chunks: list[Event]) -> bool:
    return all("index" in call for call in calls_of(chunks))


def each_call_begins_with_its_name(chunks: list[Event]) -> bool:
    begun: set[int] = set()
    for call in calls_of(chunks):
        kind = "custom" if "custom" in call else "function"
        if call["index"] not in begun and not (call.get("type") and call[kind].get("name")):
            return False
        begun.add(call["index"])
    return True


def one_chunk_says_why_it_ended(chunks: list[Event]) -> bool:
    reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
    return len([why for why in reasons if why]) == 1 and bool(reasons[-1])


def the_role_comes_first(chunks: list[Event]) -> bool:
    return deltas(chunks)[0]["role"] == "assistant"


def usage_comes_last_and_alone(chunks: list[Event]) -> bool:
    return (
        chunks[-1]["choices"] == []
        and chunks[-1]["usage"]["total_tokens"] >= 0
        and all(chunk["usage"] is None for chunk in chunks[:-1])
    )


CHAT_NEEDS = [
    every_chunk_is_named,
    each_call_has_an_id_once,
    each_piece_has_an_index,
    each_call_begins_with_its_name,
    one_chunk_says_why_it_ended,
    the_role_comes_first,
    usage_comes_last_and_alone,
]


def it_begins_with_created(events: list[Event]) -> bool:
    return [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]


def it_ends_with_the_whole_output(events: list[Event]) -> bool:
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    end = events[-1]
    return (
        end["type"] in {"response.completed", "response.incomplete"}
        and end["response"]["output"] == done
        and end["response"]["usage"]["total_tokens"] >= 0
    )


def each_item_is_announced(events: list[Event]) -> bool:
    added = [e["item"]["id"] for e in events if e["type"] == "response.output_item.added"]
    done = [e["item"]["id"] for e in events if e["type"] == "response.output_item.done"]
    return added == done and all(added)


def each_text_comes_in_deltas(events: list[Event]) -> bool:
    reply: dict[tuple[str, Any], str] = {}
    for event in events:
        if event["type"].endswith(".delta"):
            kind = event["type"].removesuffix(".delta")
            key = (kind + event["item_id"], event.get("content_index"))
            reply[key] = reply.get(key, "") + event["delta"]
    complete: dict[tuple[str, Any], str] = {}
    for event in events:
        field = next((f for f in ("text", "refusal", "arguments", "input") if f in event), None)
        if field and event["type"].endswith(".done"):
            kind = event["type"].removesuffix(".done")
            complete[kind + event["item_id"], event.get("content_index")] = event[field]
    return reply == {key: text for key, text in complete.items() if text}


def each_number_follows_the_last(events: list[Event]) -> bool:
    return [event["sequence_number"] for event in events] == list(range(len(events)))


def the_response_is_never_bare(events: list[Event]) -> bool:
    needed = [
        "id",
        "object",
        "created_at",
        "model",
        "output",
        "parallel_tool_calls",
        "tool_choice",
        "tools",
        "status",
    ]
    return all(set(needed) <= set(e["response"]) for e in events if "response" in e)


RESPONSES_NEEDS = [
    it_begins_with_created,
    it_ends_with_the_whole_output,
    each_item_is_announced,
    each_text_comes_in_deltas,
    each_number_follows_the_last,
    the_response_is_never_bare,
]


@pytest.mark.parametrize("reply", EVERY.values(), ids=EVERY)
@pytest.mark.parametrize("need", CHAT_NEEDS)
def test_a_chat_stream_has_every_required_field(
    need: Callable[[list[Event]], bool], reply: Reply
) -> None:
    assert need(read_chat(reply))


@pytest.mark.parametrize("reply", EVERY.values(), ids=EVERY)
@pytest.mark.parametrize("need", RESPONSES_NEEDS)
def test_a_responses_stream_has_every_required_event(
    need: Callable[[list[Event]], bool], reply: Reply
) -> None:
    assert need(read_responses(reply))


def test_the_first_call_is_in_the_delta_with_the_role() -> None:
    first = deltas(read_chat(REPLIES["call"]))[0]
    assert first["content"] is None
    assert first["tool_calls"][0]["function"] == {"name": "f", "arguments": ""}
