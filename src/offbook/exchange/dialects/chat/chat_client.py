"""The client side of chat completions: request bodies, and the parsing of responses.

A server needs none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from offbook.exchange.dialects import openai
from offbook.exchange.dialects.chat import chat_wire as wire
from offbook.exchange.dialects.dialect import ConversationStore
from offbook.exchange.dialects.provider_responses import (
    StreamAccumulator,
    error_status,
    error_with_code,
    interrupted_stream,
    invalid_response,
    parse_sse,
)
from offbook.exchange.dialects.wire import (
    RawBody,
    raw_block_data,
    unsupported_block,
)
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    Image,
    Message,
    RawBlock,
    Text,
    Thinking,
    ToolCall,
)
from offbook.exchange.model import STOP_REASONS, Reply, Request, StopReason, Tool, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence


# ----------------------------------------------------------------------------- structs
# `gc=False`: JSON has no reference cycles, so the garbage collector can skip these structs.


class _ChatCachedTokens(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class ChatUsage(msgspec.Struct, gc=False):
    """Token counts."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _ChatCachedTokens | None = None
    completion_tokens_details: openai.OpenAIOutputDetails | None = None


class ChatChoice(msgspec.Struct, gc=False):
    """One choice of a response or stream chunk."""

    message: wire.ChatMessage = msgspec.field(default_factory=wire.ChatMessage)
    delta: wire.ChatMessage = msgspec.field(default_factory=wire.ChatMessage)
    finish_reason: str | None = None


class ChatCompletion(msgspec.Struct, gc=False):
    """A response, or a stream chunk."""

    id: str = ""
    model: str = ""
    choices: list[ChatChoice] = []
    usage: ChatUsage | None = None
    error: JSON | None = None


completion_decoder = msgspec.json.Decoder(ChatCompletion)


# ------------------------------------------------------------------- building requests


def encode_messages(request: Request) -> list[JSON]:
    """Encode the conversation."""
    messages: list[JSON] = []
    functions = wire.uses_functions(request.tools)
    if request.system:
        messages.append({"role": "system", "content": request.system})
    for message in request.messages:
        if message.role == "tool":
            for result in message.results:
                content = _encode_content(result.content)
                if functions:
                    messages.append({"role": "function", "name": result.name, "content": content})
                else:
                    messages.append(
                        {"role": "tool", "tool_call_id": result.call_id, "content": content}
                    )
        elif message.role == "assistant":
            messages.append(_encode_assistant(message, functions=functions))
        else:
            blocks, extra_fields = wire.split_extra_fields(message.blocks)
            messages.append(
                {"role": message.role, "content": _encode_content(blocks), **extra_fields}
            )
    return messages


def _encode_assistant(message: Message, *, functions: bool) -> JSON:
    blocks, extra_fields = wire.split_extra_fields(message.blocks)
    content = tuple(block for block in blocks if isinstance(block, (Text, RawBlock)))
    encoded: JSON = {
        "role": "assistant",
        "content": _encode_content(content) if content else None,
        **extra_fields,
    }
    thinking = "\n".join(block.text for block in blocks if isinstance(block, Thinking))
    if thinking:
        encoded["reasoning_content"] = thinking
    if message.calls and functions:
        encoded["function_call"] = wire.encode_function_call(message.calls)
    elif message.calls:
        encoded["tool_calls"] = [
            wire.encode_call(call, custom=call.custom) for call in message.calls
        ]
    return encoded


def _encode_content(blocks: Sequence[AnyBlock]) -> str | list[JSON]:
    if not blocks:
        return ""
    if len(blocks) == 1 and isinstance(blocks[0], Text):
        return blocks[0].text
    parts: list[JSON] = []
    for block in blocks:
        match block:
            case Text(text):
                parts.append({"type": "text", "text": text})
            case Image():
                url = openai.image_url(block)
                parts.append({"type": "image_url", "image_url": {"url": url}})
            case RawBlock():
                parts.append(raw_block_data(block, wire.NAME))
            case _:
                raise unsupported_block(block, wire.NAME)
    return parts


def encode_tools(tools: Sequence[Tool]) -> JSON:
    """Encode the tools as the `tools` or the `functions` field of a request."""
    encoded: list[JSON] = []
    for tool in tools:
        spec: JSON = {"name": tool.name, "description": tool.description}
        if tool.kind == "custom":
            if tool.schema:
                spec["format"] = tool.schema
            encoded.append({"type": "custom", "custom": spec})
        elif tool.kind == "function":
            spec["parameters"] = tool.schema
            if tool.strict:
                spec["strict"] = True
            encoded.append({"type": "function", "function": spec})
        else:
            encoded.append({"type": tool.kind, **tool.schema})
    if wire.uses_functions(tools):
        return {"functions": [tool["function"] for tool in encoded if "function" in tool]}
    return {"tools": encoded}


