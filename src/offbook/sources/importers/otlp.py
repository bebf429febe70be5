"""Where the emitters of spans put what was said to a model, and what it said.

`gen_ai.output.messages` is today's name of the GenAI conventions. Before, messages were attributes
of their own (`gen_ai.completion.0.content`, still so in OpenLLMetry and, as `llm.output_messages`,
in OpenInference) or events. Logfire has events in an attribute, or the provider's own answer; the
AI SDK for JavaScript has names of its own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import FormatError, ModelError
from offbook.exchange.messages import AnyBlock, Text, Thinking, ToolCall
from offbook.exchange.model import Reply, StopReason, Usage
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

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# --- Where the emitters of spans put what was said to a model, and what it said.

Attributes = dict[str, Any]
Messages = list[dict[str, Any]]
ASKED = ("gen_ai.input.messages", "gen_ai.prompt", "ai.prompt.messages")
ANSWERED = ("gen_ai.output.messages", "gen_ai.completion")
INDEXED = (
    ("gen_ai.prompt", "gen_ai.completion"),
    ("llm.input_messages", "llm.output_messages"),
    ("llm.prompts", "llm.completions"),
)
SAID_BY = re.compile(r"gen_ai\.(user|system|tool|assistant)\.message")
DETAILS = "gen_ai.client.inference.operation.details"
CALLS = {"tool_call", "tool-call", "tool_use", "function", "function_call", "server_tool_call"}
THOUGHTS = {"reasoning", "thinking"}


def find_messages(
    about: Attributes, events: list[tuple[str, Attributes]]
) -> tuple[Messages, Messages]:
    """What was said to the model, and what it said, wherever these attributes or events have it."""
    found = (_plain(about), *(_numbered(about, *names) for names in INDEXED))
    for asked, answered in (
        *found,
        _javascript(about),
        _logfire(about),
        _events(events),
        _raw(about),
    ):
        if answered:
            return asked or found[0][0], answered
    nothing: Messages = []
    return next((asked for asked, _ in found if asked), nothing), nothing


def _plain(about: Attributes) -> tuple[Messages, Messages]:
    asked, answered = (
        next((about[name] for name in names if name in about), None) for names in (ASKED, ANSWERED)
    )
    return listed(asked), listed(answered)


def listed(value: Any) -> Messages:
    """Messages, or one, or a text that has them in JSON, or that is all there is."""
    value = _decoded(value)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return as_items(fields["messages"]) if "messages" in fields else [fields]
    if isinstance(value, list):
        return [one for item in cast("list[Any]", value) for one in _single(item)]
    return [{"role": "user", "content": as_text(value)}] if value is not None else []


def _decoded(value: Any) -> Any:
    """What a text has in JSON, or as it is."""
    try:
        return msgspec.json.decode(value) if isinstance(value, str) else value
    except msgspec.DecodeError:
        return value


def _single(item: Any) -> Messages:
    if isinstance(item, dict):
        return [cast("dict[str, Any]", item)]
    return listed(item) if isinstance(item, str) else []


def _numbered(about: Attributes, asked: str, answered: str) -> tuple[Messages, Messages]:
    return _indexed(about, asked), _indexed(about, answered)


def _indexed(about: Attributes, prefix: str) -> Messages:
    """Messages whose fields are attributes of their own: `gen_ai.prompt.0.content`."""
    found: dict[int, dict[str, Any]] = {}
    pattern = re.compile(rf"{re.escape(prefix)}\.(\d+)\.(?:(?:message|completion|prompt)\.)?(.+)")
    for name, value in about.items():
        match = pattern.fullmatch(name)
        if match:
            _put(found.setdefault(int(match[1]), {}), match[2], value)
    return [found[number] for number in sorted(found)]


def _put(message: dict[str, Any], name: str, value: Any) -> None:
    within = re.fullmatch(r"(tool_calls|contents)\.(\d+)\.(?:\w+\.)*(\w+)", name)
    if within is None:
        message[name] = value
        return
    items = cast("dict[int, dict[str, Any]]", message.setdefault(within[1], {}))
    items.setdefault(int(within[2]), {})[within[3]] = value


def _javascript(about: Attributes) -> tuple[Messages, Messages]:
    """The AI SDK: a text, and calls in JSON."""
    parts: list[dict[str, Any]] = []
    for name, kind in (("reasoning", "reasoning"), ("text", "text"), ("object", "text")):
        if said := about.get(f"ai.response.{name}"):
            parts.append({"type": kind, "text": as_text(said)})
    if calls := about.get("ai.response.toolCalls"):
        parts += [{"type": "tool_call", **call} for call in listed(calls)]
    return listed(about.get("ai.prompt.messages")), [{"parts": parts}] if parts else []


def _logfire(about: Attributes) -> tuple[Messages, Messages]:
    """Events in an attribute, or what was sent to the provider and what came back."""
    events = [(as_text(one.get("event.name")), one) for one in listed(about.get("events"))]
    asked, answered = _events(events)
    if answered:
        return asked, answered
    given, taken = (
        as_fields(_decoded(about.get(name))) for name in ("request_data", "response_data")
    )
    message = taken.get("message") or taken.get("combined_chunk_content")
    said = listed(message) if message else as_items(taken.get("output"))
    return as_items(given.get("messages") or given.get("input")), said


def _events(events: list[tuple[str, Attributes]]) -> tuple[Messages, Messages]:
    asked: Messages = []
    answered: Messages = []
    for name, about in events:
        by = SAID_BY.fullmatch(name)
        if name == DETAILS:
            asked += listed(about.get("gen_ai.input.messages"))
            answered += listed(about.get("gen_ai.output.messages"))
        elif name == "gen_ai.content.prompt":
            asked += listed(about.get("gen_ai.prompt"))
        elif name == "gen_ai.content.completion":
            answered += listed(about.get("gen_ai.completion"))
        elif name == "gen_ai.choice":
            reason = {"finish_reason": about["finish_reason"]} if "finish_reason" in about else {}
            answered += [{**reason, **message} for message in listed(about.get("message", about))]
        elif by is not None:
            asked.append({"role": by[1], **about})
    return asked, answered


def _raw(about: Attributes) -> tuple[Messages, Messages]:
    """What any span may say of what went in and came out, where it says nothing better."""
    given, taken = (about.get(f"{side}.value") for side in ("input", "output"))
    if taken is None:
        given, taken = (about.get(f"langfuse.observation.{side}") for side in ("input", "output"))
    answers = listed(taken)
    chosen = as_items(answers[0].get("choices")) if answers else []
    messages = [as_fields(one.get("message")) for one in chosen] or answers
    return listed(given), [message for message in messages if find_blocks(message)]


def find_prompt(messages: Messages) -> str | None:
    """The latest thing that the user said."""
    for message in reversed(messages):
        if as_text(message.get("role")) in {"user", "human"}:
            texts = [block.text for block in find_blocks(message) if isinstance(block, Text)]
            if texts:
                return "\n".join(texts)
    return None


def find_blocks(message: dict[str, Any], left: list[str] | None = None) -> list[AnyBlock]:
    """What a message says; the kinds of what is no text, thought or call go `left`."""
    parts = message.get("parts", message.get("content"))
    if isinstance(parts, str):
        parts = [{"type": "text", "content": parts}] if parts else []
    found = [
        *as_items(parts),
        *_sorted(message.get("contents")),
        *_sorted(message.get("tool_calls")),
    ]
    call = message.get("function_call")
    found += [{"type": "function", **as_fields(call)}] if call else []
    blocks: list[AnyBlock] = []
    for part in found:
        block = _block(part)
        if block is not None:
            blocks.append(block)
        elif left is not None and as_text(part.get("type")) not in {"text", ""}:
            left.append(as_text(part.get("type")))
    return blocks


def _sorted(items: Any) -> list[dict[str, Any]]:
    """A list, or what has its places for names."""
    if isinstance(items, dict):
        placed = cast("dict[int, dict[str, Any]]", items)
        return [placed[at] for at in sorted(placed)]
    return as_items(items)


def _block(part: dict[str, Any]) -> AnyBlock | None:
    kind = as_text(part.get("type"))
    part = {**part, **as_fields(part.get("function"))}
    name = part.get("name", part.get("toolName"))
    if kind in CALLS or (not kind and name is not None):
        arguments = next((part[one] for one in ("arguments", "input", "args") if one in part), None)
        identity = part.get("id", part.get("toolCallId", part.get("call_id")))
        return ToolCall(as_text(identity), as_text(name), as_object(arguments))
    text = as_text(part.get("content", part.get("text", part.get("thinking"))))
    if kind in THOUGHTS:
        return Thinking(text)
    return Text(text) if kind in {"text", "output_text", "input_text", ""} and text else None


# --- OpenTelemetry spans of calls to a model, as OTLP writes them in JSON.

NAMES = {
    "input": (
        *("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
        *("llm.usage.prompt_tokens", "ai.usage.promptTokens", "ai.usage.inputTokens"),
    ),
    "output": (
        *("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
        *("llm.token_count.completion", "llm.usage.completion_tokens"),
        *("ai.usage.completionTokens", "ai.usage.outputTokens"),
    ),
    "cached": (
        *("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens"),
        *("gen_ai.usage.details.cache_read_tokens", "llm.token_count.prompt_details.cache_read"),
    ),
    "model": (
        *("gen_ai.response.model", "gen_ai.request.model", "llm.model_name"),
        *("ai.response.model", "ai.model.id"),
    ),
    "provider": ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system"),
    "hat": ("gen_ai.agent.name",),
    "finish": ("gen_ai.response.finish_reasons", "ai.response.finishReason"),
}
OPERATIONS = {"chat", "text_completion", "generate_content", "completion"}
LISTS = {
    "spans": ("resourceSpans", "resource_spans"),
    "logs": ("resourceLogs", "resource_logs"),
}
SCOPES = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans", "scopeLogs", "scope_logs")
STOPS: dict[str, StopReason] = {
    "stop": "stop",
    "end_turn": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_use",
    "tool-calls": "tool_use",
    "tool_call": "tool_use",
    "tool_use": "tool_use",
    "content_filter": "refusal",
    "content-filter": "refusal",
    "refusal": "refusal",
}
FAILED = {"2", "STATUS_CODE_ERROR", "ERROR"}
Span = dict[str, Any]
Events = list[tuple[str, Attributes]]


class OtlpImporter:
    """OTLP in JSON: one document, or one a line."""

    name = "otlp"

    def claims(self, records: list[TraceRecord]) -> bool:
        """Whether the file is written in it."""
        names = {name for some in LISTS.values() for name in some}
        return any(names & set(record.value) for record in records)

    def read(
        self, records: list[TraceRecord], path: Path, trace_id: str | None, left: Skipped
    ) -> list[ImportedExchange]:
        """What was told in it, in the order of time."""
        spans = [span for record in records for span in _inside(record.value, "spans", "spans")]
        if trace_id is not None:
            kept = [span for span in spans if _trace(span) == trace_id]
            if not kept:
                raise unknown_trace_error(trace_id, map(_trace, spans), path)
            spans = kept
        logs = _logs(records)
        asked = [(span, about) for span in spans if _is_call(about := _attributes(span))]
        asked.sort(key=lambda one: _time(one[0], "start"))
        told = [_tell(span, about, logs, left) for span, about in asked]
        if asked and not any(one.reply.blocks or one.error for one in told):
            raise FormatError(
                f"the {len(told)} spans of calls to a model do not tell what was said",
                path=path,
                hint="record with OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true",
            )
        mute = sum(not one.reply.blocks and one.error is None for one in told)
        if mute:
            left["span that does not tell what was said"] += mute
        return [one for one in told if one.reply.blocks or one.error]


def _get(value: dict[str, Any], *names: str) -> Any:
    return next((value[name] for name in names if name in value), None)


def _inside(document: dict[str, Any], kind: str, *names: str) -> Iterator[Span]:
    for resource in as_items(_get(document, *LISTS[kind])):
        for scope in as_items(_get(resource, *SCOPES)):
            yield from as_items(_get(scope, *names))


def _trace(span: Span) -> str:
    return as_text(_get(span, "traceId", "trace_id"))


def _name(span: Span) -> tuple[str, str]:
    return _trace(span), as_text(_get(span, "spanId", "span_id"))


def _time(span: Span, end: str) -> int:
    return as_count(_get(span, f"{end}TimeUnixNano", f"{end}_time_unix_nano"))


def _logs(records: list[TraceRecord]) -> dict[tuple[str, str], Events]:
    """What log records tell of spans."""
    found: dict[tuple[str, str], Events] = {}
    for record in records:
        for log in _inside(record.value, "logs", "logRecords", "log_records"):
            about = _attributes(log)
            name = _get(log, "eventName", "event_name") or about.get("event.name")
            body = as_fields(_value(log.get("body")))
            found.setdefault(_name(log), []).append((as_text(name), {**about, **body}))
    return found


def _attributes(holder: dict[str, Any]) -> Attributes:
    held = holder.get("attributes")
    if isinstance(held, dict):
        return cast("dict[str, Any]", held)
    return {as_text(one.get("key")): _value(one.get("value")) for one in as_items(held)}


def _value(value: Any) -> Any:
    """What a value of OTLP holds, which names its type first."""
    for kind, held in as_fields(value).items():
        match kind.lower().removesuffix("value").rstrip("_"):
            case "int":
                return as_count(held)
            case "array":
                items = as_fields(held).get("values")
                return [_value(one) for one in as_items(items)]
            case "kvlist":
                return _attributes({"attributes": as_fields(held).get("values")})
            case _:
                return held
    return None if isinstance(value, dict) else value


def _is_call(about: Attributes) -> bool:
    operation = about.get("gen_ai.operation.name") or about.get("llm.request.type")
    if operation is not None:
        return as_text(operation) in OPERATIONS
    return about.get("openinference.span.kind") == "LLM" or "gen_ai.request.model" in about


def _tell(
    span: Span, about: Attributes, logs: dict[tuple[str, str], Events], left: Skipped
) -> ImportedExchange:
    events = [(as_text(one.get("name")), _attributes(one)) for one in as_items(span.get("events"))]
    asked, answered = find_messages(about, [*events, *logs.get(_name(span), ())])
    unknown: list[str] = []
    blocks = tuple(block for message in answered for block in find_blocks(message, unknown))
    left.update(unknown)
    calls = any(isinstance(block, ToolCall) for block in blocks)
    given, taken = _first(about, "input"), _first(about, "output")
    reply = Reply(
        blocks,
        "tool_use" if calls else STOPS.get(_finish(about, answered), "stop"),
        Usage(as_count(given), as_count(taken), as_count(_first(about, "cached"))),
        as_text(_first(about, "model")),
    )
    return ImportedExchange(
        reply,
        find_prompt(asked),
        as_text(_first(about, "hat")) or MAIN_HAT,
        as_text(_first(about, "provider")),
        duration_ms=max(0, _time(span, "end") - _time(span, "start")) // 1_000_000,
        error=_error(span, about) if not blocks else None,
        usage_known=given is not None or taken is not None,
        trace=_trace(span),
    )


def _first(about: Attributes, what: str) -> Any:
    return next((about[name] for name in NAMES[what] if name in about), None)


def _finish(about: Attributes, answered: list[dict[str, Any]]) -> str:
    for message in answered:
        if message.get("finish_reason"):
            return as_text(message["finish_reason"])
    reasons = _first(about, "finish")
    if isinstance(reasons, str) and reasons.startswith("["):
        reasons = [one.get("content") for one in listed(reasons)] or reasons
    return as_text(reasons[0] if isinstance(reasons, list) and reasons else reasons)


def _error(span: Span, about: Attributes) -> ModelError | None:
    status = as_fields(span.get("status"))
    if as_text(_get(status, "code", "status_code")) not in FAILED:
        return None
    code = as_count(about.get("http.response.status_code") or about.get("error.type"))
    said = [as_text(status.get("message")), *_exceptions(span), as_text(about.get("error.type"))]
    return ModelError(next(filter(None, said), "it failed"), status=code or 500)


def _exceptions(span: Span) -> Iterator[str]:
    for event in as_items(span.get("events")):
        if event.get("name") == "exception":
            yield as_text(_attributes(event).get("exception.message"))
