"""Rare answers of providers: errors inside of a stream, refusals, and signatures without text."""

import json
from typing import Any

import pytest

from offbook.errors import ModelError
from offbook.exchange import (
    AnyBlock,
    History,
    Image,
    Reply,
    Request,
    Text,
    Thinking,
    ToolCall,
    Usage,
    all_dialects,
    user,
)
from offbook.exchange.dialects import Dialect, HttpResponse
from offbook.exchange.dialects.amazon import encode_frame, parse_frames
from offbook.exchange.dialects.chat import chat_client
from offbook.exchange.dialects.gemini.gemini_dialect import encode_parts
from offbook.exchange.dialects.responses import responses_dialect

REQUEST = Request(History([user("hi")]), model="m")
RESPONSE: dict[str, Any] = {"id": "r", "model": "m", "status": "completed", "output": []}
MESSAGE = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "A"}],
}
REFUSAL = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "refusal", "refusal": "No"}],
}


def sse(*events: Any) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)


@pytest.mark.parametrize(
    "event, message, category",
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow"}, "slow", "rate_limit"),
        ({"type": "error", "error": {"message": "broken"}}, "broken", "server_error"),
        (
            {"type": "response.failed", "response": {**RESPONSE, "status": "failed"}},
            "The server had an error",
            "server_error",
        ),
    ],
)
def test_an_error_in_a_stream_of_responses_is_raised(
    event: dict[str, Any], message: str, category: str
):
    with pytest.raises(ModelError, match=message) as caught:
        responses_dialect.parse_stream(sse(event), REQUEST)
    assert caught.value.category == category


def test_the_items_of_a_stream_are_used_if_the_last_event_has_none():
    done = {"type": "response.output_item.done", "item": MESSAGE}
    reply = responses_dialect.parse_stream(
        sse(done, {"type": "response.completed", "response": RESPONSE}), REQUEST
    )
    assert (reply.text, reply.stop, reply.usage) == ("A", "stop", Usage())


@pytest.mark.parametrize("end", [b"data: [DONE]\n\n", b""])
def test_a_stream_of_responses_without_an_end_is_an_error(end: bytes):
    delta = {"type": "response.output_text.delta", "delta": "A"}
    with pytest.raises(ModelError) as caught:
        responses_dialect.parse_stream(sse(delta) + end, REQUEST)
    assert caught.value.status == 502


@pytest.mark.parametrize(
    "fields, stop",
    [
        ({"output": [REFUSAL]}, "refusal"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "refusal"),
        ({"status": "incomplete"}, "length"),
    ],
)
def test_the_reason_of_a_response_is_read(fields: dict[str, Any], stop: str):
    body = json.dumps({**RESPONSE, **fields}).encode()
    assert responses_dialect.parse_response_body(body, REQUEST).stop == stop


def test_an_error_in_a_stream_of_chat_is_raised():
    chunk = {"error": {"message": "slow", "code": "rate_limit_exceeded"}}
    with pytest.raises(ModelError, match="slow") as caught:
        chat_client.parse_stream(sse(chunk), REQUEST)
    assert caught.value.category == "rate_limit"


def test_a_refusal_in_a_stream_of_chat_is_the_reason():
    choice = {"index": 0, "delta": {"refusal": "No."}, "finish_reason": "stop"}
    reply = chat_client.parse_stream(sse({"id": "c", "choices": [choice]}), REQUEST)
    assert (reply.text, reply.stop) == ("No.", "refusal")


def test_a_chat_reply_with_calls_stops_for_them_whatever_the_server_says():
    function = {"name": "f", "arguments": "{}"}
    call = {"id": "1", "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = json.dumps({"id": "c", "choices": [choice]}).encode()
    assert chat_client.parse_completion(body, REQUEST).stop == "tool_use"


SIGNED: list[tuple[list[AnyBlock], list[dict[str, Any]]]] = [
    ([Thinking("", "s")], [{"text": "", "thought": True, "thoughtSignature": "s"}]),
    (
        [Text("a"), Thinking("", "s"), Thinking("b", "t")],
        [
            {"text": "a", "thoughtSignature": "s"},
            {"text": "b", "thought": True, "thoughtSignature": "t"},
        ],
    ),
    (
        [Thinking("", "s"), ToolCall("", "f", {})],
        [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "s"}],
    ),
    (
        [Image("", "image/png", "gs://a")],
        [{"fileData": {"fileUri": "gs://a", "mimeType": "image/png"}}],
    ),
]


@pytest.mark.parametrize("blocks, parts", SIGNED)
def test_a_signature_is_sent_with_the_next_part_or_the_last(
    blocks: list[AnyBlock], parts: list[dict[str, Any]]
):
    assert encode_parts(blocks) == parts


WHOLE = Reply((Text("Hello you"), ToolCall("call_1", "find", {"id": 7})), "tool_use", Usage(1, 1))
STREAMS = {dialect.name: dialect for dialect in all_dialects()}


@pytest.mark.parametrize("dialect", STREAMS.values(), ids=STREAMS)
def test_a_part_of_a_stream_is_never_read_as_a_reply(dialect: Dialect):
    request = Request(History([user("hi")]), model="m", stream=True)
    response = dialect.encode(WHOLE, request)
    stream = b"".join(response.chunks)
    whole = dialect.parse_response(response, request)
    for size in range(len(stream)):
        cut = HttpResponse(200, response.headers, stream[:size])
        try:
            reply = dialect.parse_response(cut, request)
        except ModelError as error:
            if error.interrupted:
                continue
            raise
        assert (reply.blocks, reply.stop) == (whole.blocks, whole.stop), stream[:size]


@pytest.mark.parametrize(
    "header, seconds", [("2.5", 2.5), ("inf", None), ("-1", None), ("1e300", None), ("nan", None)]
)
def test_a_delay_that_no_client_can_wait_for_is_left_out(header: str, seconds: float | None):
    refused = HttpResponse(429, {"retry-after": header}, b"{}")
    with pytest.raises(ModelError) as caught:
        STREAMS["openai-chat"].parse_response(refused, REQUEST)
    assert caught.value.retry_after == seconds


FRAME = encode_frame({":event-type": "x"}, b"{}")


@pytest.mark.parametrize(
    "data, message",
    [
        (FRAME[:5], "the stream ended in the middle of a frame"),
        (FRAME[:-1], "the stream ended in the middle of a frame"),
        (FRAME[:-1] + b"\0", "a frame of the stream has a wrong checksum"),
    ],
)
def test_a_damaged_frame_is_refused(data: bytes, message: str):
    with pytest.raises(ModelError, match=message):
        list(parse_frames(data))
