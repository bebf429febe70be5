"""Gemini's Live API: a conversation over one WebSocket, in text or audio frames.

A session collects the turns of its conversation. Each complete turn of the user is answered as a
streamed `generateContent` request with these turns. The audio of a text is its bytes in UTF-8, in
both directions: a test needs no codec.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.exchange.dialects.dialect import HttpRequest
from offbook.exchange.messages import JSON, to_json

if TYPE_CHECKING:
    from collections.abc import Iterator

INVALID = (AttributeError, KeyError, TypeError, ValueError)  # what a value of another type raises
AUDIO_TYPE = "audio/pcm;rate=24000"


class GeminiLiveSession:
    """The state of one WebSocket: the setup, and the turns of its conversation."""

    def __init__(self, http_request: HttpRequest) -> None:
        self._http_request = http_request
        self._setup: JSON = {}
        self._turns: list[JSON] = []
        self._audio = b""
        self._parts: list[JSON] = []  # of the reply in progress

    def open(self) -> list[JSON]:
        """Return nothing: the client speaks first."""
        return []

    def receive(self, raw: bytes) -> tuple[list[JSON], HttpRequest | None]:
        """Return the messages that answer one, and the request that it makes to the model."""
        try:
            message = msgspec.json.decode(raw, type=JSON)
        except msgspec.DecodeError as error:
            raise ConnectionError(f"invalid JSON: {error}") from error
        try:
            return self._answer(message)
        except INVALID as error:
            raise ConnectionError(f"invalid message: {error}") from error

    def _answer(self, message: JSON) -> tuple[list[JSON], HttpRequest | None]:
        if setup := message.get("setup"):
            self._setup = setup
            return [{"setupComplete": {}}], None
        if content := _field(message, "clientContent", "client_content"):
            self._turns += content.get("turns") or ()
            complete = _field(content, "turnComplete", "turn_complete")
            return [], self._build_request() if complete else None
        if response := _field(message, "toolResponse", "tool_response"):
            results = _field(response, "functionResponses", "function_responses") or ()
            parts = [{"functionResponse": result} for result in results]
            self._turns.append({"role": "user", "parts": parts})
            return [], self._build_request()
        return [], self._hear(_field(message, "realtimeInput", "realtime_input") or {})

    def _hear(self, received: JSON) -> HttpRequest | None:
        """Collect frames of audio; a text, or the end of the audio, is a turn of the user."""
        text = received.get("text")
        if audio := received.get("audio"):
            self._audio += b64decode(audio.get("data") or "")
        ends = _field(received, "activityEnd", "activity_end") is not None
        if ends or _field(received, "audioStreamEnd", "audio_stream_end"):
            text, self._audio = self._audio.decode("utf-8", "replace"), b""
        if not text:
            return None
        self._turns.append({"role": "user", "parts": [{"text": text}]})
        return self._build_request()

    @property
    def _options(self) -> JSON:
        return _field(self._setup, "generationConfig", "generation_config") or {}

    @property
    def _speaks(self) -> bool:
        modalities = _field(self._options, "responseModalities", "response_modalities")
        return "TEXT" not in (modalities or ("AUDIO",))

    def _build_request(self) -> HttpRequest:
        self._parts = []
        hidden = ("responseModalities", "response_modalities", "speechConfig", "speech_config")
        options = {name: value for name, value in self._options.items() if name not in hidden}
        body: JSON = {"contents": self._turns, "generationConfig": options}
        if system := _field(self._setup, "systemInstruction", "system_instruction"):
            body["systemInstruction"] = system
        if tools := self._setup.get("tools"):
            body["tools"] = tools
        request = self._http_request
        base = request.path.partition("/ws/")[0]
        model = str(self._setup.get("model", "")).rpartition("/")[2]
        path = f"{base}/v1beta/models/{model}:streamGenerateContent"
        headers = {name: text for name, text in request.headers.items() if name != "upgrade"}
        return HttpRequest("POST", path, headers, to_json(body), "alt=sse")

    def translate(self, event: JSON) -> Iterator[JSON]:
        """Yield the messages of this API for a chunk of a response."""
        if "error" in event:  # the provider closes the connection
            raise ConnectionError(str(event["error"]))
        candidates: list[JSON] = event.get("candidates") or [{}]
        candidate = candidates[0]
        content: JSON = candidate.get("content") or {}
        parts: list[JSON] = content.get("parts") or []
        self._parts += parts
        said = [part for part in parts if "functionCall" not in part]
        if said:
            shown = [self._speak(part) for part in said]
            yield {"serverContent": {"modelTurn": {"role": "model", "parts": shown}}}
            words = "".join(part.get("text", "") for part in said if not part.get("thought"))
            if self._speaks and words:
                yield {"serverContent": {"outputTranscription": {"text": words}}}
        if "finishReason" not in candidate:
            return
        self._turns.append({"role": "model", "parts": self._parts})
        if calls := [part["functionCall"] for part in self._parts if "functionCall" in part]:
            yield {"toolCall": {"functionCalls": calls}}
            return
        yield {"serverContent": {"generationComplete": True}}
        usage: JSON = event.get("usageMetadata") or {}
        counts = {
            "promptTokenCount": usage.get("promptTokenCount", 0),
            "responseTokenCount": usage.get("candidatesTokenCount", 0),
            "totalTokenCount": usage.get("totalTokenCount", 0),
        }
        yield {"serverContent": {"turnComplete": True}, "usageMetadata": counts}

    def _speak(self, part: JSON) -> JSON:
        """Return a text as a frame of audio if the session speaks."""
        if not self._speaks or part.get("thought") or "text" not in part:
            return part
        data = b64encode(part["text"].encode()).decode()
        return {"inlineData": {"mimeType": AUDIO_TYPE, "data": data}}


def _field(fields: JSON, *names: str) -> Any:
    """Return the first of these fields: clients write them in both forms."""
    return next((fields[name] for name in names if name in fields), None)
