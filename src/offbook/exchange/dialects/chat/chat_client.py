"""The asking side: requests to a provider, and what it answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from offbook.errors import ModelError
from offbook.exchange.dialects import openai, streaming
from offbook.exchange.dialects.chat import chat_wire
from offbook.exchange.dialects.chat.chat_messages import is_legacy, read_spoken
from offbook.exchange.dialects.chat.chat_messages import write_function_call as write_function
from offbook.exchange.dialects.chat.chat_stream import find_beside, write_call
from offbook.exchange.dialects.conversations import ConversationStore
from offbook.exchange.dialects.decoding import RawBody, raw_block_data, unsupported_block
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    Image,
    Message,
    RawBlock,
    Text,
    Thinking,
    ToolResult,
)
from offbook.exchange.model import Reply, StopReason, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offbook.exchange.model import Request, Tool

NOTHING = RawBody(b"{}", chat_wire.NAME)
STOPS: dict[str, StopReason] = {
    "stop": "stop",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "length",
    "content_filter": "refusal",
}


def write_messages(request: Request) -> list[JSON]:
    """The conversation."""
    wired: list[JSON] = []
    legacy = is_legacy(request.tools)
    if request.system:
        wired.append({"role": "system", "content": request.system})
    for message in request.messages:
        if message.role == "tool":
            wired += (_write_result(result, legacy=legacy) for result in message.results)
        elif message.role == "assistant":
            wired.append(_write_assistant(message, legacy=legacy))
        else:
            parts, beside = find_beside(message.blocks)
            wired.append({"role": message.role, "content": _write_content(parts), **beside})
    return wired


def _write_result(result: ToolResult, *, legacy: bool) -> JSON:
    content = _write_content(result.content)
    if legacy:
        return {"role": "function", "name": result.name, "content": content}
    return {"role": "tool", "tool_call_id": result.call_id, "content": content}


def _write_assistant(message: Message, *, legacy: bool) -> JSON:
    blocks, beside = find_beside(message.blocks)
    said = tuple(block for block in blocks if isinstance(block, (Text, RawBlock)))
    wired: JSON = {"role": "assistant", "content": _write_content(said) if said else None, **beside}
    thoughts = _join_thoughts(message.blocks)
    if thoughts:
        wired["reasoning_content"] = thoughts
    if message.calls and legacy:
        wired["function_call"] = write_function(message.calls)
    elif message.calls:
        wired["tool_calls"] = [write_call(call, custom=call.custom) for call in message.calls]
    return wired


def _write_content(blocks: Sequence[AnyBlock]) -> str | list[JSON]:
    if not blocks:
        return ""
    if len(blocks) == 1 and isinstance(blocks[0], Text):
        return blocks[0].text
    return [_write_part(block) for block in blocks]


def _write_part(block: AnyBlock) -> JSON:
    match block:
        case Text(text):
            return {"type": "text", "text": text}
        case Image():
            return {"type": "image_url", "image_url": {"url": openai.write_image(block)}}
        case RawBlock():
            return raw_block_data(block, chat_wire.NAME)
        case _:
            raise unsupported_block(block, chat_wire.NAME)


def write_tools(tools: Sequence[Tool]) -> JSON:
    """The tools, as OpenAI is told of them."""
    written = [_write_tool(tool) for tool in tools]
    if is_legacy(tools):
        return {"functions": [tool["function"] for tool in written if "function" in tool]}
    return {"tools": written}


def _write_tool(tool: Tool) -> JSON:
    if tool.kind == "custom":
        offer: JSON = {"name": tool.name, "description": tool.description}
        if tool.schema:
            offer["format"] = tool.schema
        return {"type": "custom", "custom": offer}
    if tool.kind != "function":
        return {"type": tool.kind, **tool.schema}
    offer = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    if tool.strict:
        offer["strict"] = True
    return {"type": "function", "function": offer}


def _join_thoughts(blocks: Sequence[AnyBlock]) -> str:
    return "\n".join(block.text for block in blocks if isinstance(block, Thinking))


def read_reply(
    whole: chat_wire.ChatCompletion,
    said: chat_wire.ChatMessage,
    finish: str | None,
    request: Request,
    seen: RawBody = NOTHING,
) -> Reply:
    """The reply that a completion holds."""
    blocks = read_spoken(said, {}, seen, ("choices", 0, "message"), ConversationStore())
    stop: StopReason = "refusal" if said.refusal else STOPS.get(finish or "stop", "stop")
    if stop == "stop" and (said.tool_calls or said.function_call):
        stop = "tool_use"
    return Reply(blocks, stop, _read_usage(whole.usage), whole.model or request.model, whole.id)


def _read_usage(usage: chat_wire.ChatUsage | None) -> Usage:
    if usage is None:
        return Usage()
    cached, reasoned = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        usage.prompt_tokens,
        usage.completion_tokens,
        cache_read=(cached and cached.cached_tokens) or 0,
        reasoning=(reasoned and reasoned.reasoning_tokens) or 0,
    )


def gather_reply(stream: bytes, request: Request) -> Reply:
    """The reply that a stream brought piece by piece."""
    whole, said = chat_wire.ChatCompletion(), chat_wire.ChatMessage()
    calls: dict[int, chat_wire.ChatToolCall] = {}
    pieces: list[str] = []
    thoughts: list[str] = []
    refusal: list[str] = []
    finish = None
    for event in streaming.parse_sse(stream):
        if event.data == "[DONE]":
            break
        chunk = openai.read_answer(chat_wire.completion, event.data)
        if chunk.error is not None:
            raise openai.as_error(str(chunk.error.get("message")), chunk.error.get("code"), 500)
        whole.id, whole.model = chunk.id or whole.id, chunk.model or whole.model
        whole.usage = chunk.usage or whole.usage
        for choice in chunk.choices[:1]:
            delta = choice.delta
            finish = choice.finish_reason or finish
            if isinstance(delta.content, str) and delta.content:
                pieces.append(delta.content)
            if delta.refusal:
                refusal.append(delta.refusal)
            thoughts.append(delta.thoughts)
            if delta.function_call is not None:
                said.function_call = said.function_call or chat_wire.ChatFunctionCall()
                _add_function(said.function_call, delta.function_call)
            for piece in delta.tool_calls or ():
                _add_call(calls.setdefault(piece.index or 0, chat_wire.ChatToolCall()), piece)
    if finish is None:
        raise ModelError("the stream broke off before its end", status=502)
    said.content, said.refusal = "".join(pieces), "".join(refusal)
    said.reasoning_content = "".join(thoughts)
    said.tool_calls = [calls[index] for index in sorted(calls)]
    reply = read_reply(whole, said, finish, request)
    return msgspec.structs.replace(reply, chunks=tuple(pieces or refusal))


def _add_call(call: chat_wire.ChatToolCall, piece: chat_wire.ChatToolCall) -> None:
    call.id = call.id or piece.id
    if piece.function is not None:
        call.function = call.function or chat_wire.ChatFunctionCall()
        _add_function(call.function, piece.function)
    if piece.custom is not None:
        custom = call.custom = call.custom or chat_wire.ChatCustomCall()
        custom.name = custom.name or piece.custom.name
        custom.input = (custom.input or "") + (piece.custom.input or "")


def _add_function(call: chat_wire.ChatFunctionCall, piece: chat_wire.ChatFunctionCall) -> None:
    call.name = call.name or piece.name
    call.arguments = (call.arguments or "") + (piece.arguments or "")
