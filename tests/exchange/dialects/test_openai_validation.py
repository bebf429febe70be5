"""Requests that OpenAI rejects are rejected with its errors; each rule can be switched off."""

import json
from typing import Any

import pytest

from offbook.errors import ModelError
from offbook.exchange.dialects import ALL_RULES, RULES, ConversationStore, Dialect, HttpRequest
from offbook.exchange.dialects.chat.chat_dialect import Chat
from offbook.exchange.dialects.responses.responses_dialect import Responses

USER = {"role": "user", "content": "Hello"}


def tool_calls(*ids: str) -> dict[str, Any]:
    function = {"name": "f", "arguments": "{}"}
    calls = [{"id": id_, "type": "function", "function": function} for id_ in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(id_: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": "done"}


def chat(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages), **more}


def function(parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


def called(id_: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": id_, "name": "f", "arguments": "{}"}


def output(id_: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id_, "output": "done"}


def items(*value: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "input": list(value), **more}


STRING = {"type": "string"}
REFUSED_CHAT = [
    ("missing_field", {"messages": [USER]}, "model", "model"),
    ("missing_field", {"model": "m"}, "messages", "'messages'"),
    ("missing_field", chat(), "messages", "empty array"),
    ("unknown_role", chat({"role": "robot", "content": "x"}), "messages[0].role", "'robot'"),
    ("unknown_role", chat(USER, {"content": "x"}), "messages[1].role", "Missing"),
    ("orphan_result", chat(USER, result("a")), "messages.[1].role", "preceeding"),
    ("orphan_result", chat(USER, tool_calls("a"), result("a"), USER, result("b")), None, "'tool'"),
    ("missing_result", chat(USER, tool_calls("a", "b"), result("a")), "messages.[1].role", ": b"),
    ("missing_result", chat(USER, tool_calls("a"), USER), "messages.[1].role", ": a"),
    ("duplicate_id", chat(USER, tool_calls("a", "a"), result("a")), "messages[1]", "'a'"),
    ("duplicate_id", chat(USER, tool_calls("a"), result("a"), result("a")), "messages[3]", "'a'"),
    ("bad_tool_schema", chat(USER, tools=[function(STRING)]), None, "'f'"),
]
REFUSED_RESPONSES = [
    ("missing_field", {"input": "Hello"}, "model", "'model'"),
    ("missing_field", {"model": "m"}, "input", "'input'"),
    ("unknown_role", items({"role": "robot", "content": "x"}), "input[0].role", "'robot'"),
    ("unknown_role", items(USER, {"content": "x"}), "input[1].role", "Missing"),
    ("orphan_result", items(USER, output("a")), "input", "call_id a"),
    ("missing_result", items(USER, called("a"), USER), "input", "function call a"),
    ("missing_result", items(USER, called("a"), called("b"), output("a")), "input", "call b"),
    ("duplicate_id", items(USER, called("a"), called("a"), output("a")), "input", "call_id a"),
    ("duplicate_id", items(USER, called("a"), output("a"), output("a")), "input", "call_id a"),
    (
        "bad_tool_schema",
        items(USER, tools=[{"type": "function", "name": "f", "parameters": STRING}]),
        "tools[0].parameters",
        "'f'",
    ),
    (
        "bad_tool_schema",
        items(
            {
                "type": "additional_tools",
                "tools": [{"type": "function", "name": "f", "parameters": STRING}],
            },
            USER,
        ),
        None,
        "'f'",
    ),
    (
        "unknown_previous",
        items(USER, previous_response_id="resp_none"),
        "previous_response_id",
        "resp_none",
    ),
]
CASES = [(Chat, "/v1/chat/completions", *case) for case in REFUSED_CHAT] + [
    (Responses, "/v1/responses", *case) for case in REFUSED_RESPONSES
]


@pytest.mark.parametrize("make, path, rule, body, param, part", CASES)
def test_invalid_requests_are_rejected_unless_the_rule_is_off(
    make: type[Chat | Responses],
    path: str,
    rule: str,
    body: dict[str, Any],
    param: str | None,
    part: str,
) -> None:
    http_request = HttpRequest("POST", path, {}, json.dumps(body).encode())
    dialect: Dialect = make()
    with pytest.raises(ModelError) as raised:
        dialect.decode(http_request, ConversationStore())
    assert raised.value.details["rule"] == rule
    response = dialect.encode_error(raised.value)
    error = json.loads(response.body)["error"]
    assert (response.status, error["type"]) == (400, "invalid_request_error")
    assert part in error["message"]
    assert param is None or error["param"] == param
    assert response.headers["x-offbook-rule"] == rule
    assert response.headers["x-should-retry"] == "false"
    make(ALL_RULES - {rule}).decode(http_request, ConversationStore())


def test_a_chat_result_must_follow_its_call() -> None:
    late = chat(USER, tool_calls("a"), USER, result("a"))
    with pytest.raises(ModelError, match="did not have response messages: a"):
        Chat().decode(
            HttpRequest("POST", "/v1", {}, json.dumps(late).encode()), ConversationStore()
        )


ACCEPTED_CHAT = [
    chat(USER, tool_calls("a"), result("a"), tool_calls("a"), result("a")),  # an id again, later
    chat(USER, tool_calls("a", "b"), result("b"), result("a")),
    chat(USER, tools=[{"type": "function", "function": {"name": "f"}}]),
    chat(USER, tools=None, stream=None, stop=None),
    chat({"role": "developer", "content": [{"type": "text", "text": "x"}]}, USER),
]
ACCEPTED_RESPONSES = [
    items(USER, called("a"), USER, output("a")),
    items(USER, called("a"), called("b"), output("b"), output("a")),
    items(USER, {"type": "web_search_call", "id": "ws_1", "status": "completed"}),
    items(USER, tools=[{"type": "web_search"}, {"type": "function", "name": "f"}]),
    items(USER, tools=None, stream=None),
]


@pytest.mark.parametrize("body", [*ACCEPTED_CHAT, *ACCEPTED_RESPONSES])
def test_valid_requests_are_accepted(body: dict[str, Any]) -> None:
    dialect, path = (
        (Chat(), "/chat/completions") if "messages" in body else (Responses(), "/responses")
    )
    http_request = HttpRequest("POST", path, {}, json.dumps(body).encode())
    assert dialect.decode(http_request, ConversationStore()).prompt == "Hello"


@pytest.mark.parametrize(
    "dialect, path", [(Chat(), "/chat/completions"), (Responses(), "/responses")]
)
@pytest.mark.parametrize(
    "body, part",
    [
        (b"{", "could not parse"),
        (b"", "could not parse"),
        (b"\xff\xfe", "could not parse"),
        (b"[]", "Invalid type"),
        (b'{"model": 7}', "'model'"),
        (b'{"model":"m","messages":[{"role":"user","content":7}],"input":7}', "Invalid type"),
        (b'{"model":"m","tools":7,"messages":[{"role":"user"}],"input":"x"}', "Invalid type"),
    ],
)
def test_invalid_types_are_rejected_with_their_path(
    dialect: Dialect, path: str, body: bytes, part: str
) -> None:
    with pytest.raises(ModelError) as raised:
        dialect.decode(HttpRequest("POST", path, {}, body), ConversationStore())
    assert raised.value.status == 400
    assert part in raised.value.message


def test_every_rule_has_a_description() -> None:
    assert all(sentence and not sentence.endswith(".") for sentence in RULES.values())
