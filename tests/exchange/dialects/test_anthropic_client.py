"""Anthropic's own client reads what the dialect writes, and is read by it."""

from typing import Any

import anthropic
import pytest
from anthropic import beta_tool
from anthropic.types import Message as Said
from anthropic.types import RawMessageStreamEvent
from pydantic import BaseModel, TypeAdapter

from offbook.errors import ModelError
from offbook.exchange.dialects import streaming
from offbook.exchange.messages import Text, Thinking, ToolCall
from offbook.exchange.model import Reply, StopReason, Usage
from tests.exchange.dialects.served import Say, Served

WEATHER: Any = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
ASKED: Any = [{"role": "user", "content": "How is Paris?"}]
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


def connect(*script: Say) -> tuple[Any, Served]:
    """A client, as if it had no types: its own are half known only."""
    served = Served(*script)
    client = anthropic.Anthropic(
        api_key="none",
        base_url="http://127.0.0.1",
        http_client=served.http_client,
        max_retries=0,
    )
    return client, served


def results(said: Any) -> Any:
    return {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": block.id, "content": "21"}
            for block in said.content
            if block.type == "tool_use"
        ],
    }


def is_whole(said: Said) -> None:
    """What the client read leniently must hold strictly too."""
    Said.model_validate(said.model_dump(mode="json"))
    assert [block.type for block in said.content] == ["thinking", "text", "tool_use", "tool_use"]
    thought, _, first, second = said.content
    assert thought.type == "thinking"
    assert thought.thinking == "Paris first, then Rome."
    assert thought.signature
    assert first.type == "tool_use"
    assert (first.id, first.name, first.input) == ("toolu_1", "weather", {"city": "Paris"})
    assert second.type == "tool_use"
    assert second.input == {"city": "Rome", "days": [1, 2], "exact": True}
    assert said.stop_reason == "tool_use"
    usage = said.usage
    assert usage.input_tokens == 11
    assert (usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (16, 4)
    assert usage.output_tokens == 17
    assert usage.output_tokens_details is not None
    assert usage.output_tokens_details.thinking_tokens == 5


def test_two_steps_with_thoughts_and_parallel_calls():
    client, served = connect(CALLS, DONE)
    said = client.messages.create(
        model="m", max_tokens=2048, messages=ASKED, tools=[WEATHER], thinking=THINKS
    )
    is_whole(said)
    history = [*ASKED, {"role": "assistant", "content": said.content}, results(said)]
    final = client.messages.create(
        model="m", max_tokens=2048, messages=history, tools=[WEATHER], thinking=THINKS
    )
    assert final.content[0].type == "text"
    assert final.content[0].text == "It is fine, and 21 °C."
    assert final.stop_reason == "end_turn"
    back = served.requests[1]
    assert back.messages[1].blocks == CALLS.blocks
    assert [(r.call_id, r.name, r.text) for m in back.new_messages for r in m.results] == [
        ("toolu_1", "weather", "21"),
        ("toolu_2", "weather", "21"),
    ]


def test_the_stream_helper_puts_the_same_message_together():
    client, served = connect(CALLS, DONE)
    with client.messages.stream(
        model="m", max_tokens=2048, messages=ASKED, tools=[WEATHER], thinking=THINKS
    ) as stream:
        seen = {event.type for event in stream}
        said = stream.get_final_message()
    assert {"text", "thinking", "signature", "input_json", "message_stop"} <= seen
    is_whole(said)
    history = [*ASKED, {"role": "assistant", "content": said.content}, results(said)]
    with client.messages.stream(
        model="m", max_tokens=2048, messages=history, tools=[WEATHER], thinking=THINKS
    ) as stream:
        assert "".join(stream.text_stream) == "It is fine, and 21 °C."
    assert served.requests[1].messages[1].blocks == CALLS.blocks


def test_the_raw_stream_yields_every_event():
    client, served = connect(CALLS)
    kinds = [
        event.type
        for event in client.messages.create(
            model="m", max_tokens=2048, messages=ASKED, tools=[WEATHER], stream=True
        )
    ]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 4
    events = [event for chunk in served.answers[0].chunks for event in streaming.parse_sse(chunk)]
    assert len(events) == len(served.answers[0].chunks) == len(kinds) + 1  # the SDK hides the ping
    for event in events:
        assert event.name
        if event.name != "ping":
            EVENT.validate_json(event.data)


def test_parse_gives_the_structured_output():
    client, served = connect(Reply((Text('{"city": "Paris", "degrees": 21}'),)))
    said = client.messages.parse(model="m", max_tokens=100, messages=ASKED, output_format=Weather)
    assert said.parsed_output == Weather(city="Paris", degrees=21)
    wanted = served.requests[0].parameters["output_config"]["format"]
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
def test_the_tool_runner_goes_on_in_its_thread(*, known: bool, threaded: bool):
    """A thread that is known goes on; one that is not is sent again, whole."""
    seen: list[str] = []

    @beta_tool
    def weather(city: str) -> str:
        """The weather of a city."""
        seen.append(city)
        return "21"

    call = Reply((ToolCall("toolu_1", "weather", {"city": "Paris"}),), "tool_use")
    client, served = connect(call, DONE)
    if not known:
        served.threads.get = lambda _: None  # pyright: ignore[reportAttributeAccessIssue] - known at run time only
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
    assert seen == ["Paris"]
    back = served.requests[1]
    assert [message.role for message in back.messages] == ["user", "assistant", "tool"]
    assert back.tool_names == ("weather",)
    assert back.system == "Be brief."
    assert back.messages[2].results[0].name == "weather"
    statuses = [200, 400, 200] if threaded and not known else [200, 200]
    assert [answer.status for answer in served.answers] == statuses


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
def test_the_client_learns_why_it_stopped(stop: StopReason, expected: str, *, stream: bool):
    client, _ = connect(Reply((Text("so"),), stop))
    asked: Any = {"model": "m", "max_tokens": 5, "messages": ASKED, "stop_sequences": ["END"]}
    if stream:
        with client.messages.stream(**asked) as events:
            said = events.get_final_message()
    else:
        said = client.messages.create(**asked)
    assert said.stop_reason == expected
    assert said.stop_sequence == ("END" if stop == "stop_sequence" else None)
    assert (said.stop_details is not None) == (stop == "refusal")


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
def test_errors_arrive_as_the_clients_own(status: int, kind: type[anthropic.APIStatusError]):
    client, _ = connect(ModelError("no luck", status=status, retry_after=1.5))
    with pytest.raises(kind) as caught:
        client.messages.create(model="m", max_tokens=5, messages=ASKED)
    assert caught.value.status_code == status
    assert caught.value.request_id is not None
    assert "no luck" in caught.value.message
    assert caught.value.response.headers["retry-after"] == "1.5"


def test_a_stream_that_breaks_raises():
    client, _ = connect(Reply((Text("I begin"),), "error"))
    with pytest.raises(anthropic.APIStatusError, match="Internal server error"):
        list(client.messages.create(model="m", max_tokens=5, messages=ASKED, stream=True))


def test_thoughts_that_are_not_to_be_shown_come_back_all_the_same():
    client, served = connect(CALLS, DONE)
    hidden: Any = {"type": "adaptive", "display": "omitted"}
    with client.messages.stream(
        model="m", max_tokens=2048, messages=ASKED, tools=[WEATHER], thinking=hidden
    ) as stream:
        said = stream.get_final_message()
    assert said.content[0].type == "thinking"
    assert said.content[0].thinking == ""
    history = [*ASKED, {"role": "assistant", "content": said.content}, results(said)]
    client.messages.create(model="m", max_tokens=2048, messages=history, thinking=hidden)
    assert served.requests[1].messages[1].blocks == CALLS.blocks
