"""What the model answers, and what an agent asks, as Bedrock writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbook.exchange.arguments import write_arguments
from offbook.exchange.dialects.bedrock import forms
from offbook.exchange.dialects.bedrock.frames import write_event, write_exception
from offbook.exchange.foreign import write_foreign
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    Content,
    Foreign,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    to_json,
)
from offbook.exchange.pieces import cut_reply, cut_runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from offbook.exchange.messages import Message
    from offbook.exchange.reply import Reply, Stop, Usage
    from offbook.exchange.request import Tool

STOPS: dict[Stop, str] = {
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
        case Foreign():
            return write_foreign(block, forms.NAME)
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
            yield from ({"text": piece} for piece in cut_reply(reply, text))
        case ToolCall(_, _, arguments):
            pieces = cut_runs(write_arguments(arguments))
            yield from ({"toolUse": {"input": piece}} for piece in pieces)
        case Thinking(text, signature, False):
            yield from ({"reasoningContent": {"text": piece}} for piece in cut_runs(text))
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
