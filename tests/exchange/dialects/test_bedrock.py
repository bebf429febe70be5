"""The Bedrock dialect: decoding, encoding, and calls by Amazon's client."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import botocore.config  # pyright: ignore[reportMissingTypeStubs] - it has none
import botocore.exceptions  # pyright: ignore[reportMissingTypeStubs] - it has none
import botocore.session  # pyright: ignore[reportMissingTypeStubs] - it has none
import msgspec
import pytest
from anthropic.lib.bedrock import AnthropicBedrock
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import ModelError, ScriptMismatch
from offbook.exchange import Reply, Request, Text, Thinking, ToolCall, Usage
from offbook.exchange.dialects import ALL_RULES, ConversationStore, HttpRequest, HttpResponse
from offbook.exchange.dialects.amazon import EVENT_STREAM, encode_frame, parse_frames
from offbook.exchange.dialects.bedrock.bedrock_dialect import Bedrock
from offbook.runs import drive
from offbook.sources.mocks import Mocks
from offbook.sources.playbook import call, fail, say, think, when
from offbook.sources.server import Server
from tests.exchange.dialects import strategies

if TYPE_CHECKING:
    from offbook.subjects.frameworks import FrameworkSubject

DIALECT = Bedrock()
PATH = "/model/anthropic.claude-v9%3A0/converse"
TOOLS: Any = {
    "tools": [
        {"toolSpec": {"name": "find_order", "inputSchema": {"json": {"type": "object"}}}},
        {"cachePoint": {"type": "default"}},
    ]
}


def client(url: str | None = None) -> Any:
    """Return Amazon's client, without retries."""
    session: Any = botocore.session.Session()
    session.set_credentials("none", "none")
    options: Any = {"retries": {"total_max_attempts": 1}}
    config: Any = botocore.config.Config(**options)
    return session.create_client(
        "bedrock-runtime", region_name="eu-west-1", endpoint_url=url, config=config
    )


def answer_tools(message: Any) -> Any:
    uses = [part["toolUse"] for part in message["content"] if "toolUse" in part]
    reply = [
        {
            "toolResult": {
                "toolUseId": use["toolUseId"],
                "content": [{"text": f"order {use['input']['number']}"}],
            }
        }
        for use in uses
    ]
    return {"role": "user", "content": reply}


def converse(prompt: str) -> str:
    """Run an agent on Converse."""
    bedrock = client()
    messages: Any = [{"role": "user", "content": [{"text": prompt}]}]
    while True:
        built = bedrock.converse(
            modelId="anthropic.claude-v9:0",
            system=[{"text": "You are a shop."}],
            messages=messages,
            toolConfig=TOOLS,
        )
        message = built["output"]["message"]
        messages.append(message)
        if built["stopReason"] != "tool_use":
            return "".join(part.get("text", "") for part in message["content"])
        messages.append(answer_tools(message))


def gather(stream: Any) -> tuple[str, Any]:
    """Return the stop reason and the message of a stream."""
    parts: dict[int, Any] = {}
    stop = ""
    for event in stream:
        ((kind, data),) = event.items()
        index = data.get("contentBlockIndex", 0)
        if kind == "contentBlockStart":
            parts[index] = {"toolUse": {**data["start"]["toolUse"], "input": ""}}
        elif kind == "contentBlockDelta" and "toolUse" in data["delta"]:
            parts[index]["toolUse"]["input"] += data["delta"]["toolUse"]["input"]
        elif kind == "contentBlockDelta" and "text" in data["delta"]:
            parts.setdefault(index, {"text": ""})["text"] += data["delta"]["text"]
        elif kind == "messageStop":
            stop = data["stopReason"]
    for part in parts.values():
        if "toolUse" in part:
            part["toolUse"]["input"] = json.loads(part["toolUse"]["input"])
    return stop, {"role": "assistant", "content": [parts[index] for index in sorted(parts)]}


