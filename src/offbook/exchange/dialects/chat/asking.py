"""The asking side: requests to a provider, and what it answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from offbook.errors import ModelError
from offbook.exchange import sse
from offbook.exchange.dialects import openai
from offbook.exchange.dialects.chat import forms
from offbook.exchange.dialects.chat.decode import read_spoken
from offbook.exchange.dialects.chat.encode import write_call
from offbook.exchange.messages import JSON, AnyBlock, Image, Message, Text, Thinking
from offbook.exchange.reply import Reply, Stop, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offbook.exchange.request import Request, Tool

STOPS: dict[str, Stop] = {
    "stop": "stop",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "length",
    "content_filter": "refusal",
}


def write_messages(request: Request) -> list[JSON]:
    """The conversation."""
    wired: list[JSON] = []
    if request.system:
        wired.append({"role": "system", "content": request.system})
    for message in request.messages:
        if message.role == "tool":
            wired += (
                {
                    "role": "tool",
                    "tool_call_id": result.call_id,
                    "content": _write_content(result.content),
                }
                for result in message.results
            )
        elif message.role == "assistant":
            wired.append(_write_assistant(message))
        else:
            wired.append({"role": message.role, "content": _write_content(message.blocks)})
    return wired


def _write_assistant(message: Message) -> JSON:
    texts = tuple(block for block in message.blocks if isinstance(block, Text))
    wired: JSON = {"role": "assistant", "content": _write_content(texts) if texts else None}
    thoughts = _join_thoughts(message.blocks)
    if thoughts:
        wired["reasoning_content"] = thoughts
    if message.calls:
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
        case _:
            raise openai.cannot_say(block, forms.NAME)


def write_tool(tool: Tool) -> JSON:
    """A tool, as OpenAI is told of it."""
    if tool.kind == "custom":
        offer: JSON = {"name": tool.name, "description": tool.description}
        if tool.schema:
            offer["format"] = tool.schema
        return {"type": "custom", "custom": offer}
    offer = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    if tool.strict:
        offer["strict"] = True
    return {"type": tool.kind, "function": offer}


def _join_thoughts(blocks: Sequence[AnyBlock]) -> str:
    return "\n".join(block.text for block in blocks if isinstance(block, Thinking))


def read_reply(
    whole: forms.Completion, said: forms.Message, finish: str | None, request: Request
) -> Reply:
    """The reply that a completion holds."""
    blocks = read_spoken(said, {})
    stop: Stop = "refusal" if said.refusal else STOPS.get(finish or "stop", "stop")
    if stop == "stop" and said.tool_calls:
        stop = "tool_use"
    return Reply(blocks, stop, _read_usage(whole.usage), whole.model or request.model, whole.id)


def _read_usage(usage: forms.Usage | None) -> Usage:
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
    whole, said = forms.Completion(), forms.Message()
    calls: dict[int, forms.Call] = {}
    pieces: list[str] = []
    thoughts: list[str] = []
    refusal: list[str] = []
    finish = None
    for event in sse.read(stream):
        if event.data == "[DONE]":
            break
        chunk = openai.read_answer(forms.completion, event.data)
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
            for piece in delta.tool_calls or ():
                _add_call(calls.setdefault(piece.index, forms.Call()), piece)
    if finish is None:
        raise ModelError("the stream broke off before its end", status=502)
    said.content, said.refusal = "".join(pieces), "".join(refusal)
    said.reasoning_content = "".join(thoughts)
    said.tool_calls = [calls[index] for index in sorted(calls)]
    reply = read_reply(whole, said, finish, request)
    return msgspec.structs.replace(reply, chunks=tuple(pieces or refusal))


def _add_call(call: forms.Call, piece: forms.Call) -> None:
    call.id = call.id or piece.id
    if piece.function is not None:
        function = call.function = call.function or forms.Function()
        function.name = function.name or piece.function.name
        function.arguments = (function.arguments or "") + (piece.function.arguments or "")
    if piece.custom is not None:
        custom = call.custom = call.custom or forms.Custom()
        custom.name = custom.name or piece.custom.name
        custom.input = (custom.input or "") + (piece.custom.input or "")
