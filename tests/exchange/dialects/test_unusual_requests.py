"""Valid requests that few clients send are decoded and answered without loss.

They follow the published schemas of the providers. Most contain blocks without a neutral form, and
some contain fields that are not published yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from offbook.errors import ModelError, UsageError
from offbook.exchange import (
    Message,
    RawBlock,
    Reply,
    Request,
    Text,
    Thinking,
    ToolCall,
    Usage,
    detect_dialect,
    user,
)
from offbook.exchange.dialects import ConversationStore, Dialect, HttpRequest

CASES = [
    json.loads(line)
    for line in Path(__file__).with_name("unusual_requests.jsonl").read_text().splitlines()
]
# Fields that may get lost: those of the wire format, caches and display, and attributes of
# a text or a call.
IGNORED_FIELDS = {
    *("type", "role", "status", "id", "detail", "execution"),
    *("cache_control", "citations", "annotations", "displayName", "phase"),
    *("caller", "extra_content", "scheduling"),
}
REPLIES = [
    Reply((Text("Done."),), usage=Usage(1, 2)),
    Reply((Thinking("Hm."), ToolCall("call_1", "get_weather", {"city": "Oslo"})), "tool_use"),
]


def read(case: dict[str, Any]) -> tuple[Dialect, HttpRequest, Request]:
    http_request = HttpRequest(
        "POST", case["path"], case["headers"], json.dumps(case["body"]).encode()
    )
    dialect = detect_dialect(http_request)
    assert dialect is not None
    assert dialect.side_response(http_request, ConversationStore()) is None
    return dialect, http_request, dialect.decode(http_request, ConversationStore())


def words(value: Any) -> Iterator[str]:
    """Yield every text in a value that must be kept."""
    match value:
        case dict():
            for key, held in value.items():  # pyright: ignore[reportUnknownVariableType] - any JSON
                if key not in IGNORED_FIELDS:
                    yield from words(held)
        case list():
            for held in value:  # pyright: ignore[reportUnknownVariableType] - any JSON
                yield from words(held)
        case str():
            yield value.rpartition(";base64,")[2].strip("{}").lower()
        case _:
            pass


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_no_text_is_lost(case: dict[str, Any]):
    *_, request = read(case)
    rendered = msgspec.json.encode(request, enc_hook=list).decode()
    rendered = rendered.replace("\\\\", "\\").replace('\\"', '"').lower()
    assert [word for word in words(case["body"]) if word not in rendered] == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_replies_are_whole_and_streamed(case: dict[str, Any]):
    dialect, _, request = read(case)
    for reply in REPLIES:
        for stream in (False, True):
            prompt = msgspec.structs.replace(request, stream=stream)
            response = dialect.encode(reply, prompt)
            assert response.status == 200
            if request.parameters.get("background") and not stream:
                assert json.loads(response.body)["status"] == "queued"
                continue
            actual = dialect.parse_response(response, prompt)
            assert (actual.text, actual.stop) == (reply.text, reply.stop)
            assert [(c.name, c.arguments) for c in actual.calls] == [
                (c.name, c.arguments) for c in reply.calls
            ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_built_request_equals_the_original(case: dict[str, Any]):
    dialect, http_request, request = read(case)
    decoded = dialect.build_request(request, "http://host", "key")
    path, _, query = decoded.path.removeprefix("http://host").partition("?")
    resent = dialect.decode(
        HttpRequest("POST", path, http_request.headers, decoded.body, query), ConversationStore()
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
@pytest.mark.parametrize("path, encoded, body", SPOKEN)
def test_raw_blocks_of_a_provider_are_recorded_and_replayed(
    path: str, encoded: dict[str, Any], body: dict[str, Any], *, stream: bool
):
    dialect, _, request = read({"path": path, "headers": {}, "body": body})
    request = msgspec.structs.replace(request, stream=stream)
    reply = Reply((RawBlock("it", encoded, dialect.name), Text("Found.")))
    response = dialect.encode(reply, request)
    stored = dialect.parse_response(response, request)
    assert [block.data for block in stored.blocks if isinstance(block, RawBlock)] == [encoded]
    assert stored.text == "Found."
    assert dialect.encode(stored, request).chunks == response.chunks


@pytest.mark.parametrize("path, encoded, body", SPOKEN)
def test_raw_blocks_of_another_dialect_are_an_error(
    path: str, encoded: dict[str, Any], body: dict[str, Any]
):
    dialect, _, request = read({"path": path, "headers": {}, "body": body})
    block = RawBlock("hologram", encoded, "another")
    with pytest.raises(UsageError, match="cannot represent an another's hologram"):
        dialect.encode(Reply((block,)), request)
    rendered = msgspec.structs.replace(request, messages=request.messages.plus(user("see")))
    rendered = msgspec.structs.replace(
        rendered, messages=rendered.messages.plus(Message("user", (block,)))
    )
    with pytest.raises(UsageError, match="cannot represent an another's hologram"):
        dialect.build_request(rendered, "http://host", "key")


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
def test_an_invalid_shape_is_rejected_with_its_path(path: str, body: dict[str, Any], what: str):
    with pytest.raises(ModelError) as refused:
        read({"path": path, "headers": {}, "body": {"model": "m", **body}})
    assert refused.value.status == 400
    assert what in refused.value.message


# ------------------------------------------------------------------ single rare shapes

USER = {"role": "user", "content": "Hello"}


def decode(path: str, body: dict[str, Any]) -> Request:
    headers = {"anthropic-version": "2023-06-01"} if path.endswith("/messages") else {}
    http_request = HttpRequest("POST", path, headers, json.dumps(body).encode())
    dialect = detect_dialect(http_request)
    assert dialect is not None
    return dialect.decode(http_request, ConversationStore())


@pytest.mark.parametrize(
    "call, output, arguments, text",
    [
        (
            {"type": "local_shell_call", "id": "ls_1", "call_id": "a", "action": {"command": []}},
            {"type": "local_shell_call_output", "id": "a", "output": "one.txt"},
            {"command": []},
            "one.txt",
        ),
        (
            {"type": "shell_call", "call_id": "a", "action": {"commands": ["ls"]}},
            {
                "type": "shell_call_output",
                "call_id": "a",
                "output": [{"stdout": "one.txt", "stderr": "!", "outcome": {"type": "exit"}}],
            },
            {"commands": ["ls"]},
            "one.txt!",
        ),
        (
            {"type": "apply_patch_call", "call_id": "a", "operation": {"path": "one.txt"}},
            {"type": "apply_patch_call_output", "call_id": "a", "status": "completed"},
            {"path": "one.txt"},
            "",
        ),
    ],
)
def test_openai_tools_run_by_the_agent_are_calls_with_results(
    call: dict[str, Any], output: dict[str, Any], arguments: dict[str, Any], text: str
):
    request = decode("/v1/responses", {"model": "m", "input": [USER, call, output]})
    calls = [tool_call for message in request.messages for tool_call in message.calls]
    assert [(tool_call.id, tool_call.arguments) for tool_call in calls] == [("a", arguments)]
    assert [message.role for message in request.messages] == ["user", "assistant", "tool"]
    assert [result.text for result in request.messages[-1].results] == [text]


def test_a_search_result_in_a_prompt_is_kept():
    search = {"type": "search_result", "source": "https://example.com", "title": "t"}
    turn: dict[str, Any] = {"role": "user", "content": [search, {"type": "text", "text": "Hello"}]}
    assert decode("/v1/messages", {"model": "m", "max_tokens": 9, "messages": [turn]}).prompt


def test_azure_has_the_model_in_the_path():
    path = "/openai/deployments/gpt-5/chat/completions"
    assert decode(path, {"messages": [USER]}).model == "gpt-5"
