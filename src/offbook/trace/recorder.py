"""Writes a trace to disk: an event a line, each line whole, and none with a secret in it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.trace.events import Event, header
from offbook.trace.secrets import hide_bytes, known_secrets

if TYPE_CHECKING:
    from pathlib import Path


def plain(value: object) -> Any:
    """How a value that JSON does not know is told: by what it calls itself."""
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - any set
    return repr(value)


class Recorder:
    """One trace file. Lines are written whole and at once: a killed process loses none."""

    def __init__(self, path: Path, *, ts: int, **about: Any) -> None:
        self.path = path
        self._encoder = msgspec.json.Encoder(enc_hook=plain)
        self._known = [value.encode("utf-8", "surrogateescape") for value in known_secrets()]
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file: int | None = os.open(path, flags, 0o644)
        self.record(header(ts, **about))

    def record(self, event: Event) -> None:
        """Append one event."""
        if self._file is None:
            return
        os.write(self._file, hide_bytes(self._encoder.encode(event), self._known) + b"\n")

    def close(self) -> None:
        """Write no more; a second time is nothing."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
