"""OpenTelemetry spans of calls to a model, as OTLP writes them in JSON.

The names are those of the GenAI conventions, of today (`gen_ai.output.messages`) and of before
(events, `gen_ai.completion.0.content`), and of OpenInference (`llm.output_messages`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from offbook.errors import FormatError, ModelError, nearest
from offbook.exchange.messages import AnyBlock, Text, Thinking, ToolCall
from offbook.exchange.reply import Reply, Stop, Usage
from offbook.sources.importers.importer import MAIN, Record, Told, as_count, as_object, as_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = {
    "input": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    "output": (
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
    ),
    "model": ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name"),
    "provider": ("gen_ai.provider.name", "gen_ai.system", "llm.provider"),
    "hat": ("gen_ai.agent.name",),
    "asked": ("gen_ai.input.messages", "gen_ai.prompt"),
    "answered": ("gen_ai.output.messages", "gen_ai.completion"),
    "finish": ("gen_ai.response.finish_reasons",),
}
OPERATIONS = {"chat", "text_completion", "generate_content", "completion"}
INDEXED = (
    ("gen_ai.prompt", "gen_ai.completion"),
    ("llm.input_messages", "llm.output_messages"),
)
STOPS: dict[str, Stop] = {
    "stop": "stop",
    "end_turn": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_use",
    "tool_call": "tool_use",
    "tool_use": "tool_use",
    "content_filter": "refusal",
    "refusal": "refusal",
}
FAILED = 2
Attributes = dict[str, Any]


class Otlp:
    """OTLP in JSON: one document, or one a line."""

    name = "otlp"

    def claims(self, records: list[Record]) -> bool:
        """Whether the file is written in it."""
        return any(name in records[0].value for name in ("resourceSpans", "resource_spans"))

    def read(self, records: list[Record], path: Path, trace_id: str | None) -> list[Told]:
        """What was told in it, in the order of time."""
        spans = [span for record in records for span in _spans(record.value)]
        if trace_id is not None:
            kept = [span for span in spans if _get(span, "traceId", "trace_id") == trace_id]
            if not kept:
                known = {as_text(_get(span, "traceId", "trace_id")) for span in spans}
                what = f"no span has the trace id {trace_id!r}"
                raise FormatError(what, path=path, hint=nearest(trace_id, known))
            spans = kept
        spans.sort(key=_began)
        asked = [(span, about) for span in spans if _is_call(about := _attributes(span))]
        told = [_tell(span, about) for span, about in asked]
        if told and not any(one.reply.blocks or one.error for one in told):
            raise FormatError(
                f"the {len(told)} spans of calls to a model do not tell what was said",
                path=path,
                hint="record with OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true",
            )
        return told


def _get(value: dict[str, Any], *names: str) -> Any:
    return next((value[name] for name in names if name in value), None)


def _spans(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in cast("list[Any]", _get(document, "resourceSpans", "resource_spans") or []):
        for scope in cast("list[Any]", _get(resource, "scopeSpans", "scope_spans") or []):
            yield from cast("list[dict[str, Any]]", scope.get("spans") or [])


def _began(span: dict[str, Any]) -> int:
    return int(_get(span, "startTimeUnixNano", "start_time_unix_nano") or 0)


def _ended(span: dict[str, Any]) -> int:
    return int(_get(span, "endTimeUnixNano", "end_time_unix_nano") or 0)


def _attributes(holder: dict[str, Any]) -> Attributes:
    listed = cast("list[dict[str, Any]]", holder.get("attributes") or [])
    return {as_text(one.get("key")): _value(one.get("value")) for one in listed}


def _value(value: Any) -> Any:
    """What a value of OTLP holds, which names its type first."""
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    for kind, held in fields.items():
        match kind.lower().removesuffix("value").rstrip("_"):
            case "int":
                return int(held)
            case "array":
                return [_value(one) for one in cast("list[Any]", held.get("values") or [])]
            case "kvlist":
                listed = cast("list[dict[str, Any]]", held.get("values") or [])
                return {as_text(one.get("key")): _value(one.get("value")) for one in listed}
            case _:
                return held
    return None


def _is_call(about: Attributes) -> bool:
    operation = about.get("gen_ai.operation.name") or about.get("llm.request.type")
    if operation is not None:
        return operation in OPERATIONS
    return about.get("openinference.span.kind") == "LLM" or "gen_ai.request.model" in about


def _tell(span: dict[str, Any], about: Attributes) -> Told:
    asked, answered = _messages(span, about)
    blocks = tuple(block for message in answered for block in _blocks(message))
    calls = any(isinstance(block, ToolCall) for block in blocks)
    finish = next((as_text(m.get("finish_reason")) for m in answered if m.get("finish_reason")), "")
    reasons = _first(about, "finish")
    finish = finish or as_text(reasons[0] if isinstance(reasons, list) and reasons else reasons)
    given, taken = _first(about, "input"), _first(about, "output")
    reply = Reply(
        blocks,
        "tool_use" if calls else STOPS.get(finish, "stop"),
        Usage(as_count(given), as_count(taken)),
        as_text(_first(about, "model")),
    )
    return Told(
        reply,
        _prompt(asked),
        as_text(_first(about, "hat")) or MAIN,
        as_text(_first(about, "provider")),
        duration_ms=max(0, _ended(span) - _began(span)) // 1_000_000,
        error=_error(span, about) if not blocks else None,
        usage_known=given is not None or taken is not None,
    )


def _first(about: Attributes, what: str) -> Any:
    return next((about[name] for name in NAMES[what] if name in about), None)


def _error(span: dict[str, Any], about: Attributes) -> ModelError | None:
    status = cast("dict[str, Any]", span.get("status") or {})
    if status.get("code") not in {FAILED, "STATUS_CODE_ERROR"}:
        return None
    code = as_count(about.get("http.response.status_code") or about.get("error.type"))
    message = as_text(status.get("message")) or as_text(about.get("error.type")) or "it failed"
    return ModelError(message, status=code or 500)


def _messages(
    span: dict[str, Any], about: Attributes
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    asked, answered = (_listed(_first(about, side)) for side in ("asked", "answered"))
    if asked or answered:
        return asked, answered
    for one, other in INDEXED:
        asked, answered = _indexed(about, one), _indexed(about, other)
        if asked or answered:
            return asked, answered
    return _from_events(span)


def _listed(value: Any) -> list[dict[str, Any]]:
    import msgspec

    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            return [{"role": "user", "content": value}]
    items = cast("list[Any]", value if isinstance(value, list) else [value] if value else [])
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


def _indexed(about: Attributes, prefix: str) -> list[dict[str, Any]]:
    """Messages whose fields are attributes of their own: `gen_ai.prompt.0.content`."""
    found: dict[int, dict[str, Any]] = {}
    pattern = re.compile(rf"{re.escape(prefix)}\.(\d+)\.(?:message\.)?(.+)")
    for name, value in about.items():
        match = pattern.fullmatch(name)
        if match:
            _put(found.setdefault(int(match[1]), {}), match[2], value)
    return [found[number] for number in sorted(found)]


def _put(message: dict[str, Any], name: str, value: Any) -> None:
    call = re.fullmatch(r"tool_calls\.(\d+)\.(?:tool_call\.)?(?:function\.)?(.+)", name)
    if call is None:
        message[name] = value
        return
    calls = cast("dict[int, dict[str, Any]]", message.setdefault("tool_calls", {}))
    calls.setdefault(int(call[1]), {})[call[2]] = value


def _from_events(span: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    asked: list[dict[str, Any]] = []
    answered: list[dict[str, Any]] = []
    for event in cast("list[dict[str, Any]]", span.get("events") or []):
        name, about = as_text(event.get("name")), _attributes(event)
        if name == "gen_ai.client.inference.operation.details":
            asked += _listed(about.get("gen_ai.input.messages"))
            answered += _listed(about.get("gen_ai.output.messages"))
        elif name == "gen_ai.content.prompt":
            asked += _listed(about.get("gen_ai.prompt"))
        elif name == "gen_ai.content.completion":
            answered += _listed(about.get("gen_ai.completion"))
        elif name in {"gen_ai.choice", "gen_ai.assistant.message"}:
            message = about.get("message", about)
            answered += _listed(message) if name == "gen_ai.choice" else []
        elif name in {"gen_ai.user.message", "gen_ai.system.message", "gen_ai.tool.message"}:
            asked.append({"role": name.split(".")[1], **about})
    return asked, answered


def _prompt(messages: list[dict[str, Any]]) -> str | None:
    said = [message for message in messages if message.get("role") == "user"]
    if not said:
        return None
    texts = [block.text for block in _blocks(said[-1]) if isinstance(block, Text)]
    return "\n".join(texts) or None


def _blocks(message: dict[str, Any]) -> list[AnyBlock]:
    parts = message.get("parts", message.get("content"))
    if isinstance(parts, str):
        parts = [{"type": "text", "content": parts}] if parts else []
    listed = [*cast("list[Any]", parts or [])]
    calls = cast("Any", message.get("tool_calls") or [])
    listed += cast("list[Any]", calls.values() if isinstance(calls, dict) else calls)
    found = (_block(cast("dict[str, Any]", part)) for part in listed if isinstance(part, dict))
    return [block for block in found if block is not None]


def _block(part: dict[str, Any]) -> AnyBlock | None:
    kind = part.get("type")
    function = part.get("function")
    if isinstance(function, dict):
        part = {**part, **cast("dict[str, Any]", function)}
    if kind in {"tool_call", "tool_use", "function"} or (kind is None and "name" in part):
        arguments = _get(part, "arguments", "input")
        return ToolCall(as_text(part.get("id")), as_text(part.get("name")), as_object(arguments))
    text = as_text(_get(part, "content", "text"))
    if kind in {"reasoning", "thinking"}:
        return Thinking(text)
    return Text(text) if kind in {"text", None} and text else None
