"""Reads traces back: all that is whole, and the line number of what is not.

Lines are read by the block. A block in which every line is as it should be is decoded at once,
and of the events that nobody wants only the name; any other is gone through line by line.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from offbook.errors import FormatError, FutureVersion
from offbook.files import BOM
from offbook.trace.events import FORMAT, HEADER, PUBLISH, VERDICT, VERSION, Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from io import BufferedReader


# --- Lines that others wrote, read as ours: Ralph's session, its event files, and their old shapes.

SPENT = "iteration.summary"  # a row in which Ralph tells what an iteration cost


class _ForeignLine(msgspec.Struct, frozen=True):
    """A line of a session, whatever its fields hold."""

    ts: int | float | str
    event: str
    data: Any = None
    seq: Any = 0
    id: Any = ""
    context: Any = None
    parent: Any = ""


_decode_record = msgspec.json.Decoder(_ForeignLine).decode
_decode_row = msgspec.json.Decoder(dict[str, Any]).decode
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def upgrade_line(raw: bytes, last: int = 0) -> Event | None:
    """A line in one of the other shapes as an event, or None when it has none of them.

    A row that tells no time happened when the `last` line did.
    """
    try:
        return _read_record(_decode_record(raw))
    except UNREADABLE:
        pass
    try:
        row = _decode_row(raw)
    except UNREADABLE:
        return None
    if "event" in row or not isinstance(row.get("topic"), str):
        return None
    ts = _millis(row.pop("ts", None))
    data: dict[str, Any] = {"topic": row.pop("topic"), "payload": row.pop("payload", None)}
    data |= {name: value for name, value in row.items() if value is not None}
    return Event(last if ts is None else ts, PUBLISH, {**_spent(data), **data})


def _read_record(record: _ForeignLine) -> Event | None:
    ts = _millis(record.ts)
    if ts is None:
        return None
    seq = record.seq if isinstance(record.seq, int) else 0
    data, context = _fields(record.data), _fields(record.context)
    event = Event(ts, record.event, data, seq, _text(record.id), context, _text(record.parent))
    return upgrade_event(event)


def _fields(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    return {} if value is None else {"value": value}


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _spent(data: dict[str, Any]) -> dict[str, Any]:
    """What a summary of an iteration says of its cost, where costs are looked for."""
    told = data["payload"] if data["topic"] == SPENT else None
    if isinstance(told, str):
        try:
            told = msgspec.json.decode(told)
        except UNREADABLE:  # Ralph cuts long ones off
            return {}
    if not isinstance(told, dict):
        return {}
    summary = cast("dict[str, Any]", told)
    return {"cost_usd": summary["cost_usd"]} if "cost_usd" in summary else {}


def _millis(told: Any) -> int | None:
    """A time in milliseconds, or None where none is told."""
    try:
        if isinstance(told, str):
            return int(told) if told.isdigit() else _stamp(told)
        return int(told)
    except (TypeError, ValueError, OverflowError):
        return None


def _stamp(told: str) -> int:
    return int(datetime.fromisoformat(told).timestamp() * 1000)


def upgrade_event(event: Event) -> Event:
    """An event whose data is nested in itself, unfolded."""
    if not event.event.startswith("ux."):
        return event
    inner = event.data.get("data")
    if isinstance(inner, dict) and "event" in event.data:
        return msgspec.structs.replace(event, data=inner)
    return event


# --- Reads traces back: all that is whole, and the line number of what is not.

BLOCK = 64 * 1024
SHOWN = 100
LONG_AGO = 10**11  # 1973: no first time, where the last is a date


class _Nothing(msgspec.Struct, frozen=True, gc=False):
    """An object, whatever is in it."""


class _Marks(_Nothing, frozen=True, gc=False):
    """What of an event's data an event may be looked for by."""

    topic: Any = None
    cost_dollars: Any = None
    cost_usd: Any = None
    total_cost_usd: Any = None
    data: Any = None  # of a line of an older shape: there may be marks in it


UNMARKED = _Marks()


