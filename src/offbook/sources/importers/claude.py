"""What Claude Code prints with `--output-format stream-json`, and what it keeps of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import FormatError, ModelError
from offbook.exchange.messages import AnyBlock, Text, Thinking, ToolCall
from offbook.exchange.model import Reply, StopReason, Usage
from offbook.sources.importers.importer import (
    ImportedExchange,
    Skipped,
    TraceRecord,
    as_count,
    as_fields,
    as_items,
    as_object,
    as_text,
    unknown_trace_error,
)

if TYPE_CHECKING:
    from pathlib import Path

STOPS: dict[str, StopReason] = {
    "end_turn": "stop",
    "max_tokens": "length",
    "refusal": "refusal",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_use",
}
SYNTHETIC = "<synthetic>"  # whoever says this is the client, not the model
ERROR = "API Error: "


class ClaudeImporter:
    """Claude Code."""

    name = "claude-code"

    def claims(self, records: list[TraceRecord]) -> bool:
        """Whether the file is written in it."""
        return records[0].value.get("subtype") == "init" or any(
            record.value.get("type") == "assistant"
            and isinstance(record.value.get("message"), dict)
            for record in records
        )

    def read(
        self, records: list[TraceRecord], path: Path, trace_id: str | None, left: Skipped
    ) -> list[ImportedExchange]:
        """What was told in it; a trace is a session."""
        kept = [one for one in records if trace_id is None or _session(one.value) == trace_id]
        if not kept and trace_id is not None:
            raise unknown_trace_error(trace_id, (_session(one.value) for one in records), path)
        told: list[ImportedExchange] = []
        places: dict[str, int] = {}
        prompts: dict[str, str] = {}  # what each of the agents was asked last
        for record in kept:
            value = record.value
            if as_text(value.get("type")) not in {"assistant", "user"}:
                continue
            message = _message(value, record.line, path)
            agent = as_text(value.get("parent_tool_use_id") or value.get("agentId"))
            if value["type"] == "user":
                said = "" if value.get("isMeta") else _said(message)
                prompts[agent] = said or prompts.get(agent, "")
                continue
            one = _tell(message, prompts.get(agent) or None, left)
            if one.reply.model == SYNTHETIC and one.error is None:
                left["message of the client's own"] += 1
                continue
            one = msgspec.structs.replace(one, trace=_session(value))
            name = as_text(message.get("id"))
            if name and name in places:
                told[places[name]] = _join(told[places[name]], one)
            else:
                places[name] = len(told)
                told.append(one)
        return told


def _session(value: dict[str, Any]) -> str:
    return as_text(value.get("session_id") or value.get("sessionId"))


def _message(value: dict[str, Any], line: int, path: Path) -> dict[str, Any]:
    message = value.get("message")
    if not isinstance(message, dict):
        raise FormatError(f"this {value['type']} event has no message", path=path, line=line)
    return as_fields(message)


def _said(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    texts = (as_text(part.get("text")) for part in as_items(content) if part.get("type") == "text")
    return "\n".join(texts)


def _tell(message: dict[str, Any], prompt: str | None, left: Skipped) -> ImportedExchange:
    content = message.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else as_items(content)
    found = [(part, _block(part)) for part in parts]
    left.update(as_text(part.get("type")) for part, block in found if block is None)
    blocks = tuple(block for _, block in found if block is not None)
    calls = any(isinstance(block, ToolCall) for block in blocks)
    usage = as_fields(message.get("usage"))
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
    model = as_text(message.get("model"))
    reply = Reply(blocks, "tool_use" if calls else stop, spent, model, as_text(message.get("id")))
    error = _error(reply.text) if model == SYNTHETIC else None
    return ImportedExchange(
        reply, prompt, provider="anthropic", error=error, usage_known=bool(usage)
    )


def _error(said: str) -> ModelError | None:
    """The provider's error that the client tells in the place of a reply."""
    if not said.startswith(ERROR):
        return None
    status, _, rest = said.removeprefix(ERROR).partition(" ")
    return ModelError(rest if status.isdigit() else said, status=as_count(status) or 500)


def _block(part: dict[str, Any]) -> AnyBlock | None:
    match part.get("type"):
        case "text":
            return Text(as_text(part.get("text")))
        case "thinking":
            return Thinking(as_text(part.get("thinking")), as_text(part.get("signature")))
        case "redacted_thinking":
            return Thinking("", as_text(part.get("data")), redacted=True)
        case "tool_use":
            name, identity = as_text(part.get("name")), as_text(part.get("id"))
            return ToolCall(identity, name, as_object(part.get("input")))
        case _:
            return None


def _join(first: ImportedExchange, second: ImportedExchange) -> ImportedExchange:
    """Two events of one message, which came block by block."""
    blocks = (*first.reply.blocks, *second.reply.blocks)
    calls = any(isinstance(block, ToolCall) for block in blocks)
    stop = "tool_use" if calls else second.reply.stop
    reply = msgspec.structs.replace(second.reply, blocks=blocks, stop=stop)
    return msgspec.structs.replace(second, reply=reply)
