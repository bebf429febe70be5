"""Gemini's Live API: turns become requests, and replies become messages; see also the matrix."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

import msgspec
import pytest

from offbook.exchange import Reply, Text, ToolCall
from offbook.exchange.dialects import ConversationStore, HttpRequest
from offbook.exchange.dialects.gemini.gemini_dialect import Gemini

PATH = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"
DIALECT = Gemini()


def open_session(modality: str) -> Any:
    session: Any = DIALECT.open_session(HttpRequest("GET", PATH, {"upgrade": "websocket"}))
    setup = {
        "model": "models/gemini-live",
        "generationConfig": {"responseModalities": [modality]},
        "tools": [{"functionDeclarations": [{"name": "find"}]}],
    }
    assert send(session, setup=setup) == ([{"setupComplete": {}}], None)
    return session


def send(session: Any, **message: Any) -> tuple[list[Any], Any]:
    return session.receive(msgspec.json.encode(message))


def answer(session: Any, http_request: Any, reply: Reply) -> list[Any]:
    request = DIALECT.decode(http_request, ConversationStore())
    chunks = DIALECT.encode(reply, request).chunks
    events = [msgspec.json.decode(chunk.removeprefix(b"data: ").strip()) for chunk in chunks]
    return [message for event in events for message in session.translate(event)]


def test_the_result_of_a_call_continues_the_conversation():
    session = open_session("TEXT")
    turn = {"role": "user", "parts": [{"text": "Find 7"}]}
    _, http_request = send(session, clientContent={"turns": [turn], "turnComplete": True})
    made = ToolCall("c1", "find", {"number": 7})
    (message,) = answer(session, http_request, Reply((made,), "tool_use"))
    (function_call,) = message["toolCall"]["functionCalls"]
    result = {**function_call, "response": {"result": "order 7"}}
    del result["args"]
    _, http_request = send(session, toolResponse={"functionResponses": [result]})
    request = DIALECT.decode(http_request, ConversationStore())
    assert request.results[0].text == "order 7"
    assert [message.role for message in request.messages] == ["user", "assistant", "tool"]
    *said, generated, ended = answer(session, http_request, Reply((Text("One lamp."),)))
    parts = [part for content in said for part in content["serverContent"]["modelTurn"]["parts"]]
    assert "".join(part["text"] for part in parts) == "One lamp."
    assert generated == {"serverContent": {"generationComplete": True}}
    assert ended["serverContent"] == {"turnComplete": True}


def test_frames_of_audio_are_a_prompt_and_the_reply_has_frames_and_a_transcript():
    session = open_session("AUDIO")
    for frame in (b"Find", b" 7"):
        audio = {"data": b64encode(frame).decode(), "mimeType": "audio/pcm"}
        assert send(session, realtimeInput={"audio": audio}) == ([], None)
    _, http_request = send(session, realtimeInput={"audioStreamEnd": True})
    assert DIALECT.decode(http_request, ConversationStore()).prompt == "Find 7"
    contents = [m["serverContent"] for m in answer(session, http_request, Reply((Text("Hi."),)))]
    parts = [part for content in contents for part in content.get("modelTurn", {}).get("parts", ())]
    assert b"".join(b64decode(part["inlineData"]["data"]) for part in parts) == b"Hi."
    words = [content.get("outputTranscription", {}).get("text", "") for content in contents]
    assert "".join(words) == "Hi."


def test_an_error_of_the_provider_ends_the_connection():
    with pytest.raises(ConnectionError, match="too many"):
        list(open_session("TEXT").translate({"error": {"message": "too many"}}))


@pytest.mark.parametrize(
    "message",
    [
        {"clientContent": 1},
        {"clientContent": {"turns": 1}},
        {"toolResponse": {"functionResponses": 1}},
        {"realtimeInput": {"audio": {"data": 1}}},
    ],
    ids=str,
)
def test_a_message_with_a_value_of_another_type_ends_the_connection(message: dict[str, Any]):
    session = open_session("TEXT")
    with pytest.raises(ConnectionError, match=r"^invalid message: "):
        send(session, **message)
