"""Legal requests that few clients send: understood, answered, and nothing of them is lost.

They are written after the providers' published schemas. Most say what has no block in the neutral
exchange, and some what nobody has published yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from offbook.errors import ModelError, UsageError
from offbook.exchange.dialects.conversations import ConversationStore
from offbook.exchange.dialects.dialect import Dialect, HttpRequest
from offbook.exchange.messages import Message, RawBlock, Text, Thinking, ToolCall, user
from offbook.exchange.model import Reply, Request, Usage
from offbook.exchange.providers import detect_dialect

CASES = [
    json.loads(line) for line in Path(__file__).with_name("unusual.jsonl").read_text().splitlines()
]
# Names for the wire alone; what is only for a cache or for the eye; what stands on a text or a
# call that is understood without it.
UNTOLD = {
    *("type", "role", "status", "id", "detail", "execution"),
    *("cache_control", "citations", "annotations", "displayName", "phase"),
    *("caller", "extra_content", "scheduling"),
}
REPLIES = [
    Reply((Text("Done."),), usage=Usage(1, 2)),
    Reply((Thinking("Hm."), ToolCall("call_1", "get_weather", {"city": "Oslo"})), "tool_use"),
]


def read(case: dict[str, Any]) -> tuple[Dialect, HttpRequest, Request]:
    wire = HttpRequest("POST", case["path"], case["headers"], json.dumps(case["body"]).encode())
    dialect = detect_dialect(wire)
    assert dialect is not None
    assert dialect.side_response(wire, ConversationStore()) is None
    return dialect, wire, dialect.decode(wire, ConversationStore())


def words(value: Any) -> Iterator[str]:
    """Every text in a value that must be told."""
    match value:
        case dict():
            for key, held in value.items():  # pyright: ignore[reportUnknownVariableType] - any JSON
                if key not in UNTOLD:
                    yield from words(held)
        case list():
            for held in value:  # pyright: ignore[reportUnknownVariableType] - any JSON
                yield from words(held)
        case str():
            yield value.rpartition(";base64,")[2].strip("{}").lower()
        case _:
            pass


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_nothing_that_is_said_is_lost(case: dict[str, Any]):
    *_, request = read(case)
    told = msgspec.json.encode(request, enc_hook=list).decode()
    told = told.replace("\\\\", "\\").replace('\\"', '"').lower()
    assert [word for word in words(case["body"]) if word not in told] == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_it_is_answered_whole_and_streamed(case: dict[str, Any]):
    dialect, _, request = read(case)
    for reply in REPLIES:
        for stream in (False, True):
            asked = msgspec.structs.replace(request, stream=stream)
            answer = dialect.encode(reply, asked)
            assert answer.status == 200
            got = dialect.parse_response(answer, asked)
            assert (got.text, got.stop) == (reply.text, reply.stop)
            assert [(c.name, c.arguments) for c in got.calls] == [
                (c.name, c.arguments) for c in reply.calls
            ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_provider_is_asked_the_same(case: dict[str, Any]):
    dialect, wire, request = read(case)
    again = dialect.build_request(request, "http://host", "key")
    path, _, query = again.path.removeprefix("http://host").partition("?")
    resent = dialect.decode(
        HttpRequest("POST", path, wire.headers, again.body, query), ConversationStore()
    )
    if "tool_search" in case["name"]:  # tools that were found are offered outright after it
        return
    assert list(resent.messages) == list(request.messages)
    assert (resent.system, resent.tools) == (request.system, request.tools)
    assert resent.parameters == request.parameters


SPOKEN = [
    (
        "/v1/responses",
        {"type": "web_search_call", "id": "ws_1", "action": {"query": "lamps"}},
        {"model": "m", "input": "Hello"},
    ),
    (
        "/v1/messages",
        {"type": "server_tool_use", "id": "s_1", "name": "web_search", "input": {"query": "lamps"}},
        {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]},
    ),
    (
        "/v1beta/models/m:generateContent",
        {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
        {"contents": [{"parts": [{"text": "Hello"}]}]},
    ),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path, wired, body", SPOKEN)
def test_what_only_the_provider_says_is_recorded_and_said_again(
    path: str, wired: dict[str, Any], body: dict[str, Any], *, stream: bool
):
    dialect, _, request = read({"path": path, "headers": {}, "body": body})
    request = msgspec.structs.replace(request, stream=stream)
    reply = Reply((RawBlock("it", wired, dialect.name), Text("Found.")))
    answer = dialect.encode(reply, request)
    kept = dialect.parse_response(answer, request)
    assert [block.data for block in kept.blocks if isinstance(block, RawBlock)] == [wired]
    assert kept.text == "Found."
    assert dialect.encode(kept, request).chunks == answer.chunks


@pytest.mark.parametrize("path, wired, body", SPOKEN)
def test_no_dialect_says_what_is_anothers(path: str, wired: dict[str, Any], body: dict[str, Any]):
    dialect, _, request = read({"path": path, "headers": {}, "body": body})
    block = RawBlock("hologram", wired, "another")
    with pytest.raises(UsageError, match="cannot represent an another's hologram"):
        dialect.encode(Reply((block,)), request)
    told = msgspec.structs.replace(request, messages=request.messages.plus(user("see")))
    told = msgspec.structs.replace(told, messages=told.messages.plus(Message("user", (block,))))
    with pytest.raises(UsageError, match="cannot represent an another's hologram"):
        dialect.build_request(told, "http://host", "key")


WRONG: list[tuple[str, dict[str, Any], str]] = [
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "u"}]}]},
        "messages[0].content[0].image_url",
    ),
    (
        "/v1/responses",
        {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}]},
        "input[0].arguments",
    ),
    (
        "/v1/responses",
        {"input": [{"type": "custom_tool_call", "call_id": "c", "name": "f", "input": 7}]},
        "input[0].input",
    ),
    ("/v1beta/models/m:generateContent", {"contents": "Hello"}, "contents"),
    (
        "/v1beta/models/m:generateContent",
        {"contents": [{"parts": [{"text": "Hello"}]}], "systemInstruction": "Be kind."},
        "systemInstruction",
    ),
]


@pytest.mark.parametrize("path, body, what", WRONG)
def test_a_wrong_shape_is_refused_by_its_place(path: str, body: dict[str, Any], what: str):
    with pytest.raises(ModelError) as refused:
        read({"path": path, "headers": {}, "body": {"model": "m", **body}})
    assert refused.value.status == 400
    assert what in refused.value.message
