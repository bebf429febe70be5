"""OpenAI's own client reads what the responses dialect writes, and is read by it."""

import json
from typing import Any

import msgspec
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from offbook.errors import ModelError
from offbook.exchange.dialects.conversations import ConversationStore
from offbook.exchange.dialects.dialect import HttpRequest
from offbook.exchange.dialects.responses import Responses
from offbook.exchange.messages import Text, Thinking, ToolCall
from offbook.exchange.model import Reply, Request, Tool, Usage
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


def test_two_steps_with_the_whole_conversation_sent_again() -> None:
    client, served = connect(CALLS, DONE)
    items: Any = [{"role": "user", "content": "How is Paris?"}]
    first = client.responses.create(model="m", input=items, tools=[WEATHER])
    Response.model_validate(json.loads(served.answers[0].body))
    assert [item.type for item in first.output] == ["reasoning", "function_call", "function_call"]
    items += [item.model_dump() for item in first.output] + OUTPUTS
    second = client.responses.create(model="m", input=items, tools=[WEATHER])
    assert second.output_text == "It is fine, and 21 °C."
    back = served.requests[1].messages
    assert [message.role for message in back] == ["user", "assistant", "tool", "tool"]
    assert back[1].blocks == CALLS.blocks
    assert [(r.call_id, r.name, r.text) for m in back for r in m.results] == [
        ("call_1", "weather", "21"),
        ("call_2", "weather", "25"),
    ]


def test_two_steps_with_the_conversation_kept_for_the_client() -> None:
    client, served = connect(CALLS, DONE)
    first = client.responses.create(
        model="m", input="How is Paris?", tools=[WEATHER], instructions="Be brief."
    )
    second = client.responses.create(
        model="m", input=OUTPUTS, tools=[WEATHER], previous_response_id=first.id
    )
    assert second.previous_response_id == first.id
    asked = served.requests[1]
    assert [message.role for message in asked.messages] == ["user", "assistant", "tool", "tool"]
    assert asked.system == "", "instructions hold for one request"
    assert asked.messages[2].results[0].name == "weather"
    assert client.responses.retrieve(first.id).output == first.output


def test_developer_messages_stay_when_the_conversation_goes_on() -> None:
    client, served = connect(DONE, DONE)
    items: Any = [
        {"role": "developer", "content": "Speak French."},
        {"role": "user", "content": "Hello"},
    ]
    first = client.responses.create(model="m", input=items, instructions="Be brief.")
    client.responses.create(
        model="m", input="Again", instructions="Be long.", previous_response_id=first.id
    )
    assert served.requests[0].system == "Be brief.\n\nSpeak French."
    assert served.requests[1].system == "Be long.\n\nSpeak French."


def test_an_item_may_be_named_instead_of_repeated() -> None:
    client, served = connect(CALLS, DONE)
    first = client.responses.create(model="m", input="How is Paris?", tools=[WEATHER])
    items: Any = [{"role": "user", "content": "How is Paris?"}]
    items += [{"type": "item_reference", "id": item.id} for item in first.output]
    client.responses.create(model="m", input=items + OUTPUTS, tools=[WEATHER])
    assert served.requests[1].messages[1].blocks == CALLS.blocks


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
def test_every_event_is_one_that_the_client_knows(reply: Reply, end: str) -> None:
    events = Responses().events(reply, Request(model="m"))
    for event in events:
        plain = json.loads(msgspec.json.encode(event))
        read = EVENT.validate_python(plain)
        assert read.type == event["type"]
        assert not read.model_extra or set(read.model_extra) <= {"name"}
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[0]["type"] == "response.created"
    assert events[-1]["type"] == end


def test_a_stream_is_the_events_one_by_one() -> None:
    client, _ = connect(CALLS)
    stream = client.responses.create(model="m", input="How is Paris?", stream=True)
    kinds = [event.type for event in stream]
    assert kinds[:3] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
    ]
    assert kinds.count("response.function_call_arguments.done") == 2
    assert kinds[-1] == "response.completed"


def test_the_stream_helper_builds_the_whole_response() -> None:
    client, _ = connect(Reply((Thinking("Hm."), *CALLS.calls, Text("and so on"))))
    with client.responses.stream(model="m", input="How is Paris?", tools=[WEATHER]) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == final.output_text == "and so on"
    calls = [item for item in final.output if item.type == "function_call"]
    assert [call.arguments for call in calls] == ['{"city":"Paris"}', '{"city":"Rom"}']


def test_parse_gives_the_typed_answer() -> None:
    client, served = connect(Reply((Text('{"city":"Paris","degrees":21}'),)))
    parsed = client.responses.parse(model="m", input="How is Paris?", text_format=Weather)
    assert parsed.output_parsed == Weather(city="Paris", degrees=21)
    assert served.requests[0].parameters["text"]["format"]["type"] == "json_schema"


def test_usage_tells_what_was_cached_and_thought() -> None:
    client, _ = connect(CALLS)
    usage = client.responses.create(model="m", input="How is Paris?").usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (11, 7, 18)
    assert usage.input_tokens_details.cached_tokens == 5
    assert usage.input_tokens_details.cache_write_tokens == 1
    assert usage.output_tokens_details.reasoning_tokens == 2


