"""What was asked and answered in a run of somebody else's, whoever wrote it down, and how.

Such records seldom have the whole request. So what is imported is known by its prompt, the latest
thing that the user said; where not even that was written down, by its turn alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from offbook.errors import FormatError, ModelError
from offbook.exchange.reply import Reply
from offbook.files import parse_json, read_text

if TYPE_CHECKING:
    from pathlib import Path

MAIN = "main"


class Told(msgspec.Struct, frozen=True):
    """One exchange. `prompt` is None where nobody wrote it down."""

    reply: Reply
    prompt: str | None = None
    hat: str = MAIN
    provider: str = ""
    exit_code: int = 0
    duration_ms: float = 0
    error: ModelError | None = None
    usage_known: bool = False


class Record(msgspec.Struct, frozen=True):
    """One JSON value of a file, and the line in which it begins."""

    line: int
    value: dict[str, Any]


class Importer(Protocol):
    """One format."""

    name: str

    def claims(self, records: list[Record]) -> bool:
        """Whether the file is written in it."""
        ...

    def read(self, records: list[Record], path: Path, trace_id: str | None) -> list[Told]:
        """What was told in it, of this trace only where one is named."""
        ...


def read_records(path: Path) -> list[Record]:
    """The JSON objects of a file: one a line, or one in all."""
    text = read_text(path)
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise FormatError("there is nothing in this file", path=path)
    if len(lines) > 1 and not _is_whole(lines[0][1]):
        lines = [(1, text)]
    return [_record(line, parse_json(raw, path, line), path) for line, raw in lines]


def _is_whole(line: str) -> bool:
    try:
        msgspec.json.decode(line)
    except msgspec.DecodeError:
        return not line.lstrip().startswith(("{\n", "[")) and line.strip() not in {"{", "["}
    return True


def _record(line: int, value: Any, path: Path) -> Record:
    if not isinstance(value, dict):
        raise FormatError(
            f"expected an object, got a {type(value).__name__}",
            path=path,
            line=line,
            hint="a trace has one JSON object a line",
        )
    return Record(line, cast("dict[str, Any]", value))


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