# ------------------------------------------------------------------- parsing responses


def parse_completion(body: bytes, request: Request) -> Reply:
    """Parse a whole completion."""
    completion = openai.decode_response(completion_decoder, body)
    if not completion.choices:
        raise invalid_response("the provider", "it has no choices")
    choice = completion.choices[0]
    raw, path = RawBody(body, wire.NAME), ("choices", 0, "message")
    blocks = wire.decode_assistant(choice.message, {}, raw, path, ConversationStore())
    stop = _stop_reason(choice.finish_reason, blocks, refused=bool(choice.message.refusal))
    model = completion.model or request.model
    return Reply(blocks, stop, _parse_usage(completion.usage), model, completion.id)


def _stop_reason(finish: str | None, blocks: Sequence[AnyBlock], *, refused: bool) -> StopReason:
    stop: StopReason = "refusal" if refused else STOP_REASONS.get(finish or "stop", "stop")
    if stop == "stop" and any(isinstance(block, ToolCall) for block in blocks):
        return "tool_use"  # some compatible servers finish every reply with `stop`
    return stop


def _parse_usage(usage: ChatUsage | None) -> Usage:
    if usage is None:
        return Usage()
    cached, reasoning = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        usage.prompt_tokens,
        usage.completion_tokens,
        cache_read=(cached and cached.cached_tokens) or 0,
        reasoning=(reasoning and reasoning.reasoning_tokens) or 0,
    )


# The order of the blocks, whatever the order of their chunks.
_THINKING, _TEXT, _REFUSAL, _CALLS, _FUNCTION = range(5)


def parse_stream(stream: bytes, request: Request) -> Reply:
    """Parse a stream of chunks."""
    accumulator = StreamAccumulator[tuple[int, ...]]()
    reply_id, model, usage, finish = "", "", None, None
    refused = False
    audio: list[JSON] = []
    for event in parse_sse(stream):
        # The end of the stream; a missing finish reason is an error, see below.
        if event.data == "[DONE]":
            break
        chunk = openai.decode_response(completion_decoder, event.data)
        if chunk.error is not None:
            message, code = str(chunk.error.get("message")), chunk.error.get("code")
            status = error_status(chunk.error)
            raise error_with_code(message, code, status, openai.ERROR_CATEGORIES)
        reply_id, model = chunk.id or reply_id, chunk.model or model
        usage = chunk.usage or usage
        # A reply has one choice: the first.
        for choice in chunk.choices[:1]:
            delta = choice.delta
            finish = choice.finish_reason or finish
            if delta.thinking:
                accumulator.block((_THINKING,), "thinking").add(delta.thinking)
            if isinstance(delta.content, str) and delta.content:
                accumulator.add_text((_TEXT,), delta.content)
            if delta.refusal:
                refused = True
                accumulator.add_text((_REFUSAL,), delta.refusal)
            if delta.audio:
                audio.append(delta.audio)
            if delta.function_call is not None:
                block = accumulator.block((_FUNCTION,), "call")
                block.call_id = "function-1"  # functions have no ids
                block.name = block.name or delta.function_call.name or ""
                block.add(delta.function_call.arguments or "")
            for part in delta.tool_calls or ():
                block = accumulator.block((_CALLS, part.index or 0), "call")
                block.call_id = block.call_id or part.id or ""
                if part.custom is not None:
                    block.kind = "custom_call"
                    block.name = block.name or part.custom.name or ""
                    block.add(part.custom.input or "")
                elif part.function is not None:
                    block.name = block.name or part.function.name or ""
                    block.add(part.function.arguments or "")
    if finish is None:
        raise interrupted_stream()
    blocks = accumulator.blocks()
    if audio:
        from offbook.exchange.dialects.chat.chat_choices import find_transcript, join_audio

        spoken = join_audio(audio)
        text = find_transcript(spoken)
        fields = RawBlock(wire.EXTRA_FIELDS, {"audio": spoken}, wire.NAME)
        blocks = (*blocks, Text(text) if text else fields)
    return Reply(
        blocks,
        _stop_reason(finish, blocks, refused=refused),
        _parse_usage(usage),
        model or request.model,
        reply_id,
        chunks=tuple(accumulator.chunks),
    )
