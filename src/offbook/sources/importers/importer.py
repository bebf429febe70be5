"""The protocol of importers, and the reading of JSON that all of them share.

An importer reads the trace of another tool: requests to a model and its replies. Such traces
seldom contain whole requests. An imported exchange is therefore matched by its prompt, the latest
text of the user; if not even that was written down, by its position alone.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from offbook.errors import FormatError, ModelError, did_you_mean
from offbook.exchange.model import Reply
from offbook.files import parse_json, read_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MAIN_HAT = "main"
Skipped = Counter[str]  # parts of a file that were not imported, by kind


class ImportedExchange(msgspec.Struct, frozen=True):
    """One exchange; `prompt` is None and `trace` is empty if the file does not have them."""

    reply: Reply
    prompt: str | None = None
    hat: str = MAIN_HAT
    provider: str = ""
    exit_code: int = 0
    duration_ms: float = 0
    error: ModelError | None = None
    usage_known: bool = False
    trace: str = ""


class TraceRecord(msgspec.Struct, frozen=True):
    """One JSON object of a file, and the line in which it begins."""

    line: int
    value: dict[str, Any]


class Importer(Protocol):
    """One format of traces."""

    name: str

    def recognizes(self, records: list[TraceRecord]) -> bool:
        """Return whether the file is in this format."""
        ...

    def read(
        self, records: list[TraceRecord], path: Path, trace_id: str | None, skipped: Skipped
    ) -> list[ImportedExchange]:
        """Return the exchanges, of one trace only if `trace_id` is given; count the rest."""
        ...


def read_records(path: Path, skipped: Skipped) -> list[TraceRecord]:
    """Return the JSON objects of a file: one a line, or one document, or a list of them."""
    text = read_text(path).removeprefix("\ufeff")
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise FormatError("the file is empty", path=path)
    first = lines[0][1]
    # A first line that is only the beginning of JSON: the file is one document.
    if len(lines) > 1 and not _is_json(first) and (first.startswith("[") or first.strip() == "{"):
        lines = [(1, text)]
    # A tool that was killed leaves an incomplete last line.
    elif len(lines) > 1 and not text.endswith("\n") and not _is_json(lines[-1][1]):
        skipped[f"torn line ({lines.pop()[0]})"] += 1
    records: list[TraceRecord] = []
    for line, raw in lines:
        value = parse_json(raw, path, line)
        for item in cast("list[Any]", value) if isinstance(value, list) else [value]:
            if not isinstance(item, dict):
                raise FormatError(
                    f"expected an object, got {type(item).__name__}",
                    path=path,
                    line=line,
                    hint="a trace has one JSON object a line",
                )
            records.append(TraceRecord(line, cast("dict[str, Any]", item)))
    return records


def _is_json(line: str) -> bool:
    try:
        msgspec.json.decode(line)
    except msgspec.DecodeError:
        return False
    return True


def unknown_trace_error(trace_id: str, known: Iterable[str], path: Path) -> FormatError:
    """Return the error for a trace id that is not in the file."""
    names = sorted({name for name in known if name})
    return FormatError(
        f"no record belongs to the trace {trace_id!r}",
        path=path,
        hint=did_you_mean(trace_id, names) if names else "it has no trace ids: omit --trace-id",
    )


# ------------------------------------------------------------------- values of unchecked JSON


def as_fields(value: Any) -> dict[str, Any]:
    """Return an object, or an empty one for every other value."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_items(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list, or none for every other value."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


def as_text(value: Any) -> str:
    """Return a text, or another value as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def as_object(value: Any) -> dict[str, Any]:
    """Return the arguments of a call, given as an object or as JSON in a text."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            return {"input": value}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_count(value: Any) -> int:
    """Return a number of tokens, which OTLP writes as a text."""
    if isinstance(value, str) and value.isdigit():
        return int(value)
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0
