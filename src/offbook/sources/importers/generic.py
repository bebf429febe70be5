"""The plainest trace there is: `{prompt, response, tool_calls}`, one a line.

`response` is a text, or an object with `text` or `content`, `model`, `provider` and the tokens;
all of those may also stand beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from offbook.errors import FormatError, did_you_mean
from offbook.exchange.messages import AnyBlock, Text, ToolCall
from offbook.exchange.model import Reply, Usage
from offbook.sources.importers.importer import (
    ImportedExchange,
    Skipped,
    TraceRecord,
    as_count,
    as_fields,
    as_object,
    as_text,
    unknown_trace_error,
)

if TYPE_CHECKING:
    from pathlib import Path

UNKNOWN = "imported-trace"


class GenericImporter:
    """`{prompt, response, tool_calls}`."""

    name = "generic"

    def claims(self, records: list[TraceRecord]) -> bool:
        """Whether the file is written in it."""
        return "prompt" in records[0].value or "response" in records[0].value

    def read(
        self,
        records: list[TraceRecord],
        path: Path,
        trace_id: str | None,
        left: Skipped,  # noqa: ARG002 - the protocol's
    ) -> list[ImportedExchange]:
        """What was told in it."""
        calls = 0
        told: list[ImportedExchange] = []
        for record in records:
            if trace_id is not None and record.value.get("trace_id") != trace_id:
                continue
            one = _tell(record, path, calls)
            calls += len(one.reply.calls)
            told.append(one)
        if trace_id is not None and not told:
            known = (as_text(record.value.get("trace_id")) for record in records)
            raise unknown_trace_error(trace_id, known, path)
        return told


def _tell(record: TraceRecord, path: Path, calls: int) -> ImportedExchange:
    value = record.value
    if "prompt" not in value:
        raise FormatError(
            "this record has no prompt",
            path=path,
            line=record.line,
            hint=did_you_mean("prompt", value),
        )
    response = value.get("response")
    if response is not None and not isinstance(response, (str, dict)):
        raise FormatError(
            f"the response is a {type(response).__name__}",
            path=path,
            line=record.line,
            hint="it is a text, or an object with a text",
        )
    inner = cast("dict[str, Any]", response if isinstance(response, dict) else {})
    text = (
        response if isinstance(response, str) else as_text(inner.get("text", inner.get("content")))
    )
    held: Any = value.get("tool_calls") or inner.get("tool_calls") or []
    if not isinstance(held, list):
        what = f"tool_calls is a {type(held).__name__}, not a list"
        raise FormatError(what, path=path, line=record.line)
    listed = cast("list[Any]", held)
    blocks: list[AnyBlock] = [Text(text)] if text or not listed else []
    blocks += [_call(call, calls + at, record, path) for at, call in enumerate(listed, 1)]
    given, taken = (_either(value, inner, f"{side}_tokens") for side in ("input", "output"))
    return ImportedExchange(
        Reply(
            tuple(blocks),
            "tool_use" if listed else "stop",
            Usage(as_count(given), as_count(taken)),
            as_text(_either(value, inner, "model")) or UNKNOWN,
        ),
        prompt=as_text(value["prompt"]),
        provider=as_text(_either(value, inner, "provider")),
        usage_known=given is not None or taken is not None,
        trace=as_text(value.get("trace_id")),
    )


def _either(value: dict[str, Any], inner: dict[str, Any], name: str) -> Any:
    return value[name] if value.get(name) is not None else inner.get(name)


def _call(call: Any, number: int, record: TraceRecord, path: Path) -> ToolCall:
    fields = as_fields(call)
    fields = {**fields, **as_fields(fields.get("function"))}
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise FormatError("a tool call has no name", path=path, line=record.line)
    arguments = fields.get("arguments", fields.get("args", fields.get("input")))
    identity = fields.get("id")
    return ToolCall(
        identity if isinstance(identity, str) else f"imported-{number}", name, as_object(arguments)
    )
