"""What the model answers, as one message."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from offbook.errors import ModelError
from offbook.exchange.dialects import streaming
from offbook.exchange.dialects.anthropic import anthropic_wire
from offbook.exchange.dialects.anthropic.anthropic_wire import sign_thinking
from offbook.exchange.dialects.decoding import raw_block_data
from offbook.exchange.dialects.streaming import split_fixed, split_reply_text
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


# --- What the model answers, as one message.

STOPS: dict[StopReason, str] = {
    "stop": "end_turn",
    "tool_use": "tool_use",
    "length": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
}

REFUSED = {"type": "refusal", "category": None, "explanation": None}


def hides_thoughts(parameters: JSON) -> bool:
    """Whether the request wants thoughts without their words."""
    thinking = parameters.get("thinking")
    return isinstance(thinking, dict) and cast("JSON", thinking).get("display") == "omitted"


def find_sequence(reply: Reply, request: Request) -> str | None:
    """The sequence at which the reply stopped, if that is why."""
    if reply.stop != "stop_sequence":
        return None
    return next(iter(request.parameters.get("stop_sequences") or ()), None)


def write_usage(usage: Usage, output: int) -> JSON:
    """The tokens, as Anthropic counts them."""
    written: JSON = {
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
        written["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    return written


def write_error(error: ModelError, details: JSON, request_id: str) -> JSON:
    """The body of a refusal."""
    kind = anthropic_wire.ERRORS.get(error.status) or (
        "api_error" if error.status >= 500 else "invalid_request_error"  # noqa: PLR2004 - HTTP's
    )
    about: JSON = {"type": kind, "message": error.message}
    if details:
        about["details"] = details
    return {"type": "error", "error": about, "request_id": request_id}


def write_block(block: AnyBlock, *, hide: bool = False) -> JSON | None:
    """A content block; None for what a model does not say."""
    match block:
        case Text(text):
            return {"type": "text", "text": text}
        case ToolCall(call_id, _, arguments):
            return {"type": "tool_use", "id": call_id, "name": full_name(block), "input": arguments}
        case Thinking(text, signature, redacted):
            if redacted:
                return {"type": "redacted_thinking", "data": signature or sign_thinking(text)}
            sealed = signature or sign_thinking(text)
            return {"type": "thinking", "thinking": "" if hide else text, "signature": sealed}
        case RawBlock():
            return raw_block_data(block, anthropic_wire.NAME)
        case _:
            return None


def full_name(call: ToolCall) -> str:
    """The name of a call's tool, its namespace with it."""
    return f"{call.namespace}__{call.name}" if call.namespace else call.name


# --- What the model answers, event by event.


def write_events(reply: Reply, request: Request, name: str, *, hide: bool) -> Iterator[bytes]:
    """All events of a message, as the provider sends them."""
    usage = reply.usage
    start: JSON = {
        "id": name,
        "type": "message",
        "role": "assistant",
        "model": reply.model or request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": write_usage(usage, min(usage.output, 1)),
    }
    yield b'event: message_start\ndata: {"type":"message_start","message":%b}\n\n' % to_json(start)
    index = 0
    for block in reply.blocks:
        events = _stream_block(reply, block, index, hide=hide)
        for event in events:
            yield event
            if index == 0 and event.startswith(_BLOCK_START):
                yield _PING
        index += bool(events)
    if reply.stop == "error":
        broken = ModelError("Internal server error", status=500)
        yield streaming.encode_sse(to_json(write_error(broken, {}, f"req_{name[-24:]}")), "error")
        return
    end: JSON = {"stop_reason": STOPS[reply.stop], "stop_sequence": find_sequence(reply, request)}
    if reply.stop == "refusal":
        end["stop_details"] = REFUSED
    total = write_usage(usage, usage.output)
    del total["cache_creation"], total["service_tier"]
    yield b'event: message_delta\ndata: {"type":"message_delta","delta":%b,"usage":%b}\n\n' % (
        to_json(end),
        to_json(total),
    )
    yield b'event: message_stop\ndata: {"type":"message_stop"}\n\n'


_PING = b'event: ping\ndata: {"type":"ping"}\n\n'

_BLOCK_START = b"event: content_block_start"

_START = _BLOCK_START + b'\ndata: {"type":"content_block_start","index":%d,"content_block":%b}\n\n'

_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":'

_STOP = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n'

_EMPTY_TEXT = b'{"type":"text","text":""}'

_EMPTY_THOUGHT = b'{"type":"thinking","thinking":"","signature":""}'


def _stream_block(reply: Reply, block: AnyBlock, index: int, *, hide: bool) -> list[bytes]:
    match block:
        case Text(text):
            start, kind, field = _EMPTY_TEXT, b"text_delta", b"text"
            pieces = split_reply_text(reply, text)
        case ToolCall(call_id, _, arguments):
            empty: JSON = {"type": "tool_use", "id": call_id, "name": full_name(block), "input": {}}
            start, kind, field = to_json(empty), b"input_json_delta", b"partial_json"
            pieces = ["", *split_fixed(render_arguments(arguments))]
        case Thinking(text, _, False):
            start, kind, field = _EMPTY_THOUGHT, b"thinking_delta", b"thinking"
            pieces = [] if hide else split_fixed(text)
        case Thinking() | RawBlock():
            start, kind, field, pieces = to_json(write_block(block)), b"", b"", ()
        case _:
            return []
    delta = _DELTA % index + b'{"type":"%b","%b":' % (kind, field)
    events = [delta + to_json(piece) + b"}}\n\n" for piece in pieces]
    if isinstance(block, Thinking) and not block.redacted:
        sealed = to_json(block.signature or sign_thinking(block.text))
        events.append(_DELTA % index + b'{"type":"signature_delta","signature":%b}}\n\n' % sealed)
    return [_START % (index, start), *events, _STOP % index]
