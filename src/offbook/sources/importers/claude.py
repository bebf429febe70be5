"""What Claude Code prints with `--output-format stream-json`, and what it keeps of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from offbook.errors import FormatError
from offbook.exchange.messages import AnyBlock, Text, Thinking, ToolCall
from offbook.exchange.reply import Reply, Stop, Usage
from offbook.sources.importers.importer import Record, Told, as_count, as_object, as_text

if TYPE_CHECKING:
    from pathlib import Path

STOPS: dict[str, Stop] = {
    "end_turn": "stop",
    "max_tokens": "length",
    "refusal": "refusal",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_use",
}
KINDS = {"assistant", "user", "system", "result"}


class Claude:
    """Claude Code."""

    name = "claude-code"

    def claims(self, records: list[Record]) -> bool:
        """Whether the file is written in it."""
        return (
            any(
                record.value.get("type") == "assistant"
                and isinstance(record.value.get("message"), dict)
                for record in records[:50]
            )
            or records[0].value.get("subtype") == "init"
        )

    def read(self, records: list[Record], path: Path, trace_id: str | None) -> list[Told]:
        """What was told in it; a trace is a session."""
        told: list[Told] = []
        prompt: str | None = None
        last = ""
        for record in records:
            value = record.value
            if trace_id is not None and trace_id not in {
                value.get("session_id"),
                value.get("sessionId"),
            }:
                continue
            message = _message(value, record.line, path)
            if value.get("type") == "user":
                prompt = _said(message) or prompt
            elif value.get("type") == "assistant":
                name = as_text(message.get("id"))
                if name and name == last:
                    told[-1] = _join(told[-1], _tell(message, prompt))
                else:
                    told.append(_tell(message, prompt))
                last = name
        return told


def _message(value: dict[str, Any], line: int, path: Path) -> dict[str, Any]:
    message = value.get("message", {})
    if value.get("type") in {"assistant", "user"} and not isinstance(message, dict):
        raise FormatError(f"this {value['type']} event has no message", path=path, line=line)
    return cast("dict[str, Any]", message if isinstance(message, dict) else {})


def _said(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = cast("list[dict[str, Any]]", content if isinstance(content, list) else [])
    return "\n".join(as_text(part.get("text")) for part in parts if part.get("type") == "text")


def _tell(message: dict[str, Any], prompt: str | None) -> Told:
    parts = cast("list[dict[str, Any]]", message.get("content") or [])
    blocks = tuple(block for block in map(_block, parts) if block is not None)
    calls = any(isinstance(block, ToolCall) for block in blocks)
    usage = cast("dict[str, Any]", message.get("usage") or {})
    read, written = (
        as_count(usage.get(f"cache_{kind}_input_tokens")) for kind in ("read", "creation")
    )
    spent = Usage(
        as_count(usage.get("input_tokens")) + read + written,
        as_count(usage.get("output_tokens")),
        read,
        written,
    )
    stop = STOPS.get(as_text(message.get("stop_reason")), "stop")
    reply = Reply(
        blocks,
        "tool_use" if calls else stop,
        spent,
        as_text(message.get("model")),
        as_text(message.get("id")),
    )
    return Told(reply, prompt, provider="anthropic", usage_known=bool(usage))


def _block(part: dict[str, Any]) -> AnyBlock | None:
    match part.get("type"):
        case "text":
            return Text(as_text(part.get("text")))
        case "thinking":
            return Thinking(as_text(part.get("thinking")), as_text(part.get("signature")))
        case "tool_use":
            name, identity = as_text(part.get("name")), as_text(part.get("id"))
            return ToolCall(identity, name, as_object(part.get("input")))
        case _:
            return None


def _join(first: Told, second: Told) -> Told:
    """Two events of one message, which came block by block."""
    import msgspec

    blocks = (*first.reply.blocks, *second.reply.blocks)
    calls = any(isinstance(block, ToolCall) for block in blocks)
    stop = "tool_use" if calls else second.reply.stop
    reply = msgspec.structs.replace(second.reply, blocks=blocks, stop=stop)
    return msgspec.structs.replace(second, reply=reply)