def converse_stream(prompt: str) -> str:
    """Run the same agent with streams."""
    bedrock = client()
    messages: Any = [{"role": "user", "content": [{"text": prompt}]}]
    while True:
        built = bedrock.converse_stream(modelId="m", messages=messages, toolConfig=TOOLS)
        stop, message = gather(built["stream"])
        messages.append(message)
        if stop != "tool_use":
            return "".join(part.get("text", "") for part in message["content"])
        messages.append(answer_tools(message))


@pytest.mark.parametrize("agent", [converse, converse_stream])
def test_amazons_client_completes_a_tool_call_in_process(agent: Any):
    with drive(agent) as rehearsal:
        run = rehearsal.run(
            when("Find 7", [call("find_order", {"number": 7}), think("Hm."), say("One lamp.")])
        )
        assert run.results("find_order")[0].text == "order 7"
        assert run.output == "One lamp."
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
def test_errors_have_amazons_types(status: int, kind: str):
    def agent(_prompt: str) -> None:
        with pytest.raises(botocore.exceptions.ClientError) as caught:
            converse("Go")
        error: Any = caught.value
        assert error.response["Error"] == {"Code": kind, "Message": "so it is"}

    with drive(agent) as rehearsal:
        rehearsal.run(when("Go", [fail("so it is", status=status)]))


def test_the_server_serves_bedrock_over_a_socket():
    with Server() as server:
        endpoint = server.mount(Mocks([{"text": "FakeProvider."}]))
        built = client(endpoint.url).converse_stream(
            modelId="m", messages=[{"role": "user", "content": [{"text": "Hi"}]}]
        )
        assert gather(built["stream"])[1]["content"] == [{"text": "FakeProvider."}]


# -------------------------------------------------------------------------------------- invoke


def test_invoke_with_an_unknown_body_is_rejected_with_a_message():
    def agent(_prompt: str) -> None:
        with pytest.raises(
            botocore.exceptions.ClientError, match="Offbook does not support invoke"
        ):
            client().invoke_model(modelId="m", body=b"{}")
        converse("Go")

    with drive(agent) as rehearsal:
        rehearsal.run(when("Go", [say("Done.")]))


def test_titan_embeds_a_text():
    def agent(prompt: str) -> None:
        body = json.dumps({"inputText": prompt, "dimensions": 256})
        built = client().invoke_model(modelId="amazon.titan-embed-text-v2:0", body=body)
        embedded = json.loads(built["body"].read())
        assert len(embedded["embedding"]) == 256
        assert embedded["inputTextTokenCount"] > 0
        converse(prompt)

    with drive(agent) as rehearsal:
        rehearsal.run(when("Go", [say("Done.")]))


FIND: Any = [{"name": "find_order", "input_schema": {"type": "object"}}]


def invoke(prompt: str, *, stream: bool, changed: str = "") -> str:
    """Run an agent with Anthropic's client of Bedrock; `changed` replaces earlier results."""
    region = "eu-west-1"
    bedrock: Any = AnthropicBedrock(api_key="none", aws_region=region, max_retries=0)
    messages: Any = [{"role": "user", "content": prompt}]
    options: Any = {"model": "eu.anthropic.claude-v9:0", "max_tokens": 99, "tools": FIND}
    while True:
        if stream:
            with bedrock.messages.stream(messages=messages, **options) as events:
                message = events.get_final_message()
        else:
            message = bedrock.messages.create(messages=messages, **options)
        for sent in messages:
            if changed and isinstance(sent["content"], list) and sent["role"] == "user":
                sent["content"][0]["content"] = changed
        messages.append({"role": "assistant", "content": message.content})
        uses: Any = [block for block in message.content if block.type == "tool_use"]
        if message.stop_reason != "tool_use":
            return "".join(block.text for block in message.content if block.type == "text")
        results = [
            {
                "type": "tool_result",
                "tool_use_id": use.id,
                "content": f"order {use.input['number']}",
            }
            for use in uses
        ]
        messages.append({"role": "user", "content": results})


