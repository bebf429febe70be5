"""What the model answers, event by event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbook.errors import ModelError
from offbook.exchange import sse
from offbook.exchange.arguments import write_arguments
from offbook.exchange.messages import JSON, AnyBlock, Foreign, Text, Thinking, ToolCall
from offbook.exchange.pieces import cut_reply, cut_runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offbook.exchange.reply import Reply
    from offbook.exchange.request import Request

from offbook.exchange.dialects.anthropic.encode import (
    REFUSED,
    STOPS,
    find_sequence,
    full_name,
    write_block,
    write_error,
    write_usage,
)
from offbook.exchange.dialects.anthropic.seals import seal_thought
from offbook.exchange.messages import to_json


def write_events(reply: Reply, request: Request, name: str, *, hide: bool) -> Iterator[bytes]:
    """All events of a message, as the provider sends them."""
    usage = reply.usage
    start: JSON = {
        "id": name,
        "type": "message",
        "role": "assistant",
        "model": reply.model or request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": write_usage(usage, min(usage.output, 1)),
    }
    yield b'event: message_start\ndata: {"type":"message_start","message":%b}\n\n' % to_json(start)
    index = 0
    for block in reply.blocks:
        events = _stream_block(reply, block, index, hide=hide)
        for event in events:
            yield event
            if index == 0 and event.startswith(_BLOCK_START):
                yield _PING
        index += bool(events)
    if reply.stop == "error":
        broken = ModelError("Internal server error", status=500)
        yield sse.frame(to_json(write_error(broken, {}, f"req_{name[-24:]}")), "error")
        return
    end: JSON = {"stop_reason": STOPS[reply.stop], "stop_sequence": find_sequence(reply, request)}
    if reply.stop == "refusal":
        end["stop_details"] = REFUSED
    total = write_usage(usage, usage.output)
    del total["cache_creation"], total["service_tier"]
    yield b'event: message_delta\ndata: {"type":"message_delta","delta":%b,"usage":%b}\n\n' % (
        to_json(end),
        to_json(total),
    )
    yield b'event: message_stop\ndata: {"type":"message_stop"}\n\n'


_PING = b'event: ping\ndata: {"type":"ping"}\n\n'

_BLOCK_START = b"event: content_block_start"

_START = _BLOCK_START + b'\ndata: {"type":"content_block_start","index":%d,"content_block":%b}\n\n'

_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":'

_STOP = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n'

_EMPTY_TEXT = b'{"type":"text","text":""}'

_EMPTY_THOUGHT = b'{"type":"thinking","thinking":"","signature":""}'


def _stream_block(reply: Reply, block: AnyBlock, index: int, *, hide: bool) -> list[bytes]:
    match block:
        case Text(text):
            start, kind, field = _EMPTY_TEXT, b"text_delta", b"text"
            pieces = cut_reply(reply, text)
        case ToolCall(call_id, _, arguments):
            empty: JSON = {"type": "tool_use", "id": call_id, "name": full_name(block), "input": {}}
            start, kind, field = to_json(empty), b"input_json_delta", b"partial_json"
            pieces = ["", *cut_runs(write_arguments(arguments))]
        case Thinking(text, _, False):
            start, kind, field = _EMPTY_THOUGHT, b"thinking_delta", b"thinking"
            pieces = [] if hide else cut_runs(text)
        case Thinking() | Foreign():
            start, kind, field, pieces = to_json(write_block(block)), b"", b"", ()
        case _:
            return []
    delta = _DELTA % index + b'{"type":"%b","%b":' % (kind, field)
    events = [delta + to_json(piece) + b"}}\n\n" for piece in pieces]
    if isinstance(block, Thinking) and not block.redacted:
        sealed = to_json(block.signature or seal_thought(block.text))
        events.append(_DELTA % index + b'{"type":"signature_delta","signature":%b}}\n\n' % sealed)
    return [_START % (index, start), *events, _STOP % index]
