"""Messages, requests and replies, and the text form of tool arguments."""

import msgspec
import pytest
from hypothesis import given

from offbook.exchange import (
    JSON,
    RAW_ARGUMENTS,
    Message,
    Reply,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    parse_arguments,
    parse_custom_input,
    render_arguments,
    render_custom_input,
    user,
)
from tests.exchange.strategies import messages


@given(messages)
def test_messages_round_trip_through_json(message: Message):
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


def test_the_text_of_a_message_joins_its_text_blocks():
    message = Message(
        "assistant", (Thinking("hm"), Text("one"), ToolCall("1", "bash"), Text("two"))
    )
    assert message.text == "one\ntwo"


def test_a_message_has_its_calls_and_results():
    call, result = ToolCall("1", "bash"), ToolResult("1", (Text("ok"),))
    assert Message("assistant", (Text("so"), call)).calls == (call,)
    assert Message("tool", (result,)).results == (result,)
    assert result.text == "ok"


def test_a_reply_becomes_the_next_message_of_the_conversation():
    reply = Reply((Text("Done."), ToolCall("1", "bash")))
    assert reply.message == Message("assistant", reply.blocks)
    assert (reply.text, reply.calls) == ("Done.", (ToolCall("1", "bash"),))


def conversation(*roles: str) -> list[Message]:
    return [
        msgspec.convert(
            {"role": role, "blocks": [{"type": "text", "text": f"{role} {index}"}]}, Message
        )
        for index, role in enumerate(roles)
    ]


@pytest.mark.parametrize(
    "roles, fresh",
    [
        ((), []),
        (("user",), ["user 0"]),
        (("user", "assistant", "tool", "tool"), ["tool 2", "tool 3"]),
        (("user", "assistant"), []),
    ],
)
def test_new_messages_follow_the_last_reply(roles: tuple[str, ...], fresh: list[str]):
    from offbook.exchange import History

    request = Request(History(conversation(*roles)))
    assert [message.text for message in request.new_messages] == fresh


def test_a_request_has_its_first_and_latest_prompt_and_tool_names():
    from offbook.exchange import History

    request = Request(
        History([user("first"), *conversation("assistant"), user("latest")]),
        tools=(Tool("bash"), Tool("read")),
    )
    assert (request.first_prompt, request.prompt) == ("first", "latest")
    assert request.tool_names == ("bash", "read")


@pytest.mark.parametrize(
    "text, arguments",
    [
        ("", {}),
        ("{}", {}),
        ('{"a": 1}', {"a": 1}),
        ("{not JSON", {RAW_ARGUMENTS: "{not JSON"}),
        ("[1]", {RAW_ARGUMENTS: "[1]"}),
        ("7", {RAW_ARGUMENTS: "7"}),
    ],
)
def test_arguments_are_parsed_or_kept_as_text(text: str, arguments: JSON) -> None:
    assert parse_arguments(text) == arguments
    assert parse_arguments(render_arguments(arguments)) == arguments
    assert RAW_ARGUMENTS not in arguments or render_arguments(arguments) == text


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"input": "x"}, "x"),
        ({"patch": "x"}, "x"),
        ({}, "{}"),
        ({"a": 1}, '{"a":1}'),
        ({"a": "x", "b": "y"}, '{"a":"x","b":"y"}'),
    ],
)
def test_a_custom_tool_takes_text(arguments: JSON, text: str) -> None:
    assert render_custom_input(arguments) == text
    assert render_custom_input(parse_custom_input(text)) == text


def test_arguments_with_half_a_character_are_read_as_they_were_rendered():
    arguments = {"text": "half \ud83d"}
    assert parse_arguments(render_arguments(arguments)) == arguments
