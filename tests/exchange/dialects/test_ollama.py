"""The Ollama dialect: calls without ids, completions of a prompt, streams of lines."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import ModelError, ScriptMismatch, UsageError
from offbook.exchange import Reply, Request, Text, Thinking, ToolCall, Usage
from offbook.exchange.dialects import ALL_RULES, ConversationStore, HttpRequest
from offbook.exchange.dialects.ollama.ollama_dialect import Ollama
from offbook.runs import drive
from offbook.sources.playbook import call, fail, say, think, when
from tests.exchange.dialects import strategies

URL = "http://localhost:11434/api"
DIALECT = Ollama()
TOOLS = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]


def post(operation: str, **body: Any) -> Any:
    response = httpx.post(f"{URL}/{operation}", json={"model": "llama3.2", **body})
    lines = [json.loads(line) for line in response.text.splitlines()]
    return lines if len(lines) > 1 else lines[0]


def agent(prompt: str, *, changed: str = "", named: bool = True) -> str:
    """Answer all calls of a message; `changed` is a result that the agent rewrites later."""
    history: list[Any] = [{"role": "user", "content": prompt}]
    while True:
        message = post("chat", messages=history, tools=TOOLS, stream=False)["message"]
        if changed and len(history) > 1:
            history[-1] = {**history[-1], "content": changed}
        history.append(message)
        if "tool_calls" not in message:
            return message["content"]
        for function in (entry["function"] for entry in message["tool_calls"]):
            result = {"role": "tool", "content": f"order {function['arguments']['number']}"}
            history.append({**result, "tool_name": function["name"]} if named else result)


PARALLEL = when(
    "Find 7",
    [[call("find", {"number": 7}), call("find", {"number": 8})], think("Hm."), say("One lamp.")],
)


@pytest.mark.parametrize("named", [True, False])
def test_results_without_ids_belong_to_their_calls_in_order(*, named: bool):
    with drive(partial(agent, named=named)) as rehearsal:
        run = rehearsal.run(PARALLEL)
        assert [result.text for result in run.results("find")] == ["order 7", "order 8"]
        assert run.output == "One lamp."


def test_a_rewritten_result_fails_the_run():
    twice = when("Find", [call("find", {"number": 7}), call("find", {"number": 8}), say("Done.")])
    rewriting = drive(partial(agent, changed="order 9"))
    with rewriting as rehearsal, pytest.raises(ScriptMismatch, match="changed"):
        rehearsal.run(twice)


def test_a_stream_is_the_default_and_has_a_line_for_each_word_and_call():
    def stream(prompt: str) -> None:
        lines = post("chat", messages=[{"role": "user", "content": prompt}], tools=TOOLS)
        assert [line["message"]["content"] for line in lines] == ["I", " look.", "", ""]
        assert [line["done"] for line in lines] == [False, False, False, True]
        assert lines[2]["message"]["tool_calls"] == [
            {"function": {"name": "find", "arguments": {"number": 7}}}
        ]

    with drive(stream) as rehearsal:
        rehearsal.run(
            when("Find", [[say("I look."), call("find", {"number": 7}, unanswered=True)]])
        )


def test_a_completion_continues_the_one_whose_context_it_has():
    def ask_twice(prompt: str) -> None:
        first = post("generate", prompt=prompt, stream=False)
        assert (first["response"], first["done_reason"]) == ("Hello.", "stop")
        post("generate", prompt="And now?", context=first["context"], stream=False)

    with drive(ask_twice) as rehearsal:
        run = rehearsal.run(when("Hi", [say("Hello.")]), when("And now?", [say("Bye.")]))
        assert [message.text for message in run.requests[-1].messages] == [
            "Hi",
            "Hello.",
            "And now?",
        ]


def test_a_call_in_a_completion_is_refused():
    request = Request(model="m", metadata={"endpoint": "/api/generate"})
    with pytest.raises(UsageError, match=r"ollama \(/api/generate\) cannot represent a ToolCall"):
        DIALECT.encode(Reply((ToolCall("c", "find"),)), request)


def test_an_error_has_the_form_of_ollama():
    def ask(prompt: str) -> None:
        assert post("chat", messages=[{"role": "user", "content": prompt}]) == {"error": "no such"}

    with drive(ask) as rehearsal:
        rehearsal.run(when("Hi", [fail("no such", status=404)]))


@pytest.mark.parametrize(
    "operation, body, field",
    [
        ("tags", {}, "models"),
        ("ps", {}, "models"),
        ("version", {}, "version"),
        ("show", {}, "capabilities"),
        ("pull", {}, "status"),
        ("embed", {"input": ["a", "b"]}, "embeddings"),
        ("embeddings", {"prompt": "a"}, "embedding"),
        ("chat", {"messages": []}, "done_reason"),
        ("generate", {}, "done_reason"),
    ],
)
def test_a_request_without_a_prompt_needs_no_model(operation: str, body: Any, field: str):
    raw = json.dumps({"model": "m", **body}).encode()
    side = DIALECT.side_response(
        HttpRequest("POST", f"/api/{operation}", {}, raw), ConversationStore()
    )
    assert side is not None
    assert json.loads(side.body)[field]


BROKEN = [
    ("missing_field", {"messages": [{"role": "user", "content": "Hi"}]}),
    ("unknown_role", {"model": "m", "messages": [{"role": "robot", "content": "Hi"}]}),
    ("orphan_result", {"model": "m", "messages": [{"role": "tool", "content": "21"}]}),
    (
        "bad_tool_schema",
        {
            "model": "m",
            "messages": [{"role": "user", "content": "Hi"}],
            "tools": [{"function": {"name": "t", "parameters": {"type": "string"}}}],
        },
    ),
]


@pytest.mark.parametrize("rule, body", BROKEN, ids=[rule for rule, _ in BROKEN])
def test_invalid_requests_are_rejected_unless_the_rule_is_off(rule: str, body: Any):
    http_request = HttpRequest("POST", "/api/chat", {}, json.dumps(body).encode())
    with pytest.raises(ModelError) as caught:
        DIALECT.decode(http_request, ConversationStore())
    assert caught.value.details["rule"] == rule
    Ollama(ALL_RULES - {rule}).decode(http_request, ConversationStore())


@given(reply=strategies.replies(), usage=strategies.usages(cached=False), stream=st.booleans())
def test_an_encoded_reply_is_parsed_to_the_same_reply(reply: Reply, usage: Usage, *, stream: bool):
    usage = Usage(usage.input, usage.output)
    stop = "stop" if reply.stop == "refusal" else reply.stop  # Ollama has no refusals
    reply = msgspec.structs.replace(reply, usage=usage, stop=stop)
    request = Request(model="m", stream=stream)
    read = DIALECT.parse_response(DIALECT.encode(reply, request), request)
    assert [b for b in read.blocks if isinstance(b, Text)] == [
        b for b in reply.blocks if isinstance(b, Text)
    ]
    assert [b.text for b in read.blocks if isinstance(b, Thinking)] == [
        b.text for b in reply.blocks if isinstance(b, Thinking)
    ]
    assert [(c.name, c.arguments) for c in read.calls] == [
        (c.name, c.arguments) for c in reply.calls
    ]
    assert (read.stop, read.usage) == (reply.stop, usage)


def test_a_stream_that_breaks_off_is_an_error():
    request = Request(model="m", stream=True)
    response = DIALECT.encode(Reply((Text("Two words"),)), request)
    cut = msgspec.structs.replace(response, chunks=response.chunks[:-1])
    with pytest.raises(ModelError, match="before the reply was complete"):
        DIALECT.parse_response(cut, request)
