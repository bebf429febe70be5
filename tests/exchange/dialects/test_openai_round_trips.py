"""Requests, replies and errors survive a round trip through OpenAI's dialects."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from offbook.errors import ModelError
from offbook.exchange import Reply, Request
from offbook.exchange.dialects import ConversationStore, HttpRequest, HttpResponse
from offbook.exchange.dialects.chat import chat_wire
from offbook.exchange.dialects.chat.chat_dialect import Chat
from offbook.exchange.dialects.responses import responses_wire
from offbook.exchange.dialects.responses.responses_dialect import Responses
from tests.exchange.dialects import openai_strategies as strategies

DIALECTS = {"chat": Chat(), "responses": Responses()}
BASE = "http://127.0.0.1/v1"


@given(strategies.requests(responses=False, options=chat_wire.OPTIONS.split()))
def test_chat_requests_round_trip(request: Request) -> None:
    http_request = DIALECTS["chat"].build_request(request, BASE, "key")
    back = DIALECTS["chat"].decode(http_request, ConversationStore())
    expected = request
    if request.stream:
        prompt = {"stream_options": {"include_usage": True}}
        expected = replace(request, parameters={**request.parameters, **prompt})
    assert replace(back, metadata={}) == expected


@given(strategies.requests(responses=True, options=responses_wire.OPTIONS.split()))
def test_responses_requests_round_trip(request: Request) -> None:
    http_request = DIALECTS["responses"].build_request(request, BASE, "key")
    back = DIALECTS["responses"].decode(http_request, ConversationStore())
    assert replace(back, metadata={}) == request


@given(strategies.replies(responses=False), st.booleans())
def test_chat_replies_round_trip(reply: Reply, stream: bool) -> None:  # noqa: FBT001 - drawn or given by a table
    check_reply(DIALECTS["chat"], reply, stream=stream)


@given(strategies.replies(responses=True), st.booleans())
def test_responses_replies_round_trip(reply: Reply, stream: bool) -> None:  # noqa: FBT001 - drawn or given by a table
    check_reply(DIALECTS["responses"], reply, stream=stream)


def check_reply(dialect: Chat | Responses, reply: Reply, *, stream: bool) -> None:
    counted = {"stream_options": {"include_usage": True}}
    request = Request(model="m", stream=stream, parameters=counted)
    response = dialect.encode(reply, request)
    assert bool(response.chunks) is stream
    back = dialect.parse_response(response, request)
    assert replace(back, chunks=()) == replace(reply, chunks=())
    if stream and reply.chunks:
        assert back.chunks == reply.chunks
    complete = HttpResponse(200, response.headers, b"".join(response.chunks) or response.body)
    assert dialect.parse_response(complete, request) == back, "a joined stream is the same stream"


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@pytest.mark.parametrize(
    "error",
    [
        ModelError("a", status=400),
        ModelError("b", status=401),
        ModelError("c", status=403),
        ModelError("d", status=404),
        ModelError("e", status=429, retry_after=1.5),
        ModelError("f", status=429, category="quota"),
        ModelError("g", status=400, category="context_overflow"),
        ModelError("h", status=500),
        ModelError("i", status=503),
        ModelError("j", status=529, retry_after=2),
    ],
    ids=lambda error: f"{error.status}-{error.category}",
)
def test_errors_round_trip(dialect: Chat | Responses, error: ModelError) -> None:
    with pytest.raises(ModelError) as raised:
        dialect.parse_response(dialect.encode_error(error), Request())
    back = raised.value
    assert (back.message, back.status, back.category, back.retry_after) == (
        error.message,
        error.status,
        error.category,
        error.retry_after,
    )


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@pytest.mark.parametrize(
    "response, part",
    [
        (HttpResponse(502, {}, b"<html>Bad Gateway</html>"), "Bad Gateway"),
        (HttpResponse(500, {}, b""), "status 500"),
        (HttpResponse(500, {}, b'{"error":"plain"}'), "plain"),
        (HttpResponse(200, {"content-type": "application/json"}, b"{"), "invalid response"),
        (
            HttpResponse(200, {"content-type": "text/event-stream"}, b"data: {\n\n"),
            "invalid response",
        ),
        (HttpResponse(200, {"content-type": "text/event-stream"}, b""), "ended before"),
    ],
)
def test_an_invalid_response_is_an_error(
    dialect: Chat | Responses, response: HttpResponse, part: str
) -> None:
    with pytest.raises(ModelError, match=part):
        dialect.parse_response(response, Request())


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_a_truncated_stream_is_an_error(
    dialect: Chat | Responses,
) -> None:
    reply = Reply((strategies.Text("a few words"),), model="m", id="x")
    response = dialect.encode(reply, Request(stream=True))
    ends = {"chat": 2, "responses": 1}  # [DONE] alone is not missed
    name = "chat" if isinstance(dialect, Chat) else "responses"
    for stored in range(len(response.chunks) - ends[name] + 1):
        cut = replace(response, chunks=(), body=b"".join(response.chunks[:stored]))
        with pytest.raises(ModelError, match="ended before"):
            dialect.parse_response(cut, Request())


fields = ["role", "content", "type", "call_id", "tool_calls", "output", "name", "id", "arguments"]
entries = st.dictionaries(
    st.sampled_from(fields),
    strategies.values | st.sampled_from(["user", "assistant", "tool", "message", "reasoning"]),
)
bodies = st.binary(max_size=50) | st.dictionaries(
    st.sampled_from(["model", "messages", "input", "tools", "stream", "instructions"]),
    strategies.values | st.lists(entries, max_size=3),
).map(msgspec.json.encode)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@given(body=bodies)
def test_an_arbitrary_body_is_decoded_or_rejected(dialect: Chat | Responses, body: bytes) -> None:
    try:
        dialect.decode(HttpRequest("POST", "/v1/x", {}, body), ConversationStore())
    except ModelError as error:
        refused = error
    else:
        return
    assert refused.status in {400, 404}
