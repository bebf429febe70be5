"""What the real Bedrock answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import ModelError
from offbook.exchange.dialects.bedrock import bedrock_wire
from offbook.exchange.dialects.bedrock.bedrock_stream import STOPS, read_frames
from offbook.exchange.dialects.bedrock.bedrock_wire import read_block
from offbook.exchange.dialects.decoding import RawBody
from offbook.exchange.messages import JSON, AnyBlock, Text, Thinking, ToolCall, parse_arguments
from offbook.exchange.model import Reply, StopReason, Usage

if TYPE_CHECKING:
    from offbook.exchange.dialects.dialect import HttpResponse

MEANT: dict[str, StopReason] = {told: stop for stop, told in reversed(STOPS.items())}


def read_reply(body: bytes) -> Reply:
    """A whole answer."""
    whole = msgspec.json.decode(body, type=JSON)
    parts = msgspec.convert(whole["output"]["message"]["content"], list[bedrock_wire.BedrockPart])
    seen = RawBody(body, bedrock_wire.NAME)
    place = ("output", "message", "content")
    blocks = tuple(read_block(part, seen, (*place, at)) for at, part in enumerate(parts))
    return Reply(blocks, _read_stop(whole["stopReason"]), _read_usage(whole.get("usage", {})))


def gather_reply(body: bytes) -> Reply:
    """An answer that came in frames."""
    blocks: dict[int, _Block] = {}
    stop, usage, chunks = "end_turn", Usage(), list[str]()
    for headers, payload in read_frames(body):
        data = msgspec.json.decode(payload or b"{}", type=JSON)
        if headers.get(":message-type") != "event":
            raise ModelError(str(data.get("message", "the stream failed")), status=500)
        at = data.get("contentBlockIndex", 0)
        match headers.get(":event-type"):
            case "contentBlockStart":
                blocks[at] = _Block(data.get("start", {}).get("toolUse"))
            case "contentBlockDelta":
                blocks.setdefault(at, _Block()).add(data["delta"])
                chunks += [data["delta"]["text"]] if "text" in data["delta"] else []
            case "messageStop":
                stop = data["stopReason"]
            case "metadata":
                usage = _read_usage(data.get("usage", {}))
            case _:
                pass
    made = tuple(block.made for _, block in sorted(blocks.items()))
    return Reply(made, _read_stop(stop), usage, chunks=tuple(chunks))


class _Block:
    """A block that grows with its deltas."""

    def __init__(self, call: Any = None) -> None:
        self._call = call
        self._said: list[str] = []
        self._thought: list[str] = []
        self._seal = ""
        self._hidden = ""

    def add(self, delta: JSON) -> None:
        self._said.append(delta.get("text", "") or delta.get("toolUse", {}).get("input", ""))
        thought = delta.get("reasoningContent", {})
        self._thought.append(thought.get("text", ""))
        self._seal = thought.get("signature", self._seal)
        self._hidden = thought.get("redactedContent", self._hidden)

    @property
    def made(self) -> AnyBlock:
        said = "".join(self._said)
        if self._call is not None:
            given = parse_arguments(said)
            return ToolCall(self._call["toolUseId"], self._call["name"], given)
        if self._hidden:
            return Thinking("", self._hidden, redacted=True)
        thought = "".join(self._thought)
        return Thinking(thought, self._seal) if thought or self._seal else Text(said)


def _read_stop(told: str) -> StopReason:
    return MEANT.get(told, "stop")


def _read_usage(told: JSON) -> Usage:
    read, written = told.get("cacheReadInputTokens", 0), told.get("cacheWriteInputTokens", 0)
    fresh = told.get("inputTokens", 0)
    return Usage(fresh + read + written, told.get("outputTokens", 0), read, written)


def read_error(answer: HttpResponse) -> ModelError:
    """What it refused with."""
    try:
        told = msgspec.json.decode(answer.body, type=JSON)
    except msgspec.DecodeError:
        told = {}
    message = told.get("message") or told.get("Message") or answer.body.decode(errors="replace")
    return ModelError(str(message), status=answer.status)
