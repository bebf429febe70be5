"""Imports the logs of command-line agents: Claude Code, pi, Codex and Ralph; and the generic trace.

The generic trace is `{prompt, response, tool_calls}`, one a line. `response` is a text, or an
object with `text` or `content`, `model`, `provider` and the tokens. These keys may also be next to
it.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import FormatError, ModelError, did_you_mean
from offbook.exchange.messages import (
    AnyBlock,
    Message,
    Text,
    Thinking,
    ToolCall,
    parse_custom_input,
    written_text,
)
from offbook.exchange.model import STOP_REASONS, Reply, StopReason, Usage
from offbook.sources.importers.importer import (
    MAIN_HAT,
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
from offbook.sources.importers.otlp import (
    as_messages,
    find_blocks,
    latest_prompt,
)
from offbook.trace.agent_output import decode_base64
from offbook.trace.events import ITERATION, TERMINAL_WRITE

if TYPE_CHECKING:
    from pathlib import Path


SYNTHETIC_MODEL = "<synthetic>"  # the model of messages that the client itself has written
ERROR_PREFIX = "API Error: "


class ClaudeImporter:
    """Imports runs of Claude Code; a trace is a session.

    They are the output of `--output-format stream-json`, and session files.
    """

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
        last = -1  # that of the agent itself, not of a subagent
        positions: dict[str, int] = {}
        prompts: dict[str, str] = {}  # the latest prompt of the agent and of each subagent
        tasks: dict[str, str] = {}  # by the records of subagents: the first one of each
        for record in chosen:
            value = record.value
            agent = as_text(value.get("parent_tool_use_id") or value.get("agentId"))
            if not agent and value.get("isSidechain"):  # session files, before they had agent ids
                uuid = as_text(value.get("uuid"))
                agent = tasks[uuid] = tasks.get(as_text(value.get("parentUuid")), uuid)
            if as_text(value.get("type")) not in {"assistant", "user"}:
                continue
            if not isinstance(value.get("message"), dict):
                raise FormatError(
                    f"the {value['type']} event has no message", path=path, line=record.line
                )
            message = as_fields(value["message"])
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
            exchange = _read_claude_reply(message, prompts.get(agent) or None, skipped)
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
                last = last if agent else len(exchanges)
                exchanges.append(exchange)
        return _mark_cut(exchanges, chosen, last)


ENDS = {"result", "turn.completed", "turn_complete", "task_complete", "agent_end"}


def _mark_cut(
    exchanges: list[ImportedExchange], records: list[TraceRecord], last: int = -1
) -> list[ImportedExchange]:
    """Mark the last exchange if it has calls, and the agent did not say that it has ended."""
    value = records[-1].value
    names = (value, as_fields(value.get("msg")), as_fields(value.get("payload")))
    ended = ENDS & {as_text(fields.get("type")) for fields in names}
    if exchanges and exchanges[last].reply.calls and not ended:
        exchanges[last] = msgspec.structs.replace(exchanges[last], cut=True)
    return exchanges


def _session_id(value: dict[str, Any]) -> str:
    return as_text(value.get("session_id") or value.get("sessionId"))


def _user_text(message: dict[str, Any]) -> str:
    parts = (part for part in _parts(message) if part.get("type") == "text")
    return written_text(Message("user", tuple(Text(as_text(part.get("text"))) for part in parts)))


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return as_items(content)


def _read_blocks(message: dict[str, Any], skipped: Skipped) -> tuple[AnyBlock, ...]:
    """Return the blocks of a message; count the parts that have no neutral form."""
    pairs = [(part, _read_block(part)) for part in _parts(message)]
    skipped.update(as_text(part.get("type")) for part, block in pairs if block is None)
    return tuple(block for _, block in pairs if block is not None)


def _read_block(part: dict[str, Any]) -> AnyBlock | None:
    """Return a block in the names of Claude Code, or of pi."""
    match part.get("type"):
        case "text":
            return Text(as_text(part.get("text")))
        case "thinking":
            signature = part.get("signature") or part.get("thinkingSignature")
            return Thinking(as_text(part.get("thinking")), as_text(signature))
        case "redacted_thinking":
            return Thinking("", as_text(part.get("data")), redacted=True)
        case "tool_use" | "toolCall":
            name, call_id = as_text(part.get("name")), as_text(part.get("id"))
            return ToolCall(call_id, name, as_object(part.get("input", part.get("arguments"))))
        case _:
            return None


def _read_usage(usage: dict[str, Any], *names: str) -> Usage:
    """Return the tokens; these agents count cached ones apart from those of the input."""
    given, output, read, written = (as_count(usage.get(name)) for name in names)
    return Usage(given + read + written, output, read, written)


def _read_claude_reply(
    message: dict[str, Any], prompt: str | None, skipped: Skipped
) -> ImportedExchange:
    blocks = _read_blocks(message, skipped)
    has_calls = any(isinstance(block, ToolCall) for block in blocks)
    usage = as_fields(message.get("usage"))
    names = ("input_tokens", "output_tokens")
    cached = ("cache_read_input_tokens", "cache_creation_input_tokens")
    tokens = _read_usage(usage, *names, *cached)
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


def _join(first: ImportedExchange, second: ImportedExchange) -> ImportedExchange:
    """Return two events of one message as one exchange."""
    blocks = (*first.reply.blocks, *second.reply.blocks)
    has_calls = any(isinstance(block, ToolCall) for block in blocks)
    stop = "tool_use" if has_calls else second.reply.stop
    reply = msgspec.structs.replace(second.reply, blocks=blocks, stop=stop)
    return msgspec.structs.replace(second, reply=reply)


# ----------------------------------------------------------------------------------- pi
# pi: the output of `--mode json`, and its session files.
#
# The entries of a session file are a tree: after an edit the conversation goes on in another
# branch. Imported is the branch of the last entry.

PI_STOP_REASONS: dict[str, StopReason] = {
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
                prompt = _user_text(message) or prompt
                skipped.update(
                    f"{as_text(part.get('type'))} of the user"
                    for part in _parts(message)
                    if part.get("type") != "text"
                )
            elif message.get("role") == "assistant":
                exchanges.append(_read_pi_reply(message, prompt, skipped))
        if trace_id is not None and trace_id not in sessions:
            raise unknown_trace_error(trace_id, sessions, path)
        return _mark_cut(exchanges, records)


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


def _read_pi_reply(
    message: dict[str, Any], prompt: str | None, skipped: Skipped
) -> ImportedExchange:
    blocks = _read_blocks(message, skipped)
    usage = as_fields(message.get("usage"))
    tokens = _read_usage(usage, "input", "output", "cacheRead", "cacheWrite")
    stop = PI_STOP_REASONS.get(as_text(message.get("stopReason")), "stop")
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


# -------------------------------------------------------------------------------- codex
# Codex: the output of `codex exec --json`, new and old, and its session files.
#
# The new output has one event for each finished item (`item.completed`); the old one has events in
# a `msg`. The files under `sessions/` have the items of the Responses API, each in a `payload`.

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
        return _mark_cut(reader.finish(), records)


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
        block = _read_codex_block(kind, item)
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


def _read_codex_block(kind: str, item: dict[str, Any]) -> AnyBlock | None:
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
            given = item.get("arguments", item.get("input"))
            is_custom = kind == "custom_tool_call"
            arguments = parse_custom_input(as_text(given)) if is_custom else as_object(given)
            return ToolCall(call_id, name, arguments)
        case _:
            return None


def _find_text(item: dict[str, Any], *names: str) -> str:
    """Return the first of these fields that is not empty; a list of parts becomes lines."""
    value = next((item[name] for name in names if item.get(name)), "")
    if isinstance(value, list):
        texts = (as_text(part.get("text")) for part in as_items(cast("Any", value)))
        return "\n".join(filter(None, texts))
    return as_text(value)


UNKNOWN_MODEL = "imported-trace"


class GenericImporter:
    """Imports `{prompt, response, tool_calls}`."""

    name = "generic"

    def recognizes(self, records: list[TraceRecord]) -> bool:
        """Return whether the file is in this format."""
        return "prompt" in records[0].value or "response" in records[0].value

    def read(
        self, records: list[TraceRecord], path: Path, trace_id: str | None, skipped: Skipped
    ) -> list[ImportedExchange]:
        """Return the exchanges."""
        call_count = 0
        exchanges: list[ImportedExchange] = []
        for record in records:
            if trace_id is not None and record.value.get("trace_id") != trace_id:
                continue
            exchange = _read_exchange(record, path, call_count, skipped)
            call_count += len(exchange.reply.calls)
            exchanges.append(exchange)
        if trace_id is not None and not exchanges:
            known = (as_text(record.value.get("trace_id")) for record in records)
            raise unknown_trace_error(trace_id, known, path)
        return exchanges


def _read_exchange(
    record: TraceRecord, path: Path, call_count: int, skipped: Skipped
) -> ImportedExchange:
    """Return the exchange of a record; `call_count` calls came before it."""
    value = record.value
    if "prompt" not in value:
        raise FormatError(
            "the record has no prompt",
            path=path,
            line=record.line,
            hint=did_you_mean("prompt", value),
        )
    response = value.get("response")
    if response is not None and not isinstance(response, (str, dict)):
        raise FormatError(
            f"expected a text or an object as response, got {type(response).__name__}",
            path=path,
            line=record.line,
        )
    inner = cast("dict[str, Any]", response if isinstance(response, dict) else {})

    def find(name: str) -> Any:
        return value[name] if value.get(name) is not None else inner.get(name)

    written = (inner[name] for name in ("text", "content") if inner.get(name) is not None)
    content = response if isinstance(response, str) else next(written, None)
    calls: Any = value.get("tool_calls") or inner.get("tool_calls") or []
    if not isinstance(calls, list):
        raise FormatError(
            f"expected a list as tool_calls, got {type(calls).__name__}",
            path=path,
            line=record.line,
        )
    unknown: list[str] = []
    blocks = find_blocks({"content": content}, unknown)
    skipped.update(unknown)
    if not blocks and not calls and content != "":
        raise FormatError(
            "the record has no reply of a model",
            path=path,
            line=record.line,
            hint="write its response as a text, or remove the record"
            if "response" in value
            else did_you_mean("response", value),
        )
    for number, call in enumerate(cast("list[Any]", calls), call_count + 1):
        # OpenAI nests the name and the arguments in `function`.
        fields = {**as_fields(call), **as_fields(as_fields(call).get("function"))}
        name, call_id = fields.get("name"), fields.get("id")
        if not isinstance(name, str) or not name:
            raise FormatError("a tool call has no name", path=path, line=record.line)
        arguments = fields.get("arguments", fields.get("args", fields.get("input")))
        call_id = call_id if isinstance(call_id, str) else f"imported-{number}"
        blocks.append(ToolCall(call_id, name, as_object(arguments)))
    input_tokens, output_tokens = find("input_tokens"), find("output_tokens")
    prompt = value["prompt"]
    sent = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return ImportedExchange(
        Reply(
            tuple(blocks),
            "tool_use" if any(isinstance(block, ToolCall) for block in blocks) else "stop",
            Usage(as_count(input_tokens), as_count(output_tokens)),
            as_text(find("model")) or UNKNOWN_MODEL,
        ),
        prompt=latest_prompt(as_messages(sent)),
        provider=as_text(find("provider")),
        usage_known=input_tokens is not None or output_tokens is not None,
        trace=as_text(value.get("trace_id")),
    )


# -------------------------------------------------------------------------------- ralph
# Ralph's `session.jsonl`: the terminal output of its agents, iteration by iteration.
#
# The record of an iteration follows its output. In a session without such records, each output is
# one reply.


class RalphImporter:
    """Imports sessions of Ralph."""

    name = "ralph"

    def recognizes(self, records: list[TraceRecord]) -> bool:
        """Return whether the file is in this format."""
        return {"ts", "event", "data"} <= set(records[0].value)

    def read(
        self,
        records: list[TraceRecord],
        path: Path,
        trace_id: str | None,
        skipped: Skipped,  # noqa: ARG002 - the protocol's
    ) -> list[ImportedExchange]:
        """Return the exchanges; a session has no traces to choose from."""
        if trace_id is not None:
            raise FormatError("a session has no trace ids", path=path, hint="omit --trace-id")
        has_iterations = any(record.value.get("event") == ITERATION for record in records)
        exchanges: list[ImportedExchange] = []
        chunks: list[bytes] = []
        start: int | None = None
        for record in records:
            event, data, ts = _read_event(record, path)
            start = ts if start is None else start
            if event == TERMINAL_WRITE:
                raw = decode_base64(as_text(data.get("bytes")))
                if raw is None:
                    raise FormatError("invalid base64", path=path, line=record.line)
                chunks.append(raw)
            is_end = event == (ITERATION if has_iterations else TERMINAL_WRITE)
            if is_end and chunks:
                hat = as_text(data.get("hat")) or MAIN_HAT
                exchanges.append(_exchange(chunks, hat, ts - start))
                chunks, start = [], ts
        if chunks:  # the session ended inside an iteration
            exchanges.append(_exchange(chunks, exchanges[-1].hat if exchanges else MAIN_HAT, 0))
        return exchanges


def _read_event(record: TraceRecord, path: Path) -> tuple[str, dict[str, Any], int]:
    value = record.value
    missing = {"ts", "event", "data"} - set(value)
    if missing:
        raise FormatError(
            f"the record has no {' and no '.join(sorted(missing))}", path=path, line=record.line
        )
    data = cast("dict[str, Any]", value["data"] if isinstance(value["data"], dict) else {})
    inner = data.get("data")  # newer sessions nest the fields that older ones have flat
    if isinstance(inner, dict) and "bytes" in inner:
        data = cast("dict[str, Any]", inner)
    ts = value["ts"]
    return as_text(value["event"]), data, ts if isinstance(ts, int) else 0


def _exchange(chunks: list[bytes], hat: str, duration: int) -> ImportedExchange:
    # Decode the whole: a chunk may end inside a character.
    text = b"".join(chunks).decode(errors="replace")
    return ImportedExchange(Reply((Text(text),)), hat=hat, duration_ms=max(0, duration))
