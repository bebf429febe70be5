"""Ralph's `session.jsonl`: the terminal output of its agents, iteration by iteration.

The record of an iteration follows its output. In a session without such records, each output is
one reply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from offbook.errors import FormatError
from offbook.exchange.messages import Text
from offbook.exchange.model import Reply
from offbook.sources.importers.importer import (
    MAIN_HAT,
    ImportedExchange,
    Skipped,
    TraceRecord,
    as_text,
)
from offbook.trace.agent_output import decode_base64
from offbook.trace.events import ITERATION, TERMINAL_WRITE

if TYPE_CHECKING:
    from pathlib import Path


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
