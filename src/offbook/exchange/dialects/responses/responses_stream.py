"""Encoding of replies as responses and their event streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec

from offbook.determinism.clock import EPOCH, stable_id
from offbook.exchange.dialects import openai
from offbook.exchange.dialects.decoding import raw_block_data, unsupported_block
from offbook.exchange.dialects.responses import responses_wire as wire
from offbook.exchange.dialects.streaming import (
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

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from offbook.exchange.model import Reply, Request, StopReason

ENCRYPTED_REASONING = "reasoning.encrypted_content"

# The request options that a response repeats, with their default values.
_ECHOED_OPTIONS: JSON = {
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

# The fields of an item that are still empty in its first event.
_EMPTY_FIELDS: dict[str, JSON] = {
    "message": {"status": "in_progress", "content": []},
    "reasoning": {"summary": [], "encrypted_content": None},
    "function_call": {"status": "in_progress", "arguments": ""},
    "custom_tool_call": {"status": "in_progress", "input": ""},
}

_SERVER_ERROR = {"code": "server_error", "message": openai.SERVER_ERROR}

_OPENED = (
    b',"status":"in_progress","error":null,"incomplete_details":null,"output":[],"usage":null}'
)

_COMPLETED = (
    b'%b,"status":"%b","error":%b,"incomplete_details":%b,"output":%b,'
    b'"usage":{"input_tokens":%d,'
    b'"input_tokens_details":{"cached_tokens":%d,"cache_write_tokens":%d},'
    b'"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":%d},"total_tokens":%d}}'
)


# ------------------------------------------------------------------------------- items


def encode_item(blocks: tuple[AnyBlock, ...], core_id: str, stop: StopReason) -> JSON:
    """Encode the blocks of one item; its id is a prefix and `core_id`."""
    first = blocks[0]
    match first:
        case Text():
            texts = [cast("Text", block).text for block in blocks]
            if stop == "refusal":
                content: list[JSON] = [{"type": "refusal", "refusal": text} for text in texts]
            else:
                fields: JSON = {"type": "output_text", "annotations": [], "logprobs": []}
                content = [{**fields, "text": text} for text in texts]
            return {
                "id": f"msg_{core_id}",
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": content,
            }
        case Thinking(text, signature):
            return {
                "id": f"rs_{core_id}",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": text}] if text else [],
                "encrypted_content": signature or None,
            }
        case ToolCall():
            return _encode_call(first, core_id)
        case RawBlock():
            return raw_block_data(first, wire.NAME)
        case _:
            raise unsupported_block(first, wire.NAME)


def _encode_call(call: ToolCall, core_id: str) -> JSON:
    item: JSON = {
        "id": f"{'ctc' if call.custom else 'fc'}_{core_id}",
        "type": "custom_tool_call" if call.custom else "function_call",
        "status": "completed",
        "call_id": call.id,
        "name": call.name,
    }
    if call.namespace:
        item["namespace"] = call.namespace
    if call.custom:
        item["input"] = render_custom_input(call.arguments)
    else:
        item["arguments"] = render_arguments(call.arguments)
    return item


def _fit_block(block: AnyBlock, request: Request, *, encrypt_thinking: bool) -> AnyBlock:
    """Return the block in the form that the request asks for.

    A call gets the namespace and the kind of its tool, and thinking an encrypted content.
    """
    if isinstance(block, Thinking) and encrypt_thinking and not block.signature:
        return Thinking(block.text, stable_id("gAAAA", block.text, length=40))
    if not isinstance(block, ToolCall) or block.custom or block.namespace:
        return block
    tools = [tool for tool in request.tools if tool.name == block.name]
    if not tools or any(tool.kind == "function" and not tool.namespace for tool in tools):
        return block
    # A tool without a namespace is preferred.
    tool = min(tools, key=lambda tool: bool(tool.namespace))
    return msgspec.structs.replace(block, namespace=tool.namespace, custom=tool.kind == "custom")


# ----------------------------------------------------------------------------- response


class _DeltaRun(msgspec.Struct, frozen=True, gc=False):
    """Events that differ only in their `delta`."""

    type: str
    position: JSON
    deltas: Sequence[str]
    more: JSON = {}


class ResponseBuilder:
    """Encodes a reply as a response or its events.

    Three events contain the response itself, with everything that the request had. Its constant
    part is encoded once, as bytes, and the status is appended.
    """

    def __init__(self, id_: str, reply: Reply, request: Request, tools: msgspec.Raw) -> None:
        self._reply = reply
        core_id = id_.removeprefix("resp_")
        options = request.parameters
        encrypt = ENCRYPTED_REASONING in (options.get("include") or ())
        blocks = [_fit_block(block, request, encrypt_thinking=encrypt) for block in reply.blocks]
        self._items = [
            encode_item(group, f"{core_id}_{index}", reply.stop)
            for index, group in enumerate(wire.group_blocks(blocks))
        ]
        base: JSON = {
            "id": id_,
            "object": "response",
            "created_at": EPOCH,
            "model": reply.model or request.model,
            **_ECHOED_OPTIONS,
            "tools": tools,
        }
        base.update((key, options[key]) for key in options.keys() & _ECHOED_OPTIONS.keys())
        instructions = cast("int", request.metadata.get("instructions", 0))
        base["instructions"] = request.system[:instructions] or None
        if conversation := request.metadata.get("conversation"):
            base["conversation"] = {"id": conversation}
        base["previous_response_id"] = request.metadata.get("previous_response_id")
        self._base = to_json(base)[:-1]
        self._status = {"error": "failed", "length": "incomplete"}.get(reply.stop, "completed")

    def encode(self) -> bytes:
        """Return the complete response."""
        usage, status = self._reply.usage, self._status
        return _COMPLETED % (
            self._base,
            status.encode(),
            to_json(_SERVER_ERROR if status == "failed" else None),
            to_json({"reason": "max_output_tokens"} if status == "incomplete" else None),
            to_json(self._items),
            usage.input,
            usage.cache_read,
            usage.cache_write,
            usage.output,
            usage.reasoning,
            usage.input + usage.output,
        )

    def events(self) -> list[JSON]:
        """Return the events as JSON objects, for a WebSocket."""
        events: list[JSON] = []
        for event in self._events():
            if isinstance(event, _DeltaRun):
                fields = {"type": event.type, **event.position, "delta": "", **event.more}
                events += ({**fields, "delta": delta} for delta in event.deltas)
            elif "response" in event:
                events.append({**event, "response": msgspec.json.decode(event["response"])})
            else:
                events.append(event)
        return [{**event, "sequence_number": number} for number, event in enumerate(events)]

    def encode_events(self) -> list[bytes]:
        """Return the events as server-sent events."""
        events: list[bytes] = []
        for event in self._events():
            if isinstance(event, _DeltaRun):
                # The fields that all deltas share are encoded once.
                fields = to_json({"type": event.type, **event.position, **event.more})[:-1]
                head = b"event: %b\ndata: %b," % (event.type.encode(), fields)
                events += [
                    b'%b"delta":%b,"sequence_number":%d}\n\n' % (head, to_json(delta), number)
                    for number, delta in enumerate(event.deltas, len(events))
                ]
            else:
                # Every event is numbered, including each delta of a run.
                event["sequence_number"] = len(events)
                events.append(encode_sse(to_json(event), event["type"]))
        return events

    def _events(self) -> Iterator[JSON | _DeltaRun]:
        opened = msgspec.Raw(self._base + _OPENED)
        yield {"type": "response.created", "response": opened}
        yield {"type": "response.in_progress", "response": opened}
        for index, item in enumerate(self._items):
            started = {**item, **_EMPTY_FIELDS.get(item["type"], {})}
            yield {"type": "response.output_item.added", "output_index": index, "item": started}
            yield from self._item_events(index, item)
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        yield {"type": f"response.{self._status}", "response": msgspec.Raw(self.encode())}

    def _item_events(self, index: int, item: JSON) -> Iterator[JSON | _DeltaRun]:
        position: JSON = {"item_id": item.get("id"), "output_index": index}
        match item["type"]:
            case "message":
                for number, part in enumerate(item["content"]):
                    yield from self._text_events({**position, "content_index": number}, part)
            case "reasoning":
                name = "response.reasoning_summary"
                for number, part in enumerate(item["summary"]):
                    at: JSON = {**position, "summary_index": number}
                    text = part["text"]
                    yield {"type": f"{name}_part.added", **at, "part": {**part, "text": ""}}
                    yield _DeltaRun(f"{name}_text.delta", at, split_words(text))
                    yield {"type": f"{name}_text.done", **at, "text": text}
                    yield {"type": f"{name}_part.done", **at, "part": part}
            case "function_call":
                name, arguments = "response.function_call_arguments", item["arguments"]
                yield _DeltaRun(f"{name}.delta", position, split_fixed(arguments))
                fields = {"name": item["name"], "arguments": arguments}
                yield {"type": f"{name}.done", **position, **fields}
            case "custom_tool_call":
                name, text = "response.custom_tool_call_input", item["input"]
                yield _DeltaRun(f"{name}.delta", position, split_fixed(text))
                yield {"type": f"{name}.done", **position, "input": text}
            case _:  # a raw item has no events between its start and its end
                return

    def _text_events(self, position: JSON, part: JSON) -> Iterator[JSON | _DeltaRun]:
        kind = part["type"]
        field = "refusal" if kind == "refusal" else "text"
        more: JSON = {} if kind == "refusal" else {"logprobs": []}
        text = part[field]
        yield {"type": "response.content_part.added", **position, "part": {**part, field: ""}}
        deltas = split_reply_text(self._reply, text)
        yield _DeltaRun(f"response.{kind}.delta", position, deltas, more)
        yield {"type": f"response.{kind}.done", **position, field: text, **more}
        yield {"type": "response.content_part.done", **position, "part": part}
