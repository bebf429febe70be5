"""What the model answers, event by event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbook.determinism.clock import EPOCH
from offbook.errors import ModelError
from offbook.exchange import sse
from offbook.exchange.arguments import write_arguments, write_input
from offbook.exchange.dialects import openai
from offbook.exchange.dialects.chat.encode import (
    Said,
    find_finish,
    is_custom,
    write_call,
    write_usage,
)
from offbook.exchange.dialects.chat.legacy import is_legacy
from offbook.exchange.dialects.chat.legacy import write_call as write_function
from offbook.exchange.messages import JSON, ToolCall, to_json
from offbook.exchange.pieces import cut_reply, cut_runs, cut_words
from offbook.exchange.templates import HOLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from offbook.exchange.reply import Reply
    from offbook.exchange.request import Tool

_CHUNK = (
    b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,'
    b'"service_tier":"default","system_fingerprint":"fp_offbook","choices":['
)


def write_events(reply: Reply, model: str, tools: Sequence[Tool], *, counted: bool) -> list[bytes]:
    """The events of a reply, each with a hole for the id."""
    said = Said(reply)
    start = _CHUNK % (HOLE, EPOCH, to_json(model))
    head = start + b'{"index":0,"delta":'
    end = b',"usage":null}\n\n' if counted else b"}\n\n"
    tail = b',"logprobs":null,"finish_reason":null}]' + end
    events = [head + to_json(_open_delta(said, tools)) + tail]
    for field, pieces in _runs(said, reply, tools):
        before, after = head + field[0], field[1] + tail
        events += [before + to_json(piece) + after for piece in pieces]
    if reply.stop == "error":
        error = openai.describe_error(ModelError(openai.FAILURE, status=500))
        return [*events, sse.frame(to_json({"error": error}))]
    events.append(
        head + b'{},"logprobs":null,"finish_reason":"' + find_finish(said, tools) + b'"}]' + end
    )
    if counted:
        events.append(start + b'],"usage":' + write_usage(reply.usage) + b"}\n\n")
    events.append(b"data: [DONE]\n\n")
    return events


def _open_delta(said: Said, tools: Sequence[Tool]) -> JSON:
    """The first delta: the role, and the first call with it where nothing comes before that."""
    first: JSON = {"role": "assistant", "content": None if said.refused else "", "refusal": None}
    first.update(said.beside)
    if said.calls and is_legacy(tools):
        first["content"] = first["content"] or None
    elif _calls_first(said):
        first["content"] = None
        first["tool_calls"] = [_open_call(said.calls[0], 0, tools)]
    return first


def _calls_first(said: Said) -> bool:
    return bool(said.calls) and not said.text and not said.thoughts


def _runs(
    said: Said, reply: Reply, tools: Sequence[Tool]
) -> Iterator[tuple[tuple[bytes, bytes], Sequence[object]]]:
    """Runs of deltas that differ in one value: what stands before and after it, and the values."""
    if said.thoughts:
        yield (b'{"reasoning_content":', b"}"), cut_words(said.thoughts)
    if said.text:
        field = b'{"refusal":' if said.refused else b'{"content":'
        yield (field, b"}"), cut_reply(reply, said.text)
    if said.calls and is_legacy(tools):
        call = write_function(said.calls)
        yield (b'{"function_call":', b"}"), [{"name": call["name"], "arguments": ""}]
        yield (b'{"function_call":{"arguments":', b"}}"), cut_runs(call["arguments"])
        return
    for index, call in enumerate(said.calls):
        if index or not _calls_first(said):
            yield (b'{"tool_calls":[', b"]}"), [_open_call(call, index, tools)]
        custom = is_custom(call, tools)
        inside = b'"custom":{"input":' if custom else b'"function":{"arguments":'
        written = write_input(call.arguments) if custom else write_arguments(call.arguments)
        head = b'{"tool_calls":[{"index":%d,%b' % (index, inside)
        yield (head, b"}}]}"), cut_runs(written)


def _open_call(call: ToolCall, index: int, tools: Sequence[Tool]) -> JSON:
    opened = write_call(call, custom=is_custom(call, tools))
    kind = opened["type"]
    opened[kind] = {"name": call.name, ("input" if kind == "custom" else "arguments"): ""}
    return {"index": index, **opened}
