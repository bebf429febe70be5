"""The Responses dialect with OpenAI's client."""

import json
from typing import Any

import msgspec
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from offbook.errors import ModelError
from offbook.exchange import Reply, Request, Text, Thinking, Tool, ToolCall, Usage
from offbook.exchange.dialects import ConversationStore, HttpRequest
from offbook.exchange.dialects.responses.responses_dialect import Responses
from tests.exchange.dialects.openai_client import connect

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": True,
}
CALLS = Reply(
    (
        Thinking("Both at once."),
        ToolCall("call_1", "weather", {"city": "Paris"}),
        ToolCall("call_2", "weather", {"city": "Rom"}),
    ),
    "tool_use",
    Usage(11, 7, cache_read=5, cache_write=1, reasoning=2),
)
DONE = Reply((Text("It is fine, and 21 °C."),), usage=Usage(20, 8))
OUTPUTS: Any = [
    {"type": "function_call_output", "call_id": "call_1", "output": "21"},
    {"type": "function_call_output", "call_id": "call_2", "output": "25"},
]
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


class Weather(BaseModel):
    city: str
    degrees: int


def test_a_tool_call_with_the_whole_conversation_resent() -> None:
    client, provider = connect(CALLS, DONE)
    items: Any = [{"role": "user", "content": "Weather in Paris?"}]
    first = client.responses.create(model="m", input=items, tools=[WEATHER])
    Response.model_validate(json.loads(provider.responses[0].body))
    assert [item.type for item in first.output] == ["reasoning", "function_call", "function_call"]
    items += [item.model_dump() for item in first.output] + OUTPUTS
    second = client.responses.create(model="m", input=items, tools=[WEATHER])
    assert second.output_text == "It is fine, and 21 °C."
    back = provider.requests[1].messages
    assert [message.role for message in back] == ["user", "assistant", "tool", "tool"]
    assert back[1].blocks == CALLS.blocks
    assert [(r.call_id, r.name, r.text) for m in back for r in m.results] == [
        ("call_1", "weather", "21"),
        ("call_2", "weather", "25"),
    ]


def test_a_tool_call_with_previous_response_id() -> None:
    client, provider = connect(CALLS, DONE)
    first = client.responses.create(
        model="m", input="Weather in Paris?", tools=[WEATHER], instructions="Be brief."
    )
    second = client.responses.create(
        model="m", input=OUTPUTS, tools=[WEATHER], previous_response_id=first.id
    )
    assert second.previous_response_id == first.id
    request = provider.requests[1]
    assert [message.role for message in request.messages] == ["user", "assistant", "tool", "tool"]
    assert request.system == "", "instructions hold for one request"
    assert request.messages[2].results[0].name == "weather"
    assert client.responses.retrieve(first.id).output == first.output


def test_developer_messages_are_kept_when_a_response_is_continued() -> None:
    client, provider = connect(DONE, DONE)
    items: Any = [
        {"role": "developer", "content": "Speak French."},
        {"role": "user", "content": "Hello"},
    ]
    first = client.responses.create(model="m", input=items, instructions="Be brief.")
    client.responses.create(
        model="m", input="Again", instructions="Be long.", previous_response_id=first.id
    )
    assert provider.requests[0].system == "Be brief.\n\nSpeak French."
    assert provider.requests[1].system == "Be long.\n\nSpeak French."


def test_an_item_reference_is_resolved() -> None:
    client, provider = connect(CALLS, DONE)
    first = client.responses.create(model="m", input="Weather in Paris?", tools=[WEATHER])
    items: Any = [{"role": "user", "content": "Weather in Paris?"}]
    items += [{"type": "item_reference", "id": item.id} for item in first.output]
    client.responses.create(model="m", input=items + OUTPUTS, tools=[WEATHER])
    assert provider.requests[1].messages[1].blocks == CALLS.blocks


