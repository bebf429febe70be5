"""Each request finds its dialect, also where several share a path."""

import pytest

from offbook.exchange.dialects.dialect import HttpRequest
from offbook.exchange.providers import all_dialects, detect_dialect

GEMINI = {"x-goog-api-key": "none"}
ANTHROPIC = {"anthropic-version": "2023-06-01"}


@pytest.mark.parametrize("prefix", ["", "/v1", "/s/run-1/v1"])
@pytest.mark.parametrize(
    "method, path, headers, name",
    [
        ("POST", "/chat/completions", {}, "openai-chat"),
        ("POST", "/embeddings", {}, "openai-chat"),
        ("GET", "/models", {}, "openai-chat"),
        ("GET", "/models/gpt-5", {}, "openai-chat"),
        ("POST", "/responses", {}, "openai-responses"),
        ("GET", "/responses", {"upgrade": "websocket"}, "openai-responses"),
        ("GET", "/responses/resp_1", {}, "openai-responses"),
        ("GET", "/models", ANTHROPIC, "anthropic"),
        ("POST", "/messages", {}, "anthropic"),
        ("POST", "/messages/count_tokens", {}, "anthropic"),
        ("HEAD", "/api/hello", {}, "anthropic"),
        ("GET", "/models", GEMINI, "gemini"),
        ("POST", "/models/gemini-2.5-pro:generateContent", {}, "gemini"),
        ("POST", "/models/m:streamGenerateContent", {}, "gemini"),
        ("POST", "/models/m:countTokens", {}, "gemini"),
        ("POST", "/model/eu.anthropic.claude%3A0/converse", {}, "bedrock"),
        ("POST", "/model/m/converse-stream", {}, "bedrock"),
        ("POST", "/model/m/invoke", {}, "bedrock"),
        ("POST", "/moderations", {}, None),
        ("GET", "/", {}, None),
    ],
)
def test_a_request_finds_its_dialect(
    prefix: str, method: str, path: str, headers: dict[str, str], name: str | None
) -> None:
    found = detect_dialect(HttpRequest(method, prefix + path, headers))
    assert (found.name if found else None) == name


@pytest.mark.parametrize("headers", [{}, ANTHROPIC, GEMINI])
def test_the_path_that_all_share_is_claimed_once(headers: dict[str, str]) -> None:
    wire = HttpRequest("GET", "/v1/models", headers)
    assert len([dialect.name for dialect in all_dialects() if dialect.claims(wire)]) == 1
