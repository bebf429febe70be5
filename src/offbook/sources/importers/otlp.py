"""OpenTelemetry spans of calls to a model, as OTLP writes them in JSON.

What was said may stand in the spans, or in log records that name them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from offbook.errors import FormatError, ModelError
from offbook.exchange.messages import ToolCall
from offbook.exchange.reply import Reply, Stop, Usage
from offbook.sources.importers.conventions import (
    Attributes,
    find_blocks,
    find_messages,
    find_prompt,
    listed,
)
from offbook.sources.importers.importer import (
    MAIN,
    Left,
    Record,
    Told,
    as_count,
    as_fields,
    as_items,
    as_text,
    refuse_trace,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
STOPS: dict[str, Stop] = {
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


class Otlp:
    """OTLP in JSON: one document, or one a line."""

    name = "otlp"

    def claims(self, records: list[Record]) -> bool:
        """Whether the file is written in it."""
        names = {name for some in LISTS.values() for name in some}
        return any(names & set(record.value) for record in records)

    def read(
        self, records: list[Record], path: Path, trace_id: str | None, left: Left
    ) -> list[Told]:
        """What was told in it, in the order of time."""
        spans = [span for record in records for span in _inside(record.value, "spans", "spans")]
        if trace_id is not None:
            kept = [span for span in spans if _trace(span) == trace_id]
            if not kept:
                raise refuse_trace(trace_id, map(_trace, spans), path)
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


def _logs(records: list[Record]) -> dict[tuple[str, str], Events]:
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


def _tell(span: Span, about: Attributes, logs: dict[tuple[str, str], Events], left: Left) -> Told:
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
    return Told(
        reply,
        find_prompt(asked),
        as_text(_first(about, "hat")) or MAIN,
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
