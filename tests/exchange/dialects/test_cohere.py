"""The Cohere dialect: plans, documents, streams of typed events, embeddings and rankings."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import ModelError, ScriptMismatch
from offbook.exchange import Reply, Request, Text, Thinking, ToolCall, Usage
from offbook.exchange.dialects import ALL_RULES, ConversationStore, HttpRequest
from offbook.exchange.dialects.cohere.cohere_dialect import Cohere
from offbook.runs import drive
from offbook.sources.playbook import call, fail, say, when
from tests.exchange.dialects import strategies

URL = "https://api.cohere.com"
DIALECT = Cohere()
TOOLS = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]


def post(path: str, **body: Any) -> Any:
    return httpx.post(URL + path, json={"model": "command-a", **body}).json()


def agent(prompt: str, *, changed: str = "") -> str:
    """Answer the calls with documents; `changed` is a plan that the agent puts in their place."""
    history: list[Any] = [{"role": "user", "content": prompt}]
    while True:
        message = post("/v2/chat", messages=history, tools=TOOLS)["message"]
        if "tool_calls" not in message:
            return "".join(part["text"] for part in message["content"])
        history.append({**message, "tool_plan": changed or message.get("tool_plan", "")})
        for made in message["tool_calls"]:
            data = json.loads(made["function"]["arguments"])
            content = [{"type": "document", "document": {"data": data}}]
            history.append({"role": "tool", "tool_call_id": made["id"], "content": content})


TURN = when("Find 7", [[say("I look."), call("find", {"number": 7})], say("One lamp.")])


def test_a_plan_and_documents_come_back_as_text_and_result():
    with drive(agent) as rehearsal:
        run = rehearsal.run(TURN)
        assert run.results("find")[0].text == '{"number":7}'
        assert run.requests[-1].messages[1].text == "I look."
        assert run.output == "One lamp."


def test_a_rewritten_plan_fails_the_run():
    rewriting = drive(partial(agent, changed="I look elsewhere."))
    with rewriting as rehearsal, pytest.raises(ScriptMismatch, match="never said"):
        rehearsal.run(TURN)


def test_a_stream_has_typed_events():
    reply = Reply((Thinking("Hm."), Text("I look."), ToolCall("c", "find", {"number": 7})))
    response = DIALECT.encode(reply, Request(model="m", stream=True))
    kinds = [chunk.split(b"\n")[0].removeprefix(b"event: ").decode() for chunk in response.chunks]
    assert list(dict.fromkeys(kinds)) == [
        *("message-start", "content-start", "content-delta", "content-end", "tool-plan-delta"),
        *("tool-call-start", "tool-call-delta", "tool-call-end", "message-end", "data: [DONE]"),
    ]


def test_an_error_has_the_form_of_cohere():
    def ask(prompt: str) -> None:
        body = post("/v2/chat", messages=[{"role": "user", "content": prompt}])
        assert body["message"] == "too many"
        assert body["id"]

    with drive(ask) as rehearsal:
        rehearsal.run(when("Hi", [fail("too many", status=429)]))


def side(path: str, **body: Any) -> Any:
    http_request = HttpRequest("POST", path, {}, json.dumps(body).encode())
    response = DIALECT.side_response(http_request, ConversationStore())
    assert response is not None
    return json.loads(response.body)


def test_the_nearest_document_has_the_first_rank():
    documents = ["A lamp.", "The weather in Paris", {"text": "Weather"}]
    results = side("/v2/rerank", query="Paris weather", documents=documents, top_n=2)["results"]
    assert [result["index"] for result in results] == [1, 2]
    assert all(0 <= result["relevance_score"] <= 1 for result in results)


@pytest.mark.parametrize(
    "kind, length", [("float", 16), ("int8", 16), ("uint8", 16), ("binary", 2), ("ubinary", 2)]
)
def test_embeddings_have_the_types_that_are_asked_for(kind: str, length: int):
    body = side("/v2/embed", texts=["a", "b"], embedding_types=[kind], output_dimension=16)
    assert [len(vector) for vector in body["embeddings"][kind]] == [length, length]


@pytest.mark.parametrize(
    "path, body, message",
    [
        ("/v1/chat", {"message": "Hi"}, "Offbook does not support /v1/chat: use /v2/chat"),
        ("/v2/embed", {"texts": ["a"], "embedding_types": ["odd"]}, "unknown embedding type 'odd'"),
        ("/v2/rerank", {"query": "a"}, "query and documents are required"),
    ],
)
def test_what_is_not_supported_says_so(path: str, body: Any, message: str):
    assert message in side(path, **body)["message"]


def turn(role: str, content: str, **fields: Any) -> Any:
    return {"role": role, "content": content, **fields}


CALL = {"id": "a", "type": "function", "function": {"name": "find", "arguments": "{}"}}
HI = turn("user", "Hi")
BROKEN: list[tuple[str, Any]] = [
    ("missing_field", {"messages": []}),
    ("unknown_role", {"messages": [turn("robot", "Hi")]}),
    ("orphan_result", {"messages": [HI, turn("tool", "21", tool_call_id="a")]}),
    ("missing_result", {"messages": [HI, turn("assistant", "", tool_calls=[CALL]), HI]}),
    (
        "bad_tool_schema",
        {
            "messages": [HI],
            "tools": [{"function": {"name": "t", "parameters": {"type": "string"}}}],
        },
    ),
]


@pytest.mark.parametrize("rule, body", BROKEN, ids=[rule for rule, _ in BROKEN])
def test_invalid_requests_are_rejected_unless_the_rule_is_off(rule: str, body: Any):
    http_request = HttpRequest("POST", "/v2/chat", {}, json.dumps(body).encode())
    with pytest.raises(ModelError) as caught:
        DIALECT.decode(http_request, ConversationStore())
    assert caught.value.details["rule"] == rule
    Cohere(ALL_RULES - {rule}).decode(http_request, ConversationStore())


@given(reply=strategies.replies(), usage=strategies.usages(cached=False), stream=st.booleans())
def test_an_encoded_reply_is_parsed_to_the_same_reply(reply: Reply, usage: Usage, *, stream: bool):
    usage = msgspec.structs.replace(usage, reasoning=0)
    stop = "stop" if reply.stop == "refusal" else reply.stop  # Cohere has no refusals
    reply = msgspec.structs.replace(reply, usage=usage, stop=stop)
    request = Request(model="m", stream=stream)
    read = DIALECT.parse_response(DIALECT.encode(reply, request), request)
    assert (read.text, read.calls) == (reply.text, reply.calls)
    assert (read.stop, read.usage) == (reply.stop, usage)
