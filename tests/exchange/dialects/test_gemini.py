"""The Gemini dialect: decoding, validation, encoding and round trips."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given

from offbook.errors import ModelError
from offbook.exchange import (
    History,
    Image,
    Message,
    RawBlock,
    Reply,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
)
from offbook.exchange.dialects import (
    ALL_RULES,
    ConversationStore,
    HttpRequest,
    HttpResponse,
    parse_sse,
)
from offbook.exchange.dialects.gemini.gemini_dialect import Gemini
from offbook.exchange.dialects.gemini.gemini_wire import SKIPPED_SIGNATURES
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


def user_turn(text: str = "go") -> Any:
    return {"role": "user", "parts": [{"text": text}]}


def post(*contents: Any, path: Any = PATH, **fields: Any) -> HttpRequest:
    body = {"contents": contents, **fields}
    return HttpRequest("POST", path, {}, json.dumps(body).encode())


def decode(http_request: HttpRequest, dialect: Gemini = DIALECT) -> Request:
    return dialect.decode(http_request, ConversationStore())


def bare(request: Request) -> Request:
    """Return the request without its metadata."""
    return msgspec.structs.replace(request, metadata={})


# ---------------------------------------------------------------------------- captured requests


@pytest.mark.external
def test_every_captured_request_is_decoded(shared_data: Path):
    captures = load_captures(shared_data, DIALECT)
    assert len(captures) >= 31
    for name, http_request in captures:
        side_response = DIALECT.side_response(http_request, ConversationStore())
        if side_response is not None:
            assert side_response.status == 200, name
            continue
        request = decode(http_request)
        assert request.messages, name
        assert request.model.startswith("gemini-"), name
        assert request.stream == ("stream" in http_request.path), name
        decoded = bare(decode(DIALECT.build_request(request, "http://host", "key")))
        assert decoded == bare(request), name
        results = [result for message in request.messages for result in message.results]
        assert all(result.text and result.name and result.call_id for result in results), name


@pytest.mark.parametrize("snake", [False, True])
def test_camel_case_and_snake_case_names_are_decoded(*, snake: bool):
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


def test_schemas_and_provider_tools_are_decoded():
    schema = {
        "type": "OBJECT",
        "properties": {"type": {"type": "ARRAY", "items": {"type": "STRING"}}},
    }
    tools: Any = [
        {"functionDeclarations": [{"name": "look", "parameters": schema}]},
        {"googleSearch": {}},
    ]
    assert decode(post(user_turn(), tools=tools)).tools == (
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
def test_a_function_response_has_its_text_and_error_flag(response: Any, text: str, *, failed: bool):
    part = {"functionResponse": {"name": "look", "response": response}}
    request = decode(post(user_turn(), calls("look"), {"role": "user", "parts": [part]}))
    (result,) = request.messages[-1].results
    assert (result.text, result.is_error) == (text, failed)
    decoded = decode(DIALECT.build_request(request, "http://host", "key"))
    (same,) = decoded.messages[-1].results
    assert (same.text, same.is_error) == (text, failed)


def test_responses_are_matched_by_id_else_by_name_and_order():
    request = decode(
        post(
            user_turn(),
            calls("look", "find", "look", read="r9"),
            answers("look", "look", "find", read="r9"),
            calls("look"),
            answers("look"),
        )
    )
    prompt = [(call.id, call.name) for message in request.messages for call in message.calls]
    assert prompt == [
        ("call-1", "look"),
        ("call-2", "find"),
        ("call-3", "look"),
        ("r9", "read"),
        ("call-5", "look"),
    ]
    answered = [result.call_id for message in request.messages for result in message.results]
    assert answered == ["call-1", "call-3", "call-2", "r9", "call-5"]


@pytest.mark.parametrize("marker", sorted(SKIPPED_SIGNATURES))
def test_a_placeholder_signature_is_ignored(marker: str):
    turn = calls("look")
    turn["parts"][0]["thoughtSignature"] = marker
    assert decode(post(user_turn(), turn, answers("look"))).messages[1].blocks == (
        ToolCall("call-1", "look"),
    )


# --------------------------------------------------------------------------------------- rules

MISCOUNTED = "number of function response parts is equal to the number of function call parts"
REFUSED: list[tuple[str, list[Any], str]] = [
    ("orphan_result", [answers("look")], "immediately after a function call turn"),
    ("orphan_result", [user_turn(), calls("look"), answers("look", "look")], MISCOUNTED),
    ("orphan_result", [user_turn(), calls(look="a"), answers(look="b")], MISCOUNTED),
    ("missing_result", [user_turn(), calls("look")], MISCOUNTED),
    ("missing_result", [user_turn(), calls("look", "find"), answers("find")], MISCOUNTED),
    ("missing_result", [user_turn(), calls("look"), user_turn()], MISCOUNTED),
    (
        "missing_result",
        [user_turn(), calls("look", "find"), answers("look", text="and")],
        MISCOUNTED,
    ),
    ("unknown_role", [{"role": "assistant", "parts": [{"text": "x"}]}], "valid role: user, model"),
    ("missing_field", [], "contents is not specified"),
]


@pytest.mark.parametrize("rule, contents, words", REFUSED)
def test_invalid_requests_are_rejected(rule: str, contents: list[Any], words: str):
    with pytest.raises(ModelError) as caught:
        decode(post(*contents))
    assert words in caught.value.message
    assert caught.value.details["rule"] == rule
    response = DIALECT.encode_error(caught.value)
    assert (response.status, response.headers["x-offbook-rule"]) == (400, rule)
    assert json.loads(response.body) == {
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
def test_invalid_tools_are_rejected(function: dict[str, Any], words: str):
    tools = [{"functionDeclarations": [function]}]
    with pytest.raises(ModelError, match=words) as caught:
        decode(post(user_turn(), tools=tools))
    assert caught.value.details["rule"] == "bad_tool_schema"
    assert decode(post(user_turn(), tools=tools), Gemini(ALL_RULES - {"bad_tool_schema"})).tools
    twice = [{"functionDeclarations": [{"name": "look"}, {"name": "look"}]}]
    with pytest.raises(ModelError, match="Duplicate function declaration found: look"):
        decode(post(user_turn(), tools=twice))


def test_a_duplicate_call_id_is_rejected():
    turn = {"role": "model", "parts": [{"functionCall": {"name": "look", "id": "a"}}] * 2}
    with pytest.raises(ModelError, match="Duplicate function call id found: a"):
        decode(post(user_turn(), turn, answers(look="a")))


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b"\xff", b'{"contents": 1}'])
def test_an_invalid_body_is_rejected_with_a_message(body: bytes):
    with pytest.raises(ModelError) as caught:
        decode(HttpRequest("POST", PATH, {}, body))
    assert caught.value.status == 400
    assert caught.value.message
    response = DIALECT.side_response(
        HttpRequest("POST", "/v1/models/m:countTokens", {}, body), ConversationStore()
    )
    assert response is not None
    assert response.status == 400


# ------------------------------------------------------------------------------- both ways agree


def even(request: Request) -> Request:
    """Return the request as decoded: with one named result per message."""
    names = {call.id: call.name for message in request.messages for call in message.calls}
    messages: list[Message] = []
    for message in request.messages:
        if message.role == "tool":
            messages += [
                Message("tool", (msgspec.structs.replace(actual, name=names[actual.call_id]),))
                for actual in message.results
            ]
        else:
            messages.append(message)
    value = request.parameters
    parameters = (
        {"generationConfig": {"maxOutputTokens": value["max_tokens"], "temperature": 0.5}}
        if value
        else {}
    )
    return msgspec.structs.replace(request, messages=History(messages), parameters=parameters)


@given(strategies.requests())
def test_a_built_request_is_decoded_to_the_same_request(request: Request):
    decoded = decode(DIALECT.build_request(request, "https://host", "key"))
    assert bare(decoded) == even(request)


@pytest.mark.parametrize("stream, framing", [(False, ""), (True, ""), (True, "array")])
@given(reply=strategies.replies(), usage=strategies.usages(cached=False))
def test_an_encoded_reply_is_parsed_to_the_same_reply(
    reply: Reply, usage: Usage, *, stream: bool, framing: str
):
    metadata = {"framing": framing}
    request = Request(
        History([Message("user", (Text("go"),))]), model="m", metadata=metadata, stream=stream
    )
    message = msgspec.structs.replace(reply, usage=usage)
    response = DIALECT.encode(message, request)
    decoded = DIALECT.parse_response(response, request)
    expected = msgspec.structs.replace(
        message, id=DIALECT.reply_id(message, request), model="m", chunks=(), step=0
    )
    if not message.blocks and stream:  # a stream has one piece at least
        expected = msgspec.structs.replace(expected, blocks=(Text(""),))
    assert msgspec.structs.replace(decoded, chunks=()) == expected
    assert DIALECT.encode(message, request) == response


@given(strategies.replies())
def test_a_stream_has_all_required_events(reply: Reply):
    request = Request(History([Message("user", (Text("go"),))]), model="m", stream=True)
    response = DIALECT.encode(reply, request)
    pieces = [json.loads(event.data) for event in parse_sse(b"".join(response.chunks))]
    assert len(pieces) == len(response.chunks) > 0
    for piece in pieces:
        assert piece["candidates"][0]["content"]["role"] == "model"
        assert piece["candidates"][0]["content"]["parts"]
        assert {"usageMetadata", "modelVersion", "responseId"} <= piece.keys()
    finishes = [piece["candidates"][0].get("finishReason") for piece in pieces]
    assert finishes[-1]
    assert not any(finishes[:-1])


def test_a_stream_without_alt_sse_is_a_json_array():
    http_request = post(user_turn(), path="/v1/models/m:streamGenerateContent")
    request = decode(http_request)
    response = DIALECT.encode(Reply((Text("one two three"),)), request)
    assert response.headers["content-type"].startswith("application/json")
    assert len(json.loads(b"".join(response.chunks))) == 3
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
def test_provider_errors_are_parsed(
    status: int, headers: dict[str, str], body: bytes, expected: tuple[str, float | None]
):
    with pytest.raises(ModelError) as caught:
        DIALECT.parse_response(HttpResponse(status, headers, body), Request())
    assert (caught.value.category, caught.value.retry_after) == expected
    assert "no" in caught.value.message


def test_blocked_broken_and_invalid_responses_are_parsed_or_raised():
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
def test_requests_are_built_for_the_base_url(base: str, path: str):
    assert DIALECT.build_request(Request(model="m"), base, "key").path == path


def test_an_unknown_path_is_not_found():
    response = DIALECT.side_response(
        HttpRequest("GET", "/v1/nothing", {"x-goog-api-key": "k"}), ConversationStore()
    )
    assert response is not None
    assert response.status == 404


def test_a_call_without_id_gets_the_id_of_this_run():
    store = ConversationStore()
    built = Reply((ToolCall("c1", "look"), ToolCall("c2", "look"), ToolCall("c3", "read")))
    store.add("r1", Request(), built)
    request = DIALECT.decode(
        post(user_turn(), calls("look", "look", "read"), answers("look", "read", "look")), store
    )
    assert [call.id for call in request.messages[1].calls] == ["c1", "c2", "c3"]
    results = [message.results[0] for message in request.messages[2:]]
    assert [result.call_id for result in results] == ["c1", "c3", "c2"]
