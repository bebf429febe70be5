"""Functions, which came before tools: OpenAI's own client offers them and hears them called."""

from typing import Any

import pytest

from offbook.errors import UsageError
from offbook.exchange.dialects.conversations import ConversationStore
from offbook.exchange.dialects.dialect import HttpRequest
from offbook.exchange.messages import Text, ToolCall, to_json
from offbook.exchange.model import Reply
from offbook.exchange.providers import detect_dialect
from tests.exchange.dialects.test_chat_client import connect

LOOK: Any = {"name": "look", "parameters": {"type": "object", "properties": {}}}
ASKED: list[Any] = [{"role": "user", "content": "How is Paris?"}]
CALL = Reply((ToolCall("call_1", "look", {"city": "Paris"}),), "tool_use")
DONE = Reply((Text("It is fine."),))


def answer(result: str) -> Any:
    return {"role": "function", "name": "look", "content": result}


def test_a_function_is_called_and_its_result_comes_back_to_the_call() -> None:
    client, served = connect(CALL, DONE)
    first = client.chat.completions.create(model="m", messages=ASKED, functions=[LOOK])
    said = first.choices[0].message
    assert first.choices[0].finish_reason == "function_call"
    assert said.tool_calls is None
    assert said.function_call is not None
    assert (said.function_call.name, said.function_call.arguments) == ("look", '{"city":"Paris"}')
    history: list[Any] = [*ASKED, said.model_dump(), answer("21 °C")]
    second = client.chat.completions.create(model="m", messages=history, functions=[LOOK])
    assert second.choices[0].message.content == "It is fine."
    back = served.requests[1]
    assert back.tool_names == ("look",)
    assert back.messages[1].calls == CALL.calls
    assert [(r.call_id, r.name, r.text) for m in back.new_messages for r in m.results] == [
        ("call_1", "look", "21 °C")
    ]


def test_a_streamed_call_of_a_function_comes_in_pieces() -> None:
    client, _ = connect(CALL)
    chunks = list(
        client.chat.completions.create(model="m", messages=ASKED, functions=[LOOK], stream=True)
    )
    pieces = [chunk.choices[0].delta.function_call for chunk in chunks]
    named = [piece.name for piece in pieces if piece and piece.name]
    said = "".join(piece.arguments or "" for piece in pieces if piece)
    assert (named, said) == (["look"], '{"city":"Paris"}')
    assert chunks[-1].choices[0].finish_reason == "function_call"


def test_a_result_answers_the_latest_call_of_its_name() -> None:
    called: Any = {"role": "assistant", "content": None, "function_call": {"name": "look"}}
    history = [*ASKED, called, answer("one"), called, answer("two"), answer("by itself")]
    body = {"model": "m", "messages": history, "functions": [LOOK]}
    wire = HttpRequest("POST", "/v1/chat/completions", {}, to_json(body))
    dialect = detect_dialect(wire)
    assert dialect is not None
    request = dialect.decode(wire, ConversationStore())
    answered = [(r.call_id, r.text) for m in request.messages for r in m.results]
    assert answered == [("function-1", "one"), ("function-2", "two"), ("function-2", "by itself")]


def test_the_ids_of_one_run_are_not_those_of_the_next() -> None:
    called: Any = {"role": "assistant", "content": None, "function_call": {"name": "look"}}
    body = {"model": "m", "messages": [*ASKED, called, answer("one")]}
    wire = HttpRequest("POST", "/v1/chat/completions", {}, to_json(body))
    dialect = detect_dialect(wire)
    assert dialect is not None
    for given in ("call_of_run_one", "call_of_run_two"):
        threads = ConversationStore()
        asked = dialect.decode(wire, threads)
        threads.add("chatcmpl-1", asked, Reply((ToolCall(given, "look"),)))
        again = dialect.decode(wire, threads)
        assert [call.id for m in again.messages for call in m.calls] == [given]


def test_a_reply_that_calls_several_functions_at_once_is_an_error_of_the_script() -> None:
    client, _ = connect(Reply((*CALL.calls, *CALL.calls), "tool_use"))
    with pytest.raises(UsageError, match="one call per reply, got 2 calls"):
        client.chat.completions.create(model="m", messages=ASKED, functions=[LOOK])
