"""Claude Code: the output of `--output-format stream-json`, and its session files."""

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

STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "stop",
    "max_tokens": "length",
    "refusal": "refusal",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_use",
}
SYNTHETIC_MODEL = "<synthetic>"  # the model of messages that the client itself has written
ERROR_PREFIX = "API Error: "


class ClaudeImporter:
    """Imports runs of Claude Code; a trace is a session."""

    name = "claude-code"

    def recognizes(self, records: list[TraceRecord]) -> bool:
        """Return whether the file is in this format."""
        return records[0].value.get("subtype") == "init" or any(
            record.value.get("type") == "assistant"
            and isinstance(record.value.get("message"), dict)
            for record in records
        )

    def read(
        self, records: list[TraceRecord], path: Path, trace_id: str | None, skipped: Skipped
    ) -> list[ImportedExchange]:
        """Return the exchanges."""
        chosen = [r for r in records if trace_id is None or _session_id(r.value) == trace_id]
        if not chosen and trace_id is not None:
            raise unknown_trace_error(trace_id, (_session_id(r.value) for r in records), path)
        exchanges: list[ImportedExchange] = []
        positions: dict[str, int] = {}
        prompts: dict[str, str] = {}  # the latest prompt of the agent and of each subagent
        for record in chosen:
            value = record.value
            if as_text(value.get("type")) not in {"assistant", "user"}:
                continue
            if not isinstance(value.get("message"), dict):
                raise FormatError(
                    f"the {value['type']} event has no message", path=path, line=record.line
                )
            message = as_fields(value["message"])
            agent = as_text(value.get("parent_tool_use_id") or value.get("agentId"))
            if value["type"] == "user":
                # Meta messages are from the client; a list without texts has tool results.
                text = "" if value.get("isMeta") else _user_text(message)
                skipped.update(
                    f"{part['type']} of the user"
                    for part in as_items(message.get("content"))
                    if as_text(part.get("type")) in {"image", "document"}
                )
                prompts[agent] = text or prompts.get(agent, "")
                continue
            exchange = _read_reply(message, prompts.get(agent) or None, skipped)
            if exchange.reply.model == SYNTHETIC_MODEL and exchange.error is None:
                skipped["message written by the client"] += 1
                continue
            exchange = msgspec.structs.replace(exchange, trace=_session_id(value))
            message_id = as_text(message.get("id"))
            if message_id and message_id in positions:
                # The client prints one event for each block of a message.
                position = positions[message_id]
                exchanges[position] = _join(exchanges[position], exchange)
            else:
                positions[message_id] = len(exchanges)
                exchanges.append(exchange)
        return exchanges


def _session_id(value: dict[str, Any]) -> str:
    return as_text(value.get("session_id") or value.get("sessionId"))


def _user_text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    texts = (as_text(part.get("text")) for part in as_items(content) if part.get("type") == "text")
    return "\n".join(texts)


def _read_reply(message: dict[str, Any], prompt: str | None, skipped: Skipped) -> ImportedExchange:
    content = message.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else as_items(content)
    pairs = [(part, _read_block(part)) for part in parts]
    skipped.update(as_text(part.get("type")) for part, block in pairs if block is None)
    blocks = tuple(block for _, block in pairs if block is not None)
    has_calls = any(isinstance(block, ToolCall) for block in blocks)
    usage = as_fields(message.get("usage"))
    # Anthropic counts cached tokens apart from the input tokens.
    cache_read = as_count(usage.get("cache_read_input_tokens"))
    cache_write = as_count(usage.get("cache_creation_input_tokens"))
    tokens = Usage(
        as_count(usage.get("input_tokens")) + cache_read + cache_write,
        as_count(usage.get("output_tokens")),
        cache_read,
        cache_write,
    )
    stop = STOP_REASONS.get(as_text(message.get("stop_reason")), "stop")
    model = as_text(message.get("model"))
    reply = Reply(
        blocks, "tool_use" if has_calls else stop, tokens, model, as_text(message.get("id"))
    )
    error = None
    if model == SYNTHETIC_MODEL and reply.text.startswith(ERROR_PREFIX):
        # The client reports the error of a provider as a message.
        status, _, rest = reply.text.removeprefix(ERROR_PREFIX).partition(" ")
        text = rest if status.isdigit() else reply.text
        error = ModelError(text, status=as_count(status) or 500)
    return ImportedExchange(
        reply, prompt, provider="anthropic", error=error, usage_known=bool(usage)
    )


def _read_block(part: dict[str, Any]) -> AnyBlock | None:
    match part.get("type"):
        case "text":
            return Text(as_text(part.get("text")))
        case "thinking":
            return Thinking(as_text(part.get("thinking")), as_text(part.get("signature")))
        case "redacted_thinking":
            return Thinking("", as_text(part.get("data")), redacted=True)
        case "tool_use":
            name, call_id = as_text(part.get("name")), as_text(part.get("id"))
            return ToolCall(call_id, name, as_object(part.get("input")))
        case _:
            return None


def _join(first: ImportedExchange, second: ImportedExchange) -> ImportedExchange:
    """Return two events of one message as one exchange."""
    blocks = (*first.reply.blocks, *second.reply.blocks)
    has_calls = any(isinstance(block, ToolCall) for block in blocks)
    stop = "tool_use" if has_calls else second.reply.stop
    reply = msgspec.structs.replace(second.reply, blocks=blocks, stop=stop)
    return msgspec.structs.replace(second, reply=reply)
