"""Conversion of the traces of other tools into cassettes and mocks.

To add a format, write one module with an `Importer` and add it to `IMPORTERS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import FormatError, UsageError, did_you_mean
from offbook.sources.cassette.format import response_from_error, response_from_reply
from offbook.sources.cassette.recording import Recording
from offbook.sources.importers.agent_logs import ClaudeImporter, CodexImporter, PiImporter
from offbook.sources.importers.importer import ImportedExchange, Importer, Skipped, read_records
from offbook.sources.importers.otlp import OtlpImporter
from offbook.sources.importers.plain_logs import GenericImporter, RalphImporter
from offbook.sources.mocks.mocks import (
    render_error_line,
    render_reply_line,
    write_mock_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from offbook.exchange.model import Reply, Request
    from offbook.trace.redaction import RedactionRules

# In this order: the generic format accepts most files, so it comes last.
IMPORTERS: tuple[Importer, ...] = (
    OtlpImporter(),
    RalphImporter(),
    CodexImporter(),
    ClaudeImporter(),
    PiImporter(),
    GenericImporter(),
)


def read_trace(
    path: Path, kind: str = "", trace_id: str | None = None, skipped: Skipped | None = None
) -> list[ImportedExchange]:
    """Return the exchanges of a trace; without a `kind` its format is detected.

    Parts that cannot be imported are counted in `skipped`.
    """
    skipped = Skipped() if skipped is None else skipped
    importers = {importer.name: importer for importer in IMPORTERS}
    if kind and kind not in importers:
        raise UsageError(f"unknown trace format {kind!r}", hint=did_you_mean(kind, importers))
    records = read_records(path, skipped)
    detected = (importer for importer in IMPORTERS if importer.recognizes(records))
    importer = importers.get(kind) or next(detected, None)
    if importer is None:
        raise FormatError(
            "unknown trace format",
            path=path,
            line=records[0].line,
            hint=f"if it is one of these, name it with --kind: {', '.join(importers)}",
        )
    exchanges = importer.read(records, path, trace_id, skipped)
    if not exchanges:  # a cassette without interactions would be a test that checks nothing
        raise FormatError(
            "the file contains no reply of a model", path=path, hint=f"read as {importer.name}"
        )
    return exchanges


class _NoSource:
    """The source of a recording that only stores imported exchanges."""

    async def reply(self, request: Request, /) -> Reply:  # noqa: ARG002 - the protocol's
        raise UsageError("an import sends no requests")


def write_cassette(
    exchanges: Iterable[ImportedExchange],
    path: Path,
    *,
    replace: bool = False,
    redactions: RedactionRules | Mapping[str, Any] | None = None,
) -> int:
    """Write exchanges to a cassette, and return how many."""
    count = 0
    with Recording(_NoSource(), path, replace=replace, redactions=redactions) as recording:
        for exchange in exchanges:
            if exchange.error is not None:
                response = response_from_error(exchange.error, duration=exchange.duration_ms)
            else:
                response = response_from_reply(exchange.reply, duration=exchange.duration_ms)
                response = msgspec.structs.replace(response, exit_code=exchange.exit_code)
            recording.record_output(exchange.prompt, response, hat=exchange.hat)
            count += 1
    return count


def write_mocks(exchanges: Iterable[ImportedExchange], path: Path) -> int:
    """Write exchanges as mocks, one a line in their order, and return how many."""
    lines = [
        render_error_line(exchange.error)
        if exchange.error is not None
        else render_reply_line(
            exchange.reply, provider=exchange.provider, counted=exchange.usage_known
        )
        for exchange in exchanges
    ]
    write_mock_file(path, lines)
    return len(lines)
