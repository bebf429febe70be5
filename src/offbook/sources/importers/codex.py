"""Codex: the output of `codex exec --json`, new and old, and its session files.

The new output has one event for each finished item (`item.completed`); the old one has events in
a `msg`. The files under `sessions/` have the items of the Responses API, each in a `payload`.
"""

from __future__ import annotations

import shlex
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
    from pathlib import Path

KINDS = {"thread.started", "turn.started", "turn.completed", "item.completed", "session.created"}
STARTS = {"thread.started", "session.created", "session_meta", "session_configured"}
# Not a reply of the model, or a repetition of another record.
IGNORED = {
    *("task_started", "task_complete", "turn_started", "turn_complete", "session_configured"),
    *("exec_command_end", "exec_command_output_delta", "mcp_tool_call_end", "patch_apply_end"),
    *("agent_message_delta", "agent_reasoning_delta", "agent_reasoning_section_break"),
    *("agent_reasoning_raw_content", "turn_diff", "plan_update", "background_event"),
    *("web_search_begin", "function_call_output", "custom_tool_call_output", "user_message"),
    *("session_meta", "turn_context", "compacted", "thread_name_updated"),
}


# The result of a call: the model is asked again before its next call.
RESULTS = {
    *("function_call_output", "custom_tool_call_output", "local_shell_call_output"),
    *("exec_command_end", "mcp_tool_call_end", "patch_apply_end", "turn.completed", "token_count"),
}


class CodexImporter:
    """Imports runs of Codex; a trace is a thread."""

    name = "codex"

    def recognizes(self, records: list[TraceRecord]) -> bool:
        """Return whether the file is in this format."""
        return any(
            as_text(record.value.get("type")) in KINDS
            or (record.value.get("type") == "session_meta" and "payload" in record.value)
            or "type" in as_fields(record.value.get("msg"))
            for record in records
        )

    def read(
        self, records: list[TraceRecord], path: Path, trace_id: str | None, skipped: Skipped
    ) -> list[ImportedExchange]:
        """Return the exchanges."""
        reader = _EventReader(skipped)
        thread = ""
        threads: set[str] = set()
        # A session file repeats its items as events.
        is_session_file = any(record.value.get("type") == "response_item" for record in records)
        for record in records:
            value = record.value
            inner = {**value, **as_fields(value.get("msg")), **as_fields(value.get("payload"))}
            if {as_text(value.get("type")), as_text(inner.get("type"))} & STARTS:
                thread = as_text(
                    inner.get("thread_id") or inner.get("session_id") or inner.get("id")
                )
                threads.add(thread)
            if trace_id is None or thread == trace_id:
                reader.thread = thread
                reader.read(value, inner, is_session_file=is_session_file)
        if trace_id is not None and trace_id not in threads:
            raise unknown_trace_error(trace_id, threads, path)
        return reader.finish()


