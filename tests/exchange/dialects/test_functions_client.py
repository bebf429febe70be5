"""Functions, the predecessor of tools, with OpenAI's client."""

from typing import Any

import pytest

from offbook.errors import UsageError
from offbook.exchange import Reply, Text, ToolCall, detect_dialect, to_json
from offbook.exchange.dialects import ConversationStore, HttpRequest
from tests.exchange.dialects.test_chat_client import connect

LOOK: Any = {"name": "look", "parameters": {"type": "object", "properties": {}}}
ASKED: list[Any] = [{"role": "user", "content": "Weather in Paris?"}]
CALL = Reply((ToolCall("call_1", "look", {"city": "Paris"}),), "tool_use")
DONE = Reply((Text("It is fine."),))


def answer(result: str) -> Any:
    return {"role": "function", "name": "look", "content": result}


def test_a_function_result_is_matched_with_its_call() -> None:
    client, provider = connect(CALL, DONE)
    first = client.chat.completions.create(model="m", messages=ASKED, functions=[LOOK])
    reply = first.choices[0].message
    assert first.choices[0].finish_reason == "function_call"
    assert reply.tool_calls is None
    assert reply.function_call is not None
    assert (reply.function_call.name, reply.function_call.arguments) == ("look", '{"city":"Paris"}')
    history: list[Any] = [*ASKED, reply.model_dump(), answer("21 °C")]
    second = client.chat.completions.create(model="m", messages=history, functions=[LOOK])
    assert second.choices[0].message.content == "It is fine."
    back = provider.requests[1]
    assert back.tool_names == ("look",)
    assert back.messages[1].calls == CALL.calls
    assert [(r.call_id, r.name, r.text) for m in back.new_messages for r in m.results] == [
        ("call_1", "look", "21 °C")
    ]


def test_a_streamed_function_call_has_several_chunks() -> None:
    client, _ = connect(CALL)
    chunks = list(
        client.chat.completions.create(model="m", messages=ASKED, functions=[LOOK], stream=True)
    )
    pieces = [chunk.choices[0].delta.function_call for chunk in chunks]
    named = [piece.name for piece in pieces if piece and piece.name]
    reply = "".join(piece.arguments or "" for piece in pieces if piece)
    assert (named, reply) == (["look"], '{"city":"Paris"}')
    assert chunks[-1].choices[0].finish_reason == "function_call"


def test_a_function_result_belongs_to_the_latest_call_with_its_name() -> None:
    called: Any = {"role": "assistant", "content": None, "function_call": {"name": "look"}}
    history = [*ASKED, called, answer("one"), called, answer("two"), answer("by itself")]
    body = {"model": "m", "messages": history, "functions": [LOOK]}
    http_request = HttpRequest("POST", "/v1/chat/completions", {}, to_json(body))
    dialect = detect_dialect(http_request)
    assert dialect is not None
    request = dialect.decode(http_request, ConversationStore())
    answered = [(r.call_id, r.text) for m in request.messages for r in m.results]
    assert answered == [("function-1", "one"), ("function-2", "two"), ("function-2", "by itself")]


def test_function_call_ids_differ_between_runs() -> None:
    called: Any = {"role": "assistant", "content": None, "function_call": {"name": "look"}}
    body = {"model": "m", "messages": [*ASKED, called, answer("one")]}
    http_request = HttpRequest("POST", "/v1/chat/completions", {}, to_json(body))
    dialect = detect_dialect(http_request)
    assert dialect is not None
    for value in ("call_of_run_one", "call_of_run_two"):
        store = ConversationStore()
        request = dialect.decode(http_request, store)
        store.add("chatcmpl-1", request, Reply((ToolCall(value, "look"),)))
        decoded = dialect.decode(http_request, store)
        assert [call.id for m in decoded.messages for call in m.calls] == [value]


def test_several_function_calls_in_a_reply_are_a_usage_error() -> None:
    client, _ = connect(Reply((*CALL.calls, *CALL.calls), "tool_use"))
    with pytest.raises(UsageError, match="one call per reply, got 2 calls"):
        client.chat.completions.create(model="m", messages=ASKED, functions=[LOOK])
