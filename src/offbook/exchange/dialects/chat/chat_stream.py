"""What the model answers, as one completion."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal, cast

import msgspec

from offbook.determinism.clock import EPOCH
from offbook.errors import ModelError
from offbook.exchange.dialects import openai, streaming
from offbook.exchange.dialects.chat import chat_wire
from offbook.exchange.dialects.chat.chat_messages import is_legacy
from offbook.exchange.dialects.chat.chat_messages import write_function_call as write_function
from offbook.exchange.dialects.decoding import raw_block_data, unsupported_block
from offbook.exchange.dialects.streaming import (
    PLACEHOLDER,
    ByteTemplate,
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


# --- What the model answers, as one completion.

CALLED = b"tool_calls"
FINISH: dict[StopReason, bytes] = {
    "stop": b"stop",
    "tool_use": CALLED,
    "length": b"length",
    "stop_sequence": b"stop",
    "refusal": b"stop",
    "error": b"stop",
}


def write_call(call: ToolCall, *, custom: bool) -> JSON:
    """A call, as an assistant's message has it."""
    if custom:
        said = {"name": call.name, "input": render_custom_input(call.arguments)}
        return {"id": call.id, "type": "custom", "custom": said}
    said = {"name": call.name, "arguments": render_arguments(call.arguments)}
    return {"id": call.id, "type": "function", "function": said}


def find_beside(blocks: Sequence[AnyBlock]) -> tuple[Sequence[AnyBlock], JSON]:
    """The blocks, and apart from them what stands beside the content of their message."""
    for block in blocks:
        if isinstance(block, RawBlock) and block.kind == chat_wire.BESIDE:
            rest = tuple(other for other in blocks if other is not block)
            return rest, raw_block_data(block, chat_wire.NAME)
    return blocks, {}


class ChatReply:
    """A reply in the order of the wire: its thoughts, its text, its calls, why it ended."""

    __slots__ = ("beside", "calls", "finish", "refused", "text", "thoughts")

    def __init__(self, reply: Reply) -> None:
        thoughts: list[str] = []
        texts: list[str] = []
        self.calls: list[ToolCall] = []
        blocks, self.beside = find_beside(reply.blocks)
        for block in blocks:
            if isinstance(block, Text):
                texts.append(block.text)
            elif isinstance(block, ToolCall):
                self.calls.append(block)
            elif isinstance(block, Thinking):
                thoughts.append(block.text)
            else:
                raise unsupported_block(block, chat_wire.NAME)
        self.thoughts = "\n".join(thoughts)
        self.text = "\n".join(texts)
        self.refused = reply.stop == "refusal" and bool(self.text)
        self.finish = FINISH[reply.stop]
        if self.calls and reply.stop == "stop":
            self.finish = CALLED
        elif reply.stop == "refusal" and not self.text:
            self.finish = b"content_filter"


def find_finish(said: ChatReply, tools: Sequence[Tool]) -> bytes:
    """Why it ended, as it is told to somebody who offered these."""
    return b"function_call" if said.finish == CALLED and is_legacy(tools) else said.finish


def is_custom(call: ToolCall, tools: Sequence[Tool]) -> bool:
    """Whether a call goes to a tool that takes a text."""
    return call.custom or any(tool.kind == "custom" and tool.name == call.name for tool in tools)


def write_completion(reply: Reply, model: str, tools: Sequence[Tool]) -> bytes:
    """The completion, with a hole for the id."""
    said = ChatReply(reply)
    return _COMPLETION % (
        PLACEHOLDER,
        EPOCH,
        to_json(model),
        to_json(_write_spoken(said, tools)),
        find_finish(said, tools),
        write_usage(reply.usage),
    )


def _write_spoken(said: ChatReply, tools: Sequence[Tool]) -> JSON:
    text, calls = said.text, said.calls
    message: JSON = {
        "role": "assistant",
        "content": None if said.refused or (calls and not text) else text,
        "refusal": text if said.refused else None,
        "annotations": [],
        **said.beside,
    }
    if said.thoughts:
        message["reasoning_content"] = said.thoughts
    if calls and is_legacy(tools):
        message["function_call"] = write_function(calls)
    elif calls:
        message["tool_calls"] = [write_call(c, custom=is_custom(c, tools)) for c in calls]
    return message


def write_usage(usage: Usage) -> bytes:
    """The tokens, as OpenAI counts them."""
    total = usage.input + usage.output
    return _USAGE % (usage.input, usage.output, total, usage.cache_read, usage.reasoning)


# The parts of every answer that never change are bytes already: most of an answer is such parts.
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


# --- What the model answers, event by event.

_CHUNK = (
    b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,'
    b'"service_tier":"default","system_fingerprint":"fp_offbook","choices":['
)


def write_events(reply: Reply, model: str, tools: Sequence[Tool], *, counted: bool) -> list[bytes]:
    """The events of a reply, each with a hole for the id."""
    said = ChatReply(reply)
    start = _CHUNK % (PLACEHOLDER, EPOCH, to_json(model))
    head = start + b'{"index":0,"delta":'
    end = b',"usage":null}\n\n' if counted else b"}\n\n"
    tail = b',"logprobs":null,"finish_reason":null}]' + end
    events = [head + to_json(_open_delta(said, tools)) + tail]
    for field, pieces in _runs(said, reply, tools):
        before, after = head + field[0], field[1] + tail
        events += [before + to_json(piece) + after for piece in pieces]
    if reply.stop == "error":
        error = openai.describe_error(ModelError(openai.FAILURE, status=500))
        return [*events, streaming.encode_sse(to_json({"error": error}))]
    events.append(
        head + b'{},"logprobs":null,"finish_reason":"' + find_finish(said, tools) + b'"}]' + end
    )
    if counted:
        events.append(start + b'],"usage":' + write_usage(reply.usage) + b"}\n\n")
    events.append(b"data: [DONE]\n\n")
    return events


