"""OpenTelemetry spans of calls to a model, as OTLP writes them in JSON.

The messages of a call are in its span, or in log records that refer to the span. Under which
names depends on the emitter. `gen_ai.output.messages` is the current name of the GenAI
conventions. Before, each field of a message was an attribute (`gen_ai.completion.0.content`;
OpenLLMetry still writes these, and OpenInference writes `llm.output_messages` in the same way),
or messages were events. Logfire puts events or the provider's own reply into an attribute. The
AI SDK for JavaScript has its own names.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import FormatError, ModelError
from offbook.exchange.messages import (
    AnyBlock,
    Message,
    Text,
    Thinking,
    ToolCall,
    find_prompt,
    parse_custom_input,
)
from offbook.exchange.model import STOP_REASONS, Reply, Usage
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

Span = dict[str, Any]
Attributes = dict[str, Any]
Events = list[tuple[str, Attributes]]
Messages = list[dict[str, Any]]

# The names of a value, the current ones first.
ATTRIBUTES = {
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
    "cache_write": ("gen_ai.usage.cache_creation.input_tokens",),
    "reasoning": ("gen_ai.usage.reasoning.output_tokens",),
    "model": (
        *("gen_ai.response.model", "gen_ai.request.model", "llm.model_name"),
        *("ai.response.model", "ai.model.id"),
    ),
    "provider": ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system"),
    "hat": ("gen_ai.agent.name",),
    "finish": ("gen_ai.response.finish_reasons", "ai.response.finishReason"),
    "request messages": ("gen_ai.input.messages", "gen_ai.prompt", "ai.prompt.messages"),
    "reply messages": ("gen_ai.output.messages", "gen_ai.completion"),
}
INDEXED_PREFIXES = (
    ("gen_ai.prompt", "gen_ai.completion"),
    ("llm.input_messages", "llm.output_messages"),
    ("llm.prompts", "llm.completions"),
)
OPERATIONS = {"chat", "text_completion", "generate_content", "completion"}
RESOURCE_LISTS = {
    "spans": ("resourceSpans", "resource_spans"),
    "logs": ("resourceLogs", "resource_logs"),
}
SCOPE_LISTS = (
    *("scopeSpans", "scope_spans", "instrumentationLibrarySpans"),
    *("scopeLogs", "scope_logs"),
)
ERROR_CODES = {"2", "STATUS_CODE_ERROR", "ERROR"}
DETAILS_EVENT = "gen_ai.client.inference.operation.details"
CUSTOM_CALL = "custom_tool_call"
CALL_TYPES = {
    *("tool_call", "tool-call", "tool_use", "function", "function_call", "server_tool_call"),
    CUSTOM_CALL,
}
REASONING_TYPES = {"reasoning", "thinking"}
_MESSAGE_EVENT = re.compile(r"gen_ai\.(user|system|tool|assistant)\.message")


class OtlpImporter:
    """Imports OTLP in JSON: one document, or one a line."""

    name = "otlp"

    def recognizes(self, records: list[TraceRecord]) -> bool:
        """Return whether the file is in this format."""
        names = {name for names in RESOURCE_LISTS.values() for name in names}
        return any(names & set(record.value) for record in records)

    def read(
        self, records: list[TraceRecord], path: Path, trace_id: str | None, skipped: Skipped
    ) -> list[ImportedExchange]:
        """Return the exchanges in the order of time."""
        spans = [span for record in records for span in _items(record.value, "spans", "spans")]
        if trace_id is not None:
            chosen = [span for span in spans if _trace_id(span) == trace_id]
            if not chosen:
                raise unknown_trace_error(trace_id, map(_trace_id, spans), path)
            spans = chosen
        logs: dict[tuple[str, str], Events] = {}
        for record in records:
            for log in _items(record.value, "logs", "logRecords", "log_records"):
                attributes = _attributes(log)
                name = _first(log, "eventName", "event_name") or attributes.get("event.name")
                body = as_fields(_decode_value(log.get("body")))
                logs.setdefault(_span_id(log), []).append((as_text(name), {**attributes, **body}))
        calls = [(span, a) for span in spans if _is_model_call(a := _attributes(span))]
        calls.sort(key=lambda call: _time(call[0], "start"))
        exchanges = [
            _read_span(span, attributes, logs.get(_span_id(span), []), skipped)
            for span, attributes in calls
        ]
        filled = [exchange for exchange in exchanges if exchange.reply.blocks or exchange.error]
        if exchanges and not filled:
            raise FormatError(
                f"the {len(exchanges)} spans of calls to a model have no messages",
                path=path,
                hint="record with OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true",
            )
        if len(filled) < len(exchanges):
            skipped["span without messages"] += len(exchanges) - len(filled)
        return filled


# ------------------------------------------------------------------------------------------ OTLP


def _first(value: dict[str, Any], *names: str) -> Any:
    return next((value[name] for name in names if name in value), None)


def _items(document: dict[str, Any], kind: str, *names: str) -> Iterator[Span]:
    for resource in as_items(_first(document, *RESOURCE_LISTS[kind])):
        for scope in as_items(_first(resource, *SCOPE_LISTS)):
            yield from as_items(_first(scope, *names))


def _trace_id(span: Span) -> str:
    return as_text(_first(span, "traceId", "trace_id"))


def _span_id(span: Span) -> tuple[str, str]:
    return _trace_id(span), as_text(_first(span, "spanId", "span_id"))


def _time(span: Span, end: str) -> int:
    return as_count(_first(span, f"{end}TimeUnixNano", f"{end}_time_unix_nano"))


def _attributes(owner: dict[str, Any]) -> Attributes:
    attributes = owner.get("attributes")
    if isinstance(attributes, dict):
        return cast("dict[str, Any]", attributes)
    return {
        as_text(item.get("key")): _decode_value(item.get("value")) for item in as_items(attributes)
    }


def _decode_value(value: Any) -> Any:
    """Return the value in an OTLP value such as `{"intValue": "7"}`."""
    for kind, content in as_fields(value).items():
        match kind.lower().removesuffix("value").rstrip("_"):
            case "int":
                return as_count(content)
            case "array":
                return [_decode_value(item) for item in as_items(as_fields(content).get("values"))]
            case "kvlist":
                return _attributes({"attributes": as_fields(content).get("values")})
            case _:
                return content
    return None if isinstance(value, dict) else value


def _is_model_call(attributes: Attributes) -> bool:
    # Spans of agents and tools have other operations, or none of these attributes.
    operation = attributes.get("gen_ai.operation.name") or attributes.get("llm.request.type")
    if operation is not None:
        return as_text(operation) in OPERATIONS
    is_llm = attributes.get("openinference.span.kind") == "LLM"
    is_generation = attributes.get("langfuse.observation.type") == "generation"
    return is_llm or is_generation or "gen_ai.request.model" in attributes


def _read_span(
    span: Span, attributes: Attributes, logs: Events, skipped: Skipped
) -> ImportedExchange:
    span_events = as_items(span.get("events"))
    events = [(as_text(event.get("name")), _attributes(event)) for event in span_events]
    request, reply = find_messages(attributes, [*events, *logs])
    unknown: list[str] = []
    blocks = tuple(block for message in reply for block in find_blocks(message, unknown))
    skipped.update(unknown)
    has_calls = any(isinstance(block, ToolCall) for block in blocks)

    def find(name: str) -> Any:
        return _first(attributes, *ATTRIBUTES[name])

    error = None
    status = as_fields(span.get("status"))
    if not blocks and as_text(_first(status, "code", "status_code")) in ERROR_CODES:
        error_type = attributes.get("error.type")
        code = as_count(attributes.get("http.response.status_code") or error_type)
        exceptions = [as_text(a.get("exception.message")) for n, a in events if n == "exception"]
        messages = [as_text(status.get("message")), *exceptions, as_text(error_type)]
        error = ModelError(next(filter(None, messages), "unknown error"), status=code or 500)
    stop = STOP_REASONS.get(_finish_reason(find("finish"), reply), "stop")
    input_tokens, output_tokens = find("input"), find("output")
    return ImportedExchange(
        Reply(
            blocks,
            # Not every emitter says that a reply with calls ended because of them.
            "tool_use" if has_calls and stop == "stop" else stop,
            Usage(
                as_count(input_tokens),
                as_count(output_tokens),
                *(as_count(find(name)) for name in ("cached", "cache_write", "reasoning")),
            ),
            as_text(find("model")),
        ),
        latest_prompt(request),
        as_text(find("hat")) or MAIN_HAT,
        as_text(find("provider")),
        duration_ms=max(0, _time(span, "end") - _time(span, "start")) // 1_000_000,
        error=error,
        usage_known=input_tokens is not None or output_tokens is not None,
        trace=_trace_id(span),
        results=find_results(request),
    )


def find_results(request: Messages) -> dict[str, str]:
    """Return the results of tools in a request, by the ids of their calls."""
    results: dict[str, str] = {}
    for message in request:
        parts = [*as_items(message.get("parts")), *as_items(_from_json(message.get("content")))]
        for part in (*parts, message):  # an item of the Responses API is in no message
            names = ("tool_call_id", "tool_use_id", "call_id", "id")
            call_id = next((part[name] for name in names if part.get(name)), None)
            kind = as_text(part.get("type"))
            is_result = kind in {"tool_call_response", "tool_result"}
            if call_id and (is_result or kind.endswith("_call_output")):
                told = _first(part, "response", "result", "content", "output")
                results[as_text(call_id)] = _result_text(told)
        if message.get("tool_call_id") and not any(p.get("type") == "tool_result" for p in parts):
            results[as_text(message["tool_call_id"])] = _result_text(message.get("content"))
    return results


def _result_text(value: Any) -> str:
    """Return the text of a result: blocks of text are joined, other values are JSON."""
    texts = [as_text(item["text"]) for item in as_items(value) if "text" in item]
    return "\n".join(texts) if texts else as_text(value)


def _finish_reason(reasons: Any, reply: Messages) -> str:
    for message in reply:
        if message.get("finish_reason"):
            return as_text(message["finish_reason"])
    if isinstance(reasons, str) and reasons.startswith("["):  # a list in JSON
        reasons = [item.get("content") for item in as_messages(reasons)] or reasons
    return as_text(reasons[0] if isinstance(reasons, list) and reasons else reasons)


# ----------------------------------------------------------------------------- names of emitters


def find_messages(attributes: Attributes, events: Events) -> tuple[Messages, Messages]:
    """Return the messages of the request and of the reply, under whichever names they are."""
    current = tuple(
        as_messages(_first(attributes, *ATTRIBUTES[name]))
        for name in ("request messages", "reply messages")
    )
    indexed = [
        (_indexed_messages(attributes, request), _indexed_messages(attributes, reply))
        for request, reply in INDEXED_PREFIXES
    ]
    by_convention = [(current[0], current[1]), *indexed]
    # The most specific names first; the first ones with a reply count.
    for request, reply in (
        *by_convention,
        _from_ai_sdk(attributes),
        _from_logfire(attributes),
        _from_events(events),
        _from_raw_values(attributes),
    ):
        if reply:
            return request or current[0], reply
    nothing: Messages = []
    return next((request for request, _ in by_convention if request), nothing), nothing


def as_messages(value: Any) -> Messages:
    """Return messages from a list, from one message, from JSON in a text, or from a plain text."""
    value = _from_json(value)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return as_items(fields["messages"]) if "messages" in fields else [fields]
    if isinstance(value, list):
        messages: Messages = []
        for item in cast("list[Any]", value):
            if isinstance(item, dict):
                messages.append(cast("dict[str, Any]", item))
            elif isinstance(item, str):
                messages += as_messages(item)
        return messages
    return [{"role": "user", "content": as_text(value)}] if value is not None else []


def _from_json(value: Any) -> Any:
    """Return the value of JSON in a text; any other value as it is."""
    try:
        return msgspec.json.decode(value) if isinstance(value, str) else value
    except (msgspec.DecodeError, RecursionError):
        return value


def _indexed_messages(attributes: Attributes, prefix: str) -> Messages:
    """Return messages whose fields are attributes: `gen_ai.prompt.0.content`."""
    messages: dict[int, dict[str, Any]] = {}
    pattern = re.compile(rf"{re.escape(prefix)}\.(\d+)\.(?:(?:message|completion|prompt)\.)?(.+)")
    for name, value in attributes.items():
        match = pattern.fullmatch(name)
        if match is None:
            continue
        message = messages.setdefault(int(match[1]), {})
        nested = re.fullmatch(r"(tool_calls|contents)\.(\d+)\.(?:\w+\.)*(\w+)", match[2])
        if nested is None:
            message[match[2]] = value
        else:
            items = cast("dict[int, dict[str, Any]]", message.setdefault(nested[1], {}))
            items.setdefault(int(nested[2]), {})[nested[3]] = value
    return [messages[index] for index in sorted(messages)]


def _from_ai_sdk(attributes: Attributes) -> tuple[Messages, Messages]:
    """Return the messages of the AI SDK for JavaScript: a text, and calls in JSON."""
    parts: list[dict[str, Any]] = []
    for name, kind in (("reasoning", "reasoning"), ("text", "text"), ("object", "text")):
        if text := attributes.get(f"ai.response.{name}"):
            parts.append({"type": kind, "text": as_text(text)})
    if calls := attributes.get("ai.response.toolCalls"):
        parts += [{"type": "tool_call", **call} for call in as_messages(calls)]
    request = as_messages(attributes.get("ai.prompt.messages"))
    return request, [{"parts": parts}] if parts else []


def _from_logfire(attributes: Attributes) -> tuple[Messages, Messages]:
    """Return the messages of Logfire: events in an attribute, or the provider's own bodies."""
    listed = as_messages(attributes.get("events"))
    request, reply = _from_events([(as_text(event.get("event.name")), event) for event in listed])
    if reply:
        return request, reply
    sent = as_fields(_from_json(attributes.get("request_data")))
    received = as_fields(_from_json(attributes.get("response_data")))
    message = received.get("message") or received.get("combined_chunk_content")
    messages = as_messages(message) if message else as_items(received.get("output"))
    return as_messages(sent.get("messages") or sent.get("input")), messages


