"""Reads traces back: all that is whole, and the line number of what is not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from offbook.errors import FormatError, FutureVersion
from offbook.trace.events import FORMAT, HEADER, VERSION, Event
from offbook.trace.upgrades import upgrade_event, upgrade_line

if TYPE_CHECKING:
    from collections.abc import Iterator

_decode = msgspec.json.Decoder(Event).decode


class Fault(NamedTuple):
    """A line that could not be read, and why; `torn` when it is a last line that breaks off."""

    line: int
    why: str
    torn: bool = False


class Trace:
    """A trace file. Iterating reads on from where the last reading stopped and keeps nothing.

    After a reading, `faults` has the lines that were not whole; the header is checked and left
    out of the events.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.faults: list[Fault] = []
        self.version = 0
        self._offset = 0
        self._line = 0

    def __iter__(self) -> Iterator[Event]:
        try:
            file = self.path.open("rb")
        except OSError as error:
            why = error.strerror or str(error)
            raise FormatError(f"cannot read the trace: {why}", path=self.path) from error
        with file:
            if self._offset:  # a pipe can be read, but only on
                file.seek(self._offset)
            if self.faults and self.faults[-1].torn:
                self.faults.pop()  # it is read again, and may be whole now
            for raw in file:
                torn = not raw.endswith(b"\n")
                event = self._read(raw, self._line + 1, torn=torn)
                if torn and event is None:
                    return
                self._line += 1
                self._offset += len(raw)
                if event is not None:
                    yield event

    def _read(self, raw: bytes, line: int, *, torn: bool) -> Event | None:
        if not raw.strip():
            return None
        try:
            event = _decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            foreign = upgrade_line(raw)
            if foreign is not None:
                return foreign
            why = "the line is not whole" if torn else str(error)
            self.faults.append(Fault(line, why, torn))
            return None
        if event.event == HEADER:
            self._check(event, line)
            return None
        return upgrade_event(event)

    def _check(self, event: Event, line: int) -> None:
        version = event.data.get("version")
        if event.data.get("format") != FORMAT or not isinstance(version, int):
            raise FormatError("this is not an Offbook trace", path=self.path, line=line)
        if version > VERSION:
            raise FutureVersion(
                f"this trace has version {version}, newer than {VERSION}",
                path=self.path,
                line=line,
                hint="upgrade Offbook to read it",
            )
        self.version = version


def read_trace(path: Path | str) -> tuple[list[Event], list[Fault]]:
    """All whole events of a trace, and the lines that are not."""
    trace = Trace(path)
    events = list(trace)
    return events, trace.faults
