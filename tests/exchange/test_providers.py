"""The dialect of a request is detected, even if several share a path."""

import json
from typing import Literal

import pytest

from offbook.exchange import all_dialects, client_env, detect_dialect, explain_refusal
from offbook.exchange.dialects import HttpRequest

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
        ("POST", "/api/chat", {}, "ollama"),
        ("POST", "/api/embeddings", {}, "ollama"),
        ("GET", "/api/tags", {}, "ollama"),
        ("POST", "/v2/chat", {}, "cohere"),
        ("POST", "/v2/rerank", {}, "cohere"),
        ("POST", "/chat/completions", {"host": "api.cohere.com"}, "openai-chat"),
        ("POST", "/chat/completions", {"host": "api.mistral.ai"}, "mistral"),
        ("POST", "/moderations", {}, "openai-chat"),
        ("POST", "/evals", {}, None),
        ("POST", "/batches", {}, "openai-chat"),
        ("GET", "/files/file-1/content", {}, "openai-chat"),
        ("POST", "/files", {"anthropic-version": "2023-06-01"}, "anthropic"),
        ("GET", "/messages/batches/1/results", {}, "anthropic"),
        ("GET", "/", {}, None),
    ],
)
def test_the_dialect_of_a_request_is_detected(
    prefix: str, method: str, path: str, headers: dict[str, str], name: str | None
) -> None:
    actual = detect_dialect(HttpRequest(method, prefix + path, headers))
    assert (actual.name if actual else None) == name


@pytest.mark.parametrize("headers", [{}, ANTHROPIC, GEMINI])
def test_a_shared_path_is_claimed_by_one_dialect(headers: dict[str, str]) -> None:
    http_request = HttpRequest("GET", "/v1/models", headers)
    assert len([dialect.name for dialect in all_dialects() if dialect.claims(http_request)]) == 1


def test_opencode_gets_the_base_urls_in_its_configuration():
    providers = json.loads(client_env("http://127.0.0.1:9")["OPENCODE_CONFIG_CONTENT"])["provider"]
    assert {name: provider["options"]["baseURL"] for name, provider in providers.items()} == {
        "openai": "http://127.0.0.1:9/v1",
        "anthropic": "http://127.0.0.1:9/v1",
        "google": "http://127.0.0.1:9/v1beta",
    }


FIXES = [
    ("run", "api.groq.com", "serve=True"),
    ("run", "gateway.example", "urls=['https://gateway.example']; or allow it: allow=("),
    ("run", "openaipublic.blob.core.windows.net", "TIKTOKEN_CACHE_DIR"),
    ("test", "api.groq.com", "the agent ran outside of drive: pass the function"),
    ("test", "gateway.example", "offbook_allow = gateway.example:443"),
    ("command", "api.groq.com", "pip install 'offbook[proxy]'"),
    ("command", "gateway.example", "--allow gateway.example:443"),
    ("command", "openaipublic.blob.core.windows.net", "TIKTOKEN_CACHE_DIR"),
]


@pytest.mark.parametrize("place, host, fix", FIXES)
def test_a_refused_connection_has_the_fix_that_works(
    place: Literal["run", "test", "command"], host: str, fix: str
) -> None:
    assert fix in explain_refusal(host, 443, place=place)
