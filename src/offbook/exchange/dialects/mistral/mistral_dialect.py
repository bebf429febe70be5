"""Mistral's chat completions: OpenAI's format with other ids, contents, streams and errors.

- The id of a call has nine letters or digits; its arguments may be an object.
- Thinking is a chunk of the content.
- A stream has whole calls, with their names, and always the usage in its last chunk.
- A last message with `prefix` is the beginning of the reply: an option of the request.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.determinism.run_context import EPOCH, stable_id
from offbook.errors import ModelError
from offbook.exchange.dialects.chat.chat_dialect import Chat
from offbook.exchange.dialects.chat.chat_wire import encode_call
from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse, error_headers
from offbook.exchange.dialects.provider_responses import (
    is_event_stream,
    parse_sse,
    response_body,
)
from offbook.exchange.dialects.wire import (
    EVENT_STREAM,
    encode_sse,
    rejection,
    split_reply_text,
    split_words,
    unsupported_block,
)
from offbook.exchange.messages import JSON, Text, Thinking, ToolCall, join_text, to_json
from offbook.exchange.model import Reply, Request, StopReason, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from offbook.exchange.dialects.dialect import ConversationStore
    from offbook.exchange.messages import AnyBlock

NAME = "mistral"
HOST = re.compile(r"(api(\.eu|\.us)?|codestral)\.mistral\.ai")
SUPPORTED = ("/chat/completions", "/embeddings", "/models")
CALL_ID = re.compile(r"[a-zA-Z0-9]{9}")
JSON_TYPE = "application/json"
SERVER_ERROR = "Service unavailable."
FINISH_REASONS: dict[StopReason, str] = {"tool_use": "tool_calls", "length": "length"}
# Mistral's words for the rules of chat completions, and the code of each.
ERRORS = {
    "missing_result": ("Not the same number of function calls and responses", "3230"),
    "orphan_result": ("Unexpected tool call id in tool results", "3231"),
    "bad_call_id": ("", "3280"),
}


class Mistral(Chat):
    """The dialect of Mistral's `/v1/chat/completions`."""

    name = NAME

    def claims(self, http_request: HttpRequest) -> bool:
        """Return whether this is a request to Mistral: a completion, or anything to its hosts."""
        path = http_request.path
        return path.endswith("/chat/completions") or bool(HOST.fullmatch(http_request.host))

    def side_response(
        self, http_request: HttpRequest, conversations: ConversationStore
    ) -> HttpResponse | None:
        """Return the models, or embeddings; None for a completion."""
        path = http_request.path
        if not path.endswith(SUPPORTED) and "/models/" not in path:
            message = f"Offbook does not support {http_request.method} {path} of Mistral"
            return self.encode_error(ModelError(message, status=404))
        response = super().side_response(http_request, conversations)
        if response is None or not path.endswith("/embeddings"):
            return response
        body = {"id": stable_id("", path, length=32), **_decode_json(response.body)}
        return msgspec.structs.replace(response, body=to_json(body))

    def decode(self, http_request: HttpRequest, conversations: ConversationStore) -> Request:
        """Decode a request; raise `ModelError` where Mistral would reject it."""
        options: JSON = {}
        try:
            body = _decode_json(http_request.body)
            messages = _list_of(body.get("messages"))
            if messages and messages[-1].get("prefix"):
                options["prefix"] = str(messages.pop().get("content") or "")
            for message in messages:
                self._check_ids(message)
                _normalize(message)
            if messages:
                http_request = msgspec.structs.replace(http_request, body=to_json(body))
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # rejected below
        try:
            request = super().decode(http_request, conversations)
        except ModelError as error:
            rule = str(error.details.get("rule", ""))
            if rule not in ERRORS:
                raise
            message, code = ERRORS[rule]
            raise rejection(rule, message, code=code) from error
        return msgspec.structs.replace(
            request,
            metadata={**request.metadata, "dialect": NAME},
            parameters={**request.parameters, **options},
        )

    def _check_ids(self, message: JSON) -> None:
        if "bad_call_id" not in self._rules:
            return
        ids = [call.get("id") for call in _list_of(message.get("tool_calls"))]
        if message.get("role") == "tool":
            ids.append(message.get("tool_call_id"))
        for call_id in ids:
            if not CALL_ID.fullmatch(str(call_id)):
                problem = f"Tool call id was {call_id} but must be a-z, A-Z, 0-9, with a length"
                raise rejection("bad_call_id", f"{problem} of 9.", code=ERRORS["bad_call_id"][1])

    def reply_id(self, reply: Reply, request: Request) -> str:
        """Return the id of the completion."""
        return reply.id or stable_id("", super().reply_id(reply, request), length=32)

    def encode(self, reply: Reply, request: Request) -> HttpResponse:
        """Encode the completion, whole or as a stream."""
        head: JSON = {
            "id": self.reply_id(reply, request),
            "object": "chat.completion.chunk" if request.stream else "chat.completion",
            "created": EPOCH,
            "model": reply.model or request.model,
        }
        if request.stream:
            chunks = tuple(_encode_chunks(reply, head))
            return HttpResponse(200, {"content-type": EVENT_STREAM}, b"", chunks)
        if reply.stop == "error":
            return self.encode_error(ModelError(SERVER_ERROR, status=503), request)
        content = _encode_content(reply.blocks)
        message: JSON = {"role": "assistant", "tool_calls": None, "content": content}
        if reply.calls:
            message["tool_calls"] = _encode_calls(reply.calls)
        choice = {"index": 0, "message": message, "finish_reason": _finish_reason(reply)}
        body = {**head, "usage": _encode_usage(reply.usage), "choices": [choice]}
        return HttpResponse(200, {"content-type": JSON_TYPE}, to_json(body))

    def encode_error(self, error: ModelError, request: Request | None = None) -> HttpResponse:
        """Encode an error."""
        del request
        kind = "service_unavailable" if error.status >= 500 else "invalid_request_error"  # noqa: PLR2004 - HTTP's
        fields = {"message": error.message, "type": kind, "param": None}
        body = {"object": "error", **fields, "code": error.details.get("code")}
        headers = {"content-type": JSON_TYPE, **error_headers(error)}
        return HttpResponse(error.status, headers, to_json(body))

    def build_request(self, request: Request, base_url: str, key: str) -> HttpRequest:
        """Build a request; the ids of other providers get Mistral's form."""
        parameters = {**request.parameters}
        prefix = parameters.pop("prefix", None)
        request = msgspec.structs.replace(request, parameters=parameters)
        http_request = super().build_request(request, base_url, key)
        body = _decode_json(http_request.body)
        body.pop("stream_options", None)  # Mistral does not know them
        messages = _list_of(body["messages"])
        for message in messages:
            _denormalize(message)
        if prefix is not None:
            messages.append({"role": "assistant", "content": prefix, "prefix": True})
        body["messages"] = messages
        return msgspec.structs.replace(http_request, body=to_json(body))

    def parse_response(self, response: HttpResponse, request: Request) -> Reply:
        """Parse a response of the provider."""
        raw = response_body(response)
        if is_event_stream(response):
            events = [event.data.encode() for event in parse_sse(raw)]
            chunks = tuple(encode_sse(_normalize_choices(event)) for event in events)
            response = msgspec.structs.replace(response, body=b"", chunks=chunks)
        else:
            response = msgspec.structs.replace(response, body=_normalize_choices(raw))
        return super().parse_response(response, request)


