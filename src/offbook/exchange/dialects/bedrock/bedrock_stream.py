"""The frames of Amazon's event streams: lengths, headers, a payload, and a checksum for each."""

from __future__ import annotations

import struct
from binascii import crc32
from typing import TYPE_CHECKING

from offbook.errors import ModelError
from offbook.exchange.dialects.bedrock import bedrock_wire
from offbook.exchange.dialects.decoding import raw_block_data
from offbook.exchange.dialects.streaming import split_fixed, split_reply_text
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    Content,
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
    from collections.abc import Iterable, Iterator, Mapping

    from offbook.exchange.messages import Message
    from offbook.exchange.model import Reply, StopReason, Tool, Usage


# --- The frames of Amazon's event streams: lengths, headers, a payload, and a checksum for each.

CONTENT_TYPE = "application/vnd.amazon.eventstream"
STRING = 7
PRELUDE = struct.Struct("!II")
CHECK = struct.Struct("!I")
SHORTEST = PRELUDE.size + 2 * CHECK.size


def write_frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """One frame."""
    head = b"".join(
        bytes([len(name)])
        + name.encode()
        + struct.pack("!BH", STRING, len(value.encode()))
        + value.encode()
        for name, value in headers.items()
    )
    prelude = PRELUDE.pack(SHORTEST + len(head) + len(payload), len(head))
    frame = prelude + CHECK.pack(crc32(prelude)) + head + payload
    return frame + CHECK.pack(crc32(frame))


def write_event(kind: str, payload: bytes) -> bytes:
    """One event of a stream."""
    headers = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    return write_frame(headers, payload)


def write_exception(kind: str, payload: bytes) -> bytes:
    """An error in the middle of a stream."""
    headers = {":exception-type": kind, ":content-type": "application/json"}
    return write_frame({**headers, ":message-type": "exception"}, payload)


def read_frames(data: bytes) -> Iterator[tuple[dict[str, str], bytes]]:
    """The headers and the payload of each frame; a torn or damaged one is the provider's error."""
    at = 0
    while at < len(data):
        if len(data) - at < SHORTEST:
            raise ModelError("the stream breaks off in the middle of a frame", status=500)
        total, size = PRELUDE.unpack_from(data, at)
        frame = data[at : at + total]
        if not SHORTEST + size <= total == len(frame):
            raise ModelError("the stream breaks off in the middle of a frame", status=500)
        if CHECK.unpack_from(frame, total - CHECK.size)[0] != crc32(frame[: -CHECK.size]):
            raise ModelError("a frame of the stream is damaged", status=500)
        start = PRELUDE.size + CHECK.size
        yield _read_headers(frame[start : start + size]), frame[start + size : -CHECK.size]
        at += total


