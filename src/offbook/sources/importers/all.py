"""All formats, which of them a file is written in, and what it becomes here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import FormatError, UsageError, nearest
from offbook.sources.cassette.format import Answered, write_error, write_reply
from offbook.sources.importers.claude import Claude
from offbook.sources.importers.codex import Codex
from offbook.sources.importers.generic import Generic
from offbook.sources.importers.importer import Importer, Left, Told, read_records
from offbook.sources.importers.otlp import Otlp
from offbook.sources.importers.pi import Pi
from offbook.sources.importers.ralph import Ralph
from offbook.sources.mocks import recording as lines
from offbook.sources.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from offbook.exchange.reply import Reply
    from offbook.exchange.request import Request
    from offbook.trace.redaction import Rules

IMPORTERS: tuple[Importer, ...] = (Otlp(), Ralph(), Codex(), Claude(), Pi(), Generic())


def read_trace(
    path: Path, kind: str = "", trace_id: str | None = None, left: Left | None = None
) -> list[Told]:
    """What was asked and answered in a trace; its format is seen from the file where not named.

    What cannot be kept is counted in `left`, by its kind.
    """
    left = Left() if left is None else left
    names = {importer.name: importer for importer in IMPORTERS}
    if kind and kind not in names:
        raise UsageError(f"there is no format {kind!r}", hint=nearest(kind, names))
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
    told: Iterable[Told],
    path: Path,
    *,
    replace: bool = False,
    redactions: Rules | Mapping[str, Any] | None = None,
) -> int:
    """Keep what was told in a cassette; tells how many interactions that are."""
    count = 0
    with Recording(_Nobody(), path, replace=replace, redactions=redactions) as recording:
        for one in told:
            recording.output(one.prompt, _answer(one), hat=one.hat)
            count += 1
    return count


def _answer(told: Told) -> Answered:
    if told.error is not None:
        return write_error(told.error, duration=told.duration_ms)
    answered = write_reply(told.reply, duration=told.duration_ms)
    return msgspec.structs.replace(answered, exit_code=told.exit_code)


def write_mocks(told: Iterable[Told], path: Path) -> int:
    """Keep what was told as mocks, one a line, to be given in their order."""
    written = [_mock(one) for one in told]
    lines.write_lines(path, written)
    return len(written)


def _mock(told: Told) -> dict[str, Any]:
    if told.error is not None:
        return lines.write_error(told.error)
    return lines.write_reply(told.reply, provider=told.provider, counted=told.usage_known)
