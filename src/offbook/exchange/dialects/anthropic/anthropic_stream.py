"""Encoding of replies as Anthropic's messages and event streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from offbook.errors import ModelError
from offbook.exchange.dialects.anthropic import anthropic_wire as wire
from offbook.exchange.dialects.decoding import raw_block_data
from offbook.exchange.dialects.streaming import encode_sse, split_fixed, split_reply_text
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    RawBlock,
    Text,
    Thinking,
    ToolCall,
    render_arguments,
    to_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offbook.exchange.model import Reply, Request, StopReason, Usage

STOP_REASONS: dict[StopReason, str] = {
    "stop": "end_turn",
    "tool_use": "tool_use",
    "length": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
}

SERVER_ERROR = "Internal server error"
_REFUSAL_DETAILS = {"type": "refusal", "category": None, "explanation": None}

# The constant parts of the events are literal bytes: most of a stream consists of them.
_BLOCK_START = b"event: content_block_start"
_START = _BLOCK_START + b'\ndata: {"type":"content_block_start","index":%d,"content_block":%b}\n\n'
_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":'
_STOP = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n'
_PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_EMPTY_TEXT = b'{"type":"text","text":""}'
_EMPTY_THINKING = b'{"type":"thinking","thinking":"","signature":""}'


def encode_error_body(error: ModelError, details: JSON, request_id: str) -> JSON:
    """Return the body of an error response."""
    error_type = wire.ERROR_TYPES.get(error.status) or (
        "api_error" if error.status >= 500 else "invalid_request_error"  # noqa: PLR2004 - HTTP's
    )
    fields: JSON = {"type": error_type, "message": error.message}
    if details:
        fields["details"] = details
    return {"type": "error", "error": fields, "request_id": request_id}


def encode_block(block: AnyBlock, *, hide_thinking: bool = False) -> JSON | None:
    """Encode a content block; None for a block that a model does not send."""
    match block:
        case Text(text):
            return {"type": "text", "text": text}
        case ToolCall(call_id, _, arguments):
            name = _full_name(block)
            return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
        case Thinking(text, signature, redacted):
            signature = signature or wire.sign_thinking(text)
            if redacted:
                return {"type": "redacted_thinking", "data": signature}
            text = "" if hide_thinking else text
            return {"type": "thinking", "thinking": text, "signature": signature}
        case RawBlock():
            return raw_block_data(block, wire.NAME)
        case _:
            return None


def _full_name(call: ToolCall) -> str:
    return f"{call.namespace}__{call.name}" if call.namespace else call.name


def _encode_usage(usage: Usage, output: int) -> JSON:
    encoded: JSON = {
        "input_tokens": max(usage.input - usage.cache_read - usage.cache_write, 0),
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write,
            "ephemeral_1h_input_tokens": 0,
        },
        "output_tokens": output,
        "service_tier": "standard",
    }
    if usage.reasoning:
        encoded["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    return encoded


def _encode_stop(reply: Reply, request: Request) -> JSON:
    sequence = None
    if reply.stop == "stop_sequence":
        sequence = next(iter(request.parameters.get("stop_sequences") or ()), None)
    encoded: JSON = {"stop_reason": STOP_REASONS[reply.stop], "stop_sequence": sequence}
    if reply.stop == "refusal":
        encoded["stop_details"] = _REFUSAL_DETAILS
    return encoded


def _hides_thinking(request: Request) -> bool:
    thinking = request.parameters.get("thinking")
    return isinstance(thinking, dict) and cast("JSON", thinking).get("display") == "omitted"


def encode_message(reply: Reply, request: Request, message_id: str) -> bytes:
    """Encode a reply as a whole message."""
    hide = _hides_thinking(request)
    message: JSON = {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": reply.model or request.model,
        "content": [
            encoded
            for block in reply.blocks
            if (encoded := encode_block(block, hide_thinking=hide)) is not None
        ],
        **_encode_stop(reply, request),
        "usage": _encode_usage(reply.usage, reply.usage.output),
    }
    return to_json(message)


def encode_events(reply: Reply, request: Request, message_id: str) -> Iterator[bytes]:
    """Yield the events of a stream."""
    usage = reply.usage
    hide = _hides_thinking(request)
    start: JSON = {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": reply.model or request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        # At the start of a stream the provider has counted one token at most.
        "usage": _encode_usage(usage, min(usage.output, 1)),
    }
    yield b'event: message_start\ndata: {"type":"message_start","message":%b}\n\n' % to_json(start)
    index = 0
    for block in reply.blocks:
        events = _encode_block_events(reply, block, index, hide_thinking=hide)
        for event in events:
            yield event
            if index == 0 and event.startswith(_BLOCK_START):
                yield _PING  # the provider sends one after the first block has started
        index += bool(events)
    if reply.stop == "error":
        error = ModelError(SERVER_ERROR, status=500)
        body = encode_error_body(error, {}, f"req_{message_id[-24:]}")
        yield encode_sse(to_json(body), "error")
        return
    total = _encode_usage(usage, usage.output)
    # The last event has fewer fields than the first.
    del total["cache_creation"], total["service_tier"]
    yield b'event: message_delta\ndata: {"type":"message_delta","delta":%b,"usage":%b}\n\n' % (
        to_json(_encode_stop(reply, request)),
        to_json(total),
    )
    yield b'event: message_stop\ndata: {"type":"message_stop"}\n\n'


def _encode_block_events(
    reply: Reply, block: AnyBlock, index: int, *, hide_thinking: bool
) -> list[bytes]:
    match block:
        case Text(text):
            start, delta_type, field = _EMPTY_TEXT, b"text_delta", b"text"
            chunks = split_reply_text(reply, text)
        case ToolCall(call_id, _, arguments):
            name = _full_name(block)
            empty: JSON = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
            start, delta_type, field = to_json(empty), b"input_json_delta", b"partial_json"
            chunks = ["", *split_fixed(render_arguments(arguments))]
        case Thinking(text, _, False):
            start, delta_type, field = _EMPTY_THINKING, b"thinking_delta", b"thinking"
            chunks = [] if hide_thinking else split_fixed(text)
        case Thinking() | RawBlock():  # sent whole
            start, delta_type, field, chunks = to_json(encode_block(block)), b"", b"", ()
        case _:
            return []
    delta = _DELTA % index + b'{"type":"%b","%b":' % (delta_type, field)
    events = [delta + to_json(chunk) + b"}}\n\n" for chunk in chunks]
    if isinstance(block, Thinking) and not block.redacted:
        signature = to_json(block.signature or wire.sign_thinking(block.text))
        events.append(
            _DELTA % index + b'{"type":"signature_delta","signature":%b}}\n\n' % signature
        )
    return [_START % (index, start), *events, _STOP % index]
