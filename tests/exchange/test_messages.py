"""A message is a role and its blocks, the same before and after it was written down."""

import msgspec
import pytest
from hypothesis import given

from offbook.exchange.messages import Message, Text, Thinking, ToolCall, ToolResult, user
from offbook.exchange.model import Reply, Request, Tool
from tests.exchange.strategies import messages


@given(messages)
def test_a_message_written_as_json_reads_back_as_itself(message: Message):
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


def test_the_text_of_a_message_is_its_text_blocks_joined_by_line_ends():
    message = Message(
        "assistant", (Thinking("hm"), Text("one"), ToolCall("1", "bash"), Text("two"))
    )
    assert message.text == "one\ntwo"


def test_a_message_knows_its_calls_and_its_results():
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
            {"role": role, "blocks": [{"type": "text", "text": f"{role} {at}"}]}, Message
        )
        for at, role in enumerate(roles)
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
def test_what_is_fresh_in_a_request_came_after_the_model_spoke(
    roles: tuple[str, ...], fresh: list[str]
):
    from offbook.exchange.messages import History

    request = Request(History(conversation(*roles)))
    assert [message.text for message in request.new_messages] == fresh


def test_a_request_knows_its_first_and_its_latest_prompt_and_the_tools_offered():
    from offbook.exchange.messages import History

    request = Request(
        History([user("first"), *conversation("assistant"), user("latest")]),
        tools=(Tool("bash"), Tool("read")),
    )
    assert (request.first_prompt, request.prompt) == ("first", "latest")
    assert request.tool_names == ("bash", "read")