@pytest.mark.parametrize("stream", [False, True])
def test_anthropics_client_of_bedrock_completes_a_tool_call(*, stream: bool):
    with drive(partial(invoke, stream=stream)) as rehearsal:
        run = rehearsal.run(when("Find 7", [call("find_order", {"number": 7}), say("One lamp.")]))
        assert run.results("find_order")[0].text == "order 7"
        assert run.output == "One lamp."
        assert (run.requests[-1].model, run.requests[-1].stream) == (
            "eu.anthropic.claude-v9:0",
            stream,
        )


def test_a_result_that_anthropics_client_changes_fails_the_run():
    twice = when("Go", [call("find_order", {"number": n}) for n in (7, 8)] + [say("Done.")])
    rewriting = drive(partial(invoke, stream=False, changed="order 9"))
    with rewriting as rehearsal, pytest.raises(ScriptMismatch, match="changed"):
        rehearsal.run(twice)


def test_amazons_client_streams_the_body_of_anthropic():
    def agent(prompt: str) -> None:
        messages = [{"role": "user", "content": prompt}]
        body = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 9, "messages": messages}
        built = client().invoke_model_with_response_stream(
            modelId="anthropic.claude-v9:0", body=json.dumps(body)
        )
        events = [json.loads(event["chunk"]["bytes"]) for event in built["body"]]
        assert [event["type"] for event in events][0::6] == ["message_start", "message_stop"]
        assert events[-1]["amazon-bedrock-invocationMetrics"]["outputTokenCount"] == 2

    with drive(agent) as rehearsal:
        rehearsal.run(when("Go", [say("Done.")]))


@pytest.mark.parametrize("body", [{"max_tokens": 9, "messages": []}, {"messages": "odd"}])
def test_an_invalid_body_of_anthropic_has_amazons_error(body: Any):
    def agent(prompt: str) -> None:
        sent = json.dumps({"anthropic_version": "bedrock-2023-05-31", **body})
        with pytest.raises(botocore.exceptions.ClientError) as caught:
            client().invoke_model(modelId="anthropic.claude-v9:0", body=sent)
        error: Any = caught.value
        assert error.response["Error"]["Code"] == "ValidationException"
        converse(prompt)

    with drive(agent) as rehearsal:
        rehearsal.run(when("Go", [say("Done.")]))


# ------------------------------------------------------------------------------------- the rules


def user_turn(*contents: Any) -> list[Any]:
    roles = ("user", "assistant")
    return [{"role": roles[index % 2], "content": parts} for index, parts in enumerate(contents)]


def use(id_: str) -> Any:
    return {"toolUse": {"toolUseId": id_, "name": "look", "input": {}}}


def result(id_: str) -> Any:
    return {"toolResult": {"toolUseId": id_, "content": [{"json": {"a": 1}}]}}


GO = [{"text": "Go"}]
BROKEN: list[tuple[str, Any, str]] = [
    ("orphan_result", {"messages": user_turn([result("a")])}, "exceeds the number of toolUse"),
    ("missing_result", {"messages": user_turn(GO, [use("a")], GO)}, "for the following Ids: a"),
    (
        "duplicate_id",
        {"messages": user_turn(GO, [use("a"), use("a")], [result("a")])},
        "duplicate Ids",
    ),
    ("unknown_role", {"messages": [{"role": "robot", "content": GO}]}, "[user, assistant]"),
    ("missing_field", {"messages": []}, "messages field is required"),
    (
        "bad_tool_schema",
        {
            "messages": user_turn(GO),
            "toolConfig": {
                "tools": [{"toolSpec": {"name": "t", "inputSchema": {"json": {"type": "string"}}}}]
            },
        },
        "must be one of the following: object",
    ),
]