# ------------------------------------------------------------------- between the formats

_decode_json = msgspec.json.Decoder(JSON).decode


def _list_of(value: Any) -> list[JSON]:
    """Return the objects of a list; whatever else a client sends is rejected later."""
    if not isinstance(value, list):
        return []
    objects = cast("list[Any]", value)
    return objects if all(isinstance(entry, dict) for entry in objects) else []


def _normalize(message: JSON) -> None:
    """Change a message into OpenAI's form.

    Thinking is next to the content, arguments are a text, and the URL of an image is in an object.
    """
    for call in _list_of(message.get("tool_calls")):
        function = call.get("function")
        if isinstance(function, dict) and isinstance(function.get("arguments"), dict):  # pyright: ignore[reportUnknownMemberType] - any JSON
            function["arguments"] = to_json(function["arguments"]).decode()
    chunks = _list_of(message.get("content"))
    for chunk in chunks:
        if isinstance(chunk.get("image_url"), str):
            chunk["image_url"] = {"url": chunk["image_url"]}
    thoughts = [chunk for chunk in chunks if chunk.get("type") == "thinking"]
    if thoughts:
        parts = [part for chunk in thoughts for part in _list_of(chunk.get("thinking"))]
        message["reasoning_content"] = "".join(str(part.get("text", "")) for part in parts)
        texts = [chunk for chunk in chunks if chunk.get("type") != "thinking"]
        if all(chunk.get("type") == "text" for chunk in texts):
            message["content"] = "".join(str(chunk.get("text", "")) for chunk in texts) or None
        else:
            message["content"] = texts


