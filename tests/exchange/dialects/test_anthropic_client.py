"""The Anthropic dialect with Anthropic's client."""

from typing import Any

import anthropic
import pytest
from anthropic import beta_tool
from anthropic.types import Message as Said
from anthropic.types import RawMessageStreamEvent
from pydantic import BaseModel, TypeAdapter

from offbook.errors import ModelError
from offbook.exchange import Reply, StopReason, Text, Thinking, ToolCall, Usage
from offbook.exchange.dialects import parse_sse
from tests.exchange.dialects.fake_provider import FakeProvider, ScriptedReply

WEATHER: Any = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
ASKED: Any = [{"role": "user", "content": "Weather in Paris?"}]
THINKS: Any = {"type": "enabled", "budget_tokens": 1024}
CALLS = Reply(
    (
        Thinking("Paris first, then Rome."),
        Text("I look it up."),
        ToolCall("toolu_1", "weather", {"city": "Paris"}),
        ToolCall("toolu_2", "weather", {"city": "Rome", "days": [1, 2], "exact": True}),
    ),
    "tool_use",
    Usage(31, 17, cache_read=16, cache_write=4, reasoning=5),
)
DONE = Reply((Text("It is fine, and 21 °C."),), usage=Usage(20, 8))
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


class Weather(BaseModel):
    city: str
    degrees: int


def connect(*script: ScriptedReply) -> tuple[Any, FakeProvider]:
    """Return an untyped client: its types are only partially known."""
    provider = FakeProvider(*script)
    client = anthropic.Anthropic(
        api_key="none",
        base_url="http://127.0.0.1",
        http_client=provider.http_client,
        max_retries=0,
    )
    return client, provider


def results(reply: Any) -> Any:
    return {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": block.id, "content": "21"}
            for block in reply.content
            if block.type == "tool_use"
        ],
    }


