"""Bedrock's Converse: read and written both ways, and read by Amazon's own client."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import botocore.config  # pyright: ignore[reportMissingTypeStubs] - it has none
import botocore.exceptions  # pyright: ignore[reportMissingTypeStubs] - it has none
import botocore.session  # pyright: ignore[reportMissingTypeStubs] - it has none
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import ModelError
from offbook.exchange.dialects.bedrock import Bedrock
from offbook.exchange.dialects.bedrock.bedrock_stream import (
    EVENT_STREAM,
    encode_frame,
    parse_frames,
)
from offbook.exchange.dialects.conversations import ConversationStore
from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
from offbook.exchange.dialects.validation import ALL_RULES
from offbook.exchange.messages import Text, Thinking, ToolCall
from offbook.exchange.model import Reply, Request, Usage
from offbook.runs.api import drive
from offbook.sources.mocks.mocks import Mocks
from offbook.sources.playbook import call, fail, say, think, when
from offbook.sources.server.server import Server
from tests.exchange.dialects import strategies

if TYPE_CHECKING:
    from offbook.subjects.frameworks.framework import FrameworkSubject

DIALECT = Bedrock()
PATH = "/model/anthropic.claude-v9%3A0/converse"
TOOLS: Any = {
    "tools": [
        {"toolSpec": {"name": "find_order", "inputSchema": {"json": {"type": "object"}}}},
        {"cachePoint": {"type": "default"}},
    ]
}


def client(url: str | None = None) -> Any:
    """Amazon's own client, that would ask once."""
    session: Any = botocore.session.Session()
    session.set_credentials("none", "none")
    options: Any = {"retries": {"total_max_attempts": 1}}
    config: Any = botocore.config.Config(**options)
    return session.create_client(
        "bedrock-runtime", region_name="eu-west-1", endpoint_url=url, config=config
    )


def answer_tools(message: Any) -> Any:
    uses = [part["toolUse"] for part in message["content"] if "toolUse" in part]
    said = [
        {
            "toolResult": {
                "toolUseId": use["toolUseId"],
                "content": [{"text": f"order {use['input']['number']}"}],
            }
        }
        for use in uses
    ]
    return {"role": "user", "content": said}


def converse(prompt: str) -> str:
    """An agent on Converse."""
    bedrock = client()
    messages: Any = [{"role": "user", "content": [{"text": prompt}]}]
    while True:
        made = bedrock.converse(
            modelId="anthropic.claude-v9:0",
            system=[{"text": "You are a shop."}],
            messages=messages,
            toolConfig=TOOLS,
        )
        message = made["output"]["message"]
        messages.append(message)
        if made["stopReason"] != "tool_use":
            return "".join(part.get("text", "") for part in message["content"])
        messages.append(answer_tools(message))


def gather(stream: Any) -> tuple[str, Any]:
    """The stop reason and the message that a stream tells."""
    parts: dict[int, Any] = {}
    stop = ""
    for event in stream:
        ((kind, data),) = event.items()
        at = data.get("contentBlockIndex", 0)
        if kind == "contentBlockStart":
            parts[at] = {"toolUse": {**data["start"]["toolUse"], "input": ""}}
        elif kind == "contentBlockDelta" and "toolUse" in data["delta"]:
            parts[at]["toolUse"]["input"] += data["delta"]["toolUse"]["input"]
        elif kind == "contentBlockDelta" and "text" in data["delta"]:
            parts.setdefault(at, {"text": ""})["text"] += data["delta"]["text"]
        elif kind == "messageStop":
            stop = data["stopReason"]
    for part in parts.values():
        if "toolUse" in part:
            part["toolUse"]["input"] = json.loads(part["toolUse"]["input"])
    return stop, {"role": "assistant", "content": [parts[at] for at in sorted(parts)]}


def converse_stream(prompt: str) -> str:
    """The same agent, streaming."""
    bedrock = client()
    messages: Any = [{"role": "user", "content": [{"text": prompt}]}]
    while True:
        made = bedrock.converse_stream(modelId="m", messages=messages, toolConfig=TOOLS)
        stop, message = gather(made["stream"])
        messages.append(message)
        if stop != "tool_use":
            return "".join(part.get("text", "") for part in message["content"])
        messages.append(answer_tools(message))


@pytest.mark.parametrize("agent", [converse, converse_stream])
def test_amazons_client_does_both_steps_without_a_socket(agent: Any):
    with drive(agent) as rehearsal:
        run = rehearsal.run(
            when("Find 7", [call("find_order", {"number": 7}), think("Hm."), say("One lamp.")])
        )
        assert run.results("find_order")[0].text == "order 7"
        assert run.text == "One lamp."
        assert cast("FrameworkSubject", rehearsal.subject).result == "One lamp."


@pytest.mark.parametrize(
    "status, kind",
    [
        (400, "ValidationException"),
        (403, "AccessDeniedException"),
        (418, "ValidationException"),
        (429, "ThrottlingException"),
        (500, "InternalServerException"),
        (503, "ServiceUnavailableException"),
        (529, "InternalServerException"),
    ],
)
def test_errors_have_amazons_names(status: int, kind: str):
    def agent(_prompt: str) -> None:
        with pytest.raises(botocore.exceptions.ClientError) as caught:
            converse("Go")
        error: Any = caught.value
        assert error.response["Error"] == {"Code": kind, "Message": "so it is"}

    with drive(agent) as rehearsal:
        rehearsal.run(when("Go", [fail("so it is", status=status)]))


def test_it_is_served_over_a_socket_too():
    with Server() as server:
        endpoint = server.mount(Mocks([{"text": "Served."}]))
        made = client(endpoint.url).converse_stream(
            modelId="m", messages=[{"role": "user", "content": [{"text": "Hi"}]}]
        )
        assert gather(made["stream"])[1]["content"] == [{"text": "Served."}]


