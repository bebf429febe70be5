"""What the model answers, item by item."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec

from offbook.determinism.clock import EPOCH, stable_id
from offbook.exchange.dialects import openai, streaming
from offbook.exchange.dialects.decoding import raw_block_data, unsupported_block
from offbook.exchange.dialects.responses import responses_wire
from offbook.exchange.dialects.responses.responses_messages import group_blocks
from offbook.exchange.dialects.streaming import split_fixed, split_reply_text, split_words
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

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from offbook.exchange.model import Reply, Request, StopReason


# --- What the model answers, item by item.


def write_item(blocks: tuple[AnyBlock, ...], core: str, stop: StopReason) -> JSON:
    """What the model gave, as the item with this core of an id."""
    first = blocks[0]
    match first:
        case Text():
            parts = [_write_spoken(cast("Text", block).text, stop) for block in blocks]
            return {
                "id": f"msg_{core}",
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": parts,
            }
        case Thinking(text, signature):
            return {
                "id": f"rs_{core}",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": text}] if text else [],
                "encrypted_content": signature or None,
            }
        case ToolCall():
            return _write_call(first, core)
        case RawBlock():
            return raw_block_data(first, responses_wire.NAME)
        case _:
            raise unsupported_block(first, responses_wire.NAME)


def _write_spoken(text: str, stop: StopReason) -> JSON:
    if stop == "refusal":
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _write_call(call: ToolCall, core: str) -> JSON:
    custom = call.custom
    item: JSON = {
        "id": f"{'ctc' if custom else 'fc'}_{core}",
        "type": "custom_tool_call" if custom else "function_call",
        "status": "completed",
        "call_id": call.id,
        "name": call.name,
    }
    if call.namespace:
        item["namespace"] = call.namespace
    if custom:
        item["input"] = render_custom_input(call.arguments)
    else:
        item["arguments"] = render_arguments(call.arguments)
    return item


def fit_block(block: AnyBlock, request: Request, *, sealed: bool) -> AnyBlock:
    """The block as this request wants it: a call as its tool was offered, a thought sealed."""
    if isinstance(block, Thinking) and sealed and not block.signature:
        return Thinking(block.text, stable_id("gAAAA", block.text, length=40))
    if not isinstance(block, ToolCall) or block.custom or block.namespace:
        return block
    offers = [tool for tool in request.tools if tool.name == block.name]
    if not offers or any(tool.kind == "function" and not tool.namespace for tool in offers):
        return block
    offer = min(offers, key=lambda tool: bool(tool.namespace))
    return msgspec.structs.replace(block, namespace=offer.namespace, custom=offer.kind == "custom")


# --- A response in the making: whole, or event by event.

SEALED = "reasoning.encrypted_content"


# What a response repeats of the request, and what it says where that said nothing.
ECHOED: JSON = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}


class _Run(msgspec.Struct, frozen=True, gc=False):
    """Events that differ in their `delta` only."""

    type: str
    at: JSON
    pieces: Sequence[str]
    more: JSON = {}


class ResponseBuilder:
    """A response in the making: its items, and the events that bring them.

    The response itself stands in three events, with all that the request said. It is written
    once, as bytes, and completed by its state.
    """

    def __init__(self, id_: str, reply: Reply, request: Request, tools: msgspec.Raw) -> None:
        self._reply = reply
        core = id_.removeprefix("resp_")
        options = request.parameters
        sealed = SEALED in (options.get("include") or ())
        blocks = [fit_block(block, request, sealed=sealed) for block in reply.blocks]
        self._items = [
            write_item(part, f"{core}_{at}", reply.stop)
            for at, part in enumerate(group_blocks(blocks))
        ]
        base: JSON = {
            "id": id_,
            "object": "response",
            "created_at": EPOCH,
            "model": reply.model or request.model,
            **ECHOED,
            "tools": tools,
        }
        base.update((key, options[key]) for key in options.keys() & ECHOED.keys())
        count = cast("int", request.metadata.get("instructions", 0))
        base["instructions"] = request.system[:count] or None
        if kept := request.metadata.get("conversation"):
            base["conversation"] = {"id": kept}
        base["previous_response_id"] = request.metadata.get("previous_response_id")
        self._base = to_json(base)[:-1]

    @property
    def closing(self) -> bytes:
        """The whole response, as it stands at the end."""
        usage = self._reply.usage
        return _CLOSING % (
            self._base,
            self._status.encode(),
            to_json(_BROKEN if self._status == "failed" else None),
            to_json({"reason": "max_output_tokens"} if self._status == "incomplete" else None),
            to_json(self._items),
            usage.input,
            usage.cache_read,
            usage.cache_write,
            usage.output,
            usage.reasoning,
            usage.input + usage.output,
        )

    @property
    def _status(self) -> str:
        stop = self._reply.stop
        return {"error": "failed", "length": "incomplete"}.get(stop, "completed")

    def list_events(self) -> list[JSON]:
        """The events as objects."""
        events: list[JSON] = []
        for event in self._events():
            if isinstance(event, _Run):
                run = {"type": event.type, **event.at, "delta": "", **event.more}
                events += ({**run, "delta": piece} for piece in event.pieces)
            elif "response" in event:
                events.append({**event, "response": msgspec.json.decode(event["response"])})
            else:
                events.append(event)
        return [{**event, "sequence_number": number} for number, event in enumerate(events)]

    def stream(self) -> list[bytes]:
        """The events as bytes."""
        events: list[bytes] = []
        for event in self._events():
            if isinstance(event, _Run):
                fixed = to_json({"type": event.type, **event.at, **event.more})[:-1]
                head = b"event: %b\ndata: %b," % (event.type.encode(), fixed)
                first = len(events)
                events += [
                    b'%b"delta":%b,"sequence_number":%d}\n\n' % (head, to_json(piece), number)
                    for number, piece in enumerate(event.pieces, first)
                ]
            else:
                event["sequence_number"] = len(events)
                events.append(streaming.encode_sse(to_json(event), event["type"]))
        return events

    def _events(self) -> Iterator[JSON | _Run]:
        opened = msgspec.Raw(self._base + _OPENED)
        yield {"type": "response.created", "response": opened}
        yield {"type": "response.in_progress", "response": opened}
        for index, item in enumerate(self._items):
            yield from self._bring(index, item)
        yield {"type": f"response.{self._status}", "response": msgspec.Raw(self.closing)}

    def _bring(self, index: int, item: JSON) -> Iterator[JSON | _Run]:
        at: JSON = {"item_id": item.get("id"), "output_index": index}
        kind = item["type"]
        started = {**item, **_EMPTY.get(kind, {})}
        yield {"type": "response.output_item.added", "output_index": index, "item": started}
        if kind == "message":
            for number, part in enumerate(item["content"]):
                yield from self._speak({**at, "content_index": number}, part)
        elif kind == "reasoning":
            for number, part in enumerate(item["summary"]):
                yield from _think({**at, "summary_index": number}, part)
        elif kind == "function_call":
            name = "response.function_call_arguments"
            said = item["arguments"]
            yield _Run(f"{name}.delta", at, split_fixed(said))
            yield {"type": f"{name}.done", **at, "name": item["name"], "arguments": said}
        elif kind == "custom_tool_call":
            name = "response.custom_tool_call_input"
            yield _Run(f"{name}.delta", at, split_fixed(item["input"]))
            yield {"type": f"{name}.done", **at, "input": item["input"]}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}

    def _speak(self, at: JSON, part: JSON) -> Iterator[JSON | _Run]:
        kind = part["type"]
        field = "refusal" if kind == "refusal" else "text"
        more: JSON = {} if kind == "refusal" else {"logprobs": []}
        said = part[field]
        yield {"type": "response.content_part.added", **at, "part": {**part, field: ""}}
        yield _Run(f"response.{kind}.delta", at, split_reply_text(self._reply, said), more)
        yield {"type": f"response.{kind}.done", **at, field: said, **more}
        yield {"type": "response.content_part.done", **at, "part": part}


def _think(at: JSON, part: JSON) -> Iterator[JSON | _Run]:
    name = "response.reasoning_summary"
    yield {"type": f"{name}_part.added", **at, "part": {**part, "text": ""}}
    yield _Run(f"{name}_text.delta", at, split_words(part["text"]))
    yield {"type": f"{name}_text.done", **at, "text": part["text"]}
    yield {"type": f"{name}_part.done", **at, "part": part}


# what an item lacks when it is announced
_EMPTY: dict[str, JSON] = {
    "message": {"status": "in_progress", "content": []},
    "reasoning": {"summary": [], "encrypted_content": None},
    "function_call": {"status": "in_progress", "arguments": ""},
    "custom_tool_call": {"status": "in_progress", "input": ""},
}

_BROKEN = {"code": "server_error", "message": openai.FAILURE}

_OPENED = (
    b',"status":"in_progress","error":null,"incomplete_details":null,"output":[],"usage":null}'
)

_CLOSING = (
    b'%b,"status":"%b","error":%b,"incomplete_details":%b,"output":%b,'
    b'"usage":{"input_tokens":%d,'
    b'"input_tokens_details":{"cached_tokens":%d,"cache_write_tokens":%d},'
    b'"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":%d},"total_tokens":%d}}'
)
