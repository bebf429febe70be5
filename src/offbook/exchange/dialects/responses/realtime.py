"""OpenAI's Realtime API: a conversation over one WebSocket, in text or audio frames.

A session collects the items of its conversation. Each `response.create` is answered as a request of
the Responses API with these items, and its events are sent in the form of the Realtime API. The
audio of a text is its bytes in UTF-8, in both directions: a test needs no codec.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import msgspec

from offbook.determinism.run_context import stable_id
from offbook.exchange.dialects.dialect import HttpRequest
from offbook.exchange.messages import JSON, to_json

if TYPE_CHECKING:
    from collections.abc import Iterator

REALTIME = "/realtime"
INVALID = (AttributeError, KeyError, TypeError, ValueError)  # what a value of another type raises
# The events of a response that have another form in the Realtime API, or none.
_RENAMED = {"response.completed", "response.incomplete", "response.failed"}
_DROPPED = {"response.in_progress", "response.output_text.done", "response.output_text.delta"}
_PARTS = {"response.content_part.added", "response.content_part.done"}


class RealtimeSession:
    """The state of one WebSocket: the settings of the session, and its conversation."""

    def __init__(self, http_request: HttpRequest) -> None:
        self._http_request = http_request
        model = parse_qs(http_request.query).get("model", ["gpt-realtime"])[0]
        self._session: JSON = {
            "type": "realtime",
            "object": "realtime.session",
            "id": stable_id("sess_", http_request.path, model),
            "model": model,
            "output_modalities": ["audio"],
            "instructions": "",
            "tools": [],
            "tool_choice": "auto",
        }
        self._items: list[JSON] = []
        self._audio = b""
        self._count = 0
        self._response_id = ""
        self._speaks = True  # the modality of the response in progress

    def open(self) -> list[JSON]:
        """Return the events with which the session begins."""
        return [self._event("session.created", session=self._session)]

    def receive(self, raw: bytes) -> tuple[list[JSON], HttpRequest | None]:
        """Return the events that answer a message, and the request that it makes to the model."""
        try:
            message = msgspec.json.decode(raw, type=JSON)
        except msgspec.DecodeError as error:
            return [self._error(f"invalid JSON: {error}")], None
        kind = message.get("type")
        try:
            if kind == "response.create":
                return [], self._build_request(message.get("response") or {})
            return self._answer(message), None
        except INVALID as error:
            return [self._error(f"invalid event {kind}: {error}")], None

    def _answer(self, message: JSON) -> list[JSON]:
        """Return the events that answer a message which needs no model."""
        match message.get("type"):
            case "session.update":
                self._session |= message.get("session") or {}
                return [self._event("session.updated", session=self._session)]
            case "conversation.item.create":
                return self._add_item(dict(message.get("item") or {}))
            case "input_audio_buffer.append":
                self._audio += b64decode(message.get("audio") or "")
                return []
            case "input_audio_buffer.clear":
                self._audio = b""
                return [self._event("input_audio_buffer.cleared")]
            case "input_audio_buffer.commit":
                text = self._audio.decode("utf-8", "replace")
                self._audio = b""
                part = {"type": "input_audio", "transcript": text}
                events = self._add_item({"type": "message", "role": "user", "content": [part]})
                item_id = events[0]["item"]["id"]
                done = self._event("input_audio_buffer.committed", item_id=item_id)
                return [done, *events]
            case "response.cancel":
                return []  # a scripted response is complete at once
            case kind:
                return [self._error(f"Offbook does not support the event {kind}")]

    def _add_item(self, item: JSON) -> list[JSON]:
        self._count += 1
        item = {"id": f"item_{self._count:04}", "object": "realtime.item", **item}
        item.setdefault("status", "completed")
        self._items.append(item)
        names = ("conversation.item.added", "conversation.item.done")
        return [self._event(name, item=item, previous_item_id=None) for name in names]

    def _build_request(self, options: JSON) -> HttpRequest:
        settings = {**self._session, **options}
        self._speaks = "audio" in (settings.get("output_modalities") or ())
        body: JSON = {
            "model": settings["model"],
            "input": [_to_responses(item) for item in (options.get("input") or self._items)],
            "instructions": settings.get("instructions") or None,
            "tools": settings.get("tools") or [],
            "tool_choice": settings.get("tool_choice", "auto"),
            "stream": True,
        }
        request = self._http_request
        path = request.path.removesuffix(REALTIME) + "/responses"
        headers = {name: text for name, text in request.headers.items() if name != "upgrade"}
        return HttpRequest("POST", path, headers, to_json(body))

    def translate(self, event: JSON) -> Iterator[JSON]:
        """Yield the events of this API for an event of a response."""
        kind, response = str(event.get("type")), event.get("response")
        fields = {name: v for name, v in event.items() if name not in ("type", "sequence_number")}
        if isinstance(response, dict):
            response = self._to_realtime(response)  # pyright: ignore[reportUnknownArgumentType] - any JSON
            fields["response"] = response
            fields["response_id"] = response["id"]
        if kind in _RENAMED:
            self._items += response["output"] if isinstance(response, dict) else ()
            yield self._event("response.done", response=response)
        elif kind == "response.created":
            self._response_id = str(fields.pop("response_id"))
            yield self._event(kind, **fields)
        elif kind in {"response.output_item.added", "response.output_item.done"}:
            item = {**fields.pop("item"), "object": "realtime.item"}
            item = self._voice(item)
            name = kind.rpartition(".")[2]
            yield self._event(f"conversation.item.{name}", item=item, previous_item_id=None)
            yield self._event(kind, response_id=self._response_id, item=item, **fields)
        elif kind in _PARTS:
            part = self._voice_part(fields.pop("part"))
            yield self._event(kind, response_id=self._response_id, part=part, **fields)
        elif kind.startswith("response.output_text."):
            yield from self._say(kind.rpartition(".")[2], fields)
        elif kind not in _DROPPED:
            yield self._event(kind, response_id=self._response_id, **fields)

    def _say(self, state: str, fields: JSON) -> Iterator[JSON]:
        """Yield the events of a part of a text, or of its audio and transcript."""
        fields = {n: v for n, v in fields.items() if n != "logprobs"}
        fields["response_id"] = self._response_id
        if not self._speaks:
            yield self._event(f"response.output_text.{state}", **fields)
            return
        text = str(fields.pop("delta", "") or fields.pop("text", ""))
        spoken: JSON = {"delta": text} if state == "delta" else {"transcript": text}
        yield self._event(f"response.output_audio_transcript.{state}", **fields, **spoken)
        audio = {"delta": b64encode(text.encode()).decode()} if state == "delta" else {}
        yield self._event(f"response.output_audio.{state}", **fields, **audio)

    def _voice(self, item: JSON) -> JSON:
        """Return an item, or a part, whose texts are spoken if the response is audio."""
        if "content" not in item:
            return item
        parts: list[JSON] = item["content"]
        return {**item, "content": [self._voice_part(part) for part in parts]}

    def _voice_part(self, part: JSON) -> JSON:
        if part.get("type") != "output_text":
            return part
        text = part.get("text", "")
        if self._speaks:
            return {"type": "output_audio", "transcript": text}
        return {"type": "output_text", "text": text}

    def _to_realtime(self, response: JSON) -> JSON:
        usage: JSON | None = response.get("usage")
        counts = ("input_tokens", "output_tokens", "total_tokens")
        return {
            "object": "realtime.response",
            "id": response["id"],
            "status": response["status"],
            "status_details": None,
            "output": [
                self._voice({**item, "object": "realtime.item"})
                for item in response.get("output") or ()
            ],
            "output_modalities": ["audio" if self._speaks else "text"],
            "usage": usage and {name: usage[name] for name in counts},
            "metadata": response.get("metadata"),
        }

    def _event(self, kind: str, **fields: Any) -> JSON:
        self._count += 1
        return {"type": kind, "event_id": f"event_{self._count:06}", **fields}

    def _error(self, message: str) -> JSON:
        error = {"type": "invalid_request_error", "code": None, "message": message, "param": None}
        return self._event("error", error=error)


def _to_responses(item: JSON) -> JSON:
    """Return an item of the conversation in the form of the Responses API."""
    content = item.get("content")
    item = {name: value for name, value in item.items() if name not in ("object", "status")}
    if isinstance(content, list):
        role = "output_text" if item.get("role") == "assistant" else "input_text"
        item["content"] = [
            {"type": role, "text": part.get("text") or part.get("transcript") or ""}  # pyright: ignore[reportUnknownMemberType] - any JSON
            for part in content  # pyright: ignore[reportUnknownVariableType] - any JSON
        ]
    return item