@pytest.mark.parametrize(
    "reply, end",
    [
        (CALLS, "response.completed"),
        (DONE, "response.completed"),
        (Reply((Thinking("Hm."), Text("Yes."), Text("No."))), "response.completed"),
        (Reply((Text("No."),), "refusal"), "response.completed"),
        (Reply((Text("On and"),), "length"), "response.incomplete"),
        (Reply((Text("On and"),), "error"), "response.failed"),
        (Reply((ToolCall("c", "patch", {"input": "+1"}, custom=True),)), "response.completed"),
        (Reply((ToolCall("c", "get", {"a": 1}, "mcp__wx"),)), "response.completed"),
        (Reply(), "response.completed"),
    ],
)
def test_every_event_is_known_to_the_client(reply: Reply, end: str) -> None:
    events = Responses().events(reply, Request(model="m"))
    for event in events:
        plain = json.loads(msgspec.json.encode(event))
        read = EVENT.validate_python(plain)
        assert read.type == event["type"]
        assert not read.model_extra or set(read.model_extra) <= {"name"}
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[0]["type"] == "response.created"
    assert events[-1]["type"] == end


def test_a_stream_has_the_same_events_as_a_websocket() -> None:
    client, _ = connect(CALLS)
    stream = client.responses.create(model="m", input="Weather in Paris?", stream=True)
    kinds = [event.type for event in stream]
    assert kinds[:3] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
    ]
    assert kinds.count("response.function_call_arguments.done") == 2
    assert kinds[-1] == "response.completed"


def test_the_stream_helper_assembles_the_response() -> None:
    client, _ = connect(Reply((Thinking("Hm."), *CALLS.calls, Text("and so on"))))
    with client.responses.stream(model="m", input="Weather in Paris?", tools=[WEATHER]) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == final.output_text == "and so on"
    calls = [item for item in final.output if item.type == "function_call"]
    assert [call.arguments for call in calls] == ['{"city":"Paris"}', '{"city":"Rom"}']


def test_parse_returns_structured_output() -> None:
    client, provider = connect(Reply((Text('{"city":"Paris","degrees":21}'),)))
    parsed = client.responses.parse(model="m", input="Weather in Paris?", text_format=Weather)
    assert parsed.output_parsed == Weather(city="Paris", degrees=21)
    assert provider.requests[0].parameters["text"]["format"]["type"] == "json_schema"


def test_usage_has_cached_and_reasoning_tokens() -> None:
    client, _ = connect(CALLS)
    usage = client.responses.create(model="m", input="Weather in Paris?").usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (11, 7, 18)
    assert usage.input_tokens_details.cached_tokens == 5
    assert usage.input_tokens_details.cache_write_tokens == 1
    assert usage.output_tokens_details.reasoning_tokens == 2


def test_a_call_has_the_kind_and_namespace_of_its_tool() -> None:
    request = Request(
        model="m",
        tools=(
            Tool("get_weather", namespace="mcp__wx"),
            Tool("apply_patch", kind="custom"),
            Tool("exec", namespace="functions", kind="custom"),
            Tool("both", namespace="far"),
            Tool("both"),
        ),
    )
    names = ("get_weather", "apply_patch", "exec", "both", "unheard_of")
    reply = Reply(tuple(ToolCall(name, name, {"input": "x"}) for name in names), "tool_use")
    body = json.loads(Responses().encode(reply, request).body)
    shapes = [(item["type"], item.get("namespace")) for item in body["output"]]
    assert shapes == [
        ("function_call", "mcp__wx"),
        ("custom_tool_call", None),
        ("custom_tool_call", "functions"),
        ("function_call", None),
        ("function_call", None),
    ]


def test_reasoning_is_encrypted_on_request() -> None:
    client, provider = connect(CALLS, DONE)
    items: Any = [{"role": "user", "content": "Weather in Paris?"}]
    first = client.responses.create(
        model="m", input=items, store=False, include=["reasoning.encrypted_content"]
    )
    sealed = first.output[0]
    assert sealed.type == "reasoning"
    assert sealed.encrypted_content
    items += [item.model_dump() for item in first.output] + OUTPUTS
    client.responses.create(model="m", input=items)
    (thought, *_) = provider.requests[1].messages[1].blocks
    assert thought == Thinking("Both at once.", sealed.encrypted_content)