def is_whole(reply: Said) -> None:
    """Validate strictly what the client parsed leniently."""
    Said.model_validate(reply.model_dump(mode="json"))
    assert [block.type for block in reply.content] == ["thinking", "text", "tool_use", "tool_use"]
    thought, _, first, second = reply.content
    assert thought.type == "thinking"
    assert thought.thinking == "Paris first, then Rome."
    assert thought.signature
    assert first.type == "tool_use"
    assert (first.id, first.name, first.input) == ("toolu_1", "weather", {"city": "Paris"})
    assert second.type == "tool_use"
    assert second.input == {"city": "Rome", "days": [1, 2], "exact": True}
    assert reply.stop_reason == "tool_use"
    usage = reply.usage
    assert usage.input_tokens == 11
    assert (usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (16, 4)
    assert usage.output_tokens == 17
    assert usage.output_tokens_details is not None
    assert usage.output_tokens_details.thinking_tokens == 5


def test_thinking_and_parallel_calls_in_two_steps():
    client, provider = connect(CALLS, DONE)
    reply = client.messages.create(
        model="m", max_tokens=2048, messages=ASKED, tools=[WEATHER], thinking=THINKS
    )
    is_whole(reply)
    history = [*ASKED, {"role": "assistant", "content": reply.content}, results(reply)]
    final = client.messages.create(
        model="m", max_tokens=2048, messages=history, tools=[WEATHER], thinking=THINKS
    )
    assert final.content[0].type == "text"
    assert final.content[0].text == "It is fine, and 21 °C."
    assert final.stop_reason == "end_turn"
    back = provider.requests[1]
    assert back.messages[1].blocks == CALLS.blocks
    assert [(r.call_id, r.name, r.text) for m in back.new_messages for r in m.results] == [
        ("toolu_1", "weather", "21"),
        ("toolu_2", "weather", "21"),
    ]


def test_the_stream_helper_assembles_the_message():
    client, provider = connect(CALLS, DONE)
    with client.messages.stream(
        model="m", max_tokens=2048, messages=ASKED, tools=[WEATHER], thinking=THINKS
    ) as stream:
        received = {event.type for event in stream}
        reply = stream.get_final_message()
    assert {"text", "thinking", "signature", "input_json", "message_stop"} <= received
    is_whole(reply)
    history = [*ASKED, {"role": "assistant", "content": reply.content}, results(reply)]
    with client.messages.stream(
        model="m", max_tokens=2048, messages=history, tools=[WEATHER], thinking=THINKS
    ) as stream:
        assert "".join(stream.text_stream) == "It is fine, and 21 °C."
    assert provider.requests[1].messages[1].blocks == CALLS.blocks


def test_the_raw_stream_yields_every_event():
    client, provider = connect(CALLS)
    kinds = [
        event.type
        for event in client.messages.create(
            model="m", max_tokens=2048, messages=ASKED, tools=[WEATHER], stream=True
        )
    ]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 4
    events = [event for chunk in provider.responses[0].chunks for event in parse_sse(chunk)]
    assert (
        len(events) == len(provider.responses[0].chunks) == len(kinds) + 1
    )  # the SDK hides the ping
    for event in events:
        assert event.name
        if event.name != "ping":
            EVENT.validate_json(event.data)


def test_parse_returns_structured_output():
    client, provider = connect(Reply((Text('{"city": "Paris", "degrees": 21}'),)))
    reply = client.messages.parse(model="m", max_tokens=100, messages=ASKED, output_format=Weather)
    assert reply.parsed_output == Weather(city="Paris", degrees=21)
    wanted = provider.requests[0].parameters["output_config"]["format"]
    assert wanted["schema"]["required"] == ["city", "degrees"]


def test_tokens_are_counted_and_models_listed():
    client, _ = connect()
    short = client.messages.count_tokens(model="m", messages=ASKED).input_tokens
    long = client.messages.count_tokens(model="m", messages=ASKED, tools=[WEATHER]).input_tokens
    assert 0 < short < long
    listed = list(client.models.list())
    assert client.models.retrieve(listed[0].id) == listed[0]
    assert client.models.retrieve("claude-fake-1").id == "claude-fake-1"


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("threaded", [True, False])
def test_the_tool_runner_continues_its_thread(*, known: bool, threaded: bool):
    """A known thread is continued; an unknown one makes the client resend everything."""
    received: list[str] = []

    @beta_tool
    def weather(city: str) -> str:
        """Return the weather of a city."""
        received.append(city)
        return "21"

    call = Reply((ToolCall("toolu_1", "weather", {"city": "Paris"}),), "tool_use")
    client, provider = connect(call, DONE)
    if not known:
        provider.store.get = lambda _: None  # pyright: ignore[reportAttributeAccessIssue] - known at run time only
    runner = client.beta.messages.tool_runner(
        model="m",
        max_tokens=100,
        messages=ASKED,
        tools=[weather],
        system="Be brief.",
        **({} if threaded else {"thread": False}),
    )
    last = runner.until_done()
    assert last.content[0].type == "text"
    assert received == ["Paris"]
    back = provider.requests[1]
    assert [message.role for message in back.messages] == ["user", "assistant", "tool"]
    assert back.tool_names == ("weather",)
    assert back.system == "Be brief."
    assert back.messages[2].results[0].name == "weather"
    statuses = [200, 400, 200] if threaded and not known else [200, 200]
    assert [response.status for response in provider.responses] == statuses


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "stop, expected",
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("stop_sequence", "stop_sequence"),
        ("refusal", "refusal"),
    ],
)
def test_stop_reasons_reach_the_client(stop: StopReason, expected: str, *, stream: bool):
    client, _ = connect(Reply((Text("so"),), stop))
    request: Any = {"model": "m", "max_tokens": 5, "messages": ASKED, "stop_sequences": ["END"]}
    if stream:
        with client.messages.stream(**request) as events:
            reply = events.get_final_message()
    else:
        reply = client.messages.create(**request)
    assert reply.stop_reason == expected
    assert reply.stop_sequence == ("END" if stop == "stop_sequence" else None)
    assert (reply.stop_details is not None) == (stop == "refusal")


@pytest.mark.parametrize(
    "status, kind",
    [
        (400, anthropic.BadRequestError),
        (401, anthropic.AuthenticationError),
        (404, anthropic.NotFoundError),
        (429, anthropic.RateLimitError),
        (500, anthropic.InternalServerError),
        (529, anthropic.APIStatusError),
    ],
)
def test_errors_are_raised_as_the_clients_exceptions(
    status: int, kind: type[anthropic.APIStatusError]
):
    client, _ = connect(ModelError("no luck", status=status, retry_after=1.5))
    with pytest.raises(kind) as caught:
        client.messages.create(model="m", max_tokens=5, messages=ASKED)
    assert caught.value.status_code == status
    assert caught.value.request_id is not None
    assert "no luck" in caught.value.message
    assert caught.value.response.headers["retry-after"] == "1.5"


def test_a_broken_stream_raises():
    client, _ = connect(Reply((Text("I begin"),), "error"))
    with pytest.raises(anthropic.APIStatusError, match="Internal server error"):
        list(client.messages.create(model="m", max_tokens=5, messages=ASKED, stream=True))


def test_hidden_thinking_is_restored():
    client, provider = connect(CALLS, DONE)
    hidden: Any = {"type": "adaptive", "display": "omitted"}
    with client.messages.stream(
        model="m", max_tokens=2048, messages=ASKED, tools=[WEATHER], thinking=hidden
    ) as stream:
        reply = stream.get_final_message()
    assert reply.content[0].type == "thinking"
    assert reply.content[0].thinking == ""
    history = [*ASKED, {"role": "assistant", "content": reply.content}, results(reply)]
    client.messages.create(model="m", max_tokens=2048, messages=history, thinking=hidden)
    assert provider.requests[1].messages[1].blocks == CALLS.blocks