def _open_delta(said: ChatReply, tools: Sequence[Tool]) -> JSON:
    """The first delta: the role, and the first call with it where nothing comes before that."""
    first: JSON = {"role": "assistant", "content": None if said.refused else "", "refusal": None}
    first.update(said.beside)
    if said.calls and is_legacy(tools):
        first["content"] = first["content"] or None
    elif _calls_first(said):
        first["content"] = None
        first["tool_calls"] = [_open_call(said.calls[0], 0, tools)]
    return first


def _calls_first(said: ChatReply) -> bool:
    return bool(said.calls) and not said.text and not said.thoughts


def _runs(
    said: ChatReply, reply: Reply, tools: Sequence[Tool]
) -> Iterator[tuple[tuple[bytes, bytes], Sequence[object]]]:
    """Runs of deltas that differ in one value: what stands before and after it, and the values."""
    if said.thoughts:
        yield (b'{"reasoning_content":', b"}"), split_words(said.thoughts)
    if said.text:
        field = b'{"refusal":' if said.refused else b'{"content":'
        yield (field, b"}"), split_reply_text(reply, said.text)
    if said.calls and is_legacy(tools):
        call = write_function(said.calls)
        yield (b'{"function_call":', b"}"), [{"name": call["name"], "arguments": ""}]
        yield (b'{"function_call":{"arguments":', b"}}"), split_fixed(call["arguments"])
        return
    for index, call in enumerate(said.calls):
        if index or not _calls_first(said):
            yield (b'{"tool_calls":[', b"]}"), [_open_call(call, index, tools)]
        custom = is_custom(call, tools)
        inside = b'"custom":{"input":' if custom else b'"function":{"arguments":'
        written = (
            render_custom_input(call.arguments) if custom else render_arguments(call.arguments)
        )
        head = b'{"tool_calls":[{"index":%d,%b' % (index, inside)
        yield (head, b"}}]}"), split_fixed(written)


def _open_call(call: ToolCall, index: int, tools: Sequence[Tool]) -> JSON:
    opened = write_call(call, custom=is_custom(call, tools))
    kind = opened["type"]
    opened[kind] = {"name": call.name, ("input" if kind == "custom" else "arguments"): ""}
    return {"index": index, **opened}


# --- Completions and streams of them, drafted: all is there but the id, and a text is drafted once.

KEPT = 256
LONG = 10_000

Form = Literal["whole", "events", "counted events"]


def draft_completion(reply: Reply, request: Request) -> ByteTemplate:
    """The completion, in one piece."""
    return _draft("whole", reply, request)


def draft_events(reply: Reply, request: Request) -> ByteTemplate:
    """The events of a stream, with the usage at its end if that was asked for."""
    options = request.parameters.get("stream_options")
    counted = isinstance(options, dict) and bool(cast("JSON", options).get("include_usage"))
    return _draft("counted events" if counted else "events", reply, request)


def _draft(form: Form, reply: Reply, request: Request) -> ByteTemplate:
    model = reply.model or request.model
    if len(reply.blocks) == 1:
        (only,) = reply.blocks
        if isinstance(only, Text) and len(only.text) < LONG:
            return _draft_text(form, only.text, reply.stop, reply.usage, model, reply.chunks)
    return _write(form, reply, model, request.tools)


@lru_cache(KEPT)
def _draft_text(
    form: Form, text: str, stop: StopReason, usage: Usage, model: str, chunks: tuple[str, ...]
) -> ByteTemplate:
    return _write(form, Reply((Text(text),), stop, usage, chunks=chunks), model)


def _write(form: Form, reply: Reply, model: str, tools: tuple[Tool, ...] = ()) -> ByteTemplate:
    if form == "whole":
        return ByteTemplate((write_completion(reply, model, tools),))
    return ByteTemplate(write_events(reply, model, tools, counted=form == "counted events"))


# --- Several choices where a request wants them: the same reply under each number.

MOST = 128
_decode = msgspec.json.Decoder(JSON).decode


def count_choices(parameters: JSON) -> int:
    """How many choices a request wants, as far as OpenAI gives them."""
    wanted = parameters.get("n")
    return wanted if isinstance(wanted, int) and 1 < wanted <= MOST else 1


def repeat_choice(completion: bytes, count: int) -> bytes:
    """The completion with its choice so many times."""
    whole = _decode(completion)
    (choice,) = whole["choices"]
    return to_json({**whole, "choices": [{**choice, "index": at} for at in range(count)]})


def repeat_events(events: Iterable[bytes], count: int) -> Iterator[bytes]:
    """The events, each choice in so many of them."""
    for event in events:
        data = event.removeprefix(b"data: ")
        chunk = _decode(data) if data.startswith(b"{") else {}
        if not chunk.get("choices"):
            yield event
            continue
        for at in range(count):
            (choice,) = chunk["choices"]
            yield streaming.encode_sse(to_json({**chunk, "choices": [{**choice, "index": at}]}))