def test_an_unknown_response_is_not_found() -> None:
    client, _ = connect()
    with pytest.raises(openai.NotFoundError, match="resp_none"):
        client.responses.retrieve("resp_none")


def test_continuing_an_unknown_response_is_rejected() -> None:
    client, _ = connect(DONE)
    with pytest.raises(openai.BadRequestError) as raised:
        client.responses.create(model="m", input="Again", previous_response_id="resp_none")
    assert raised.value.code == "previous_response_not_found"
    assert raised.value.param == "previous_response_id"


def test_tokens_are_counted_without_the_model() -> None:
    client, provider = connect()
    counted = client.responses.input_tokens.count(model="m", input="Weather in Paris?")
    assert counted.input_tokens > 0
    assert provider.requests == []


def test_a_websocket_message_is_decoded_like_a_body() -> None:
    frame = {
        "type": "response.create",
        "model": "m",
        "generate": False,
        "input": [{"role": "developer", "content": "Be brief."}],
        "client_metadata": {"session_id": "s"},
    }
    http_request = HttpRequest(
        "GET", "/v1/responses", {"upgrade": "websocket"}, json.dumps(frame).encode()
    )
    dialect = Responses()
    assert dialect.side_response(http_request, ConversationStore()) is None
    request = dialect.decode(http_request, ConversationStore())
    assert request.system == "Be brief."
    assert request.metadata["generate"] is False
    assert request.metadata["client_metadata"] == {"session_id": "s"}
    kinds = [event["type"] for event in dialect.events(Reply(), request)]
    assert kinds == ["response.created", "response.in_progress", "response.completed"]


def test_a_websocket_error_is_an_event() -> None:
    event = Responses().failure(ModelError("not today", status=429))
    assert (event["type"], event["status"]) == ("error", 429)
    assert event["error"]["code"] == "rate_limit_exceeded"


def test_the_same_exchange_gives_the_same_bytes() -> None:
    received: list[Any] = []
    for _ in range(2):
        client, provider = connect(CALLS, DONE)
        first = client.responses.create(model="m", input="Weather in Paris?")
        list(
            client.responses.create(
                model="m", input=OUTPUTS, previous_response_id=first.id, stream=True
            )
        )
        received.append([(a.headers, a.body, a.chunks) for a in provider.responses])
    assert received[0] == received[1]


def test_an_id_depends_on_the_request_and_the_step() -> None:
    client, _ = connect(DONE, DONE, DONE, msgspec.structs.replace(DONE, step=2))
    texts = ("one", "two", "one", "one")
    ids = [client.responses.create(model="m", input=text).id for text in texts]
    assert ids[0] == ids[2]
    assert len(set(ids)) == 3


def test_a_stored_conversation_is_continued_by_its_id() -> None:
    call = Reply((ToolCall("call_1", "weather", {"city": "Paris"}),), "tool_use")
    client, provider = connect(call, Reply((Text("Fine."),)), Reply((Text("Bye."),)))
    begun: Any = [{"role": "user", "content": "My name is Ada."}]
    stored = client.conversations.create(items=begun)
    other = client.conversations.create(items=begun)
    assert stored.id != other.id
    first = client.responses.create(
        model="m", input="Weather in Paris?", conversation=stored.id, tools=[WEATHER]
    )
    assert first.conversation is not None
    assert first.conversation.id == stored.id
    response: Any = [{"type": "function_call_output", "call_id": "call_1", "output": "21"}]
    client.responses.create(model="m", input=response, conversation=stored.id, tools=[WEATHER])
    client.responses.create(model="m", input="And now?", conversation={"id": stored.id})
    rendered = [(m.role, m.text) for m in provider.requests[-1].messages if m.text]
    assert rendered == [
        ("user", "My name is Ada."),
        ("user", "Weather in Paris?"),
        ("assistant", "Fine."),
        ("user", "And now?"),
    ]
    assert [r.name for m in provider.requests[1].new_messages for r in m.results] == ["weather"]
    assert client.conversations.retrieve(stored.id).id == stored.id
    assert client.conversations.delete(stored.id).deleted
    with pytest.raises(openai.NotFoundError, match="not supported"):
        client.conversations.items.list(stored.id)
