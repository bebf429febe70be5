"""The chat dialect with OpenAI's client."""

import base64
import json
import struct
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel

from offbook.errors import ModelError
from offbook.exchange import Reply, Text, Thinking, ToolCall, Usage
from tests.exchange.dialects.fake_provider import FakeProvider
from tests.exchange.dialects.openai_client import connect

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
ASKED: Any = [{"role": "user", "content": "Weather in Paris?"}]
CALLS = Reply(
    (
        ToolCall("call_1", "weather", {"city": "Paris"}),
        ToolCall("call_2", "weather", {"city": "Rom"}),
    ),
    "tool_use",
    Usage(11, 7, cache_read=5, reasoning=2),
)
DONE = Reply((Text("It is fine, and 21 °C."),), usage=Usage(20, 8))


class Weather(BaseModel):
    city: str
    degrees: int


def strict(model: type[BaseModel], value: BaseModel) -> None:
    """Validate strictly what the client parsed leniently."""
    model.model_validate(value.model_dump(mode="json"), strict=False)


def test_two_steps_with_parallel_calls() -> None:
    client, provider = connect(CALLS, DONE)
    messages = list(ASKED)
    first = client.chat.completions.create(model="m", messages=messages, tools=[WEATHER])
    strict(ChatCompletion, first)
    reply = first.choices[0].message
    assert first.choices[0].finish_reason == "tool_calls"
    assert reply.content is None
    assert reply.tool_calls is not None
    assert [call.id for call in reply.tool_calls] == ["call_1", "call_2"]
    messages.append(reply)
    messages += [
        {"role": "tool", "tool_call_id": call.id, "content": "21"} for call in reply.tool_calls
    ]
    second = client.chat.completions.create(model="m", messages=messages, tools=[WEATHER])
    assert second.choices[0].message.content == "It is fine, and 21 °C."
    assert second.choices[0].finish_reason == "stop"
    back = provider.requests[1]
    assert back.messages[1].calls == CALLS.calls
    assert [(r.call_id, r.name, r.text) for m in back.new_messages for r in m.results] == [
        ("call_1", "weather", "21"),
        ("call_2", "weather", "21"),
    ]


def test_usage_has_cached_and_reasoning_tokens() -> None:
    client, _ = connect(CALLS)
    usage = client.chat.completions.create(model="m", messages=ASKED).usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.completion_tokens_details is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (11, 7, 18)
    assert usage.prompt_tokens_details.cached_tokens == 5
    assert usage.completion_tokens_details.reasoning_tokens == 2


@pytest.mark.parametrize("counted", [True, False])
def test_a_stream_has_usage_only_on_request(counted: bool) -> None:  # noqa: FBT001 - drawn or given by a table
    client, _ = connect(DONE)
    options: Any = {"stream_options": {"include_usage": True}} if counted else {}
    chunks = list(client.chat.completions.create(model="m", messages=ASKED, stream=True, **options))
    for chunk in chunks:
        strict(ChatCompletionChunk, chunk)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == DONE.text
    assert [c.usage.total_tokens for c in chunks if c.usage] == ([28] if counted else [])
    assert [c.choices == [] for c in chunks].count(True) == counted


def test_streamed_calls_have_their_index_and_one_id() -> None:
    client, _ = connect(CALLS)
    chunks = list(client.chat.completions.create(model="m", messages=ASKED, stream=True))
    pieces = [call for c in chunks for call in c.choices[0].delta.tool_calls or ()]
    assert [(p.index, p.id) for p in pieces if p.id] == [(0, "call_1"), (1, "call_2")]
    arguments = ["", ""]
    for piece in pieces:
        assert piece.function is not None
        arguments[piece.index] += piece.function.arguments or ""
    assert arguments == ['{"city":"Paris"}', '{"city":"Rom"}']
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_the_stream_helper_assembles_the_completion() -> None:
    client, _ = connect(CALLS)
    with client.chat.completions.stream(model="m", messages=ASKED, tools=[WEATHER]) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.done" in kinds
    calls = final.choices[0].message.tool_calls
    assert calls is not None
    assert [call.function.arguments for call in calls] == ['{"city":"Paris"}', '{"city":"Rom"}']


def test_parse_returns_structured_output() -> None:
    client, provider = connect(Reply((Text('{"city":"Paris","degrees":21}'),)))
    parsed = client.chat.completions.parse(model="m", messages=ASKED, response_format=Weather)
    assert parsed.choices[0].message.parsed == Weather(city="Paris", degrees=21)
    assert provider.requests[0].parameters["response_format"]["type"] == "json_schema"


@pytest.mark.parametrize("stream", [True, False])
def test_a_refusal_has_no_content(stream: bool) -> None:  # noqa: FBT001 - drawn or given by a table
    client, _ = connect(Reply((Text("I will not do that."),), "refusal"))
    if stream:
        chunks = client.chat.completions.create(model="m", messages=ASKED, stream=True)
        deltas = [c.choices[0].delta for c in chunks]
        assert "".join(delta.refusal or "" for delta in deltas) == "I will not do that."
        assert not any(delta.content for delta in deltas)
    else:
        reply = client.chat.completions.create(model="m", messages=ASKED).choices[0].message
        assert (reply.content, reply.refusal) == (None, "I will not do that.")


