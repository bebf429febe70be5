"""The Mistral dialect: where it differs from OpenAI's chat completions."""

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
from offbook.exchange import Image, Reply, Request, Text, Thinking, ToolCall, Usage, detect_dialect
from offbook.exchange.dialects import ALL_RULES, ConversationStore, HttpRequest
from offbook.exchange.dialects.mistral.mistral_dialect import Mistral
from offbook.runs import drive
from offbook.sources.playbook import call, fail, say, think, when
from tests.exchange.dialects import strategies

URL = "https://api.mistral.ai"
PATH = "/v1/chat/completions"
DIALECT = Mistral()
TOOLS = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]


def post(path: str, **body: Any) -> Any:
    return httpx.post(URL + path, json={"model": "mistral-large", **body}).json()


def agent(prompt: str, *, changed: str = "") -> str:
    """Send calls with their arguments as objects; `changed` replaces the results."""
    history: list[Any] = [{"role": "user", "content": prompt}]
    while True:
        message = post(PATH, messages=history, tools=TOOLS)["choices"][0]["message"]
        history.append(message)
        for sent in history[:-1]:
            if changed and sent["role"] == "tool":
                sent["content"] = changed
        if not message["tool_calls"]:
            return str(message["content"])
        for made in message["tool_calls"]:
            assert len(made["id"]) == 9
            arguments = json.loads(made["function"]["arguments"])
            made["function"]["arguments"] = arguments
            content = f"order {arguments['number']}"
            history.append({"role": "tool", "tool_call_id": made["id"], "content": content})


def test_arguments_may_come_back_as_an_object():
    with drive(agent) as rehearsal:
        run = rehearsal.run(when("Find 7", [call("find", {"number": 7}), say("One lamp.")]))
        assert run.results("find")[0].text == "order 7"
        assert run.output == "One lamp."


def test_a_rewritten_result_fails_the_run():
    twice = when("Find", [call("find", {"number": 7}), call("find", {"number": 8}), say("Done.")])
    rewriting = drive(partial(agent, changed="order 9"))
    with rewriting as rehearsal, pytest.raises(ScriptMismatch, match="changed"):
        rehearsal.run(twice)