def _from_events(events: Events) -> tuple[Messages, Messages]:
    request: Messages = []
    reply: Messages = []
    for name, attributes in events:
        if name == DETAILS_EVENT:
            request += as_messages(attributes.get("gen_ai.input.messages"))
            reply += as_messages(attributes.get("gen_ai.output.messages"))
        elif name == "gen_ai.content.prompt":
            request += as_messages(attributes.get("gen_ai.prompt"))
        elif name == "gen_ai.content.completion":
            reply += as_messages(attributes.get("gen_ai.completion"))
        elif name == "gen_ai.choice":
            reason = {k: v for k, v in attributes.items() if k == "finish_reason"}
            choices = as_messages(attributes.get("message", attributes))
            reply += [{**reason, **message} for message in choices]
        elif (role := _MESSAGE_EVENT.fullmatch(name)) is not None:
            request.append({"role": role[1], **attributes})
    return request, reply


def _from_raw_values(attributes: Attributes) -> tuple[Messages, Messages]:
    """Return the input and output that any span may have: the last resort."""
    request, reply = (attributes.get(f"{side}.value") for side in ("input", "output"))
    if reply is None:
        request, reply = (
            attributes.get(f"langfuse.observation.{side}") for side in ("input", "output")
        )
    # They may be the whole bodies of a chat completion, or of the Responses API.
    sent = as_fields(_from_json(request))
    replies = as_messages(reply)
    body = replies[0] if replies else {}
    messages = [as_fields(choice.get("message")) for choice in as_items(body.get("choices"))]
    messages = messages or as_items(body.get("output")) or replies
    has_content = any(find_blocks(message) for message in messages)
    return as_messages(sent.get("input", request)), messages if has_content else []


