"""The Gemini dialect: what it reads, what it refuses, and that both ways agree."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given

from offbook.errors import ModelError
from offbook.exchange.dialects import streaming
from offbook.exchange.dialects.conversations import ConversationStore
from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
from offbook.exchange.dialects.gemini import Gemini
from offbook.exchange.dialects.gemini.gemini_messages import SKIPPED_SIGNATURES
from offbook.exchange.dialects.validation import ALL_RULES
from offbook.exchange.messages import (
    History,
    Image,
    Message,
    RawBlock,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from offbook.exchange.model import Reply, Request, Tool, Usage
from tests.exchange.dialects import strategies
from tests.exchange.dialects.captures import load_captures

DIALECT = Gemini()
PATH = "/v1beta/models/gemini-x:generateContent"


def calls(*names: str, **ids: str) -> Any:
    parts: Any = [{"functionCall": {"name": name, "args": {}}} for name in names]
    parts += [{"functionCall": {"name": name, "args": {}, "id": i}} for name, i in ids.items()]
    return {"role": "model", "parts": parts}


def answers(*names: str, text: str = "", **ids: str) -> Any:
    parts: list[Any] = [
        {"functionResponse": {"name": name, "response": {"result": "ok"}}} for name in names
    ]
    parts += [
        {"functionResponse": {"name": name, "response": {"result": "ok"}, "id": i}}
        for name, i in ids.items()
    ]
    return {"role": "user", "parts": [*parts, {"text": text}] if text else parts}


def told(text: str = "go") -> Any:
    return {"role": "user", "parts": [{"text": text}]}


def post(*contents: Any, path: Any = PATH, **fields: Any) -> HttpRequest:
    body = {"contents": contents, **fields}
    return HttpRequest("POST", path, {}, json.dumps(body).encode())


def decode(wire: HttpRequest, dialect: Gemini = DIALECT) -> Request:
    return dialect.decode(wire, ConversationStore())


def bare(request: Request) -> Request:
    """Without what is known about the asker."""
    return msgspec.structs.replace(request, metadata={})


# ---------------------------------------------------------------------------- captured requests


@pytest.mark.external
def test_every_captured_request_is_read(shared_data: Path):
    captures = load_captures(shared_data, DIALECT)
    assert len(captures) >= 31
    for name, wire in captures:
        side_response = DIALECT.side_response(wire, ConversationStore())
        if side_response is not None:
            assert side_response.status == 200, name
            continue
        request = decode(wire)
        assert request.messages, name
        assert request.model.startswith("gemini-"), name
        assert request.stream == ("stream" in wire.path), name
        again = bare(decode(DIALECT.build_request(request, "http://host", "key")))
        assert again == bare(request), name
        results = [result for message in request.messages for result in message.results]
        assert all(result.text and result.name and result.call_id for result in results), name


@pytest.mark.parametrize("snake", [False, True])
def test_both_ways_to_write_a_name_are_read(*, snake: bool):
    def key(camel: str, other: str) -> str:
        return other if snake else camel

    declared = {
        "name": "look",
        "description": "Looks.",
        key("parametersJsonSchema", "parameters_json_schema"): {"type": "object"},
    }
    blob = {"data": "AA", key("mimeType", "mime_type"): "image/png"}
    file = {key("fileUri", "file_uri"): "gs://x", key("mimeType", "mime_type"): "image/png"}
    call = {"name": "look", "args": {"a": 1}, "id": "c"}
    response = {"name": "look", "response": {"output": "ok"}, "id": "c"}
    request = decode(
        post(
            {
                "role": "user",
                "parts": [
                    {"text": "see"},
                    {key("inlineData", "inline_data"): blob},
                    {key("fileData", "file_data"): file},
                    {"executableCode": {"code": "1"}},
                ],
            },
            {
                "role": "model",
                "parts": [
                    {"text": "hm", "thought": True},
                    {
                        key("functionCall", "function_call"): call,
                        key("thoughtSignature", "thought_signature"): "c2VhbA==",
                    },
                ],
            },
            {"role": "user", "parts": [{key("functionResponse", "function_response"): response}]},
            **{
                key("systemInstruction", "system_instruction"): {"parts": {"text": "S"}},
                "tools": [{key("functionDeclarations", "function_declarations"): [declared]}],
                key("generationConfig", "generation_config"): {"temperature": 1},
                key("toolConfig", "tool_config"): {"functionCallingConfig": {"mode": "ANY"}},
            },
        )
    )
    assert list(request.messages) == [
        Message(
            "user",
            (
                Text("see"),
                Image("AA", "image/png"),
                Image("", "image/png", "gs://x"),
                RawBlock("executableCode", {"executableCode": {"code": "1"}}, "gemini"),
            ),
        ),
        Message("assistant", (Thinking("hm", "c2VhbA=="), ToolCall("c", "look", {"a": 1}))),
        Message("tool", (ToolResult("c", (Text("ok"),), name="look"),)),
    ]
    assert request.system == "S"
    assert request.tools == (Tool("look", "Looks.", {"type": "object"}),)
    assert request.parameters == {
        "generationConfig": {"temperature": 1},
        "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
    }


def test_schemas_and_other_tools_are_read():
    schema = {
        "type": "OBJECT",
        "properties": {"type": {"type": "ARRAY", "items": {"type": "STRING"}}},
    }
    tools: Any = [
        {"functionDeclarations": [{"name": "look", "parameters": schema}]},
        {"googleSearch": {}},
    ]
    assert decode(post(told(), tools=tools)).tools == (
        Tool(
            "look",
            schema={
                "type": "object",
                "properties": {"type": {"type": "array", "items": {"type": "string"}}},
            },
        ),
        Tool("googleSearch", kind="googleSearch"),
    )


@pytest.mark.parametrize(
    "response, text, failed",
    [
        ({"result": "21"}, "21", False),
        ({"output": "21"}, "21", False),
        ({"return_value": "21"}, "21", False),
        ({"error": "no such city"}, "no such city", True),
        ({"error": {"code": 3}}, '{"error":{"code":3}}', True),
        ({"content": [], "isError": True}, '{"content":[],"isError":true}', True),
        ({"a": 1, "b": 2}, '{"a":1,"b":2}', False),
        ({"result": ""}, "", False),
        (None, "", False),
    ],
)
def test_a_function_response_tells_its_text_and_whether_it_failed(
    response: Any, text: str, *, failed: bool
):
    part = {"functionResponse": {"name": "look", "response": response}}
    request = decode(post(told(), calls("look"), {"role": "user", "parts": [part]}))
    (result,) = request.messages[-1].results
    assert (result.text, result.is_error) == (text, failed)
    again = decode(DIALECT.build_request(request, "http://host", "key"))
    (same,) = again.messages[-1].results
    assert (same.text, same.is_error) == (text, failed)


def test_responses_find_their_calls_by_id_else_by_name_and_order():
    request = decode(
        post(
            told(),
            calls("look", "find", "look", read="r9"),
            answers("look", "look", "find", read="r9"),
            calls("look"),
            answers("look"),
        )
    )
    asked = [(call.id, call.name) for message in request.messages for call in message.calls]
    assert asked == [
        ("call-1", "look"),
        ("call-2", "find"),
        ("call-3", "look"),
        ("r9", "read"),
        ("call-5", "look"),
    ]
    answered = [result.call_id for message in request.messages for result in message.results]
    assert answered == ["call-1", "call-3", "call-2", "r9", "call-5"]


@pytest.mark.parametrize("marker", sorted(SKIPPED_SIGNATURES))
def test_a_marker_in_place_of_a_signature_is_no_thought(marker: str):
    turn = calls("look")
    turn["parts"][0]["thoughtSignature"] = marker
    assert decode(post(told(), turn, answers("look"))).messages[1].blocks == (
        ToolCall("call-1", "look"),
    )


# --------------------------------------------------------------------------------------- rules

MISCOUNTED = "number of function response parts is equal to the number of function call parts"
REFUSED: list[tuple[str, list[Any], str]] = [
    ("orphan_result", [answers("look")], "immediately after a function call turn"),
    ("orphan_result", [told(), calls("look"), answers("look", "look")], MISCOUNTED),
    ("orphan_result", [told(), calls(look="a"), answers(look="b")], MISCOUNTED),
    ("missing_result", [told(), calls("look")], MISCOUNTED),
    ("missing_result", [told(), calls("look", "find"), answers("find")], MISCOUNTED),
    ("missing_result", [told(), calls("look"), told()], MISCOUNTED),
    ("missing_result", [told(), calls("look", "find"), answers("look", text="and")], MISCOUNTED),
    ("unknown_role", [{"role": "assistant", "parts": [{"text": "x"}]}], "valid role: user, model"),
    ("missing_field", [], "contents is not specified"),
]


@pytest.mark.parametrize("rule, contents, words", REFUSED)
def test_what_the_provider_refuses_is_refused(rule: str, contents: list[Any], words: str):
    with pytest.raises(ModelError) as caught:
        decode(post(*contents))
    assert words in caught.value.message
    assert caught.value.details["rule"] == rule
    answer = DIALECT.encode_error(caught.value)
    assert (answer.status, answer.headers["x-offbook-rule"]) == (400, rule)
    assert json.loads(answer.body) == {
        "error": {"code": 400, "message": caught.value.message, "status": "INVALID_ARGUMENT"}
    }


@pytest.mark.parametrize("rule, contents, words", REFUSED)
def test_each_rule_can_be_switched_off(rule: str, contents: list[Any], words: str):
    off = {rule, "missing_result"} if rule == "orphan_result" else {rule}
    assert len(decode(post(*contents), Gemini(ALL_RULES - off)).messages) >= len(contents)


@pytest.mark.parametrize(
    "function, words",
    [
        ({"name": "2look"}, "Invalid function name"),
        ({"name": "look", "parameters": {"type": "STRING"}}, "should be of type OBJECT"),
    ],
)
def test_tools_that_the_provider_refuses_are_refused(function: dict[str, Any], words: str):
    tools = [{"functionDeclarations": [function]}]
    with pytest.raises(ModelError, match=words) as caught:
        decode(post(told(), tools=tools))
    assert caught.value.details["rule"] == "bad_tool_schema"
    assert decode(post(told(), tools=tools), Gemini(ALL_RULES - {"bad_tool_schema"})).tools
    twice = [{"functionDeclarations": [{"name": "look"}, {"name": "look"}]}]
    with pytest.raises(ModelError, match="Duplicate function declaration found: look"):
        decode(post(told(), tools=twice))


def test_one_id_for_two_calls_is_refused():
    turn = {"role": "model", "parts": [{"functionCall": {"name": "look", "id": "a"}}] * 2}
    with pytest.raises(ModelError, match="Duplicate function call id found: a"):
        decode(post(told(), turn, answers(look="a")))


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b"\xff", b'{"contents": 1}'])
def test_what_is_no_request_is_refused_in_words(body: bytes):
    with pytest.raises(ModelError) as caught:
        decode(HttpRequest("POST", PATH, {}, body))
    assert caught.value.status == 400
    assert caught.value.message
    answer = DIALECT.side_response(
        HttpRequest("POST", "/v1/models/m:countTokens", {}, body), ConversationStore()
    )
    assert answer is not None
    assert answer.status == 400


# ------------------------------------------------------------------------------- both ways agree


def even(request: Request) -> Request:
    """As the wire has it: results one by one and named after their calls."""
    names = {call.id: call.name for message in request.messages for call in message.calls}
    messages: list[Message] = []
    for message in request.messages:
        if message.role == "tool":
            messages += [
                Message("tool", (msgspec.structs.replace(found, name=names[found.call_id]),))
                for found in message.results
            ]
        else:
            messages.append(message)
    given = request.parameters
    parameters = (
        {"generationConfig": {"maxOutputTokens": given["max_tokens"], "temperature": 0.5}}
        if given
        else {}
    )
    return msgspec.structs.replace(request, messages=History(messages), parameters=parameters)


@given(strategies.requests())
def test_a_request_that_is_asked_is_read_as_it_was(request: Request):
    again = decode(DIALECT.build_request(request, "https://host", "key"))
    assert bare(again) == even(request)


@pytest.mark.parametrize("stream, framing", [(False, ""), (True, ""), (True, "array")])
@given(reply=strategies.replies(), usage=strategies.usages(cached=False))
def test_a_reply_that_is_written_is_read_as_it_was(
    reply: Reply, usage: Usage, *, stream: bool, framing: str
):
    about = {"framing": framing}
    request = Request(
        History([Message("user", (Text("go"),))]), model="m", metadata=about, stream=stream
    )
    said = msgspec.structs.replace(reply, usage=usage)
    answer = DIALECT.encode(said, request)
    again = DIALECT.parse_response(answer, request)
    expected = msgspec.structs.replace(
        said, id=DIALECT.reply_id(said, request), model="m", chunks=(), step=0
    )
    if not said.blocks and stream:  # a stream has one piece at least
        expected = msgspec.structs.replace(expected, blocks=(Text(""),))
    assert msgspec.structs.replace(again, chunks=()) == expected
    assert DIALECT.encode(said, request) == answer


@given(strategies.replies())
def test_a_stream_has_all_that_any_client_needs(reply: Reply):
    request = Request(History([Message("user", (Text("go"),))]), model="m", stream=True)
    answer = DIALECT.encode(reply, request)
    pieces = [json.loads(event.data) for event in streaming.parse_sse(b"".join(answer.chunks))]
    assert len(pieces) == len(answer.chunks) > 0
    for piece in pieces:
        assert piece["candidates"][0]["content"]["role"] == "model"
        assert piece["candidates"][0]["content"]["parts"]
        assert {"usageMetadata", "modelVersion", "responseId"} <= piece.keys()
    finishes = [piece["candidates"][0].get("finishReason") for piece in pieces]
    assert finishes[-1]
    assert not any(finishes[:-1])


def test_streams_without_sse_are_one_array():
    wire = post(told(), path="/v1/models/m:streamGenerateContent")
    request = decode(wire)
    answer = DIALECT.encode(Reply((Text("one two three"),)), request)
    assert answer.headers["content-type"].startswith("application/json")
    assert len(json.loads(b"".join(answer.chunks))) == 3
    refused = DIALECT.encode_error(ModelError("no", status=500), request)
    assert json.loads(refused.body)[0]["error"]["status"] == "INTERNAL"


@pytest.mark.parametrize(
    "status, headers, body, expected",
    [
        (429, {"retry-after": "3"}, b'{"error":{"message":"no"}}', ("rate_limit", 3.0)),
        (
            429,
            {},
            b'[{"error":{"message":"no","details":[{"retryDelay":"7s"}]}}]',
            ("rate_limit", 7.0),
        ),
        (503, {}, b"<html>no</html>", ("overloaded", None)),
    ],
)
def test_the_providers_errors_are_read(
    status: int, headers: dict[str, str], body: bytes, expected: tuple[str, float | None]
):
    with pytest.raises(ModelError) as caught:
        DIALECT.parse_response(HttpResponse(status, headers, body), Request())
    assert (caught.value.category, caught.value.retry_after) == expected
    assert "no" in caught.value.message


def test_other_answers_are_understood_or_refused():
    blocked = HttpResponse(200, {}, b'{"promptFeedback":{"blockReason":"SAFETY"}}')
    assert DIALECT.parse_response(blocked, Request()).stop == "refusal"
    broken = HttpResponse(200, {}, b'data: {"error":{"code":503,"message":"gone"}}\r\n\r\n')
    with pytest.raises(ModelError, match="gone"):
        DIALECT.parse_response(broken, Request())
    with pytest.raises(ModelError, match="invalid response of Gemini"):
        DIALECT.parse_response(HttpResponse(200, {}, b'{"candidates": 3}'), Request())


@pytest.mark.parametrize(
    "base, path",
    [
        ("https://host", "https://host/v1beta/models/m:generateContent"),
        ("https://host/v1/", "https://host/v1/models/m:generateContent"),
    ],
)
def test_the_real_provider_is_asked_at_its_address(base: str, path: str):
    assert DIALECT.build_request(Request(model="m"), base, "key").path == path


def test_an_unknown_address_is_not_found():
    answer = DIALECT.side_response(
        HttpRequest("GET", "/v1/nothing", {"x-goog-api-key": "k"}), ConversationStore()
    )
    assert answer is not None
    assert answer.status == 404


def test_a_call_that_comes_back_without_its_id_has_the_one_it_was_given():
    threads = ConversationStore()
    made = Reply((ToolCall("c1", "look"), ToolCall("c2", "look"), ToolCall("c3", "read")))
    threads.add("r1", Request(), made)
    asked = DIALECT.decode(
        post(told(), calls("look", "look", "read"), answers("look", "read", "look")), threads
    )
    assert [call.id for call in asked.messages[1].calls] == ["c1", "c2", "c3"]
    results = [message.results[0] for message in asked.messages[2:]]
    assert [result.call_id for result in results] == ["c1", "c3", "c2"]