def _denormalize(message: JSON) -> None:
    """Change a message into Mistral's form."""
    if thinking := message.pop("reasoning_content", None):
        content = message.get("content")
        texts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        message["content"] = [_thinking_chunk(thinking), *texts]
    for call in _list_of(message.get("tool_calls")):
        call["id"] = _mistral_id(str(call.get("id")))
    if message.get("role") == "tool":
        message["tool_call_id"] = _mistral_id(str(message.get("tool_call_id")))


def _mistral_id(call_id: str) -> str:
    return call_id if CALL_ID.fullmatch(call_id) else stable_id("", call_id, length=9)


def _normalize_choices(raw: bytes) -> bytes:
    """Return a response, or an event of a stream, in OpenAI's form."""
    try:
        body = _decode_json(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return raw  # `[DONE]`, or an error page
    for choice in _list_of(body.get("choices")):
        for message in _list_of([choice.get("message") or choice.get("delta") or {}]):
            _normalize(message)
    return to_json(body)


# ------------------------------------------------------------------------------- replies


def _thinking_chunk(text: str) -> JSON:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}


def _encode_content(blocks: Sequence[AnyBlock]) -> str | list[JSON]:
    """Return the texts, or the chunks of a reply with thinking."""
    thoughts = [block.text for block in blocks if isinstance(block, Thinking)]
    for block in blocks:
        if not isinstance(block, (Text, Thinking, ToolCall)):
            raise unsupported_block(block, NAME)
    text = join_text(tuple(blocks))
    if not thoughts:
        return text
    chunks = [_thinking_chunk(thought) for thought in thoughts]
    return [*chunks, {"type": "text", "text": text}] if text else chunks


def _encode_calls(calls: Sequence[ToolCall]) -> list[JSON]:
    return [{**encode_call(call, custom=False), "index": index} for index, call in enumerate(calls)]


def _finish_reason(reply: Reply) -> str:
    return FINISH_REASONS.get(
        "tool_use" if reply.calls and reply.stop == "stop" else reply.stop, "stop"
    )


def _encode_usage(usage: Usage) -> JSON:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
    }


def _encode_chunks(reply: Reply, head: JSON) -> Iterator[bytes]:
    """Yield the chunks of a stream."""

    def chunk(delta: JSON, finish: str | None = None, **fields: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return encode_sse(to_json({**head, "choices": [choice], **fields}))

    _encode_content(reply.blocks)  # raises for a block that the format does not have
    yield chunk({"role": "assistant", "content": ""})
    for thought in (block for block in reply.blocks if isinstance(block, Thinking)):
        for words in split_words(thought.text):
            yield chunk({"content": [_thinking_chunk(words)]})
    for words in split_reply_text(reply, reply.text):
        yield chunk({"content": words})
    if reply.stop == "error":
        error = {"object": "error", "message": SERVER_ERROR, "type": "service_unavailable"}
        yield encode_sse(to_json({**error, "error": {"message": SERVER_ERROR}}))
        return
    last: JSON = {"content": ""}
    if reply.calls:
        last["tool_calls"] = _encode_calls(reply.calls)
    yield chunk(last, _finish_reason(reply), usage=_encode_usage(reply.usage))
    yield encode_sse(b"[DONE]")
