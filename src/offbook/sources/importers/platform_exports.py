"""Exports of platforms that collect traces: LangSmith, Langfuse and Phoenix.

Each record becomes an OpenTelemetry span with the names of the GenAI conventions, which `otlp`
reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from offbook.sources.importers.importer import (
    ImportedExchange,
    Skipped,
    TraceRecord,
    as_count,
    as_fields,
    as_items,
    as_text,
)
from offbook.sources.importers.otlp import OtlpImporter, as_messages

if TYPE_CHECKING:
    from pathlib import Path

Fields = dict[str, Any]

LANGCHAIN_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant"}
CALL_PARTS = {"tool_use", "function_call", "tool_call", "server_tool_use"}


class PlatformImporter:
    """Imports the export of a platform: one record a line, a list of them, or a page of its API."""

    name = ""
    lists: tuple[str, ...] = ()  # the keys that have records

    def records(self, records: list[TraceRecord]) -> Iterator[Fields]:
        """Yield the records, also those in pages and in trees."""
        for record in records:
            yield from self._walk(record.value)

    def _walk(self, value: Fields) -> Iterator[Fields]:
        yield value
        for key in self.lists:
            for item in as_items(value.get(key)):
                yield from self._walk(item)

    def recognizes(self, records: list[TraceRecord]) -> bool:
        """Return whether the file is in this format."""
        return any(self.is_record(fields) for fields in self.records(records))

    def read(
        self, records: list[TraceRecord], path: Path, trace_id: str | None, skipped: Skipped
    ) -> list[ImportedExchange]:
        """Return the exchanges in the order of time."""
        found = [fields for fields in self.records(records) if self.is_record(fields)]
        spans = [self.to_span(fields) for fields in found]
        document = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
        return OtlpImporter().read([TraceRecord(1, document)], path, trace_id, skipped)

    def is_record(self, fields: Fields) -> bool:
        """Return whether this is a record of the platform, of a model or of another part."""
        raise NotImplementedError

    def to_span(self, fields: Fields) -> Fields:
        """Return a record as a span; one that is not of a model has no attributes."""
        raise NotImplementedError


class LangSmithRunsImporter(PlatformImporter):
    """Imports runs of LangSmith, as its client writes and its API returns them."""

    name = "langsmith"
    lists = ("runs", "child_runs")

    def is_record(self, fields: Fields) -> bool:
        """Return whether this is a run."""
        return "run_type" in fields and "id" in fields

    def to_span(self, fields: Fields) -> Fields:
        """Return a run as a span."""
        inputs, outputs = as_fields(fields.get("inputs")), as_fields(fields.get("outputs"))
        metadata = as_fields(as_fields(fields.get("extra")).get("metadata"))
        usage = as_fields(outputs.get("usage_metadata") or outputs.get("usage"))
        error = as_text(fields.get("error"))
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": _langsmith_input(inputs),
            "gen_ai.output.messages": _langsmith_output(outputs),
            "gen_ai.request.model": metadata.get("ls_model_name") or outputs.get("model"),
            "gen_ai.provider.name": metadata.get("ls_provider"),
            "gen_ai.usage.input_tokens": _first(usage, "input_tokens", "prompt_tokens"),
            "gen_ai.usage.output_tokens": _first(usage, "output_tokens", "completion_tokens"),
        }
        return _span(
            fields.get("trace_id") or fields.get("id"),
            fields.get("id"),
            (fields.get("start_time"), fields.get("end_time")),
            attributes if fields.get("run_type") == "llm" else {},
            error,
        )


def _langsmith_input(inputs: Fields) -> list[Fields]:
    """Return the messages of a run: of LangChain in a list for each prompt, or those of an SDK."""
    messages = inputs.get("messages", inputs.get("input"))
    if isinstance(messages, list) and messages and isinstance(messages[0], list):
        messages = cast("list[Any]", messages[0])
    return [_plain_message(message) for message in as_messages(messages)]


def _langsmith_output(outputs: Fields) -> list[Fields]:
    generations = outputs.get("generations")
    while isinstance(generations, list) and generations and isinstance(generations[0], list):
        generations = cast("list[Any]", generations[0])
    replies = [
        as_fields(item.get("message")) or {"content": item.get("text")}
        for item in as_items(generations)
    ]
    replies = replies or [
        as_fields(item.get("message")) for item in as_items(outputs.get("choices"))
    ]
    replies = replies or as_items(outputs.get("messages")) or as_items(outputs.get("output"))
    if not replies and outputs:
        replies = [as_fields(outputs.get("message")) or outputs]
    return [_plain_message(message) for message in replies]


def _plain_message(message: Fields) -> Fields:
    """Return a message of LangChain, which is serialized as a class, as one with a role."""
    fields = as_fields(message.get("kwargs")) or message
    plain = dict(fields)
    role = as_text(fields.get("role"))
    if kind := LANGCHAIN_ROLES.get(role or as_text(fields.get("type")), role):
        plain["role"] = kind
    if plain.get("tool_calls"):  # LangChain has the calls of Anthropic in its content, too
        content = plain.get("content")
        if isinstance(content, list):
            parts = cast("list[Any]", content)
            plain["content"] = [p for p in parts if as_fields(p).get("type") not in CALL_PARTS]
    return plain


class LangfuseImporter(PlatformImporter):
    """Imports observations of Langfuse: a trace with its observations, or a list of them."""

    name = "langfuse"
    lists = ("data", "observations")

    def is_record(self, fields: Fields) -> bool:
        """Return whether this is an observation."""
        has_trace = "traceId" in fields or "trace_id" in fields
        is_observation = "startTime" in fields or "start_time" in fields
        return has_trace and is_observation and as_text(fields.get("type")).isupper()

    def to_span(self, fields: Fields) -> Fields:
        """Return an observation as a span."""
        usage = as_fields(fields.get("usageDetails") or fields.get("usage"))
        output = as_messages(fields.get("output"))
        choices = as_items(output[0].get("choices")) if output else []
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": [_plain_message(m) for m in as_messages(fields.get("input"))],
            "gen_ai.output.messages": [as_fields(c.get("message")) for c in choices]
            or [_plain_message(message) for message in output],
            "gen_ai.request.model": fields.get("model"),
            "gen_ai.usage.input_tokens": _first(usage, "input", "promptTokens"),
            "gen_ai.usage.output_tokens": _first(usage, "output", "completionTokens"),
        }
        failed = fields.get("level") == "ERROR"
        return _span(
            _first(fields, "traceId", "trace_id"),
            fields.get("id"),
            (_first(fields, "startTime", "start_time"), _first(fields, "endTime", "end_time")),
            attributes if fields.get("type") == "GENERATION" else {},
            as_text(_first(fields, "statusMessage", "status_message")) if failed else "",
        )


class PhoenixImporter(PlatformImporter):
    """Imports spans of Phoenix, with the names of OpenInference: of its API, or of a data frame."""

    name = "phoenix"
    lists = ("data", "spans")

    def is_record(self, fields: Fields) -> bool:
        """Return whether this is a span."""
        has_context = "context" in fields or "context.span_id" in fields
        return has_context and ("span_kind" in fields or "attributes" in fields)

    def to_span(self, fields: Fields) -> Fields:
        """Return a span of Phoenix as one of OTLP."""
        context = as_fields(fields.get("context"))
        attributes = dict(_flatten("", as_fields(fields.get("attributes"))))
        for key, value in fields.items():  # the columns of a data frame
            if key.startswith("attributes."):
                attributes |= dict(_flatten(key.removeprefix("attributes."), value))
        attributes.setdefault("openinference.span.kind", fields.get("span_kind"))
        failed = as_text(fields.get("status_code")) == "ERROR"
        return _span(
            context.get("trace_id") or fields.get("context.trace_id"),
            context.get("span_id") or fields.get("context.span_id"),
            (fields.get("start_time"), fields.get("end_time")),
            attributes,
            as_text(fields.get("status_message")) or "error" if failed else "",
        )


def _flatten(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of nested objects and lists, as OpenTelemetry names them."""
    if isinstance(value, dict):
        items = [(as_text(name), item) for name, item in cast("dict[Any, Any]", value).items()]
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        items = [(str(index), item) for index, item in enumerate(cast("list[Any]", value))]
    else:
        if value is not None:
            yield prefix, value
        return
    for name, item in items:
        yield from _flatten(f"{prefix}.{name}" if prefix else name, item)


# ------------------------------------------------------------------------------------ all formats


def _first(fields: Fields, *names: str) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _span(
    trace: Any, identity: Any, times: tuple[Any, Any], attributes: Fields, error: str
) -> Fields:
    return {
        "traceId": as_text(trace),
        "spanId": as_text(identity),
        "startTimeUnixNano": _nanoseconds(times[0]),
        "endTimeUnixNano": _nanoseconds(times[1]),
        "attributes": {name: value for name, value in attributes.items() if value is not None},
        "status": {"code": "ERROR", "message": error} if error else {},
    }


def _nanoseconds(time: Any) -> int:
    """Return a time in ISO 8601, or in milliseconds; 0 if it is neither."""
    if isinstance(time, (int, float)) and not isinstance(time, bool):
        return as_count(time * 1_000_000)
    try:
        seconds = datetime.fromisoformat(as_text(time)).timestamp()
    except (ValueError, OverflowError):
        return 0
    return int(seconds * 1e6) * 1000