def test_reasoning_is_separate_from_the_content() -> None:
    client, _ = connect(Reply((Thinking("Hm."), Text("Yes."))))
    reply = client.chat.completions.create(model="m", messages=ASKED).choices[0].message
    assert reply.content == "Yes."
    assert reply.model_dump()["reasoning_content"] == "Hm."


def test_a_truncated_reply_has_finish_reason_length() -> None:
    client, _ = connect(Reply((Text("On and"),), "length"))
    completion = client.chat.completions.create(model="m", messages=ASKED)
    assert completion.choices[0].finish_reason == "length"


def test_recorded_chunks_are_streamed_unchanged() -> None:
    client, _ = connect(Reply((Text("unlikely pieces"),), chunks=("unl", "ikely pi", "eces")))
    chunks = client.chat.completions.create(model="m", messages=ASKED, stream=True)
    pieces = [c.choices[0].delta.content for c in chunks if c.choices[0].delta.content]
    assert pieces == ["unl", "ikely pi", "eces"]


@pytest.mark.parametrize(
    "status, error",
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (403, openai.PermissionDeniedError),
        (404, openai.NotFoundError),
        (422, openai.UnprocessableEntityError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
    ],
)
def test_errors_are_raised_as_the_clients_exceptions(
    status: int, error: type[openai.APIStatusError]
) -> None:
    client, _ = connect(ModelError("not today", status=status, retry_after=2))
    with pytest.raises(error) as raised:
        client.chat.completions.create(model="m", messages=ASKED)
    assert raised.value.status_code == status
    assert "not today" in raised.value.message
    assert raised.value.request_id
    assert raised.value.response.headers["retry-after"] == "2"


def test_permanent_errors_are_not_retried() -> None:
    provider = FakeProvider(*[ModelError("no such line in the script", status=404)] * 3)
    client = openai.OpenAI(
        api_key="none", base_url="http://127.0.0.1/v1", http_client=provider.http_client
    )
    with pytest.raises(openai.NotFoundError) as raised:
        client.chat.completions.create(model="m", messages=ASKED)
    assert raised.value.response.headers["x-should-retry"] == "false"
    assert len(provider.requests) == 1


def test_an_error_in_a_stream_is_raised() -> None:
    client, _ = connect(Reply((Text("So far"),), "error"))
    with pytest.raises(openai.APIError):
        list(client.chat.completions.create(model="m", messages=ASKED, stream=True))


def test_models_are_listed_and_retrieved() -> None:
    client, _ = connect()
    names = [model.id for model in client.models.list()]
    assert names
    assert client.models.retrieve(names[0]).id == names[0]


def test_embeddings_are_unit_vectors_in_both_encodings() -> None:
    client, provider = connect()
    packed = client.embeddings.create(model="e", input=["a cat", "a dog"], dimensions=64)
    plain = client.embeddings.create(
        model="e", input=["a cat", "a dog"], dimensions=64, encoding_format="float"
    )
    assert [e.embedding for e in packed.data] == [e.embedding for e in plain.data]
    assert sum(x * x for x in plain.data[0].embedding) == pytest.approx(1, abs=1e-5)
    assert plain.data[0].embedding != plain.data[1].embedding
    raw = base64.b64decode(_first_vector(provider))
    assert list(struct.unpack("<64f", raw)) == plain.data[0].embedding


def _first_vector(provider: FakeProvider) -> str:
    return json.loads(provider.responses[0].body)["data"][0]["embedding"]


def test_the_same_exchange_gives_the_same_bytes() -> None:
    bodies: list[Any] = []
    for _ in range(2):
        client, provider = connect(CALLS, DONE)
        client.chat.completions.create(model="m", messages=ASKED)
        list(client.chat.completions.create(model="m", messages=ASKED, stream=True))
        bodies.append([(a.headers, a.body, a.chunks) for a in provider.responses])
    assert bodies[0] == bodies[1]


def test_the_probabilities_of_words_are_sent_on_request() -> None:
    client, _ = connect(DONE, DONE, DONE)
    create: Any = client.chat.completions.create
    options: Any = {"model": "m", "messages": ASKED, "logprobs": True, "top_logprobs": 2}
    (choice,) = create(**options).choices
    words = choice.logprobs.content
    assert "".join(word.token for word in words) == choice.message.content
    assert {word.logprob for word in words} == {0.0}
    assert [top.token for top in words[0].top_logprobs] == [words[0].token]
    streamed = ""
    for chunk in create(**options, stream=True):
        for part in chunk.choices:
            if part.logprobs is not None:
                streamed += "".join(word.token for word in part.logprobs.content)
    assert streamed == choice.message.content
    (plain,) = create(model="m", messages=ASKED).choices
    assert plain.logprobs is None


def test_several_choices_are_sent_on_request() -> None:
    client, _ = connect(DONE, DONE, CALLS)
    complete = client.chat.completions.create(model="m", messages=ASKED, n=3)
    assert [(c.index, c.message.content) for c in complete.choices] == [
        (index, "It is fine, and 21 °C.") for index in range(3)
    ]
    reply = ["", ""]
    for chunk in client.chat.completions.create(model="m", messages=ASKED, n=2, stream=True):
        for choice in chunk.choices:
            reply[choice.index] += choice.delta.content or ""
    assert reply == ["It is fine, and 21 °C."] * 2
    called = client.chat.completions.create(model="m", messages=ASKED, n=2, tools=[WEATHER])
    assert [len(c.message.tool_calls or ()) for c in called.choices] == [2, 2]
