"""Encoding of replies as Bedrock's messages and binary event streams.

A frame of an event stream has its length and a checksum, string headers, a JSON payload and a
checksum of the whole frame.
"""

from __future__ import annotations

import struct
from binascii import crc32
from typing import TYPE_CHECKING

from offbook.errors import ModelError
from offbook.exchange.dialects.bedrock import bedrock_wire as wire
from offbook.exchange.dialects.decoding import raw_block_data
from offbook.exchange.dialects.streaming import split_fixed, split_reply_text
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    Image,
    RawBlock,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    render_arguments,
    to_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from offbook.exchange.model import Reply, StopReason, Usage

EVENT_STREAM = "application/vnd.amazon.eventstream"
STOP_REASONS: dict[StopReason, str] = {
    "stop": "end_turn",
    "tool_use": "tool_use",
    "length": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "content_filtered",
    "error": "end_turn",
}
SERVER_ERROR = "Internal server error"
_REDACTED = "AAAA"  # the content of redacted thinking that was scripted

_STRING_TYPE = 7
_PRELUDE = struct.Struct("!II")
_CHECKSUM = struct.Struct("!I")
_MIN_FRAME_SIZE = _PRELUDE.size + 2 * _CHECKSUM.size


# ------------------------------------------------------------------------------ frames


def encode_frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Encode a frame."""
    head = b"".join(
        bytes([len(name)])
        + name.encode()
        + struct.pack("!BH", _STRING_TYPE, len(value.encode()))
        + value.encode()
        for name, value in headers.items()
    )
    prelude = _PRELUDE.pack(_MIN_FRAME_SIZE + len(head) + len(payload), len(head))
    frame = prelude + _CHECKSUM.pack(crc32(prelude)) + head + payload
    return frame + _CHECKSUM.pack(crc32(frame))


def parse_frames(data: bytes) -> Iterator[tuple[dict[str, str], bytes]]:
    """Yield the headers and the payload of each frame; raise `ModelError` for a damaged one."""
    start = 0
    while start < len(data):
        if len(data) - start < _MIN_FRAME_SIZE:
            raise ModelError("the stream ended in the middle of a frame", status=500)
        size, head_size = _PRELUDE.unpack_from(data, start)
        frame = data[start : start + size]
        if not _MIN_FRAME_SIZE + head_size <= size == len(frame):
            raise ModelError("the stream ended in the middle of a frame", status=500)
        (checksum,) = _CHECKSUM.unpack_from(frame, size - _CHECKSUM.size)
        if checksum != crc32(frame[: -_CHECKSUM.size]):
            raise ModelError("a frame of the stream has a wrong checksum", status=500)
        head_start = _PRELUDE.size + _CHECKSUM.size
        head_end = head_start + head_size
        yield _parse_headers(frame[head_start:head_end]), frame[head_end : -_CHECKSUM.size]
        start += size


def _parse_headers(head: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    start = 0
    while start < len(head):
        name_end = start + 1 + head[start]
        value_type, size = struct.unpack_from("!BH", head, name_end)
        if value_type != _STRING_TYPE:
            raise ModelError(f"unsupported type {value_type} of a frame header", status=500)
        # One byte for the type and two for the size.
        value_start = name_end + 3
        name = head[start + 1 : name_end].decode()
        headers[name] = head[value_start : value_start + size].decode()
        start = value_start + size
    return headers


# ----------------------------------------------------------------------------- replies


def encode_block(block: AnyBlock) -> JSON | None:
    """Encode a content block; None for a tool result."""
    match block:
        case Text(text):
            return {"text": text}
        case Thinking(text, signature, redacted):
            if redacted:
                return {"reasoningContent": {"redactedContent": signature or _REDACTED}}
            thinking = {"text": text, "signature": signature}
            return {"reasoningContent": {"reasoningText": thinking}}
        case ToolCall(call_id, name, arguments):
            return {"toolUse": {"toolUseId": call_id, "name": name, "input": arguments}}
        case Image(data, media_type):
            image_format = media_type.partition("/")[2] or "png"
            return {"image": {"format": image_format, "source": {"bytes": data}}}
        case RawBlock():
            return raw_block_data(block, wire.NAME)
        case ToolResult():
            return None


def _encode_usage(usage: Usage) -> JSON:
    encoded: JSON = {
        # Bedrock counts the cached tokens separately.
        "inputTokens": max(usage.input - usage.cache_read - usage.cache_write, 0),
        "outputTokens": usage.output,
        "totalTokens": usage.input + usage.output,
    }
    if usage.cache_read or usage.cache_write:
        encoded["cacheReadInputTokens"] = usage.cache_read
        encoded["cacheWriteInputTokens"] = usage.cache_write
    return encoded


def _stop_reason(reply: Reply) -> str:
    return "tool_use" if reply.calls else STOP_REASONS[reply.stop]


def encode_message(reply: Reply) -> bytes:
    """Encode a whole message."""
    blocks = (encode_block(block) for block in reply.blocks)
    message = {"role": "assistant", "content": [block for block in blocks if block]}
    return to_json(
        {
            "output": {"message": message},
            "stopReason": _stop_reason(reply),
            "usage": _encode_usage(reply.usage),
            "metrics": {"latencyMs": 0},
        }
    )


def encode_frames(reply: Reply) -> Iterator[bytes]:
    """Yield the frames of a stream."""
    yield _encode_event("messageStart", {"role": "assistant"})
    for index, block in enumerate(reply.blocks):
        position: JSON = {"contentBlockIndex": index}
        if isinstance(block, ToolCall):
            start = {"toolUse": {"toolUseId": block.id, "name": block.name}}
            yield _encode_event("contentBlockStart", {"start": start, **position})
        for delta in _deltas(reply, block):
            yield _encode_event("contentBlockDelta", {"delta": delta, **position})
        yield _encode_event("contentBlockStop", position)
    if reply.stop == "error":
        headers = {
            ":exception-type": "internalServerException",
            ":content-type": "application/json",
            ":message-type": "exception",
        }
        yield encode_frame(headers, to_json({"message": SERVER_ERROR}))
        return
    yield _encode_event("messageStop", {"stopReason": _stop_reason(reply)})
    metadata = {"usage": _encode_usage(reply.usage), "metrics": {"latencyMs": 0}}
    yield _encode_event("metadata", metadata)


def _encode_event(event_type: str, payload: JSON) -> bytes:
    headers = {
        ":event-type": event_type,
        ":content-type": "application/json",
        ":message-type": "event",
    }
    return encode_frame(headers, to_json(payload))


def _deltas(reply: Reply, block: AnyBlock) -> Iterator[JSON]:
    match block:
        case Text(text):
            for chunk in split_reply_text(reply, text):
                yield {"text": chunk}
        case ToolCall(_, _, arguments):
            for chunk in split_fixed(render_arguments(arguments)):
                yield {"toolUse": {"input": chunk}}
        case Thinking(text, signature, False):
            for chunk in split_fixed(text):
                yield {"reasoningContent": {"text": chunk}}
            if signature:
                yield {"reasoningContent": {"signature": signature}}
        case Thinking(_, signature):
            yield {"reasoningContent": {"redactedContent": signature or _REDACTED}}
        case _:  # an image or a raw block has no deltas
            return
