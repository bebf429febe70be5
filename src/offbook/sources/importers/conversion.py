"""All formats, which of them a file is written in, and what it becomes here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import FormatError, UsageError, did_you_mean
from offbook.sources.cassette.format import (
    RecordedResponse,
    response_from_error,
    response_from_reply,
)
from offbook.sources.cassette.recording import Recording
from offbook.sources.importers.claude import ClaudeImporter
from offbook.sources.importers.codex import CodexImporter
from offbook.sources.importers.generic import GenericImporter
from offbook.sources.importers.importer import ImportedExchange, Importer, Skipped, read_records
from offbook.sources.importers.otlp import OtlpImporter
from offbook.sources.importers.pi import PiImporter
from offbook.sources.importers.ralph import RalphImporter
from offbook.sources.mocks import mock_recording as lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from offbook.exchange.model import Reply, Request
    from offbook.trace.redaction import RedactionRules

IMPORTERS: tuple[Importer, ...] = (
    OtlpImporter(),
    RalphImporter(),
    CodexImporter(),
    ClaudeImporter(),
    PiImporter(),
    GenericImporter(),
)


def read_trace(
    path: Path, kind: str = "", trace_id: str | None = None, left: Skipped | None = None
) -> list[ImportedExchange]:
    """What was asked and answered in a trace; its format is seen from the file where not named.

    What cannot be kept is counted in `left`, by its kind.
    """
    left = Skipped() if left is None else left
    names = {importer.name: importer for importer in IMPORTERS}
    if kind and kind not in names:
        raise UsageError(f"there is no format {kind!r}", hint=did_you_mean(kind, names))
    records = read_records(path, left)
    chosen = names.get(kind) or next((one for one in IMPORTERS if one.claims(records)), None)
    if chosen is None:
        raise FormatError(
            "nothing here knows this format",
            path=path,
            line=records[0].line,
            hint=f"name it, if it is one of {', '.join(names)}",
        )
    told = chosen.read(records, path, trace_id, left)
    if not told:
        raise FormatError(
            "no answer of a model is told in this file", path=path, hint=f"read as {chosen.name}"
        )
    return told


class _Nobody:
    """What was told needs nobody to ask."""

    async def reply(self, request: Request, /) -> Reply:  # noqa: ARG002 - the protocol's
        raise UsageError("an import asks no model")


def write_cassette(
    told: Iterable[ImportedExchange],
    path: Path,
    *,
    replace: bool = False,
    redactions: RedactionRules | Mapping[str, Any] | None = None,
) -> int:
    """Keep what was told in a cassette; tells how many interactions that are."""
    count = 0
    with Recording(_Nobody(), path, replace=replace, redactions=redactions) as recording:
        for one in told:
            recording.output(one.prompt, _answer(one), hat=one.hat)
            count += 1
    return count


def _answer(told: ImportedExchange) -> RecordedResponse:
    if told.error is not None:
        return response_from_error(told.error, duration=told.duration_ms)
    answered = response_from_reply(told.reply, duration=told.duration_ms)
    return msgspec.structs.replace(answered, exit_code=told.exit_code)


def write_mocks(told: Iterable[ImportedExchange], path: Path) -> int:
    """Keep what was told as mocks, one a line, to be given in their order."""
    written = [_mock(one) for one in told]
    lines.write_mock_file(path, written)
    return len(written)


def _mock(told: ImportedExchange) -> dict[str, Any]:
    if told.error is not None:
        return lines.render_error_line(told.error)
    return lines.render_reply_line(told.reply, provider=told.provider, counted=told.usage_known)
