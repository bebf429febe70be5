"""What Codex prints with `codex exec --json`, today and before, and what it keeps of a session.

Today it tells what it did, item by item (`item.completed`); before, by events in a `msg`. The files
under `sessions/` have the items of the Responses API, each in a `payload`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import ModelError
from offbook.exchange.messages import AnyBlock, Text, Thinking, ToolCall
from offbook.exchange.model import Reply, Usage
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
    from collections.abc import Iterable
    from pathlib import Path

KINDS = {"thread.started", "turn.started", "turn.completed", "item.completed", "session.created"}
STARTS = {"thread.started", "session.created", "session_meta", "session_configured"}
# What is not an answer of the model, or is told again by another record.
SILENT = {
    *("task_started", "task_complete", "turn_started", "turn_complete", "session_configured"),
    *("exec_command_end", "exec_command_output_delta", "mcp_tool_call_end", "patch_apply_end"),
    *("agent_message_delta", "agent_reasoning_delta", "agent_reasoning_section_break"),
    *("agent_reasoning_raw_content", "turn_diff", "plan_update", "background_event"),
    *("web_search_begin", "function_call_output", "custom_tool_call_output", "user_message"),
    *("session_meta", "turn_context", "compacted", "thread_name_updated"),
}


class CodexImporter:
    """Codex."""

    name = "codex"

    def claims(self, records: list[TraceRecord]) -> bool:
        """Whether the file is written in it."""
        return any(
            as_text(record.value.get("type")) in KINDS
            or (record.value.get("type") == "session_meta" and "payload" in record.value)
            or "type" in as_fields(record.value.get("msg"))
            for record in records
        )

    def read(
        self, records: list[TraceRecord], path: Path, trace_id: str | None, left: Skipped
    ) -> list[ImportedExchange]:
        """What was told in it; a trace is a thread."""
        heard = _Heard(left)
        thread = ""
        threads: set[str] = set()
        rollout = any(record.value.get("type") == "response_item" for record in records)
        for record in records:
            value = record.value
            inner = {**value, **as_fields(value.get("msg")), **as_fields(value.get("payload"))}
            if {as_text(one.get("type")) for one in (value, inner)} & STARTS:
                thread = as_text(
                    inner.get("thread_id") or inner.get("session_id") or inner.get("id")
                )
                threads.add(thread)
            if trace_id is None or thread == trace_id:
                heard.thread = thread
                heard.hear(value, inner, rollout=rollout)
        if trace_id is not None and trace_id not in threads:
            raise unknown_trace_error(trace_id, threads, path)
        return heard.end()


class _Heard:
    """What was told so far, and the thoughts that belong to what comes next."""

    def __init__(self, left: Skipped) -> None:
        self._left = left
        self._told: list[ImportedExchange] = []
        self._thoughts: tuple[AnyBlock, ...] = ()
        self._prompt: str | None = None
        self.thread = ""

    def hear(self, value: dict[str, Any], inner: dict[str, Any], *, rollout: bool) -> None:
        """Take in a record."""
        kind = as_text(inner.get("type"))
        outer = value.get("type")
        if kind in {"turn.completed", "token_count"}:
            self._spend(inner)
        elif kind == "turn.failed" or (kind == "error" and "msg" in value):
            self._fail(inner)
        elif kind == "error":  # it tries again, or the turn fails
            self._left[kind] += 1
        elif outer == "item.completed":
            self._add(as_fields(value.get("item")))
        elif outer == "response_item" or "msg" in value or (outer == "event_msg" and not rollout):
            self._add(inner)
        if "prompt" in value and "response" not in value:
            self._prompt = as_text(value["prompt"])
        if kind == "user_message":
            self._prompt = as_text(inner.get("message")) or self._prompt

    def _add(self, item: dict[str, Any]) -> None:
        kind = as_text(item.get("type") or item.get("item_type"))
        if kind == "message" and item.get("role") != "assistant":
            return
        block = _block(kind, item)
        if block is None:
            if kind not in SILENT:
                self._left[kind or "item without a type"] += 1
        elif isinstance(block, Thinking):
            self._thoughts = (*self._thoughts, block)
        else:
            stop = "tool_use" if isinstance(block, ToolCall) else "stop"
            reply = Reply((*self._thoughts, block), stop)
            self._tell(reply)
            self._thoughts = ()

    def _fail(self, event: dict[str, Any]) -> None:
        """A provider's error; the same one is told by an event and by the turn that it ended."""
        message = as_text(as_fields(event.get("error")).get("message") or event.get("message"))
        last = self._told[-1].error if self._told else None
        if message and (last is None or last.message != message):
            self._tell(Reply(()), ModelError(message))

    def _spend(self, event: dict[str, Any]) -> None:
        """Codex counts by turn: what a turn took is told with its last reply."""
        about = as_fields(
            event.get("usage") or as_fields(event.get("info")).get("last_token_usage")
        )
        if not self._told or not about:
            return
        spent = Usage(
            as_count(about.get("input_tokens")),
            as_count(about.get("output_tokens")),
            as_count(about.get("cached_input_tokens")),
            reasoning=as_count(about.get("reasoning_output_tokens")),
        )
        last = self._told[-1]
        reply = msgspec.structs.replace(last.reply, usage=spent)
        self._told[-1] = msgspec.structs.replace(last, reply=reply, usage_known=True)

    def end(self) -> list[ImportedExchange]:
        """All that was told; thoughts that nothing followed are an answer, too."""
        if self._thoughts:
            self._tell(Reply(self._thoughts))
        return self._told

    def _tell(self, reply: Reply, error: ModelError | None = None) -> None:
        told = ImportedExchange(
            reply, self._prompt, provider="openai", error=error, trace=self.thread
        )
        self._told.append(told)


