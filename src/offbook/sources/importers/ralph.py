"""Ralph's `session.jsonl`: what its agents wrote to the terminal, iteration by iteration.

The record of an iteration comes after what was written in it. A session without such records has
one answer for each thing written.
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
    """Ralph."""

    name = "ralph"

    def claims(self, records: list[TraceRecord]) -> bool:
        """Whether the file is written in it."""
        first = records[0].value
        return {"ts", "event", "data"} <= set(first)

    def read(
        self,
        records: list[TraceRecord],
        path: Path,
        trace_id: str | None,
        left: Skipped,  # noqa: ARG002 - the protocol's
    ) -> list[ImportedExchange]:
        """What was told in it; it has no traces to choose from."""
        if trace_id is not None:
            raise FormatError("a session has no trace ids", path=path, hint="leave --trace-id out")
        iterated = any(record.value.get("event") == ITERATION for record in records)
        told: list[ImportedExchange] = []
        written: list[bytes] = []
        since: int | None = None
        for record in records:
            event, data, ts = _read(record, path)
            since = ts if since is None else since
            if event == TERMINAL_WRITE:
                written.append(_decode(data, record, path))
            due = event == ITERATION if iterated else event == TERMINAL_WRITE
            if due and written:
                told.append(_tell(written, as_text(data.get("hat")) or MAIN_HAT, ts - since))
                written, since = [], ts
        if written:  # the session ended inside an iteration
            hat = told[-1].hat if told else MAIN_HAT
            told.append(_tell(written, hat, 0))
        return told


def _read(record: TraceRecord, path: Path) -> tuple[str, dict[str, Any], int]:
    value = record.value
    missing = {"ts", "event", "data"} - set(value)
    if missing:
        raise FormatError(
            f"this record has no {' and no '.join(sorted(missing))}", path=path, line=record.line
        )
    data = cast("dict[str, Any]", value["data"] if isinstance(value["data"], dict) else {})
    inner = data.get("data")  # newer sessions nest what older ones have flat
    if isinstance(inner, dict) and "bytes" in inner:
        data = cast("dict[str, Any]", inner)
    ts = value["ts"]
    return as_text(value["event"]), data, ts if isinstance(ts, int) else 0


def _decode(data: dict[str, Any], record: TraceRecord, path: Path) -> bytes:
    raw = decode_base64(as_text(data.get("bytes")))
    if raw is None:
        raise FormatError("what was written is not good base64", path=path, line=record.line)
    return raw


def _tell(written: list[bytes], hat: str, took: int) -> ImportedExchange:
    text = b"".join(written).decode(errors="replace")  # a piece may end within a sign
    return ImportedExchange(Reply((Text(text),)), hat=hat, duration_ms=max(0, took))
