"""The asking side: requests to a provider, and what it answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbook.errors import ModelError
from offbook.exchange.dialects import openai, streaming
from offbook.exchange.dialects.conversations import ConversationStore
from offbook.exchange.dialects.decoding import RawBody, raw_block_data, unsupported_block
from offbook.exchange.dialects.responses import responses_wire
from offbook.exchange.dialects.responses.responses_messages import ItemReader, group_blocks
from offbook.exchange.dialects.responses.responses_stream import write_item
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    Image,
    Message,
    RawBlock,
    Text,
    ToolCall,
    ToolResult,
)
from offbook.exchange.model import Reply, StopReason, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offbook.exchange.model import Request


def write_items(messages: Sequence[Message]) -> list[JSON]:
    """The conversation, item by item."""
    items: list[JSON] = []
    for at, message in enumerate(messages):
        if message.role == "tool":
            items += (_write_answer(block, messages) for block in message.blocks)
        elif message.role == "assistant":
            parts = group_blocks(message.blocks)
            items += (write_item(part, f"in{at}_{n}", "stop") for n, part in enumerate(parts))
        else:
            content = [_write_part(block) for block in message.blocks]
            items.append({"type": "message", "role": message.role, "content": content})
    return items


def _write_answer(block: AnyBlock, messages: Sequence[Message]) -> JSON:
    match block:
        case ToolResult():
            return _write_result(block, messages)
        case RawBlock():
            return raw_block_data(block, responses_wire.NAME)
        case _:
            raise unsupported_block(block, responses_wire.NAME)


def _write_result(result: ToolResult, messages: Sequence[Message]) -> JSON:
    content = result.content
    custom = any(c.custom for m in messages for c in m.calls if c.id == result.call_id)
    plain = len(content) == 1 and isinstance(content[0], Text)
    return {
        "type": "custom_tool_call_output" if custom else "function_call_output",
        "call_id": result.call_id,
        "output": result.text if plain or not content else [_write_part(b) for b in content],
    }


def _write_part(block: AnyBlock) -> JSON:
    match block:
        case Text(text):
            return {"type": "input_text", "text": text}
        case Image():
            return {"type": "input_image", "image_url": openai.write_image(block)}
        case RawBlock():
            return raw_block_data(block, responses_wire.NAME)
        case _:
            raise unsupported_block(block, responses_wire.NAME)


def _read_usage(usage: responses_wire.ResponsesUsage | None) -> Usage:
    if usage is None:
        return Usage()
    cached, reasoned = usage.input_tokens_details, usage.output_tokens_details
    return Usage(
        usage.input_tokens,
        usage.output_tokens,
        cache_read=(cached and cached.cached_tokens) or 0,
        cache_write=(cached and cached.cache_write_tokens) or 0,
        reasoning=(reasoned and reasoned.reasoning_tokens) or 0,
    )


def gather_reply(stream: bytes, request: Request) -> Reply:
    """The reply that a stream brought event by event."""
    items: list[responses_wire.ResponsesItem] = []
    raws: list[str] = []
    pieces: list[str] = []
    for said in streaming.parse_sse(stream):
        if said.data == "[DONE]":
            break
        event = openai.read_answer(responses_wire.event, said.data)
        if event.type in {"response.output_text.delta", "response.refusal.delta"}:
            pieces.append(str(event.delta))
        elif event.type == "response.output_item.done" and event.item is not None:
            items.append(event.item)
            raws.append(bytes(openai.read_answer(responses_wire.raw_item, said.data).item).decode())
        elif event.type == "error":
            error = event.error or responses_wire.ResponsesError(event.code, event.message)
            raise openai.as_error(error.message or "", error.code, event.status)
        elif event.response is not None and event.type in _ENDS:
            response = event.response
            if response.output:
                seen = RawBody(said.data, responses_wire.NAME)
                return read_reply(response, tuple(pieces), request, seen, "response", "output")
            response.output = items
            seen = RawBody(f"[{','.join(raws)}]", responses_wire.NAME)
            return read_reply(response, tuple(pieces), request, seen)
    raise ModelError("the stream broke off before its end", status=502)


_ENDS = {"response.completed", "response.incomplete", "response.failed"}


def read_reply(
    response: responses_wire.ResponsesResponse,
    chunks: tuple[str, ...],
    request: Request,
    seen: RawBody,
    *root: str | int,
) -> Reply:
    """The reply that a response holds; `root` is where its items stand in what was seen."""
    if response.error is not None or response.status == "failed":
        error = response.error or responses_wire.ResponsesError()
        raise openai.as_error(error.message or openai.FAILURE, error.code, 500)
    said = ItemReader(frozenset(), ConversationStore(), responses_wire.NOTHING, seen)
    said.read(response.output, *root)
    blocks = tuple(block for message in said.finish().history for block in message.blocks)
    return Reply(
        blocks,
        _read_stop(response, blocks),
        _read_usage(response.usage),
        response.model or request.model,
        response.id,
        chunks=chunks,
    )


def _read_stop(
    response: responses_wire.ResponsesResponse, blocks: tuple[AnyBlock, ...]
) -> StopReason:
    if response.status == "incomplete":
        reason = response.incomplete_details and response.incomplete_details.reason
        return "refusal" if reason == "content_filter" else "length"
    parts = [p for item in response.output if isinstance(item.content, list) for p in item.content]
    if any(part.refusal for part in parts):
        return "refusal"
    return "tool_use" if any(isinstance(block, ToolCall) for block in blocks) else "stop"