# -------------------------------------------------------------------------------------- messages


def latest_prompt(messages: Messages) -> str | None:
    """Return the latest text of the user, without what the client injected."""
    written = (
        Message("user", tuple(find_blocks(message)))
        for message in reversed(messages)
        if as_text(message.get("role")) in {"user", "human"}
    )
    return find_prompt(written) or None


def find_blocks(message: dict[str, Any], unknown: list[str] | None = None) -> list[AnyBlock]:
    """Return the texts, reasoning and calls of a message; add other types to `unknown`.

    An item of the Responses API (a call, reasoning) has no role: it is a part itself.
    """
    content = message.get("parts", message.get("content"))
    texts = cast("list[Any]", content) if isinstance(content, list) else [content]
    parts = as_items(
        [{"type": "text", "content": part} if isinstance(part, str) else part for part in texts]
    )
    for name in ("contents", "tool_calls"):
        items = message.get(name)
        if isinstance(items, dict):  # from indexed attributes
            by_index = cast("dict[int, dict[str, Any]]", items)
            parts += [by_index[index] for index in sorted(by_index)]
        else:
            parts += as_items(items)
    if call := message.get("function_call"):
        parts.append({"type": "function", **as_fields(call)})
    kind = "" if "role" in message else as_text(message.get("type"))
    if kind in REASONING_TYPES or (kind and not parts):
        parts = [message]
    blocks: list[AnyBlock] = []
    for part in parts:
        block = _read_block(part)
        if block is not None:
            blocks.append(block)
        elif unknown is not None and as_text(part.get("type")) not in {"text", ""}:
            unknown.append(as_text(part.get("type")))
    return blocks


def _read_block(part: dict[str, Any]) -> AnyBlock | None:
    kind = as_text(part.get("type"))
    # OpenAI nests the name and the arguments of a call in `function`.
    part = {**part, **as_fields(part.get("function"))}
    name = part.get("name", part.get("toolName"))
    if kind in CALL_TYPES or (not kind and name is not None):
        # In the Responses API, `id` is that of the item.
        call_id = _first(part, "call_id", "toolCallId", "id")
        arguments = _first(part, "arguments", "input", "args")
        is_custom = kind == CUSTOM_CALL
        given = parse_custom_input(as_text(arguments)) if is_custom else as_object(arguments)
        return ToolCall(as_text(call_id), as_text(name), given)
    if kind in REASONING_TYPES:
        names = ("content", "text", "thinking", "summary")
        return Thinking(_result_text(next(filter(None, map(part.get, names)), None)))
    text = as_text(_first(part, "content", "text"))
    return Text(text) if kind in {"text", "output_text", "input_text", ""} and text else None
