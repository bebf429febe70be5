"""Options that change a response: each is in the response, or refused by its name."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from offbook.errors import UsageError
from offbook.exchange import Reply, Request
from offbook.exchange.dialects.dialect import ConversationStore, HttpRequest
from offbook.exchange.providers import detect_dialect
from offbook.sources.mocks import Mocks
from offbook.sources.playbook import Playbook, say, when

SAID = "Sunny now."
USER = [{"role": "user", "content": "Hi"}]
# The path, the headers and the body of a request to each provider, without options.
PROVIDERS: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {}, {"model": "m", "messages": USER}),
    "responses": ("/v1/responses", {}, {"model": "m", "input": "Hi"}),
    "anthropic": (
        "/v1/messages",
        {"anthropic-version": "2023-06-01"},
        {"model": "m", "max_tokens": 9, "messages": USER},
    ),
    "gemini": (
        "/v1beta/models/m:generateContent",
        {"x-goog-api-key": "none"},
        {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
    ),
    "cohere": ("/v2/chat", {}, {"model": "m", "messages": USER}),
    "ollama": ("/api/chat", {}, {"model": "m", "messages": USER, "stream": False}),
    "bedrock": (
        "/model/m/converse",
        {},
        {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]},
    ),
}
SPOKEN = {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}
LOGPROBS = {"include": ["message.output_text.logprobs"], "top_logprobs": 1}
BASE64 = "U3Vubnkgbm93Lg=="  # of what is said
# What a part of the response is with an option: its path, and the value there.
ANSWERED: list[tuple[str, dict[str, Any], str, Any]] = [
    ("chat", {"n": 2}, "choices 1 message content", SAID),
    ("chat", {"logprobs": True}, "choices 0 logprobs content 0 logprob", 0.0),
    ("chat", SPOKEN, "choices 0 message audio data", BASE64),
    ("chat", SPOKEN, "choices 0 message audio transcript", SAID),
    ("chat", SPOKEN, "choices 0 message content", None),
    ("chat", {"modalities": ["text"]}, "choices 0 message content", SAID),
    ("chat", {"modalities": ["image", "text"]}, "choices 0 message content", SAID),
    ("responses", LOGPROBS, "output 0 content 0 logprobs 0 token", "Sunny"),
    ("responses", LOGPROBS, "output 0 content 0 logprobs 1 top_logprobs 0 token", " now."),
    ("responses", {}, "output 0 content 0 logprobs", []),
    ("responses", {"service_tier": "flex"}, "service_tier", "flex"),
    ("responses", {"max_tool_calls": 1}, "max_tool_calls", 1),
    ("responses", {"metadata": {"a": "b"}}, "metadata a", "b"),
    ("responses", {"truncation": "auto"}, "truncation", "auto"),
    ("responses", {"background": True}, "status", "queued"),
    ("anthropic", {"context_management": {"edits": []}}, "content 0 text", SAID),
    (
        "anthropic",
        {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
        "context_management applied_edits",
        [],
    ),
    ("anthropic", {"service_tier": "auto"}, "usage service_tier", "standard"),
    (
        "gemini",
        {"generationConfig": {"responseModalities": ["AUDIO"]}},
        "candidates 0 content parts 0 inlineData data",
        BASE64,
    ),
    (
        "gemini",
        {"generationConfig": {"responseModalities": ["TEXT", "IMAGE"], "candidateCount": 1}},
        "candidates 0 content parts 0 text",
        SAID,
    ),
    ("cohere", {"logprobs": False}, "message content 0 text", SAID),
    ("ollama", {"logprobs": False}, "message content", SAID),
    ("bedrock", {"guardrailConfig": {"trace": "disabled"}}, "output message content 0 text", SAID),
]
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("chat", {"modalities": ["image"]}, r"modalities=\['image'\]"),
    ("anthropic", {"container": {"skills": []}}, "container="),
    ("gemini", {"generationConfig": {"candidateCount": 2}}, "candidateCount=2"),
    ("gemini", {"generationConfig": {"responseLogprobs": True}}, "responseLogprobs=True"),
    ("gemini", {"generation_config": {"responseModalities": ["IMAGE"]}}, "responseModalities="),
    ("cohere", {"logprobs": True}, "logprobs=True"),
    ("ollama", {"logprobs": True}, "logprobs=True"),
    ("bedrock", {"guardrailConfig": {"trace": "enabled"}}, "trace='enabled'"),
    (
        "bedrock",
        {"additionalModelResponseFieldPaths": ["/stop"]},
        "additionalModelResponseFieldPaths=",
    ),
]


def ask(source: Any, provider: str, options: dict[str, Any]) -> tuple[Request, Reply, Any]:
    """Return the request, the reply of the source, and the response."""
    path, headers, body = PROVIDERS[provider]
    http_request = HttpRequest("POST", path, headers, json.dumps({**body, **options}).encode())
    dialect = detect_dialect(http_request)
    assert dialect is not None
    request = dialect.decode(http_request, ConversationStore())
    reply = asyncio.run(source.reply(request))
    return request, reply, json.loads(dialect.encode(reply, request).body)


def script() -> Playbook:
    source = Playbook()
    source.load(when("Hi", [say(SAID)]))
    return source


@pytest.mark.parametrize("provider, options, path, expected", ANSWERED)
def test_an_option_is_in_the_response(
    provider: str, options: dict[str, Any], path: str, expected: Any
) -> None:
    _, _, found = ask(script(), provider, options)
    for name in path.split():
        found = found[int(name) if isinstance(found, list) else name]
    assert found == expected


@pytest.mark.parametrize("provider, options, message", REFUSED)
@pytest.mark.parametrize("make_source", [script, lambda: Mocks([{"text": SAID}])])
def test_an_option_that_a_script_cannot_answer_is_refused_by_its_name(
    make_source: Any, provider: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=f"Offbook does not support {message}"):
        ask(make_source(), provider, options)
