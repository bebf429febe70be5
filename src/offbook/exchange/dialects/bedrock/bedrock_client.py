"""The client side of Bedrock's API: request bodies, and parsing of responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from offbook.errors import ModelError
from offbook.exchange.dialects.bedrock import bedrock_wire as wire
from offbook.exchange.dialects.bedrock.bedrock_stream import (
    STOP_REASONS,
    encode_block,
    parse_frames,
)
from offbook.exchange.dialects.decoding import RawBody
from offbook.exchange.dialects.response_parsing import StreamAccumulator
from offbook.exchange.messages import JSON, Message, Text, ToolResult
from offbook.exchange.model import Reply, StopReason, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.exchange.model import Tool

_STOPS: dict[str, StopReason] = {reason: stop for stop, reason in reversed(STOP_REASONS.items())}


# ------------------------------------------------------------------- building requests


def encode_turns(messages: Iterable[Message]) -> list[JSON]:
    """Encode the conversation; adjacent messages of one role become one turn."""
    turns: list[JSON] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        content: list[JSON] = []
        for block in message.blocks:
            if isinstance(block, ToolResult):
                content.append(_encode_result(block))
            elif (encoded := encode_block(block)) is not None:
                content.append(encoded)
        # Converse rejects adjacent turns of one role.
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += content
        else:
            turns.append({"role": role, "content": content})
    return turns


def _encode_result(result: ToolResult) -> JSON:
    content = [
        {"text": block.text} if isinstance(block, Text) else encode_block(block) or {}
        for block in result.content
    ]
    status = "error" if result.failed else "success"
    return {"toolResult": {"toolUseId": result.call_id, "content": content, "status": status}}


def encode_tools(tools: Iterable[Tool]) -> list[JSON]:
    """Encode the offered tools."""
    encoded: list[JSON] = []
    for tool in tools:
        spec: JSON = {
            "name": tool.name,
            "inputSchema": {"json": tool.schema or {"type": "object"}},
        }
        if tool.description:
            spec["description"] = tool.description
        encoded.append({"toolSpec": spec})
    return encoded


# ------------------------------------------------------------------- parsing responses


def parse_message(body: bytes) -> Reply:
    """Parse a whole message."""
    decoded = msgspec.json.decode(body, type=JSON)
    parts = msgspec.convert(decoded["output"]["message"]["content"], list[wire.BedrockPart])
    raw = RawBody(body, wire.NAME)
    path = ("output", "message", "content")
    blocks = [wire.decode_block(part, raw, (*path, index)) for index, part in enumerate(parts)]
    stop = _STOPS.get(decoded["stopReason"], "stop")
    return Reply(tuple(blocks), stop, _parse_usage(decoded.get("usage", {})))


def parse_stream(body: bytes) -> Reply:
    """Parse an event stream."""
    accumulator = StreamAccumulator[int]()
    stop: StopReason = "stop"
    usage = Usage()
    for headers, payload in parse_frames(body):
        data = msgspec.json.decode(payload or b"{}", type=JSON)
        if headers.get(":message-type") != "event":
            raise ModelError(str(data.get("message", "the stream failed")), status=500)
        index = data.get("contentBlockIndex", 0)
        match headers.get(":event-type"):
            case "contentBlockStart":
                block = accumulator.block(index, "text")
                if call := data.get("start", {}).get("toolUse"):
                    block.kind = "call"
                    block.call_id, block.name = call["toolUseId"], call["name"]
            case "contentBlockDelta":
                delta = data["delta"]
                block = accumulator.block(index, "text")
                if "text" in delta:
                    accumulator.add_text(index, delta["text"])
                elif "toolUse" in delta:
                    block.add(delta["toolUse"].get("input", ""))
                elif reasoning := delta.get("reasoningContent"):
                    if "redactedContent" in reasoning:
                        block.kind = "redacted"
                        block.signature = reasoning["redactedContent"]
                    else:
                        block.kind = "thinking"
                        block.add(reasoning.get("text", ""))
                        block.signature = reasoning.get("signature", block.signature)
            case "messageStop":
                stop = _STOPS.get(data["stopReason"], "stop")
            case "metadata":
                usage = _parse_usage(data.get("usage", {}))
            case _:
                pass
    return Reply(accumulator.blocks(), stop, usage, chunks=tuple(accumulator.chunks))


def _parse_usage(usage: JSON) -> Usage:
    read, written = usage.get("cacheReadInputTokens", 0), usage.get("cacheWriteInputTokens", 0)
    uncached = usage.get("inputTokens", 0)
    return Usage(uncached + read + written, usage.get("outputTokens", 0), read, written)
