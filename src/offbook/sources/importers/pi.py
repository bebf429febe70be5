"""pi: the output of `--mode json`, and its session files.

The entries of a session file are a tree: after an edit the conversation goes on in another branch.
Imported is the branch of the last entry.
"""

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

STOP_REASONS: dict[str, StopReason] = {
    "stop": "stop",
    "length": "length",
    "toolUse": "tool_use",
    "error": "error",
    "aborted": "error",
}


class PiImporter:
    """Imports runs of pi; a trace is a session."""

    name = "pi"

    def recognizes(self, records: list[TraceRecord]) -> bool:
        """Return whether the file is in this format."""
        kinds = {as_text(record.value.get("type")) for record in records}
        is_session_file = as_text(records[0].value.get("type")) == "session" and "message" in kinds
        return is_session_file or bool(kinds & {"agent_start", "message_end", "agent_end"})

    def read(
        self, records: list[TraceRecord], path: Path, trace_id: str | None, skipped: Skipped
    ) -> list[ImportedExchange]:
        """Return the exchanges."""
        exchanges: list[ImportedExchange] = []
        prompt: str | None = None
        session = ""
        sessions: set[str] = set()
        branch = _last_branch(records)
        for record in records:
            value = record.value
            if value.get("type") == "session":
                session = as_text(value.get("id"))
                sessions.add(session)
            # In the output a message is complete only at its end; the events before are updates.
            if as_text(value.get("type")) not in {"message_end", "message"} or (
                trace_id is not None and session != trace_id
            ):
                continue
            if branch and as_text(value.get("id")) not in branch:
                skipped["message of another branch"] += 1
                continue
            message = as_fields(value.get("message"))
            if message.get("role") == "user":
                parts = _parts(message)
                texts = [as_text(part.get("text")) for part in parts if part.get("type") == "text"]
                prompt = "\n".join(texts) or prompt
                skipped.update(
                    f"{as_text(part.get('type'))} of the user"
                    for part in parts
                    if part.get("type") != "text"
                )
            elif message.get("role") == "assistant":
                exchanges.append(_read_reply(message, prompt, skipped))
        if trace_id is not None and trace_id not in sessions:
            raise unknown_trace_error(trace_id, sessions, path)
        return exchanges


def _last_branch(records: list[TraceRecord]) -> set[str]:
    """Return the ids of the last entry of a session file and of all entries that lead to it."""
    parents = {
        as_text(record.value["id"]): as_text(record.value.get("parentId"))
        for record in records
        if record.value.get("id") and "parentId" in record.value
    }
    branch: set[str] = set()
    current = next(reversed(parents), "")
    while current and current not in branch:
        branch.add(current)
        current = parents.get(current, "")
    return branch


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return as_items(content)


def _read_reply(message: dict[str, Any], prompt: str | None, skipped: Skipped) -> ImportedExchange:
    pairs = [(part, _read_block(part)) for part in _parts(message)]
    skipped.update(as_text(part.get("type")) for part, block in pairs if block is None)
    blocks = tuple(block for _, block in pairs if block is not None)
    usage = as_fields(message.get("usage"))
    # pi counts cached tokens apart from the input tokens.
    cache_read, cache_write = as_count(usage.get("cacheRead")), as_count(usage.get("cacheWrite"))
    tokens = Usage(
        as_count(usage.get("input")) + cache_read + cache_write,
        as_count(usage.get("output")),
        cache_read,
        cache_write,
    )
    stop = STOP_REASONS.get(as_text(message.get("stopReason")), "stop")
    error = None
    if stop == "error" and not blocks:
        error = ModelError(as_text(message.get("errorMessage")) or "unknown error")
    return ImportedExchange(
        Reply(blocks, stop, tokens, as_text(message.get("model"))),
        prompt,
        provider=as_text(message.get("provider")),
        error=error,
        usage_known=bool(usage),
    )


def _read_block(part: dict[str, Any]) -> AnyBlock | None:
    match part.get("type"):
        case "text":
            return Text(as_text(part.get("text")))
        case "thinking":
            return Thinking(as_text(part.get("thinking")), as_text(part.get("thinkingSignature")))
        case "toolCall":
            name, call_id = as_text(part.get("name")), as_text(part.get("id"))
            return ToolCall(call_id, name, as_object(part.get("arguments")))
        case _:
            return None
