"""The Anthropic dialect: decoding, validation, encoding and round trips."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    RULES,
    ConversationStore,
    HttpRequest,
    HttpResponse,
    parse_sse,
)
from offbook.exchange.dialects import dialect as dialect_module
from offbook.exchange.dialects.anthropic.anthropic_dialect import Anthropic
from tests.exchange.dialects import strategies
from tests.exchange.dialects.captures import load_captures

DIALECT = Anthropic()
TOOL: Any = {"name": "look", "input_schema": {"type": "object"}}


def use(*ids: str) -> Any:
    blocks: Any = [{"type": "tool_use", "id": i, "name": "look", "input": {}} for i in ids]
    return {"role": "assistant", "content": blocks}


def result(*ids: str, text: str = "") -> Any:
    blocks: list[Any] = [{"type": "tool_result", "tool_use_id": i, "content": "ok"} for i in ids]
    return {
        "role": "user",
        "content": [*blocks, {"type": "text", "text": text}] if text else blocks,
    }


def text_first(turn: Any) -> Any:
    return {**turn, "content": [{"type": "text", "text": "here"}, *turn["content"]]}


def user_turn(text: str = "go") -> Any:
    return {"role": "user", "content": text}


def post(*messages: Any, **fields: Any) -> HttpRequest:
    body = {"model": "m", "max_tokens": 10, "messages": messages, **fields}
    expected = {name: value for name, value in body.items() if value is not None}
    return HttpRequest("POST", "/v1/messages", {}, json.dumps(expected).encode())


def decode(
    http_request: HttpRequest, store: ConversationStore | None = None, dialect: Anthropic = DIALECT
) -> Request:
    return dialect.decode(http_request, store or ConversationStore())


# ---------------------------------------------------------------------------- captured requests


@pytest.mark.external
def test_every_captured_request_is_decoded(shared_data: Path):
    captures = load_captures(shared_data, DIALECT)
    assert len(captures) >= 55
    for name, http_request in captures:
        side_response = DIALECT.side_response(http_request, ConversationStore())
        if side_response is not None:
            assert side_response.status == 200, name
            continue
        if b'"continue"' in http_request.body:
            continue
        request = decode(http_request)
        assert request.messages, name
        assert request.model, name
        assert request.metadata["dialect"] == "anthropic"
        assert request.parameters["max_tokens"] > 0


@pytest.mark.external
def test_captured_requests_are_unchanged_after_building_and_decoding(shared_data: Path):
    for name, http_request in load_captures(shared_data, DIALECT):
        if (
            DIALECT.side_response(http_request, ConversationStore()) is None
            and b'"continue"' not in http_request.body
        ):
            request = decode(http_request)
            decoded = decode(DIALECT.build_request(request, "http://host", "key"))
            assert bare(decoded) == bare(request), name


def test_session_headers_are_in_the_metadata():
    headers = {
        "x-claude-code-session-id": "s",
        "x-claude-code-agent-id": "a",
        "x-claude-code-parent-agent-id": "p",
        "anthropic-beta": "one,two",
        "x-api-key": "secret",
    }
    http_request = msgspec.structs.replace(post(user_turn()), headers=headers, query="beta=true")
    assert decode(http_request).metadata == {
        "dialect": "anthropic",
        "endpoint": "/v1/messages",
        **{name: value for name, value in headers.items() if name != "x-api-key"},
    }


def kept(encoded: dict[str, Any]) -> RawBlock:
    return RawBlock(encoded["type"], encoded, "anthropic")


def test_blocks_of_every_type_are_decoded_or_kept_raw():
    document = {"type": "document", "source": {"type": "text", "data": "…"}, "title": "t"}
    searched: dict[str, Any] = {
        "type": "server_tool_use",
        "id": "s",
        "name": "web_search",
        "input": {},
    }
    actual = {"type": "web_search_tool_result", "tool_use_id": "s", "content": {"type": "e"}}
    request = decode(
        post(
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
                    {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}},
                    document,
                ],
            },
            {"role": "system", "content": "from now on"},
            {
                "role": "assistant",
                "content": [
                    {"type": "redacted_thinking", "data": "xyz"},
                    searched,
                    actual,
                    {"type": "tool_use", "id": "t", "name": "look", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t",
                        "is_error": True,
                        "content": [
                            {"type": "text", "text": "no"},
                            {"type": "tool_reference", "tool_name": "mcp__x"},
                            {
                                "type": "image",
                                "source": {"type": "base64", "media_type": "i/p", "data": "AA"},
                            },
                        ],
                    },
                    {"type": "text", "text": "and now?"},
                ],
            },
            system=[{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
            tools=[TOOL, {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}],
            cache_control={"type": "ephemeral"},
        )
    )
    assert list(request.messages) == [
        Message("user", (Text("a"), Image(url="http://x/y.png"), kept(document))),
        Message("system", (Text("from now on"),)),
        Message(
            "assistant",
            (
                Thinking("", "xyz", redacted=True),
                kept(searched),
                kept(actual),
                ToolCall("t", "look", {"a": 1}),
            ),
        ),
        Message(
            "tool",
            (
                ToolResult(
                    "t",
                    (Text("no"), Text("mcp__x"), Image("AA", "i/p")),
                    failed=True,
                    name="look",
                ),
            ),
        ),
        Message("user", (Text("and now?"),)),
    ]
    assert request.system == "one\ntwo"
    assert request.tools == (
        Tool("look", schema={"type": "object"}),
        Tool("web_search", schema={"max_uses": 2}, kind="web_search_20250305"),
    )


# --------------------------------------------------------------------------------------- rules

SIGNED = {"type": "thinking", "thinking": "hm", "signature": "of another"}
REFUSED: dict[str, list[tuple[list[Any], str]]] = {
    "orphan_result": [
        ([result("t1")], "messages.0.content.0: unexpected `tool_use_id`"),
        ([user_turn(), use("t1"), result("t1", "t2")], "messages.2.content.1: unexpected"),
        ([user_turn(), use("t1"), result("t1"), user_turn(), result("t1")], "messages.4.content.0"),
    ],
    "missing_result": [
        ([user_turn(), use("t1")], "messages.1: `tool_use` ids were found without"),
        ([user_turn(), use("t1"), user_turn()], "immediately after: t1"),
        ([user_turn(), use("t1", "t2"), result("t2", text="and")], "immediately after: t1"),
        ([user_turn(), use("t1"), text_first(result("t1"))], "immediately after: t1"),
        ([user_turn(), use("t1"), {"role": "user", "content": []}, use("t2"), result("t2")], "t1"),
    ],
    "duplicate_id": [
        ([user_turn(), use("t1", "t1"), result("t1")], "`tool_use` ids must be unique"),
        ([user_turn(), use("t1"), result("t1"), use("t1"), result("t1")], "must be unique"),
        ([user_turn(), use("t1"), result("t1", "t1")], "each tool_use must have a single result"),
    ],
    "unknown_role": [([{"role": "tool", "content": "x"}], 'Unexpected role "tool"')],
    "altered_thinking": [
        (
            [
                user_turn(),
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]},
            ],
            "messages.1.content.0.thinking.signature: Field required",
        ),
        (
            [user_turn(), {"role": "assistant", "content": [{**SIGNED, "signature": ""}]}],
            "Invalid `signature` in `thinking` block",
        ),
    ],
}
CASES = [(rule, *case) for rule, cases in REFUSED.items() for case in cases]


@pytest.mark.parametrize("rule, messages, words", CASES)
def test_invalid_requests_are_rejected(rule: str, messages: list[Any], words: str):
    with pytest.raises(ModelError) as caught:
        decode(post(*messages))
    assert words in caught.value.message
    assert caught.value.details["rule"] == rule
    response = DIALECT.encode_error(caught.value)
    assert response.status == 400
    assert response.headers["x-should-retry"] == "false"
    assert response.headers["x-offbook-rule"] == rule
    body = json.loads(response.body)
    assert body["type"] == "error"
    assert body["error"] == {"type": "invalid_request_error", "message": caught.value.message}


@pytest.mark.parametrize("rule, messages, words", CASES)
def test_each_rule_can_be_switched_off(rule: str, messages: list[Any], words: str):
    off = {rule}
    if rule == "duplicate_id":
        off.add("orphan_result")  # the second result of a call then has no call left
    assert decode(post(*messages), dialect=Anthropic(ALL_RULES - off)).messages


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"max_tokens": None}, "max_tokens: Field required"),
        ({"max_tokens": 0}, "max_tokens: Input should be greater than or equal to 1"),
        ({"model": None}, "model: Field required"),
        ({"messages": None}, "messages: Field required"),
        ({"messages": []}, "messages: at least one message is required"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages.0.content: "),
        ({"tools": [{"name": "a b", "input_schema": {"type": "object"}}]}, "tools.0.custom.name"),
        ({"tools": [{"name": "a"}]}, "tools.0.custom.input_schema.type: Field required"),
        ({"tools": [{"name": "a", "input_schema": {"type": "array"}}]}, "should be 'object'"),
        ({"tools": [TOOL, TOOL]}, "Tool names must be unique"),
        ({"tools": 3}, "tools"),
    ],
)
def test_missing_and_invalid_fields_are_named(fields: dict[str, Any], words: str):
    with pytest.raises(ModelError) as caught:
        decode(post(user_turn(), **fields))
    assert words in caught.value.message
    assert caught.value.status == 400


def test_field_rules_can_be_switched_off():
    loose = Anthropic(ALL_RULES - {"missing_max_tokens", "bad_tool_schema"})
    request = decode(post(user_turn(), max_tokens=None, tools=[{"name": "a b"}]), dialect=loose)
    assert request.tool_names == ("a b",)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b'{"messages": 1}'])
def test_an_invalid_body_is_rejected_with_a_message(body: bytes):
    with pytest.raises(ModelError) as caught:
        decode(HttpRequest("POST", "/v1/messages", {}, body))
    assert caught.value.status == 400
    assert caught.value.message


def test_results_in_several_messages_and_adjacent_model_turns_are_accepted():
    request = decode(
        post(
            user_turn(),
            use("t1"),
            use("t2"),
            result("t2"),
            result("t1", text="so"),
            user_turn("more"),
        )
    )
    roles = ["user", "assistant", "assistant", "tool", "tool", "user", "user"]
    assert [message.role for message in request.messages] == roles


THOUGHT = Reply((Thinking("because"), ToolCall("t1", "look")), "tool_use")


def think_again(change: Any, *, thinking: str = "enabled", dialect: Anthropic = DIALECT) -> Request:
    """Send the second step of an agent that altered the thinking of the first."""
    store = ConversationStore()
    request = post(user_turn(), thinking={"type": thinking, "budget_tokens": 5})
    first = decode(request, store)
    store.add(dialect.reply_id(THOUGHT, first), first, THOUGHT)
    content = json.loads(dialect.encode(THOUGHT, first).body)["content"]
    change(content)
    turn = {"role": "assistant", "content": content}
    decoded = post(user_turn(), turn, result("t1"), thinking={"type": thinking, "budget_tokens": 5})
    return decode(decoded, store, dialect)


def leave(content: list[Any]) -> None:
    """Return the block unchanged."""


def drop(content: list[Any]) -> None:
    del content[0]


def alter(content: list[Any]) -> None:
    content[0]["thinking"] += "!"


def break_seal(content: list[Any]) -> None:
    content[0]["signature"] = content[0]["signature"][:-8] + "AAAAAAA="


def swap_seal(content: list[Any]) -> None:
    content[0]["signature"] = "made up"


@pytest.mark.parametrize("thinking", ["enabled", "adaptive"])
@pytest.mark.parametrize(
    "change, words",
    [
        (drop, "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`"),
        (alter, "messages.1.content.0: Invalid `signature` in `thinking` block"),
        (break_seal, "messages.1.content.0: Invalid `signature` in `thinking` block"),
        (swap_seal, "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest"),
    ],
)
def test_altered_thinking_is_rejected(change: Any, words: str, thinking: str):
    with pytest.raises(ModelError) as caught:
        think_again(change, thinking=thinking)
    assert words in caught.value.message
    assert caught.value.details["rule"] == "altered_thinking"
    assert think_again(change, dialect=Anthropic(ALL_RULES - {"altered_thinking"}))


def test_scripted_thinking_is_verified_and_restored():
    assert think_again(leave).messages[1].blocks == THOUGHT.blocks
    assert think_again(drop, thinking="disabled").messages[1].blocks == THOUGHT.blocks[1:]


def test_an_unknown_thread_is_rejected_with_thread_not_found():
    http_request = post(result("t1"), thread={"type": "continue", "previous_message_id": "msg_9"})
    with pytest.raises(ModelError) as caught:
        decode(http_request)
    body = json.loads(DIALECT.encode_error(caught.value).body)
    assert body["error"]["details"]["error_code"] == "thread_not_found"


def test_a_thread_continues_the_named_reply():
    store = ConversationStore()
    first = decode(post(user_turn(), system="S", tools=[TOOL], thread={"type": "create"}), store)
    reply = Reply((ToolCall("", "look"),))
    name = DIALECT.reply_id(reply, first)
    store.add(name, first, reply)
    (sent,) = json.loads(DIALECT.encode(reply, first).body)["content"]
    thread = {"type": "continue", "previous_message_id": name}
    second = decode(post(result(sent["id"]), thread=thread), store)
    assert [m.role for m in second.messages] == ["user", "assistant", "tool"]
    assert (second.system, second.tools) == (first.system, first.tools)
    with pytest.raises(ModelError, match="without `tool_result`"):
        decode(post(user_turn("no result"), thread=thread), store)


def test_every_used_rule_exists():
    assert set(REFUSED) <= set(RULES)


# -------------------------------------------------------------------- conversations that grow


@given(strategies.requests(), st.lists(st.integers(1, 99), max_size=5), st.booleans())
def test_a_growing_conversation_decodes_like_a_new_one(
    request: Request,
    lengths: list[int],
    indented: bool,  # noqa: FBT001 - hypothesis gives it so
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dialect_module, "MIN_BODY_SIZE", 0)
        patch.setattr(dialect_module, "BLOCK_SIZE", 1)
        dialect = Anthropic()
        complete = json.loads(dialect.build_request(request, "http://host", "key").body)
        for length in lengths:
            body = {**complete, "messages": complete["messages"][:length]}
            http_request = HttpRequest(
                "POST", "/v1/messages", {}, json.dumps(body, indent=indented or None).encode()
            )
            assert outcome(dialect, http_request) == outcome(Anthropic(), http_request)


def outcome(dialect: Anthropic, http_request: HttpRequest) -> Request | str:
    try:
        return dialect.decode(http_request, ConversationStore())
    except ModelError as error:
        return error.message


def test_a_cached_prefix_is_not_decoded_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dialect_module, "MIN_BODY_SIZE", 0)
    monkeypatch.setattr(dialect_module, "BLOCK_SIZE", 1)
    dialect = Anthropic()
    first = decode(post(user_turn("a"), use("t1"), result("t1")), dialect=dialect)
    longer = [user_turn("a"), use("t1"), result("t1"), use("t2"), result("t2")]
    second = decode(post(*longer), dialect=dialect)
    assert all(a is b for a, b in zip(first.messages, second.messages, strict=False))
    assert second.messages[-1].results[0].name == "look"
    with pytest.raises(ModelError, match=r"messages\.6\.content\.0: unexpected"):
        decode(post(*longer, user_turn(), result("t1")), dialect=dialect)
    with pytest.raises(ModelError, match="ids must be unique"):
        decode(post(*longer, use("t1"), result("t1")), dialect=dialect)


# ------------------------------------------------------------------------------- both ways agree


def bare(request: Request) -> Request:
    """Return the request without its metadata."""
    return msgspec.structs.replace(request, metadata={})


def even(request: Request) -> Request:
    """Return the request as decoded: with a token limit, and one named result per message."""
    names = {call.id: call.name for message in request.messages for call in message.calls}
    messages: list[Message] = []
    for message in request.messages:
        if message.role == "tool":
            messages += [
                Message("tool", (msgspec.structs.replace(actual, name=names[actual.call_id]),))
                for actual in message.results
            ]
        elif message.role == "assistant":
            signed = [b for b in message.blocks if not isinstance(b, Thinking) or b.signature]
            messages.append(Message("assistant", tuple(signed)))
        else:
            messages.append(message)
    parameters = {"max_tokens": 4096, **request.parameters}
    return msgspec.structs.replace(request, messages=History(messages), parameters=parameters)


@given(strategies.requests())
def test_a_built_request_is_decoded_to_the_same_request(request: Request):
    decoded = decode(DIALECT.build_request(request, "https://host/v1", "key"))
    assert bare(decoded) == even(request)


@pytest.mark.parametrize("stream", [False, True])
@given(reply=strategies.replies(), usage=strategies.usages(cached=True))
def test_an_encoded_reply_is_parsed_to_the_same_reply(reply: Reply, usage: Usage, *, stream: bool):
    request = Request(History([Message("user", (Text("go"),))]), model="m", stream=stream)
    message = msgspec.structs.replace(reply, usage=usage)
    response = DIALECT.encode(message, request)
    decoded = DIALECT.parse_response(response, request)
    assert msgspec.structs.replace(decoded, chunks=()) == msgspec.structs.replace(
        message, id=DIALECT.reply_id(message, request), model="m", chunks=(), step=0
    )
    if message.chunks and stream:
        assert decoded.chunks == message.chunks
    assert DIALECT.encode(message, request) == response


@pytest.mark.parametrize("stream", [False, True])
def test_an_empty_reply_has_no_content(*, stream: bool):
    request = Request(History([Message("user", (Text("go"),))]), model="m", stream=stream)
    response = DIALECT.encode(Reply((Text(""),)), request)
    assert DIALECT.parse_response(response, request).blocks == ()


NEEDED = (
    "message_start",
    "content_block_start",
    "ping",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
)


@given(strategies.replies())
def test_a_stream_has_all_required_events(reply: Reply):
    request = Request(History([Message("user", (Text("go"),))]), model="m", stream=True)
    response = DIALECT.encode(reply, request)
    assert response.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(event.data) for event in parse_sse(b"".join(response.chunks))]
    assert [event.name for event in parse_sse(b"".join(response.chunks))] == [
        event["type"] for event in events
    ]
    kinds = [event["type"] for event in events]
    assert set(kinds) <= set(NEEDED)
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert {"input_tokens", "output_tokens"} <= events[0]["message"]["usage"].keys()
    assert events[-2]["usage"]["output_tokens"] == reply.usage.output
    assert events[-2]["delta"]["stop_reason"]
    if reply.blocks:
        assert kinds[1:3] == ["content_block_start", "ping"]
    starts = [event for event in events if event["type"] == "content_block_start"]
    stops = [event["index"] for event in events if event["type"] == "content_block_stop"]
    assert [event["index"] for event in starts] == stops == list(range(len(reply.blocks)))
    for event in starts:
        if event["content_block"]["type"] == "tool_use":
            assert event["content_block"]["id"]


def test_recorded_chunks_are_sent_unchanged():
    request = Request(History([Message("user", (Text("go"),))]), model="m", stream=True)
    reply = Reply((Text("Hello you"),), chunks=("Hel", "lo you"))
    assert DIALECT.parse_response(DIALECT.encode(reply, request), request).chunks == (
        "Hel",
        "lo you",
    )


@pytest.mark.parametrize(
    "status, headers, expected",
    [
        (429, {"retry-after": "3"}, ("rate_limit", 3.0)),
        (529, {}, ("overloaded", None)),
        (400, {"retry-after": "soon"}, ("invalid_request", None)),
    ],
)
def test_provider_errors_are_parsed(
    status: int, headers: dict[str, str], expected: tuple[str, float | None]
):
    for body in (b'{"type":"error","error":{"type":"x","message":"no"}}', b"<html>no</html>"):
        with pytest.raises(ModelError) as caught:
            DIALECT.parse_response(HttpResponse(status, headers, body), Request())
        assert caught.value.status == status
        assert (caught.value.category, caught.value.retry_after) == expected
        assert "no" in caught.value.message


def test_an_error_in_a_stream_is_raised():
    reply = Reply((Text("I begin"),), "error")
    request = Request(History([Message("user", (Text("go"),))]), stream=True)
    with pytest.raises(ModelError, match="Internal server error"):
        DIALECT.parse_response(DIALECT.encode(reply, request), request)
    with pytest.raises(ModelError, match="invalid response of Anthropic"):
        DIALECT.parse_response(HttpResponse(200, {}, b'{"content": 3}'), request)


@pytest.mark.parametrize(
    "method, path, status",
    [("GET", "/v1/messages", 405), ("GET", "/v1/skills", 404), ("HEAD", "/api/hello", 200)],
)
def test_side_requests_are_answered(method: str, path: str, status: int):
    response = DIALECT.side_response(
        HttpRequest(method, path, {"anthropic-version": "1"}), ConversationStore()
    )
    assert response is not None
    assert response.status == status
