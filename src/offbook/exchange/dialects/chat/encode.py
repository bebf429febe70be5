"""What the model answers, as one completion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbook.determinism.clock import EPOCH
from offbook.exchange.arguments import write_arguments, write_input
from offbook.exchange.dialects.chat import forms
from offbook.exchange.dialects.chat.legacy import is_legacy
from offbook.exchange.dialects.chat.legacy import write_call as write_function
from offbook.exchange.foreign import cannot_say, write_foreign
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    Foreign,
    Text,
    Thinking,
    ToolCall,
    to_json,
)
from offbook.exchange.templates import HOLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offbook.exchange.reply import Reply, Stop, Usage
    from offbook.exchange.request import Tool

CALLED = b"tool_calls"
FINISH: dict[Stop, bytes] = {
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
        said = {"name": call.name, "input": write_input(call.arguments)}
        return {"id": call.id, "type": "custom", "custom": said}
    said = {"name": call.name, "arguments": write_arguments(call.arguments)}
    return {"id": call.id, "type": "function", "function": said}


def find_beside(blocks: Sequence[AnyBlock]) -> tuple[Sequence[AnyBlock], JSON]:
    """The blocks, and apart from them what stands beside the content of their message."""
    for block in blocks:
        if isinstance(block, Foreign) and block.kind == forms.BESIDE:
            rest = tuple(other for other in blocks if other is not block)
            return rest, write_foreign(block, forms.NAME)
    return blocks, {}


class Said:
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
                raise cannot_say(block, forms.NAME)
        self.thoughts = "\n".join(thoughts)
        self.text = "\n".join(texts)
        self.refused = reply.stop == "refusal" and bool(self.text)
        self.finish = FINISH[reply.stop]
        if self.calls and reply.stop == "stop":
            self.finish = CALLED
        elif reply.stop == "refusal" and not self.text:
            self.finish = b"content_filter"


def find_finish(said: Said, tools: Sequence[Tool]) -> bytes:
    """Why it ended, as it is told to somebody who offered these."""
    return b"function_call" if said.finish == CALLED and is_legacy(tools) else said.finish


def is_custom(call: ToolCall, tools: Sequence[Tool]) -> bool:
    """Whether a call goes to a tool that takes a text."""
    return call.custom or any(tool.kind == "custom" and tool.name == call.name for tool in tools)


def write_completion(reply: Reply, model: str, tools: Sequence[Tool]) -> bytes:
    """The completion, with a hole for the id."""
    said = Said(reply)
    return _COMPLETION % (
        HOLE,
        EPOCH,
        to_json(model),
        to_json(_write_spoken(said, tools)),
        find_finish(said, tools),
        write_usage(reply.usage),
    )


def _write_spoken(said: Said, tools: Sequence[Tool]) -> JSON:
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
