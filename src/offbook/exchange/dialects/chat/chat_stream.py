"""Encoding of replies as chat completions and streams of chunks.

Replies of one text are encoded once per text as byte templates, with a placeholder for the id.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal, cast

import msgspec

from offbook.determinism.clock import EPOCH
from offbook.errors import ModelError, UsageError
from offbook.exchange.dialects import openai
from offbook.exchange.dialects.chat import chat_wire as wire
from offbook.exchange.dialects.decoding import raw_block_data, unsupported_block
from offbook.exchange.dialects.streaming import (
    PLACEHOLDER,
    ByteTemplate,
    encode_sse,
    split_fixed,
    split_reply_text,
    split_words,
)
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    RawBlock,
    Text,
    Thinking,
    ToolCall,
    render_arguments,
    render_custom_input,
    to_json,
)
from offbook.exchange.model import Reply, StopReason, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from offbook.exchange.model import Request, Tool

MAX_TEMPLATES = 256
MAX_TEMPLATE_TEXT = 10_000
MAX_CHOICES = 128

Form = Literal["completion", "chunks", "chunks with usage"]

TOOL_CALLS = b"tool_calls"
FINISH_REASONS: dict[StopReason, bytes] = {
    "stop": b"stop",
    "tool_use": TOOL_CALLS,
    "length": b"length",
    "stop_sequence": b"stop",
    "refusal": b"stop",
    "error": b"stop",
}

# The constant parts of a response are literal bytes: most of a response consists of them.
_COMPLETION = (
    b'{"id":%b,"object":"chat.completion","created":%d,"model":%b,"choices":[{"index":0,'
    b'"message":%b,"logprobs":null,"finish_reason":"%b"}],"usage":%b,"service_tier":"default",'
    b'"system_fingerprint":"fp_offbook"}'
)

_USAGE = (
    b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,'
    b'"prompt_tokens_details":{"cached_tokens":%d,"audio_tokens":0},'
    b'"completion_tokens_details":{"reasoning_tokens":%d,"audio_tokens":0,'
    b'"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}'
)

_CHUNK = (
    b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,'
    b'"service_tier":"default","system_fingerprint":"fp_offbook","choices":['
)


# ------------------------------------------------------------------------------ blocks


def encode_call(call: ToolCall, *, custom: bool) -> JSON:
    """Encode a tool call of an assistant message."""
    if custom:
        fields = {"name": call.name, "input": render_custom_input(call.arguments)}
        return {"id": call.id, "type": "custom", "custom": fields}
    fields = {"name": call.name, "arguments": render_arguments(call.arguments)}
    return {"id": call.id, "type": "function", "function": fields}


def encode_function_call(calls: Sequence[ToolCall]) -> JSON:
    """Encode the call of a reply to an agent that offers functions."""
    if len(calls) > 1:
        raise UsageError(
            f"the agent offers functions, which allow one call per reply, got {len(calls)} calls",
            hint="script one call after the other, or offer tools",
        )
    return {"name": calls[0].name, "arguments": render_arguments(calls[0].arguments)}


def split_extra_fields(blocks: Sequence[AnyBlock]) -> tuple[Sequence[AnyBlock], JSON]:
    """Return the blocks of the content, and the other fields of their message."""
    for block in blocks:
        if isinstance(block, RawBlock) and block.kind == wire.EXTRA_FIELDS:
            rest = tuple(other for other in blocks if other is not block)
            return rest, raw_block_data(block, wire.NAME)
    return blocks, {}


class ChatReply:
    """The parts of a reply in the order of the wire format, and its finish reason."""

    __slots__ = ("calls", "extra_fields", "finish", "functions", "refused", "text", "thinking")

    def __init__(self, reply: Reply, tools: Sequence[Tool]) -> None:
        thinking: list[str] = []
        texts: list[str] = []
        self.calls: list[ToolCall] = []
        blocks, self.extra_fields = split_extra_fields(reply.blocks)
        for block in blocks:
            if isinstance(block, Text):
                texts.append(block.text)
            elif isinstance(block, ToolCall):
                self.calls.append(block)
            elif isinstance(block, Thinking):
                thinking.append(block.text)
            else:
                raise unsupported_block(block, wire.NAME)
        self.thinking = "\n".join(thinking)
        self.text = "\n".join(texts)
        self.refused = reply.stop == "refusal" and bool(self.text)
        has_functions = wire.uses_functions(tools)
        self.functions = bool(self.calls) and has_functions
        self.finish = FINISH_REASONS[reply.stop]
        if self.calls and reply.stop == "stop":
            self.finish = TOOL_CALLS
        # A refusal has its text in `refusal`; without text the reply was filtered.
        elif reply.stop == "refusal" and not self.text:
            self.finish = b"content_filter"
        if self.finish == TOOL_CALLS and has_functions:
            self.finish = b"function_call"


def _is_custom(call: ToolCall, tools: Sequence[Tool]) -> bool:
    return call.custom or any(tool.kind == "custom" and tool.name == call.name for tool in tools)


def _encode_usage(usage: Usage) -> bytes:
    total = usage.input + usage.output
    return _USAGE % (usage.input, usage.output, total, usage.cache_read, usage.reasoning)


# -------------------------------------------------------------------------- completion


def _encode_completion(reply: Reply, model: str, tools: Sequence[Tool]) -> bytes:
    """Encode a whole completion, with a placeholder for its id."""
    parts = ChatReply(reply, tools)
    text, calls = parts.text, parts.calls
    message: JSON = {
        "role": "assistant",
        "content": None if parts.refused or (calls and not text) else text,
        "refusal": text if parts.refused else None,
        "annotations": [],
        **parts.extra_fields,
    }
    if parts.thinking:
        message["reasoning_content"] = parts.thinking
    if parts.functions:
        message["function_call"] = encode_function_call(calls)
    elif calls:
        message["tool_calls"] = [encode_call(c, custom=_is_custom(c, tools)) for c in calls]
    return _COMPLETION % (
        PLACEHOLDER,
        EPOCH,
        to_json(model),
        to_json(message),
        parts.finish,
        _encode_usage(reply.usage),
    )


# ------------------------------------------------------------------------------ chunks


def _encode_chunks(
    reply: Reply, model: str, tools: Sequence[Tool], *, with_usage: bool
) -> list[bytes]:
    """Encode the chunks of a stream, with placeholders for its id."""
    parts = ChatReply(reply, tools)
    start = _CHUNK % (PLACEHOLDER, EPOCH, to_json(model))
    head = start + b'{"index":0,"delta":'
    end = b',"usage":null}\n\n' if with_usage else b"}\n\n"
    tail = b',"logprobs":null,"finish_reason":null}]' + end
    # The first delta has the role, and the first call if no text or reasoning precedes it.
    first: JSON = {"role": "assistant", "content": None if parts.refused else "", "refusal": None}
    first.update(parts.extra_fields)
    starts_with_call = bool(parts.calls) and not parts.text and not parts.thinking
    if parts.functions:
        first["content"] = first["content"] or None
    elif starts_with_call:
        first["content"] = None
        first["tool_calls"] = [_open_call(parts.calls[0], 0, tools)]
    chunks = [head + to_json(first) + tail]
    for before, values, after in _deltas(parts, reply, tools, starts_with_call=starts_with_call):
        prefix, suffix = head + before, after + tail
        chunks += [prefix + to_json(value) + suffix for value in values]
    if reply.stop == "error":
        error = openai.error_object(ModelError(openai.SERVER_ERROR, status=500))
        # A broken stream ends with an error and without `[DONE]`.
        return [*chunks, encode_sse(to_json({"error": error}))]
    chunks.append(head + b'{},"logprobs":null,"finish_reason":"' + parts.finish + b'"}]' + end)
    if with_usage:
        chunks.append(start + b'],"usage":' + _encode_usage(reply.usage) + b"}\n\n")
    chunks.append(b"data: [DONE]\n\n")
    return chunks


def _deltas(
    parts: ChatReply, reply: Reply, tools: Sequence[Tool], *, starts_with_call: bool
) -> Iterator[tuple[bytes, Sequence[object], bytes]]:
    """Yield series of deltas that differ in one value: the bytes before, the values, after."""
    if parts.thinking:
        yield b'{"reasoning_content":', split_words(parts.thinking), b"}"
    if parts.text:
        field = b'{"refusal":' if parts.refused else b'{"content":'
        yield field, split_reply_text(reply, parts.text), b"}"
    if parts.functions:
        function = encode_function_call(parts.calls)
        yield b'{"function_call":', [{"name": function["name"], "arguments": ""}], b"}"
        yield b'{"function_call":{"arguments":', split_fixed(function["arguments"]), b"}}"
        return
    for index, call in enumerate(parts.calls):
        if index or not starts_with_call:
            yield b'{"tool_calls":[', [_open_call(call, index, tools)], b"]}"
        if _is_custom(call, tools):
            field, text = b'"custom":{"input":', render_custom_input(call.arguments)
        else:
            field, text = b'"function":{"arguments":', render_arguments(call.arguments)
        yield b'{"tool_calls":[{"index":%d,%b' % (index, field), split_fixed(text), b"}}]}"


def _open_call(call: ToolCall, index: int, tools: Sequence[Tool]) -> JSON:
    """Return a call without its arguments, which follow in later deltas."""
    kind, field = ("custom", "input") if _is_custom(call, tools) else ("function", "arguments")
    return {"index": index, "id": call.id, "type": kind, kind: {"name": call.name, field: ""}}


# --------------------------------------------------------------------------- templates


def encode_template(reply: Reply, request: Request) -> ByteTemplate:
    """Encode a reply as the request asks for it, with placeholders for the id.

    The template of a whole completion has one chunk. A stream has the usage at its end if
    `stream_options` ask for it.
    """
    form: Form = "completion"
    if request.stream:
        options = request.parameters.get("stream_options")
        with_usage = isinstance(options, dict) and cast("JSON", options).get("include_usage")
        form = "chunks with usage" if with_usage else "chunks"
    model = reply.model or request.model
    if len(reply.blocks) == 1:
        (block,) = reply.blocks
        if isinstance(block, Text) and len(block.text) < MAX_TEMPLATE_TEXT:
            return _text_template(form, block.text, reply.stop, reply.usage, model, reply.chunks)
    return _encode(form, reply, model, request.tools)


@lru_cache(MAX_TEMPLATES)  # a scripted reply is often served many times
def _text_template(
    form: Form, text: str, stop: StopReason, usage: Usage, model: str, chunks: tuple[str, ...]
) -> ByteTemplate:
    return _encode(form, Reply((Text(text),), stop, usage, chunks=chunks), model)


def _encode(form: Form, reply: Reply, model: str, tools: tuple[Tool, ...] = ()) -> ByteTemplate:
    if form == "completion":
        return ByteTemplate((_encode_completion(reply, model, tools),))
    with_usage = form == "chunks with usage"
    return ByteTemplate(_encode_chunks(reply, model, tools, with_usage=with_usage))


# --------------------------------------------------------------------- several choices

_decode_json = msgspec.json.Decoder(JSON).decode


def count_choices(parameters: JSON) -> int:
    """Return the number of choices that a request asks for; they all have the same reply."""
    count = parameters.get("n")
    return count if isinstance(count, int) and 1 < count <= MAX_CHOICES else 1


def repeat_choice(completion: bytes, count: int) -> bytes:
    """Return the completion with this many choices."""
    decoded = _decode_json(completion)
    (choice,) = decoded["choices"]
    choices = [{**choice, "index": index} for index in range(count)]
    return to_json({**decoded, "choices": choices})


def repeat_chunks(chunks: Iterable[bytes], count: int) -> Iterator[bytes]:
    """Yield the chunks of a stream with this many choices."""
    for chunk in chunks:
        data = chunk.removeprefix(b"data: ")
        decoded = _decode_json(data) if data.startswith(b"{") else {}
        # The usage and `[DONE]` belong to all choices.
        if not decoded.get("choices"):
            yield chunk
            continue
        (choice,) = decoded["choices"]
        for index in range(count):
            yield encode_sse(to_json({**decoded, "choices": [{**choice, "index": index}]}))