def _block(kind: str, item: dict[str, Any]) -> AnyBlock | None:
    identity = as_text(item.get("call_id") or item.get("id"))
    match kind:
        case "agent_message" | "assistant_message" | "message":
            return Text(_text(item, "text", "message", "content"))
        case "reasoning" | "agent_reasoning":
            return Thinking(_text(item, "text", "summary", "content"))
        case "command_execution" | "exec_command_begin" | "local_shell_call":
            command = item.get("command") or as_fields(item.get("action")).get("command")
            return ToolCall(identity, "exec_command", {"cmd": _command(command)})
        case "mcp_tool_call" | "mcp_tool_call_begin":
            call = {**item, **as_fields(item.get("invocation"))}
            name, server = as_text(call.get("tool")), as_text(call.get("server"))
            return ToolCall(identity, name, as_object(call.get("arguments")), server)
        case "file_change" | "patch_apply_begin":
            return ToolCall(identity, "apply_patch", {"changes": item.get("changes")})
        case "web_search" | "web_search_end" | "web_search_call":
            query = item.get("query") or as_fields(item.get("action")).get("query")
            return ToolCall(identity, "web_search", {"query": as_text(query)})
        case "function_call" | "custom_tool_call" | "collab_tool_call":
            name = as_text(item.get("name") or item.get("tool"))
            given = item.get("arguments", item.get("input"))
            return ToolCall(identity, name, as_object(given))
        case _:
            return None


def _text(item: dict[str, Any], *names: str) -> str:
    """What was said, a text or a list of parts."""
    held = next((item[name] for name in names if item.get(name)), "")
    if isinstance(held, list):
        return "\n".join(_texts(as_items(held)))
    return as_text(held)


def _texts(parts: Iterable[dict[str, Any]]) -> Iterable[str]:
    return (as_text(part.get("text")) for part in parts if part.get("text"))


def _command(command: Any) -> str:
    import shlex

    words = cast("list[Any]", command) if isinstance(command, list) else []
    return shlex.join(as_text(word) for word in words) if words else as_text(command)