def test_the_way_of_each_model_family_is_refused_in_words():
    def agent(_prompt: str) -> None:
        with pytest.raises(botocore.exceptions.ClientError, match="only converse and"):
            client().invoke_model(modelId="m", body=b"{}")
        converse("Go")

    with drive(agent) as rehearsal:
        rehearsal.run(when("Go", [say("Done.")]))


# ------------------------------------------------------------------------------------- the rules


def told(*contents: Any) -> list[Any]:
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "content": parts} for at, parts in enumerate(contents)]


def use(id_: str) -> Any:
    return {"toolUse": {"toolUseId": id_, "name": "look", "input": {}}}


def result(id_: str) -> Any:
    return {"toolResult": {"toolUseId": id_, "content": [{"json": {"a": 1}}]}}


GO = [{"text": "Go"}]
BROKEN: list[tuple[str, Any, str]] = [
    ("orphan_result", {"messages": told([result("a")])}, "exceeds the number of toolUse"),
    ("missing_result", {"messages": told(GO, [use("a")], GO)}, "for the following Ids: a"),
    ("duplicate_id", {"messages": told(GO, [use("a"), use("a")], [result("a")])}, "duplicate Ids"),
    ("unknown_role", {"messages": [{"role": "robot", "content": GO}]}, "[user, assistant]"),
    ("missing_field", {"messages": []}, "messages field is required"),
    (
        "bad_tool_schema",
        {
            "messages": told(GO),
            "toolConfig": {
                "tools": [{"toolSpec": {"name": "t", "inputSchema": {"json": {"type": "string"}}}}]
            },
        },
        "must be one of the following: object",
    ),
]


@pytest.mark.parametrize("rule, body, words", BROKEN, ids=[rule for rule, _, _ in BROKEN])
def test_what_bedrock_refuses_is_refused_and_each_rule_can_be_switched_off(
    rule: str, body: Any, words: str
):
    wire = HttpRequest("POST", PATH, {}, json.dumps(body).encode())
    with pytest.raises(ModelError) as caught:
        DIALECT.decode(wire, ConversationStore())
    assert words in caught.value.message
    assert DIALECT.encode_error(caught.value).headers["x-offbook-rule"] == rule
    Bedrock(ALL_RULES - {rule}).decode(wire, ConversationStore())


# ------------------------------------------------------------------------------ back and forth


def bare(request: Request) -> Request:
    """Without what the wire does not have: who asks, options of others, results side by side."""
    named = DIALECT.decode(DIALECT.build_request(request, "", "key"), ConversationStore())
    return msgspec.structs.replace(named, metadata={})


@given(request=strategies.requests())
def test_a_request_that_is_asked_is_read_as_it_was(request: Request):
    read = bare(request)
    assert read.system == request.system
    assert read.model == request.model
    assert read.stream == request.stream
    assert read.tools == request.tools
    assert bare(read) == read
    said = [block for message in request.messages for block in message.blocks]
    heard = [block for message in read.messages for block in message.blocks]
    assert [b.text for b in heard if isinstance(b, Text)] == [
        b.text for b in said if isinstance(b, Text)
    ]
    assert [b for b in heard if isinstance(b, ToolCall)] == [
        b for b in said if isinstance(b, ToolCall)
    ]


@given(reply=strategies.replies(), usage=strategies.usages(cached=True), stream=st.booleans())
def test_a_reply_that_is_written_is_read_as_it_was(reply: Reply, usage: Usage, *, stream: bool):
    usage = msgspec.structs.replace(usage, reasoning=0)
    reply = msgspec.structs.replace(reply, usage=usage)
    answer = DIALECT.encode(reply, Request(model="m", stream=stream))
    read = DIALECT.parse_response(answer, Request(model="m", stream=stream))
    assert read.blocks == reply.blocks
    assert read.stop == reply.stop
    assert read.usage == usage
    if stream and reply.chunks:
        assert read.chunks == reply.chunks


def test_a_thought_that_nobody_may_read_comes_back():
    hidden = Reply((Thinking("", "c2VhbGVk", redacted=True), Text("Well.")))
    for stream in (False, True):
        request = Request(model="m", stream=stream)
        assert (
            DIALECT.parse_response(DIALECT.encode(hidden, request), request).blocks == hidden.blocks
        )


def test_an_error_in_the_stream_is_read():
    request = Request(model="m", stream=True)
    with pytest.raises(ModelError, match="Internal server error"):
        DIALECT.parse_response(DIALECT.encode(Reply(stop="error"), request), request)


@pytest.mark.parametrize("cut", [1, 7, 20])
def test_a_torn_stream_is_an_error_and_so_is_a_damaged_one(cut: int):
    frame = encode_frame(
        {":event-type": "messageStart", ":message-type": "event"}, b'{"role":"assistant"}'
    )
    assert [payload for _, payload in parse_frames(frame)] == [b'{"role":"assistant"}']
    answer = HttpResponse(200, {"content-type": EVENT_STREAM}, frame[:-cut])
    with pytest.raises(ModelError, match="ended in the middle"):
        DIALECT.parse_response(answer, Request())
    damaged = frame[:-10] + b"x" + frame[-9:]
    with pytest.raises(ModelError, match="wrong checksum"):
        list(parse_frames(damaged))


def test_what_the_real_one_refused_is_read():
    refused = HttpResponse(429, {}, b'{"message":"Too many tokens"}')
    with pytest.raises(ModelError, match="Too many tokens") as caught:
        DIALECT.parse_response(refused, Request())
    assert caught.value.status == 429