def test_thinking_is_a_chunk_of_the_content_and_comes_back():
    def ask_twice(prompt: str) -> None:
        history: list[Any] = [{"role": "user", "content": prompt}]
        message = post(PATH, messages=history)["choices"][0]["message"]
        assert message["content"] == [
            {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
            {"type": "text", "text": "Hello."},
        ]
        post(PATH, messages=[*history, message, {"role": "user", "content": "And now?"}])

    with drive(ask_twice) as rehearsal:
        turns = when("Hi", [[think("Hm."), say("Hello.")]]), when("And now?", [say("Bye.")])
        run = rehearsal.run(*turns)
        assert run.requests[-1].messages[1].blocks == (Thinking("Hm."), Text("Hello."))


def test_a_stream_has_whole_calls_and_the_usage():
    reply = Reply((ToolCall("abcdefghi", "find", {"number": 7}),), usage=Usage(3, 4))
    response = DIALECT.encode(reply, Request(model="m", stream=True))
    last = json.loads(response.chunks[-2].removeprefix(b"data: "))
    assert last["usage"]["total_tokens"] == 7
    assert last["choices"][0]["finish_reason"] == "tool_calls"
    assert last["choices"][0]["delta"]["tool_calls"] == [
        {
            "id": "abcdefghi",
            "type": "function",
            "function": {"name": "find", "arguments": '{"number":7}'},
            "index": 0,
        }
    ]


@pytest.mark.parametrize("url", ["https://a.test/a.png", {"url": "https://a.test/a.png"}])
def test_the_url_of_an_image_is_a_text_or_an_object(url: Any):
    parts = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": url}]
    body = {"model": "pixtral", "messages": [{"role": "user", "content": parts}]}
    sent = HttpRequest("POST", PATH, {}, msgspec.json.encode(body))
    (message,) = DIALECT.decode(sent, ConversationStore()).messages
    assert message.blocks == (Text("What?"), Image(url="https://a.test/a.png"))


def test_a_prefix_is_an_option_of_the_request():
    start = {"role": "assistant", "content": "Well,", "prefix": True}
    history: list[Any] = [{"role": "user", "content": "Hi"}, start]
    body = json.dumps({"model": "m", "messages": history}).encode()
    request = DIALECT.decode(HttpRequest("POST", PATH, {}, body), ConversationStore())
    assert [message.text for message in request.messages] == ["Hi"]
    assert request.parameters["prefix"] == "Well,"
    sent = json.loads(DIALECT.build_request(request, URL, "key").body)
    assert sent["messages"][-1] == start


def test_an_error_has_the_form_of_mistral():
    def ask(prompt: str) -> None:
        body = post(PATH, messages=[{"role": "user", "content": prompt}])
        assert (body["object"], body["message"]) == ("error", "too many")

    with drive(ask) as rehearsal:
        rehearsal.run(when("Hi", [fail("too many", status=429)]))


@pytest.mark.parametrize("path", ["/v1/conversations", "/v1/ocr", "/v1/fim/completions"])
@pytest.mark.parametrize("to_host", [True, False])
def test_another_path_of_its_host_is_not_supported(path: str, *, to_host: bool):
    http_request = HttpRequest("POST", path, {"host": "api.mistral.ai"})
    if to_host:
        http_request = HttpRequest("POST", f"/to/api.mistral.ai{path}")
    dialect = detect_dialect(http_request)
    assert dialect is not None
    response = dialect.side_response(http_request, ConversationStore())
    assert response is not None
    assert response.status == 404
    assert "Offbook does not support POST" in json.loads(response.body)["message"]


def made(call_id: str) -> Any:
    calls = [{"id": call_id, "function": {"name": "find", "arguments": "{}"}}]
    return {"role": "assistant", "content": "", "tool_calls": calls}


HI = {"role": "user", "content": "Hi"}
ODD = {"role": "tool", "tool_call_id": "call_1"}
BROKEN = [
    (
        "bad_call_id",
        [HI, made("call_1"), {"role": "tool", "tool_call_id": "call_1"}],
        "length of 9",
    ),
    ("orphan_result", [HI, {"role": "tool", "tool_call_id": "abcdefghi"}], "Unexpected tool call"),
    ("missing_result", [HI, made("abcdefghi"), HI], "Not the same number of function calls"),
]


@pytest.mark.parametrize("rule, messages, words", BROKEN, ids=[rule for rule, _, _ in BROKEN])
def test_invalid_requests_are_rejected_unless_the_rule_is_off(rule: str, messages: Any, words: str):
    body = json.dumps({"model": "m", "messages": messages}).encode()
    http_request = HttpRequest("POST", PATH, {}, body)
    with pytest.raises(ModelError, match=words) as caught:
        DIALECT.decode(http_request, ConversationStore())
    assert caught.value.details["rule"] == rule
    Mistral(ALL_RULES - {rule}).decode(http_request, ConversationStore())


@given(reply=strategies.replies(), usage=strategies.usages(cached=False), stream=st.booleans())
def test_an_encoded_reply_is_parsed_to_the_same_reply(reply: Reply, usage: Usage, *, stream: bool):
    usage = msgspec.structs.replace(usage, reasoning=0)
    stop = "stop" if reply.stop == "refusal" else reply.stop  # Mistral has no refusals
    reply = msgspec.structs.replace(reply, usage=usage, stop=stop)
    request = Request(model="m", stream=stream)
    read = DIALECT.parse_response(DIALECT.encode(reply, request), request)
    assert (read.text, read.calls) == (reply.text, reply.calls)
    assert (read.stop, read.usage) == (reply.stop, usage)