class _EventReader:
    """Collects exchanges from events; reasoning belongs to the item that follows it."""

    def __init__(self, skipped: Skipped) -> None:
        self._skipped = skipped
        self._exchanges: list[ImportedExchange] = []
        self._reasoning: tuple[AnyBlock, ...] = ()
        self._prompt: str | None = None
        self._model = ""
        self._calling = False  # the last reply called a tool, and no result has come yet
        self._running: set[str] = set()  # items that have started
        self._parallel: set[str] = set()  # those that started while another was running
        self.thread = ""

    def read(self, value: dict[str, Any], inner: dict[str, Any], *, is_session_file: bool) -> None:
        """Read a record; `inner` also has the fields of its `msg` or `payload`."""
        kind = as_text(inner.get("type"))
        outer = value.get("type")
        item = as_fields(value.get("item"))
        self._model = as_text(inner.get("model")) or self._model
        self._calling = self._calling and kind not in RESULTS
        if outer == "item.started":
            identity = as_text(item.get("id"))
            self._parallel |= {identity} if self._running else set()
            self._running.add(identity)
        if kind in {"turn.completed", "token_count"}:
            self._add_usage(inner)
        elif kind == "turn.failed" or (kind == "error" and "msg" in value):
            message = as_text(as_fields(inner.get("error")).get("message") or inner.get("message"))
            last = self._exchanges[-1].error if self._exchanges else None
            # An error is reported by an event and again by the turn that it ended.
            if message and (last is None or last.message != message):
                self._add(Reply(()), ModelError(message))
        elif kind == "error":  # Codex tries again, or the turn fails
            self._skipped[kind] += 1
        elif outer == "item.completed":
            identity = as_text(item.get("id"))
            self._running.discard(identity)
            # An item is complete with its result: only its start shows that calls were parallel.
            self._calling = self._calling and identity in self._parallel
            self._read_item(item)
        elif (
            outer == "response_item"
            or "msg" in value
            or (outer == "event_msg" and not is_session_file)
        ):
            self._read_item(inner)
        # The old output begins with a summary of the configuration and the prompt.
        if "prompt" in value and "response" not in value:
            self._prompt = as_text(value["prompt"])
        if kind == "user_message":
            self._prompt = as_text(inner.get("message")) or self._prompt
            for images in (inner.get("images"), inner.get("local_images")):
                count = len(cast("list[Any]", images)) if isinstance(images, list) else 0
                self._skipped.update(["image of the user"] * count)

    def _read_item(self, item: dict[str, Any]) -> None:
        kind = as_text(item.get("type") or item.get("item_type"))
        if kind == "message" and item.get("role") != "assistant":
            return
        block = _read_block(kind, item)
        if block is None:
            if kind not in IGNORED:
                self._skipped[kind or "item without a type"] += 1
        elif isinstance(block, Thinking):
            self._reasoning = (*self._reasoning, block)
        else:
            is_call = isinstance(block, ToolCall)
            if is_call and self._calling and not self._reasoning:  # a parallel call
                last = self._exchanges[-1]
                reply = msgspec.structs.replace(last.reply, blocks=(*last.reply.blocks, block))
                self._exchanges[-1] = msgspec.structs.replace(last, reply=reply)
            else:
                stop = "tool_use" if is_call else "stop"
                self._add(Reply((*self._reasoning, block), stop, model=self._model))
            self._calling = is_call
            self._reasoning = ()

    def _add_usage(self, event: dict[str, Any]) -> None:
        """Add the tokens of a turn to its last reply: Codex does not count them by reply."""
        info = as_fields(event.get("info"))
        usage = as_fields(event.get("usage") or info.get("last_token_usage"))
        if not self._exchanges or not usage:
            return
        tokens = Usage(
            as_count(usage.get("input_tokens")),
            as_count(usage.get("output_tokens")),
            as_count(usage.get("cached_input_tokens")),
            reasoning=as_count(usage.get("reasoning_output_tokens")),
        )
        last = self._exchanges[-1]
        reply = msgspec.structs.replace(last.reply, usage=tokens)
        self._exchanges[-1] = msgspec.structs.replace(last, reply=reply, usage_known=True)

    def _add(self, reply: Reply, error: ModelError | None = None) -> None:
        self._exchanges.append(
            ImportedExchange(reply, self._prompt, provider="openai", error=error, trace=self.thread)
        )

    def finish(self) -> list[ImportedExchange]:
        """Return all exchanges; reasoning at the end of the file is a reply, too."""
        if self._reasoning:
            self._add(Reply(self._reasoning, model=self._model))
        return self._exchanges


def _read_block(kind: str, item: dict[str, Any]) -> AnyBlock | None:
    call_id = as_text(item.get("call_id") or item.get("id"))
    match kind:
        case "agent_message" | "assistant_message" | "message":
            return Text(_find_text(item, "text", "message", "content"))
        case "reasoning" | "agent_reasoning":
            return Thinking(_find_text(item, "text", "summary", "content"))
        case "command_execution" | "exec_command_begin" | "local_shell_call":
            command = item.get("command") or as_fields(item.get("action")).get("command")
            if isinstance(command, list) and command:
                command = shlex.join(as_text(word) for word in cast("list[Any]", command))
            return ToolCall(call_id, "exec_command", {"cmd": as_text(command)})
        case "mcp_tool_call" | "mcp_tool_call_begin":
            call = {**item, **as_fields(item.get("invocation"))}
            name, server = as_text(call.get("tool")), as_text(call.get("server"))
            return ToolCall(call_id, name, as_object(call.get("arguments")), server)
        case "file_change" | "patch_apply_begin":
            return ToolCall(call_id, "apply_patch", {"changes": item.get("changes")})
        case "web_search" | "web_search_end" | "web_search_call":
            query = item.get("query") or as_fields(item.get("action")).get("query")
            return ToolCall(call_id, "web_search", {"query": as_text(query)})
        case "function_call" | "custom_tool_call" | "collab_tool_call":
            name = as_text(item.get("name") or item.get("tool"))
            return ToolCall(call_id, name, as_object(item.get("arguments", item.get("input"))))
        case _:
            return None


def _find_text(item: dict[str, Any], *names: str) -> str:
    """Return the first of these fields that is not empty; a list of parts becomes lines."""
    value = next((item[name] for name in names if item.get(name)), "")
    if isinstance(value, list):
        texts = (as_text(part.get("text")) for part in as_items(cast("Any", value)))
        return "\n".join(filter(None, texts))
    return as_text(value)