class _Line(msgspec.Struct, frozen=True, gc=False):
    """A line as far as it must be known to say whether anybody wants it."""

    ts: int
    event: str
    data: _Nothing = _Nothing()
    seq: int = 0
    id: str = ""
    context: _Nothing = _Nothing()
    parent: str = ""


class _MarkedLine(_Line, frozen=True, gc=False):
    """A line, with its marks."""

    data: _Marks = UNMARKED


_decode = msgspec.json.Decoder(Event).decode
_decode_block = msgspec.json.Decoder(Event).decode_lines
_decode_lines = msgspec.json.Decoder(_Line).decode_lines
_decode_marked = msgspec.json.Decoder(_MarkedLine).decode_lines


class LineFault(NamedTuple):
    """A line that could not be read, why, and how it begins.

    `torn` when it is a last line that breaks off.
    """

    line: int
    why: str
    torn: bool = False
    text: str = ""


class Trace:
    """A trace file. Iterating reads on from where the last reading stopped and keeps nothing.

    After a reading, `faults` has the lines that were not whole, `total` how many events there are
    (with `count`, `tally` how many of each name), `first` and `last` the times between which they
    happened, verdicts aside. The header is checked and left out.
    """

    def __init__(self, path: Path | str, *, count: bool = False) -> None:
        self.path = Path(path)
        self.faults: list[LineFault] = []
        self.tally: Counter[str] | None = Counter() if count else None
        self.version = 0
        self.total = 0
        self.first: int | None = None
        self.last: int | None = None
        self._offset = 0
        self._line = 0
        self._now = 0
        self._dense = False
        self._ready: Iterator[Event] = iter(())

    def __iter__(self) -> Iterator[Event]:
        return self.pick()

    def pick(
        self, names: Iterable[str] | None = None, *, marks: Iterable[str] = ()
    ) -> Iterator[Event]:
        """The events of these names, or all.

        With `marks`, also those that have one of these in their data: a topic, or a cost. Of the
        others, no more is read than shows that they are whole.
        """
        wanted = None if names is None else _Selection(frozenset(names), tuple(marks))
        try:
            file = cast("BufferedReader", self.path.open("rb", buffering=BLOCK))
        except OSError as error:
            why = error.strerror or str(error)
            raise FormatError(f"cannot read the trace: {why}", path=self.path) from error
        with file:
            if self._offset:  # a pipe can be read, but only on
                file.seek(self._offset)
            if self.faults and self.faults[-1].torn:
                self.faults.pop()  # it is read again, and may be whole now
            yield from self._ready
            for block in _blocks(file):
                if not self._offset and block.startswith(BOM):
                    block, self._offset = block[len(BOM) :], len(BOM)  # noqa: PLW2901 - no line has it
                self._ready = iter(self._read_block(block, wanted))
                yield from self._ready

    def _read_block(self, block: bytes, wanted: _Selection | None) -> list[Event]:
        end = block.rfind(b"\n") + 1
        whole, torn = (block, b"") if end == len(block) else (block[:end], block[end:])
        lines = whole.split(b"\n")[:-1]
        try:
            found = self._read_quickly(whole, lines, wanted)
        except UNREADABLE:
            found = self._read_slowly(lines, wanted)
        self._line += len(lines)
        self._offset += end
        if torn and (event := self.read_line(torn, self._line + 1, torn=True)) is not None:
            self._offset += len(torn)
            self._note([event])
            found += [event] if wanted is None or wanted.has(event) else []
        return found

    def _read_quickly(
        self, block: bytes, lines: list[bytes], wanted: _Selection | None
    ) -> list[Event]:
        """The events of a block whose lines are all as they should be; an error otherwise."""
        # What follows a brace is never another one: so no object goes on in the next line.
        if block[:1] != b"{" or block[-2:] != b"}\n" or block.count(b"}\n{") != len(lines) - 1:
            raise msgspec.ValidationError("a line is not an object")
        if HEADER.encode() in block:
            raise msgspec.ValidationError("a header is looked at by itself")
        if not block.isascii():
            block.decode()
        read: Sequence[Event | _Line]
        if wanted is None:
            read = found = _decode_block(block)
        elif self._dense and not wanted.marks:  # to decode all of them at once is quicker
            read = _decode_block(block)
            found = [event for event in read if event.event in wanted.names]
        else:
            read = _decode_marked(block) if wanted.marks else _decode_lines(block)
            found = [_decode(lines[at]) for at in wanted.find(read)]
        self._dense = len(found) > len(read) // 3
        if len(read) != len(lines):
            raise msgspec.ValidationError("a line has more than one object")
        self._note(read)
        if b"ux." in block:
            found = [upgrade_event(one) if "event" in one.data else one for one in found]
        # only what an event is read as tells whether it has a mark
        return [event for event in found if wanted.has(event)] if wanted and wanted.marks else found

    def _read_slowly(self, lines: list[bytes], wanted: _Selection | None) -> list[Event]:
        read = (self.read_line(raw, number) for number, raw in enumerate(lines, self._line + 1))
        events = [event for event in read if event is not None]
        self._note(events)
        return events if wanted is None else [event for event in events if wanted.has(event)]

    def _note(self, lines: Sequence[Event | _Line]) -> None:
        self.total += len(lines)
        if self.tally is not None:
            self.tally.update(map(attrgetter("event"), lines))
        if lines:
            self.first = lines[0].ts if self.first is None else self.first
            self._now = lines[-1].ts
        last = next((line.ts for line in reversed(lines) if line.event != VERDICT), None)
        self.last = self.last if last is None else last

    def read_line(self, raw: bytes, line: int, *, torn: bool = False) -> Event | None:
        """The event of one line; one that is empty, a header or a fault has none."""
        if not raw.strip():
            return None
        try:
            event = upgrade_event(_decode(raw))
        except UNREADABLE as error:
            foreign = upgrade_line(raw, self._now)
            if foreign is None:
                why = "the line is not whole" if torn else str(error)
                self.faults.append(
                    LineFault(line, why, torn, raw[:SHOWN].decode("utf-8", "replace"))
                )
                return None
            event = foreign
        self._now = event.ts
        if event.event == HEADER:
            self._check(event, line)
            return None
        return event

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


