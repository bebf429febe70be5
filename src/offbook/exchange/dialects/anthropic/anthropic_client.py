"""The client side of Anthropic's API: request bodies, and parsing of responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from offbook.errors import ModelError
from offbook.exchange.dialects.anthropic import anthropic_wire as wire
from offbook.exchange.dialects.anthropic.anthropic_stream import STOP_REASONS, encode_block
from offbook.exchange.dialects.decoding import RawBody, raw_block_data
from offbook.exchange.dialects.response_parsing import StreamAccumulator
from offbook.exchange.dialects.streaming import parse_sse
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    Image,
    Message,
    RawBlock,
    Text,
    Thinking,
    parse_arguments,
    to_json,
)
from offbook.exchange.model import Reply, StopReason, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from offbook.exchange.model import Request, Tool

_STOPS: dict[str | None, StopReason] = {
    **{reason: stop for stop, reason in STOP_REASONS.items()},
    "pause_turn": "stop",
    "model_context_window_exceeded": "length",
}
_ERROR_STATUSES = {kind: status for status, kind in reversed(wire.ERROR_TYPES.items())}


# ------------------------------------------------------------------- building requests


def encode_turns(messages: Iterable[Message]) -> Iterator[JSON]:
    """Yield the turns of a conversation; tool results are part of the next user turn."""
    results: list[JSON] = []
    for message in messages:
        if message.role == "tool":
            for result in message.results:
                content = _encode_content(result.content)
                encoded: JSON = {"type": "tool_result", "tool_use_id": result.call_id}
                encoded["content"] = content
                if result.failed:
                    encoded["is_error"] = True
                results.append(encoded)
            continue
        if message.role == "user":
            yield {"role": "user", "content": results + _encode_content(message.blocks)}
            results = []
            continue
        if results:
            yield {"role": "user", "content": results}
            results = []
        if message.role == "system":
            yield {"role": "system", "content": message.text}
        else:
            # Anthropic rejects thinking without its signature.
            blocks = (
                encode_block(block)
                for block in message.blocks
                if not isinstance(block, Thinking) or block.signature or block.redacted
            )
            yield {"role": "assistant", "content": [block for block in blocks if block]}
    if results:
        yield {"role": "user", "content": results}


def _encode_content(blocks: Iterable[AnyBlock]) -> list[JSON]:
    """Encode the blocks of a user message or a tool result."""
    content: list[JSON] = []
    for block in blocks:
        match block:
            case Text(text):
                content.append({"type": "text", "text": text})
            case Image(data, media_type, url):
                source: JSON = {"type": "base64", "media_type": media_type, "data": data}
                if url:
                    source = {"type": "url", "url": url}
                content.append({"type": "image", "source": source})
            case RawBlock():
                content.append(raw_block_data(block, wire.NAME))
            case _:
                pass
    return content


def encode_tool(tool: Tool) -> JSON:
    """Encode an offered tool."""
    if tool.kind != "function":
        return {"type": tool.kind, "name": tool.name, **tool.schema}
    name = f"{tool.namespace}__{tool.name}" if tool.namespace else tool.name
    encoded: JSON = {"name": name, "input_schema": tool.schema or {"type": "object"}, **tool.more}
    if tool.description:
        encoded["description"] = tool.description
    return {**encoded, "strict": True} if tool.strict else encoded


# ------------------------------------------------------------------- parsing responses


def parse_message(body: bytes, request: Request) -> Reply:
    """Parse a whole message."""
    message = wire.decode_message(body)
    blocks = wire.decode_blocks(message.content, RawBody(body, wire.NAME), ("content",))
    return _build_reply(message, blocks, request)


def _build_reply(
    message: wire.AnthropicMessage,
    blocks: Iterable[AnyBlock],
    request: Request,
    chunks: tuple[str, ...] = (),
) -> Reply:
    usage = message.usage
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    return Reply(
        tuple(blocks),
        _STOPS.get(message.stop_reason, "stop"),
        Usage(
            (usage.input_tokens or 0) + read + written,
            usage.output_tokens or 0,
            read,
            written,
            (usage.output_tokens_details or {}).get("thinking_tokens", 0),
        ),
        message.model or request.model,
        message.id,
        chunks=chunks,
    )


def parse_stream(body: bytes, request: Request) -> Reply:
    """Parse a stream of events."""
    message = wire.AnthropicMessage()
    accumulator = StreamAccumulator[int]()
    raw_parts: list[JSON] = []
    for sse_event in parse_sse(body):
        event = wire.decode_event(sse_event.data)
        if event.type == "error":
            error = event.error or {}
            status = _ERROR_STATUSES.get(error.get("type", ""), 500)
            raise ModelError(str(error.get("message", "")), status=status)
        if event.message is not None:
            message = event.message
        # The raw JSON is kept for blocks without a neutral form.
        if event.content_block is not None:
            message.content.append(event.content_block)
            raw_parts.append(msgspec.json.decode(sse_event.data)["content_block"])
        delta = event.delta
        if delta is not None and event.type == "content_block_delta":
            block = accumulator.block(event.index, "text")
            block.signature += delta.signature
            if delta.type == "text_delta":
                accumulator.add_text(event.index, delta.text)
            else:
                block.add(delta.partial_json or delta.thinking)
        elif delta is not None:
            message.stop_reason = delta.stop_reason
        if event.usage is not None:
            # Later counts of a stream include the earlier ones.
            for name in wire.AnthropicUsage.__struct_fields__:
                if (value := getattr(event.usage, name)) is not None:
                    setattr(message.usage, name, value)
    # A block of any type starts with its fields; the text, thinking or input of its deltas is
    # added here, so that blocks without a neutral form are complete, too.
    for index, block in accumulator.items():
        part = message.content[index]
        if block.signature:
            part.signature = (part.signature or "") + block.signature
        if part.type == "text":
            part.text += block.text
        elif part.type == "thinking":
            part.thinking += block.text
        else:
            part.input = parse_arguments(block.text)
            if part.input:
                raw_parts[index]["input"] = part.input
    raw = RawBody(to_json(raw_parts), wire.NAME)
    blocks = [wire.decode_block(part, raw, (index,)) for index, part in enumerate(message.content)]
    return _build_reply(message, blocks, request, tuple(accumulator.chunks))
