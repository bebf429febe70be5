"""Shapes that few clients send: read like the common ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from offbook.exchange.dialects.conversations import ConversationStore
from offbook.exchange.dialects.dialect import HttpRequest
from offbook.exchange.model import Request
from offbook.exchange.providers import detect_dialect

USER = {"role": "user", "content": "Hello"}


def decode(path: str, body: dict[str, Any]) -> Request:
    headers = {"anthropic-version": "2023-06-01"} if path.endswith("/messages") else {}
    wire = HttpRequest("POST", path, headers, json.dumps(body).encode())
    dialect = detect_dialect(wire)
    assert dialect is not None
    return dialect.decode(wire, ConversationStore())


@pytest.mark.parametrize(
    "call, output, arguments, text",
    [
        (
            {"type": "local_shell_call", "id": "ls_1", "call_id": "a", "action": {"command": []}},
            {"type": "local_shell_call_output", "id": "a", "output": "one.txt"},
            {"command": []},
            "one.txt",
        ),
        (
            {"type": "shell_call", "call_id": "a", "action": {"commands": ["ls"]}},
            {
                "type": "shell_call_output",
                "call_id": "a",
                "output": [{"stdout": "one.txt", "stderr": "!", "outcome": {"type": "exit"}}],
            },
            {"commands": ["ls"]},
            "one.txt!",
        ),
        (
            {"type": "apply_patch_call", "call_id": "a", "operation": {"path": "one.txt"}},
            {"type": "apply_patch_call_output", "call_id": "a", "status": "completed"},
            {"path": "one.txt"},
            "",
        ),
    ],
)
def test_tools_of_openai_itself_are_calls_with_their_results(
    call: dict[str, Any], output: dict[str, Any], arguments: dict[str, Any], text: str
):
    request = decode("/v1/responses", {"model": "m", "input": [USER, call, output]})
    asked = [made for message in request.messages for made in message.calls]
    assert [(made.id, made.arguments) for made in asked] == [("a", arguments)]
    assert [message.role for message in request.messages] == ["user", "assistant", "tool"]
    assert [result.text for result in request.messages[-1].results] == [text]


def test_a_search_result_may_stand_in_a_prompt():
    found = {"type": "search_result", "source": "https://example.com", "title": "t"}
    said: dict[str, Any] = {"role": "user", "content": [found, {"type": "text", "text": "Hello"}]}
    assert decode("/v1/messages", {"model": "m", "max_tokens": 9, "messages": [said]}).prompt


def test_azure_names_the_model_in_the_address():
    path = "/openai/deployments/gpt-5/chat/completions"
    assert decode(path, {"messages": [USER]}).model == "gpt-5"