@pytest.mark.parametrize("rule, body, words", BROKEN, ids=[rule for rule, _, _ in BROKEN])
def test_invalid_requests_are_rejected_unless_the_rule_is_off(rule: str, body: Any, words: str):
    http_request = HttpRequest("POST", PATH, {}, json.dumps(body).encode())
    with pytest.raises(ModelError) as caught:
        DIALECT.decode(http_request, ConversationStore())
    assert words in caught.value.message
    assert DIALECT.encode_error(caught.value).headers["x-offbook-rule"] == rule
    Bedrock(ALL_RULES - {rule}).decode(http_request, ConversationStore())


# ------------------------------------------------------------------------------ back and forth


def bare(request: Request) -> Request:
    """Return the request without what the format does not have: metadata and other options."""
    named = DIALECT.decode(DIALECT.build_request(request, "", "key"), ConversationStore())
    return msgspec.structs.replace(named, metadata={})


@given(request=strategies.requests())
def test_a_built_request_is_decoded_to_the_same_request(request: Request):
    read = bare(request)
    assert read.system == request.system
    assert read.model == request.model
    assert read.stream == request.stream
    assert read.tools == request.tools
    assert bare(read) == read
    sent = [block for message in request.messages for block in message.blocks]
    decoded = [block for message in read.messages for block in message.blocks]
    assert [b.text for b in decoded if isinstance(b, Text)] == [
        b.text for b in sent if isinstance(b, Text)
    ]
    assert [b for b in decoded if isinstance(b, ToolCall)] == [
        b for b in sent if isinstance(b, ToolCall)
    ]


@given(reply=strategies.replies(), usage=strategies.usages(cached=True), stream=st.booleans())
def test_an_encoded_reply_is_parsed_to_the_same_reply(reply: Reply, usage: Usage, *, stream: bool):
    usage = msgspec.structs.replace(usage, reasoning=0)
    reply = msgspec.structs.replace(reply, usage=usage)
    response = DIALECT.encode(reply, Request(model="m", stream=stream))
    read = DIALECT.parse_response(response, Request(model="m", stream=stream))
    assert read.blocks == reply.blocks
    assert read.stop == reply.stop
    assert read.usage == usage
    if stream and reply.chunks:
        assert read.chunks == reply.chunks


@pytest.mark.parametrize("stream", [False, True])
def test_an_empty_reply_has_no_content(*, stream: bool):
    request = Request(model="m", stream=stream)
    response = DIALECT.encode(Reply((Text(""),)), request)
    assert DIALECT.parse_response(response, request).blocks == ()


def test_redacted_thinking_is_parsed():
    hidden = Reply((Thinking("", "c2VhbGVk", redacted=True), Text("Well.")))
    for stream in (False, True):
        request = Request(model="m", stream=stream)
        assert (
            DIALECT.parse_response(DIALECT.encode(hidden, request), request).blocks == hidden.blocks
        )


def test_an_error_in_a_stream_is_raised():
    request = Request(model="m", stream=True)
    with pytest.raises(ModelError, match="Internal server error"):
        DIALECT.parse_response(DIALECT.encode(Reply(stop="error"), request), request)


@pytest.mark.parametrize("cut", [1, 7, 20])
def test_a_truncated_or_damaged_stream_is_an_error(cut: int):
    frame = encode_frame(
        {":event-type": "messageStart", ":message-type": "event"}, b'{"role":"assistant"}'
    )
    assert [payload for _, payload in parse_frames(frame)] == [b'{"role":"assistant"}']
    response = HttpResponse(200, {"content-type": EVENT_STREAM}, frame[:-cut])
    with pytest.raises(ModelError, match="ended in the middle"):
        DIALECT.parse_response(response, Request())
    damaged = frame[:-10] + b"x" + frame[-9:]
    with pytest.raises(ModelError, match="wrong checksum"):
        list(parse_frames(damaged))


def test_an_error_response_is_parsed():
    refused = HttpResponse(429, {}, b'{"message":"Too many tokens"}')
    with pytest.raises(ModelError, match="Too many tokens") as caught:
        DIALECT.parse_response(refused, Request())
    assert caught.value.status == 429
