"""What pi prints with `--mode json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offbook.errors import ModelError
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
    "stop": "stop",
    "length": "length",
    "toolUse": "tool_use",
    "error": "error",
    "aborted": "error",
}


class PiImporter:
    """pi."""

    name = "pi"

    def claims(self, records: list[TraceRecord]) -> bool:
        """Whether the file is written in it."""
        kinds = {as_text(record.value.get("type")) for record in records}
        return bool(kinds & {"agent_start", "message_end", "agent_end"})

    def read(
        self, records: list[TraceRecord], path: Path, trace_id: str | None, left: Skipped
    ) -> list[ImportedExchange]:
        """What was told in it; a trace is a session."""
        told: list[ImportedExchange] = []
        prompt: str | None = None
        session = ""
        sessions: set[str] = set()
        for record in records:
            value = record.value
            if value.get("type") == "session":
                session = as_text(value.get("id"))
                sessions.add(session)
            if value.get("type") != "message_end" or (trace_id is not None and session != trace_id):
                continue
            message = as_fields(value.get("message"))
            if message.get("role") == "user":
                prompt = _said(message) or prompt
            elif message.get("role") == "assistant":
                told.append(_tell(message, prompt, left))
        if trace_id is not None and trace_id not in sessions:
            raise unknown_trace_error(trace_id, sessions, path)
        return told


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return as_items(content)


def _said(message: dict[str, Any]) -> str:
    return "\n".join(as_text(p.get("text")) for p in _parts(message) if p.get("type") == "text")


def _tell(message: dict[str, Any], prompt: str | None, left: Skipped) -> ImportedExchange:
    found = [(part, _block(part)) for part in _parts(message)]
    left.update(as_text(part.get("type")) for part, block in found if block is None)
    blocks = tuple(block for _, block in found if block is not None)
    usage = as_fields(message.get("usage"))
    read, written = as_count(usage.get("cacheRead")), as_count(usage.get("cacheWrite"))
    spent = Usage(
        as_count(usage.get("input")) + read + written, as_count(usage.get("output")), read, written
    )
    stop = STOPS.get(as_text(message.get("stopReason")), "stop")
    reply = Reply(blocks, stop, spent, as_text(message.get("model")))
    failed = stop == "error" and not blocks
    return ImportedExchange(
        reply,
        prompt,
        provider=as_text(message.get("provider")),
        error=ModelError(as_text(message.get("errorMessage")) or "it failed") if failed else None,
        usage_known=bool(usage),
    )


def _block(part: dict[str, Any]) -> AnyBlock | None:
    match part.get("type"):
        case "text":
            return Text(as_text(part.get("text")))
        case "thinking":
            return Thinking(as_text(part.get("thinking")), as_text(part.get("thinkingSignature")))
        case "toolCall":
            name, identity = as_text(part.get("name")), as_text(part.get("id"))
            return ToolCall(identity, name, as_object(part.get("arguments")))
        case _:
            return None
