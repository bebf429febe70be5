"""The generic trace: `{prompt, response, tool_calls}`, one a line.

`response` is a text, or an object with `text` or `content`, `model`, `provider` and the tokens.
These keys may also be next to `response`.
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

UNKNOWN_MODEL = "imported-trace"


class GenericImporter:
    """Imports `{prompt, response, tool_calls}`."""

    name = "generic"

    def recognizes(self, records: list[TraceRecord]) -> bool:
        """Return whether the file is in this format."""
        return "prompt" in records[0].value or "response" in records[0].value

    def read(
        self,
        records: list[TraceRecord],
        path: Path,
        trace_id: str | None,
        skipped: Skipped,  # noqa: ARG002 - the protocol's
    ) -> list[ImportedExchange]:
        """Return the exchanges."""
        call_count = 0
        exchanges: list[ImportedExchange] = []
        for record in records:
            if trace_id is not None and record.value.get("trace_id") != trace_id:
                continue
            exchange = _read_exchange(record, path, call_count)
            call_count += len(exchange.reply.calls)
            exchanges.append(exchange)
        if trace_id is not None and not exchanges:
            known = (as_text(record.value.get("trace_id")) for record in records)
            raise unknown_trace_error(trace_id, known, path)
        return exchanges


def _read_exchange(record: TraceRecord, path: Path, call_count: int) -> ImportedExchange:
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

    text = as_text(inner.get("text", inner.get("content")) if inner else response)
    calls: Any = value.get("tool_calls") or inner.get("tool_calls") or []
    if not isinstance(calls, list):
        raise FormatError(
            f"expected a list as tool_calls, got {type(calls).__name__}",
            path=path,
            line=record.line,
        )
    blocks: list[AnyBlock] = [Text(text)] if text or not calls else []
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
    return ImportedExchange(
        Reply(
            tuple(blocks),
            "tool_use" if calls else "stop",
            Usage(as_count(input_tokens), as_count(output_tokens)),
            as_text(find("model")) or UNKNOWN_MODEL,
        ),
        prompt=as_text(value["prompt"]),
        provider=as_text(find("provider")),
        usage_known=input_tokens is not None or output_tokens is not None,
        trace=as_text(value.get("trace_id")),
    )