class _Selection(NamedTuple):
    """Which events somebody wants: by their names, or by what is in their data."""

    names: frozenset[str]
    marks: tuple[str, ...] = ()

    def has(self, event: Event) -> bool:
        """Whether this one is wanted."""
        return event.event in self.names or any(
            event.data.get(mark) is not None for mark in self.marks
        )

    def find(self, lines: Sequence[_Line]) -> list[int]:
        """Where those are that may be wanted."""
        names = self.names
        if not self.marks:
            return [at for at, line in enumerate(lines) if line.event in names]
        return [at for at, line in enumerate(lines) if line.event in names or line.data != UNMARKED]


def _blocks(file: BufferedReader) -> Iterator[bytes]:
    """The file in pieces that end where a line does; of a pipe, what has come so far."""
    while block := file.read1(BLOCK):
        yield block if block.endswith(b"\n") else block + file.readline()


def elapsed_seconds(first: int, last: int) -> float | None:
    """The seconds between two times of a trace, or None where one of them was not told."""
    if not last or (not first and last > LONG_AGO):
        return None
    return max(0, last - first) / 1000


def raise_if_corrupt(faults: Iterable[LineFault], path: Path) -> None:
    """Refuse a trace in whose middle a line cannot be read; a last one may be torn."""
    broken = next((fault for fault in faults if not fault.torn), None)
    if broken is not None:
        raise FormatError(
            f"the session is corrupt: {broken.why}",
            path=path,
            line=broken.line,
            hint=f"the line begins: {broken.text}",
        )


def read_trace(path: Path | str) -> tuple[list[Event], list[LineFault]]:
    """All whole events of a trace, and the lines that are not."""
    trace = Trace(path)
    events = list(trace)
    return events, trace.faults
