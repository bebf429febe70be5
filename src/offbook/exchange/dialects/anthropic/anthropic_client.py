"""The asking side: requests to Anthropic, and what it answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from offbook.errors import ModelError
from offbook.exchange.dialects import streaming
from offbook.exchange.dialects.anthropic import anthropic_wire
from offbook.exchange.dialects.anthropic.anthropic_messages import read_blocks
from offbook.exchange.dialects.anthropic.anthropic_stream import STOPS, write_block
from offbook.exchange.dialects.decoding import RawBody, raw_block_data
from offbook.exchange.messages import (
    JSON,
    Content,
    Image,
    Message,
    RawBlock,
    Text,
    Thinking,
    ToolResult,
    parse_arguments,
    to_json,
)
from offbook.exchange.model import Reply, StopReason, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from offbook.exchange.model import Request

REASONS: dict[str | None, StopReason] = {
    **{reason: stop for stop, reason in STOPS.items()},
    "pause_turn": "stop",
    "model_context_window_exceeded": "length",
}


def write_turns(messages: Iterable[Message]) -> Iterator[JSON]:
    """The turns of a conversation: results stand in the user's turn, before what the user says."""
    results: list[JSON] = []
    for message in messages:
        if message.role == "tool":
            results += [_write_result(result) for result in message.results]
            continue
        if message.role == "user":
            yield {"role": "user", "content": results + _write_user(message)}
            results = []
            continue
        if results:
            yield {"role": "user", "content": results}
            results = []
        if message.role == "system":
            yield {"role": "system", "content": message.text}
        else:
            yield {"role": "assistant", "content": _write_model(message)}
    if results:
        yield {"role": "user", "content": results}


def _write_user(message: Message) -> list[JSON]:
    return [
        _write_said(block) for block in message.blocks if isinstance(block, (RawBlock, Image, Text))
    ]


def _write_said(block: Content) -> JSON:
    match block:
        case Text(text):
            return {"type": "text", "text": text}
        case Image():
            return _write_image(block)
        case RawBlock():
            return raw_block_data(block, anthropic_wire.NAME)


def _write_model(message: Message) -> list[JSON]:
    sealed = (
        block
        for block in message.blocks
        if not isinstance(block, Thinking) or block.signature or block.redacted
    )
    return [wire for block in sealed if (wire := write_block(block))]


def _write_image(image: Image) -> JSON:
    if image.url:
        return {"type": "image", "source": {"type": "url", "url": image.url}}
    source = {"type": "base64", "media_type": image.media_type, "data": image.data}
    return {"type": "image", "source": source}


def _write_result(result: ToolResult) -> JSON:
    content = [_write_said(part) for part in result.content]
    wire: JSON = {"type": "tool_result", "tool_use_id": result.call_id, "content": content}
    return {**wire, "is_error": True} if result.is_error else wire


def read_error(body: bytes, status: int, headers: dict[str, str]) -> ModelError:
    """The error that Anthropic answered with."""
    try:
        message = str(msgspec.json.decode(body)["error"]["message"])
    except (msgspec.MsgspecError, LookupError, TypeError):
        message = body[:200].decode("utf-8", "replace")
    return ModelError(
        message or f"status {status}", status=status, retry_after=_read_delay(headers)
    )


def _read_delay(headers: dict[str, str]) -> float | None:
    try:
        return float(headers["retry-after"])
    except (KeyError, ValueError):
        return None


def read_reply(
    message: anthropic_wire.AnthropicMessage,
    request: Request,
    seen: RawBody,
    chunks: tuple[str, ...] = (),
) -> Reply:
    """The reply that a message holds."""
    return Reply(
        tuple(read_blocks(message.content, seen, ("content",))),
        REASONS.get(message.stop_reason, "stop"),
        _read_usage(message.usage),
        message.model or request.model,
        message.id,
        chunks=chunks,
    )


def _read_usage(usage: anthropic_wire.AnthropicUsage) -> Usage:
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    return Usage(
        (usage.input_tokens or 0) + read + written,
        usage.output_tokens or 0,
        read,
        written,
        (usage.output_tokens_details or {}).get("thinking_tokens", 0),
    )


def gather_reply(body: bytes, request: Request) -> Reply:
    """The reply whose events these are."""
    message = anthropic_wire.AnthropicMessage()
    chunks: list[str] = []
    texts: dict[int, list[str]] = {}
    begun: list[JSON] = []
    for raw in streaming.parse_sse(body):
        event = anthropic_wire.event(raw.data)
        if event.type == "error":
            about = event.error or {}
            status = next(
                (s for s, kind in anthropic_wire.ERRORS.items() if kind == about.get("type")), 500
            )
            raise ModelError(str(about.get("message", "")), status=status)
        if event.message is not None:
            message = event.message
        if event.content_block is not None:
            message.content.append(event.content_block)
            begun.append(msgspec.json.decode(raw.data)["content_block"])
        if event.type == "content_block_delta" and event.delta is not None:
            part = message.content[event.index]
            texts.setdefault(event.index, []).append(_add_delta(part, event.delta))
            if event.delta.type == "text_delta":
                chunks.append(event.delta.text)
        elif event.delta is not None:
            message.stop_reason = event.delta.stop_reason
        if event.usage is not None:
            _add_usage(message.usage, event.usage)
    for index, pieces in texts.items():
        _fill(message.content[index], "".join(pieces))
    seen = _look_at(message.content, begun)
    return read_reply(message, request, seen, tuple(chunks))


def _look_at(content: list[anthropic_wire.AnthropicPart], begun: list[JSON]) -> RawBody:
    """The blocks as they began, with the input that came after."""
    whole = [
        {**block, "input": part.input} if part.input else block
        for part, block in zip(content, begun, strict=True)
    ]
    return RawBody(to_json({"content": whole}), anthropic_wire.NAME)


def _add_delta(part: anthropic_wire.AnthropicPart, delta: anthropic_wire.AnthropicDelta) -> str:
    if delta.type == "signature_delta":
        part.signature = (part.signature or "") + delta.signature
    return delta.text or delta.partial_json or delta.thinking


def _fill(part: anthropic_wire.AnthropicPart, text: str) -> None:
    match part.type:
        case "text":
            part.text += text
        case "thinking":
            part.thinking += text
        case _:
            part.input = parse_arguments(text)


def _add_usage(total: anthropic_wire.AnthropicUsage, usage: anthropic_wire.AnthropicUsage) -> None:
    """What comes later in a stream counts from its beginning."""
    for name in anthropic_wire.AnthropicUsage.__struct_fields__:
        if (value := getattr(usage, name)) is not None:
            setattr(total, name, value)