def test_a_call_goes_out_as_its_tool_was_offered() -> None:
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


def test_thoughts_are_sealed_when_the_client_wants_to_keep_them() -> None:
    client, served = connect(CALLS, DONE)
    items: Any = [{"role": "user", "content": "How is Paris?"}]
    first = client.responses.create(
        model="m", input=items, store=False, include=["reasoning.encrypted_content"]
    )
    sealed = first.output[0]
    assert sealed.type == "reasoning"
    assert sealed.encrypted_content
    items += [item.model_dump() for item in first.output] + OUTPUTS
    client.responses.create(model="m", input=items)
    (thought, *_) = served.requests[1].messages[1].blocks
    assert thought == Thinking("Both at once.", sealed.encrypted_content)


def test_a_response_that_nobody_gave_is_not_found() -> None:
    client, _ = connect()
    with pytest.raises(openai.NotFoundError, match="resp_none"):
        client.responses.retrieve("resp_none")


def test_going_on_from_a_response_that_nobody_gave_is_refused() -> None:
    client, _ = connect(DONE)
    with pytest.raises(openai.BadRequestError) as raised:
        client.responses.create(model="m", input="Again", previous_response_id="resp_none")
    assert raised.value.code == "previous_response_not_found"
    assert raised.value.param == "previous_response_id"


def test_tokens_are_counted_without_the_model() -> None:
    client, served = connect()
    counted = client.responses.input_tokens.count(model="m", input="How is Paris?")
    assert counted.input_tokens > 0
    assert served.requests == []


def test_a_frame_of_a_websocket_is_read_like_a_body() -> None:
    frame = {
        "type": "response.create",
        "model": "m",
        "generate": False,
        "input": [{"role": "developer", "content": "Be brief."}],
        "client_metadata": {"session_id": "s"},
    }
    wire = HttpRequest("GET", "/v1/responses", {"upgrade": "websocket"}, json.dumps(frame).encode())
    dialect = Responses()
    assert dialect.side_response(wire, ConversationStore()) is None
    request = dialect.decode(wire, ConversationStore())
    assert request.system == "Be brief."
    assert request.metadata["generate"] is False
    assert request.metadata["client_metadata"] == {"session_id": "s"}
    kinds = [event["type"] for event in dialect.events(Reply(), request)]
    assert kinds == ["response.created", "response.in_progress", "response.completed"]


def test_a_websocket_is_told_an_error_as_an_event() -> None:
    event = Responses().failure(ModelError("not today", status=429))
    assert (event["type"], event["status"]) == ("error", 429)
    assert event["error"]["code"] == "rate_limit_exceeded"


def test_the_same_exchange_gives_the_same_bytes() -> None:
    seen: list[Any] = []
    for _ in range(2):
        client, served = connect(CALLS, DONE)
        first = client.responses.create(model="m", input="How is Paris?")
        list(
            client.responses.create(
                model="m", input=OUTPUTS, previous_response_id=first.id, stream=True
            )
        )
        seen.append([(a.headers, a.body, a.chunks) for a in served.answers])
    assert seen[0] == seen[1]


def test_an_id_is_made_of_the_question_and_of_the_step() -> None:
    client, _ = connect(DONE, DONE, DONE, msgspec.structs.replace(DONE, step=2))
    texts = ("one", "two", "one", "one")
    ids = [client.responses.create(model="m", input=text).id for text in texts]
    assert ids[0] == ids[2]
    assert len(set(ids)) == 3


def test_a_conversation_that_the_provider_keeps_goes_on_from_its_id() -> None:
    call = Reply((ToolCall("call_1", "weather", {"city": "Paris"}),), "tool_use")
    client, served = connect(call, Reply((Text("Fine."),)), Reply((Text("Bye."),)))
    begun: Any = [{"role": "user", "content": "My name is Ada."}]
    kept = client.conversations.create(items=begun)
    other = client.conversations.create(items=begun)
    assert kept.id != other.id
    first = client.responses.create(
        model="m", input="How is Paris?", conversation=kept.id, tools=[WEATHER]
    )
    assert first.conversation is not None
    assert first.conversation.id == kept.id
    answer: Any = [{"type": "function_call_output", "call_id": "call_1", "output": "21"}]
    client.responses.create(model="m", input=answer, conversation=kept.id, tools=[WEATHER])
    client.responses.create(model="m", input="And now?", conversation={"id": kept.id})
    told = [(m.role, m.text) for m in served.requests[-1].messages if m.text]
    assert told == [
        ("user", "My name is Ada."),
        ("user", "How is Paris?"),
        ("assistant", "Fine."),
        ("user", "And now?"),
    ]
    assert [r.name for m in served.requests[1].new_messages for r in m.results] == ["weather"]
    assert client.conversations.retrieve(kept.id).id == kept.id
    assert client.conversations.delete(kept.id).deleted
    with pytest.raises(openai.NotFoundError, match="not supported"):
        client.conversations.items.list(kept.id)
