"""Writes a trace to disk: an event a line, each line whole, and none with a secret in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import RunError, UsageError
from offbook.secrets import hide_bytes, known_secrets
from offbook.trace.events import Event, trace_header

if TYPE_CHECKING:
    from pathlib import Path

COLLECT_TRACES = "OFFBOOK_COLLECT_TRACES"


def encode_unknown(value: object) -> Any:
    """How a value that JSON does not know is told: by what it calls itself."""
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - any set
    return repr(value)


def to_json_value(value: object, depth: int = 40) -> Any:
    """Anything at all, in what JSON knows: the slow way, for what the encoder refuses."""
    match value:
        case None | bool() | int() | float():
            spelled = value
        case str():
            spelled = value.encode(errors="backslashreplace").decode()  # half a surrogate pair
        case _ if depth == 0:
            spelled = to_json_value(repr(value))
        case Mapping():
            pairs = cast("Mapping[object, object]", value).items()
            spelled = {
                to_json_value(str(key)): to_json_value(item, depth - 1) for key, item in pairs
            }
        case list() | tuple():
            spelled = [to_json_value(item, depth - 1) for item in cast("list[object]", value)]
        case msgspec.Struct():
            spelled = to_json_value(_fields(value), depth)
        case _:
            spelled = to_json_value(encode_unknown(value), depth - 1)
    return spelled


def _fields(value: msgspec.Struct) -> dict[str, object]:
    tag = value.__struct_config__
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    return {**fields, tag.tag_field: tag.tag} if tag.tag_field else fields


class Recorder:
    """One trace file. Lines are written whole and at once: a killed process loses none.

    With `more=True` it goes on after what is there; otherwise it begins anew.
    """

    def __init__(self, path: Path, *, ts: int, more: bool = False, **about: Any) -> None:
        self.path = path
        self._encoder = msgspec.json.Encoder(enc_hook=encode_unknown)
        self._known = [value.encode("utf-8", "surrogateescape") for value in known_secrets()]
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        flags |= 0 if more else os.O_TRUNC
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: int | None = os.open(path, flags, 0o644)
            self._copy = _open_copy()
        except OSError as error:
            why = error.strerror or str(error)
            raise UsageError(
                f"cannot write the trace: {why}", where=str(path), hint="give another trace=…"
            ) from error
        first = trace_header(ts, **about)
        if not more:
            self.record(first)
        elif self._copy is not None:
            write_line(self._copy, self._encode(first) + b"\n")

    def record(self, event: Event) -> None:
        """Append one event."""
        if self._file is None:
            return
        line = hide_bytes(self._encode(event), self._known) + b"\n"
        try:
            write_line(self._file, line)
            if self._copy is not None:
                write_line(self._copy, line)
        except OSError as error:
            self.close()
            why = error.strerror or str(error)
            raise RunError(
                f"cannot write the trace: {why}", where=str(self.path), hint="make room for it"
            ) from error

    def _encode(self, event: Event) -> bytes:
        try:
            return self._encoder.encode(event)
        except (TypeError, ValueError, RecursionError):
            data, context = to_json_value(event.data), to_json_value(event.context)
            return self._encoder.encode(msgspec.structs.replace(event, data=data, context=context))

    def close(self) -> None:
        """Write no more; a second time is nothing."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            if self._copy is not None:
                os.close(self._copy)


def write_line(file: int, line: bytes) -> None:
    """Write a line whole, or take back what there was room for."""
    written = os.write(file, line)
    try:
        while written < len(line):  # a disk that is nearly full takes it in pieces
            written += os.write(file, line[written:])
    except OSError:
        os.ftruncate(file, os.fstat(file).st_size - written)
        raise


def _open_copy() -> int | None:
    """A second file for the same trace, where somebody collects all that are written."""
    folder = os.environ.get(COLLECT_TRACES)
    number = 0
    while folder:
        number += 1
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            return os.open(os.path.join(folder, f"{number:04}.jsonl"), flags, 0o600)  # noqa: PTH118 - for speed
        except FileExistsError:
            continue
    return None
