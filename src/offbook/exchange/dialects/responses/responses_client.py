"""The client side of the Responses API: request items, and parsing of responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbook.errors import ModelError
from offbook.exchange.dialects import openai
from offbook.exchange.dialects.conversations import ConversationStore
from offbook.exchange.dialects.decoding import RawBody, raw_block_data, unsupported_block
from offbook.exchange.dialects.response_parsing import TRUNCATED_STREAM, error_with_code
from offbook.exchange.dialects.responses import responses_wire as wire
from offbook.exchange.dialects.responses.responses_stream import encode_item
from offbook.exchange.dialects.streaming import parse_sse
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

_LAST_EVENTS = {"response.completed", "response.incomplete", "response.failed"}


# ------------------------------------------------------------------- building requests


def encode_items(messages: Sequence[Message]) -> list[JSON]:
    """Encode the conversation as items."""
    items: list[JSON] = []
    # The type of a result depends on the type of its call.
    custom_calls = {call.id for message in messages for call in message.calls if call.custom}
    for index, message in enumerate(messages):
        if message.role == "assistant":
            groups = wire.group_blocks(message.blocks)
            items += (
                encode_item(group, f"in{index}_{number}", "stop")
                for number, group in enumerate(groups)
            )
        elif message.role != "tool":
            content = [_encode_part(block) for block in message.blocks]
            items.append({"type": "message", "role": message.role, "content": content})
        else:
            for block in message.blocks:
                match block:
                    case ToolResult(call_id):
                        items.append(_encode_result(block, is_custom=call_id in custom_calls))
                    case RawBlock():
                        items.append(raw_block_data(block, wire.NAME))
                    case _:
                        raise unsupported_block(block, wire.NAME)
    return items


def _encode_result(result: ToolResult, *, is_custom: bool) -> JSON:
    content = result.content
    is_text = not content or (len(content) == 1 and isinstance(content[0], Text))
    return {
        "type": "custom_tool_call_output" if is_custom else "function_call_output",
        "call_id": result.call_id,
        "output": result.text if is_text else [_encode_part(block) for block in content],
    }


def _encode_part(block: AnyBlock) -> JSON:
    match block:
        case Text(text):
            return {"type": "input_text", "text": text}
        case Image():
            return {"type": "input_image", "image_url": openai.image_url(block)}
        case RawBlock():
            return raw_block_data(block, wire.NAME)
        case _:
            raise unsupported_block(block, wire.NAME)


# ------------------------------------------------------------------- parsing responses


def parse_response_body(body: bytes, request: Request) -> Reply:
    """Parse a whole response."""
    response = openai.decode_response(wire.response_decoder, body)
    return _build_reply(response, request, RawBody(body, wire.NAME), ("output",))


def parse_stream(stream: bytes, request: Request) -> Reply:
    """Parse a stream of events.

    The items come whole when they are done, so nothing but the text chunks is accumulated.
    """
    items: list[wire.ResponsesItem] = []
    raw_items: list[str] = []
    chunks: list[str] = []
    for sse_event in parse_sse(stream):
        data = sse_event.data
        if data == "[DONE]":
            break
        event = openai.decode_response(wire.event_decoder, data)
        if event.type in {"response.output_text.delta", "response.refusal.delta"}:
            chunks.append(str(event.delta))
        elif event.type == "response.output_item.done" and event.item is not None:
            items.append(event.item)
            raw_item = openai.decode_response(wire.raw_item_decoder, data).item
            raw_items.append(bytes(raw_item).decode())
        elif event.type == "error":
            error = event.error or wire.ResponsesError(event.code, event.message)
            raise error_with_code(
                error.message or "", error.code, event.status, openai.ERROR_CATEGORIES
            )
        elif event.response is not None and event.type in _LAST_EVENTS:
            response = event.response
            if response.output:
                raw, path = RawBody(data, wire.NAME), ("response", "output")
                return _build_reply(response, request, raw, path, tuple(chunks))
            # Some servers leave the output of the last event empty.
            response.output = items
            raw = RawBody(f"[{','.join(raw_items)}]", wire.NAME)
            return _build_reply(response, request, raw, (), tuple(chunks))
    raise ModelError(TRUNCATED_STREAM, status=502)


def _build_reply(
    response: wire.ResponsesResponse,
    request: Request,
    raw: RawBody,
    path: tuple[str, ...],
    chunks: tuple[str, ...] = (),
) -> Reply:
    """Return the reply of a response; `path` leads to its items in the raw body."""
    if response.error is not None or response.status == "failed":
        error = response.error or wire.ResponsesError()
        raise error_with_code(
            error.message or openai.SERVER_ERROR, error.code, 500, openai.ERROR_CATEGORIES
        )
    reader = wire.ItemReader(frozenset(), ConversationStore(), wire.EMPTY_STATE, raw)
    reader.read(response.output, *path)
    blocks = tuple(block for message in reader.finish().history for block in message.blocks)
    return Reply(
        blocks,
        _parse_stop(response, blocks),
        _parse_usage(response.usage),
        response.model or request.model,
        response.id,
        chunks=chunks,
    )


def _parse_stop(response: wire.ResponsesResponse, blocks: tuple[AnyBlock, ...]) -> StopReason:
    if response.status == "incomplete":
        reason = response.incomplete_details and response.incomplete_details.reason
        return "refusal" if reason == "content_filter" else "length"
    for item in response.output:
        if isinstance(item.content, list) and any(part.refusal for part in item.content):
            return "refusal"
    return "tool_use" if any(isinstance(block, ToolCall) for block in blocks) else "stop"


def _parse_usage(usage: wire.ResponsesUsage | None) -> Usage:
    if usage is None:
        return Usage()
    cached, reasoning = usage.input_tokens_details, usage.output_tokens_details
    return Usage(
        usage.input_tokens,
        usage.output_tokens,
        cache_read=(cached and cached.cached_tokens) or 0,
        cache_write=(cached and cached.cache_write_tokens) or 0,
        reasoning=(reasoning and reasoning.reasoning_tokens) or 0,
    )
