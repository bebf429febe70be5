"""What was asked and answered in a run of somebody else's, whoever wrote it down, and how.

Such records seldom have the whole request. So what is imported is known by its prompt, the latest
thing that the user said; where not even that was written down, by its turn alone.
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
Skipped = Counter[str]  # what a file tells and no interaction has, by its kind


class ImportedExchange(msgspec.Struct, frozen=True):
    """One exchange. `prompt` is None where nobody wrote it down, `trace` is empty there."""

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
    """One JSON value of a file, and the line in which it begins."""

    line: int
    value: dict[str, Any]


class Importer(Protocol):
    """One format."""

    name: str

    def claims(self, records: list[TraceRecord]) -> bool:
        """Whether the file is written in it."""
        ...

    def read(
        self, records: list[TraceRecord], path: Path, trace_id: str | None, left: Skipped
    ) -> list[ImportedExchange]:
        """What was told in it, of this trace only where one is named; what was not goes `left`."""
        ...


def read_records(path: Path, left: Skipped) -> list[TraceRecord]:
    """The JSON objects of a file: one a line, or one document, which may be a list of them."""
    text = read_text(path).removeprefix("\ufeff")
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise FormatError("there is nothing in this file", path=path)
    if len(lines) > 1 and not _is_json(lines[0][1]) and _begins_document(lines[0][1]):
        lines = [(1, text)]
    elif len(lines) > 1 and not text.endswith("\n") and not _is_json(lines[-1][1]):
        left[f"torn line ({lines.pop()[0]})"] += 1
    return [
        _record(line, value, path)
        for line, raw in lines
        for value in _listed(parse_json(raw, path, line))
    ]


def _is_json(line: str) -> bool:
    try:
        msgspec.json.decode(line)
    except msgspec.DecodeError:
        return False
    return True


def _begins_document(line: str) -> bool:
    return line.strip() in {"{", "["} or line.startswith("[")


def _listed(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _record(line: int, value: Any, path: Path) -> TraceRecord:
    if not isinstance(value, dict):
        raise FormatError(
            f"expected an object, got a {type(value).__name__}",
            path=path,
            line=line,
            hint="a trace has one JSON object a line",
        )
    return TraceRecord(line, cast("dict[str, Any]", value))


def unknown_trace_error(trace_id: str, known: Iterable[str], path: Path) -> FormatError:
    """What is told when nothing belongs to the trace that was asked for."""
    listed = sorted({name for name in known if name})
    return FormatError(
        f"nothing in it belongs to the trace {trace_id!r}",
        path=path,
        hint=did_you_mean(trace_id, listed) if listed else "it names none: leave --trace-id out",
    )


def as_fields(value: Any) -> dict[str, Any]:
    """An object, or an empty one where something else stands."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_items(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; none where something else stands."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


def as_text(value: Any) -> str:
    """A value as the text that a model would have been shown."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def as_object(value: Any) -> dict[str, Any]:
    """The arguments of a call, however they were written."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            return {"input": value}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_count(value: Any) -> int:
    """A number of tokens."""
    if isinstance(value, str) and value.isdigit():
        return int(value)
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0
