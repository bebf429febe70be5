"""What Codex prints with `codex exec --json`: what it did, item by item."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.exchange.messages import AnyBlock, Text, Thinking, ToolCall
from offbook.exchange.reply import Reply, Usage
from offbook.sources.importers.importer import Record, Told, as_count, as_object, as_text

if TYPE_CHECKING:
    from pathlib import Path


class Codex:
    """Codex."""

    name = "codex"

    def claims(self, records: list[Record]) -> bool:
        """Whether the file is written in it."""
        kinds = {as_text(record.value.get("type")) for record in records}
        return bool(kinds & {"thread.started", "turn.started", "turn.completed"})

    def read(self, records: list[Record], path: Path, trace_id: str | None) -> list[Told]:  # noqa: ARG002 - the protocol's
        """What was told in it; a trace is a thread."""
        told: list[Told] = []
        thoughts: tuple[AnyBlock, ...] = ()
        thread = ""
        for record in records:
            value = record.value
            thread = as_text(value.get("thread_id")) or thread
            if trace_id is not None and thread != trace_id:
                continue
            if value.get("type") == "turn.completed" and told:
                told[-1] = _spend(told[-1], cast("dict[str, Any]", value.get("usage") or {}))
            if value.get("type") != "item.completed":
                continue
            item = cast("dict[str, Any]", value.get("item") or {})
            block = _block(item)
            if isinstance(block, Thinking):
                thoughts = (*thoughts, block)
            elif block is not None:
                stop = "tool_use" if isinstance(block, ToolCall) else "stop"
                told.append(Told(Reply((*thoughts, block), stop), provider="openai"))
                thoughts = ()
        return told


def _block(item: dict[str, Any]) -> AnyBlock | None:  # noqa: PLR0911 - one for each kind
    identity = as_text(item.get("id"))
    match item.get("type"):
        case "agent_message":
            return Text(as_text(item.get("text")))
        case "reasoning":
            return Thinking(as_text(item.get("text")))
        case "command_execution":
            return ToolCall(identity, "exec_command", {"cmd": as_text(item.get("command"))})
        case "mcp_tool_call":
            name = as_text(item.get("tool"))
            server = as_text(item.get("server"))
            return ToolCall(identity, name, as_object(item.get("arguments")), server)
        case "file_change":
            return ToolCall(identity, "apply_patch", {"changes": item.get("changes")})
        case "web_search":
            return ToolCall(identity, "web_search", {"query": as_text(item.get("query"))})
        case _:
            return None


def _spend(last: Told, usage: dict[str, Any]) -> Told:
    """Codex counts by turn: what a turn took is told with its last reply."""
    spent = Usage(
        as_count(usage.get("input_tokens")),
        as_count(usage.get("output_tokens")),
        as_count(usage.get("cached_input_tokens")),
        reasoning=as_count(usage.get("reasoning_output_tokens")),
    )
    reply = msgspec.structs.replace(last.reply, usage=spent)
    return msgspec.structs.replace(last, reply=reply, usage_known=True)