def _read_headers(head: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    at = 0
    while at < len(head):
        end = at + 1 + head[at]
        kind, size = struct.unpack_from("!BH", head, end)
        if kind != STRING:
            raise ModelError(f"a header of a frame has the type {kind}", status=500)
        headers[head[at + 1 : end].decode()] = head[end + 3 : end + 3 + size].decode()
        at = end + 3 + size
    return headers


# --- What the model answers, and what an agent asks, as Bedrock writes it.

STOPS: dict[StopReason, str] = {
    "stop": "end_turn",
    "tool_use": "tool_use",
    "length": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "content_filtered",
    "error": "end_turn",
}
UNREADABLE = "AAAA"  # what stands for a thought that nobody may read


def write_usage(usage: Usage) -> JSON:
    """The tokens; those of the cache are beside the input here."""
    fresh = max(usage.input - usage.cache_read - usage.cache_write, 0)
    told: JSON = {
        "inputTokens": fresh,
        "outputTokens": usage.output,
        "totalTokens": usage.input + usage.output,
    }
    if usage.cache_read or usage.cache_write:
        told["cacheReadInputTokens"] = usage.cache_read
        told["cacheWriteInputTokens"] = usage.cache_write
    return told


def write_block(block: AnyBlock) -> JSON | None:
    """One block of a message; None for what a model never says."""
    match block:
        case Text(text):
            return {"text": text}
        case Thinking():
            return _write_thought(block)
        case ToolCall(call_id, name, arguments):
            return {"toolUse": {"toolUseId": call_id, "name": name, "input": arguments}}
        case Image(data, kind):
            source = {"bytes": data}
            return {"image": {"format": kind.partition("/")[2] or "png", "source": source}}
        case RawBlock():
            return raw_block_data(block, bedrock_wire.NAME)
        case ToolResult():
            return None


def _write_thought(thought: Thinking) -> JSON:
    if thought.redacted:
        return {"reasoningContent": {"redactedContent": thought.signature or UNREADABLE}}
    said = {"text": thought.text, "signature": thought.signature}
    return {"reasoningContent": {"reasoningText": said}}


def write_frames(reply: Reply) -> Iterator[bytes]:
    """All events of a message, each in its frame."""
    yield _event("messageStart", {"role": "assistant"})
    for at, block in enumerate(reply.blocks):
        yield from _write_block(reply, block, at)
    if reply.stop == "error":
        yield write_exception("internalServerException", b'{"message":"Internal server error"}')
        return
    stop = "tool_use" if reply.calls else STOPS[reply.stop]
    yield _event("messageStop", {"stopReason": stop})
    yield _event("metadata", {"usage": write_usage(reply.usage), "metrics": {"latencyMs": 0}})


def _event(kind: str, payload: JSON) -> bytes:
    return write_event(kind, to_json(payload))


def _write_block(reply: Reply, block: AnyBlock, at: int) -> Iterator[bytes]:
    place: JSON = {"contentBlockIndex": at}
    if isinstance(block, ToolCall):
        start = {"toolUse": {"toolUseId": block.id, "name": block.name}}
        yield _event("contentBlockStart", {"start": start, **place})
    for delta in _cut(reply, block):
        yield _event("contentBlockDelta", {"delta": delta, **place})
    yield _event("contentBlockStop", place)


def _cut(reply: Reply, block: AnyBlock) -> Iterator[JSON]:
    match block:
        case Text(text):
            yield from ({"text": piece} for piece in split_reply_text(reply, text))
        case ToolCall(_, _, arguments):
            pieces = split_fixed(render_arguments(arguments))
            yield from ({"toolUse": {"input": piece}} for piece in pieces)
        case Thinking(text, signature, False):
            yield from ({"reasoningContent": {"text": piece}} for piece in split_fixed(text))
            if signature:
                yield {"reasoningContent": {"signature": signature}}
        case Thinking(_, signature):
            yield {"reasoningContent": {"redactedContent": signature or UNREADABLE}}
        case _:
            return


def write_tools(tools: Iterable[Tool]) -> list[JSON]:
    """The tools that are offered."""
    return [
        {
            "toolSpec": {
                "name": tool.name,
                "inputSchema": {"json": tool.schema or {"type": "object"}},
                **({"description": tool.description} if tool.description else {}),
            }
        }
        for tool in tools
    ]


def write_turns(messages: Iterable[Message]) -> list[JSON]:
    """The conversation; what stands side by side in one role is one turn."""
    turns: list[JSON] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        content = [wire for block in message.blocks if (wire := _write_part(block))]
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += content
        else:
            turns.append({"role": role, "content": content})
    return turns


def _write_part(block: AnyBlock) -> JSON | None:
    if not isinstance(block, ToolResult):
        return write_block(block)
    content = [_write_content(said) for said in block.content]
    status = "error" if block.is_error else "success"
    return {"toolResult": {"toolUseId": block.call_id, "content": content, "status": status}}


def _write_content(said: Content) -> JSON:
    return {"text": said.text} if isinstance(said, Text) else write_block(said) or {}
