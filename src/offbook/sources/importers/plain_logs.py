"""The generic trace, `{prompt, response, tool_calls}` one a line, and the sessions of Ralph.

`response` is a text, or an object with `text` or `content`, `model`, `provider` and the tokens.
These keys may also be next to `response`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from offbook.errors import FormatError, did_you_mean
from offbook.exchange.messages import AnyBlock, Text, ToolCall
from offbook.exchange.model import Reply, Usage
from offbook.sources.importers.importer import (
    MAIN_HAT,
    ImportedExchange,
    Skipped,
    TraceRecord,
    as_count,
    as_fields,
    as_object,
    as_text,
    unknown_trace_error,
)
from offbook.trace.agent_output import decode_base64
from offbook.trace.events import ITERATION, TERMINAL_WRITE

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
