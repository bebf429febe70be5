"""Requests captured from real OpenAI clients are decoded."""

import json
from pathlib import Path
from typing import Any

import pytest

from offbook.exchange import Reply, Request, Text, ToolCall, detect_dialect
from offbook.exchange.dialects import ConversationStore, HttpRequest, HttpResponse
from tests.conftest import SHARED_DATA

PATHS = ("/v1/chat/completions", "/v1/responses")


def captured() -> list[Any]:
    actual: list[Any] = []
    for client in sorted((SHARED_DATA / "wire").glob("*")):
        files = sorted(client.glob("[0-9]*.json"))
        calls = [file for file in files if read(file).get("path") in PATHS]
        if calls:
            actual.append(pytest.param(calls, id=client.name))
    return actual


def read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text())


def wire_of(record: dict[str, Any]) -> HttpRequest:
    headers = {name.lower(): value for name, value in record["headers"].items()}
    return HttpRequest(
        record["method"], record["path"], headers, json.dumps(record["body"]).encode()
    )


def call_before(record: dict[str, Any]) -> Reply:
    """Return the reply that must have preceded the results in this request."""
    outputs = [item for item in record["body"]["input"] if "call_id" in item]
    return Reply(tuple(ToolCall(item["call_id"], "some_tool") for item in outputs), "tool_use")


@pytest.mark.external
@pytest.mark.parametrize("files", captured())
def test_every_captured_request_is_decoded(files: list[Path], shared_data: Path) -> None:
    assert shared_data.is_dir()
    store = ConversationStore()
    last: Request | None = None
    for file in files:
        record = read(file)
        if record["body"] is None:  # the handshake of a WebSocket
            continue
        previous = record["body"].get("previous_response_id")
        if previous and last is not None:
            store.add(previous, last, call_before(record))
        last = decode_one(record, store)


def decode_one(record: dict[str, Any], store: ConversationStore) -> Request:
    http_request, body = wire_of(record), record["body"]
    dialect = detect_dialect(http_request)
    assert dialect is not None
    request = dialect.decode(http_request, store)
    assert request.model == body["model"]
    assert request.stream is body.get("stream", False)
    assert request.metadata["dialect"] == dialect.name
    assert request.metadata["endpoint"] == record["path"]
    assert request.prompt or body.get("generate") is False
    wanted = json.dumps(body.get("tools", []))
    assert all(
        json.dumps(tool.name) in wanted or "additional" in str(body) for tool in request.tools
    )
    for message in request.messages:
        for result in message.results:
            assert result.name, "the result has the name of its tool"
            assert all(isinstance(block, Text) and block.text for block in result.content)
    for key in ("tool_choice", "response_format", "text", "stream_options", "stop", "reasoning"):
        assert request.parameters.get(key) == body.get(key)
    return request


@pytest.mark.external
def test_codex_session_headers_are_in_the_metadata(shared_data: Path) -> None:
    record = read(shared_data / "wire" / "codex" / "01.json")
    request = decode_one(record, ConversationStore())
    for header in ("session-id", "thread-id", "x-codex-turn-metadata"):
        assert request.metadata[header] == record["headers"][header]
    assert "Codex" in request.system
    assert request.metadata["client_metadata"]["session_id"]


@pytest.mark.external
def test_codex_tools_in_items_and_namespaces_are_decoded(shared_data: Path) -> None:
    request = decode_one(
        read(shared_data / "wire" / "codex-codemode-gpt6" / "01.json"), ConversationStore()
    )
    offered = {(tool.namespace, tool.name): tool.kind for tool in request.tools}
    assert offered["functions", "exec"] == "custom"
    assert offered["functions", "wait"] == "function"


@pytest.mark.external
def test_a_prewarm_request_of_codex_asks_for_no_reply(shared_data: Path) -> None:
    folder = shared_data / "wire" / "codex-websocket"
    store = ConversationStore()
    prewarm = decode_one(read(folder / "02.json"), store)
    assert prewarm.metadata["generate"] is False
    store.add("resp_000000000001", prewarm, Reply())
    record = read(folder / "03.json")
    record["body"]["previous_response_id"] = "resp_000000000001"
    request = decode_one(record, store)
    assert request.system.startswith(prewarm.system)
    assert "generate" not in request.metadata
    assert all(message.role != "assistant" for message in request.messages)


ENDPOINTS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "gemini": "/v1beta/models/g:generateContent",
}
RESPONSES = sorted((SHARED_DATA / "wire" / "_responses").glob("*.*.*"))


@pytest.mark.external
@pytest.mark.parametrize("file", RESPONSES, ids=[file.name for file in RESPONSES])
def test_every_response_that_satisfied_the_clients_is_read(file: Path) -> None:
    provider, kind, form = file.name.split(".")
    dialect = detect_dialect(HttpRequest("POST", ENDPOINTS[provider], {}, b"{}"))
    assert dialect is not None
    media = "text/event-stream" if form == "sse" else "application/json"
    response = HttpResponse(200, {"content-type": media}, file.read_bytes())
    reply = dialect.parse_response(response, Request(model="m", stream=form == "sse"))
    if kind == "tool":
        (call,) = [block for block in reply.blocks if isinstance(block, ToolCall)]
        assert (call.name, call.arguments) == ("get_weather", {"city": "Paris"})
    else:
        assert reply.text.startswith("All done: the answer is ")
