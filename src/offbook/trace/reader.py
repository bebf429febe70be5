"""Reads traces: every complete event, and the line number of each damaged line.

Traces of 100 MB are common, so lines are read in blocks. A block of regular lines is decoded with
one call, and of the events that are not selected only the name; a block with anything irregular
is read line by line. Lines of Ralph's files are converted to events (at the end of this file).
"""

from __future__ import annotations

import math
from collections import Counter
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from offbook.errors import FormatError
from offbook.files import BOM, require_kind
from offbook.options import Count, decode
from offbook.secrets import excerpt, hide_bytes, hide_lines, known_secret_bytes
from offbook.trace.agent_output import payload_text, text_field, truncate_texts
from offbook.trace.events import (
    FORMAT,
    HEADER,
    ITERATION,
    PUBLISH,
    TERMINATION,
    VERDICT,
    VERSION,
    Event,
    topic_matches,
)
from offbook.trace.matching import compile_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from io import BufferedReader


BLOCK = 64 * 1024
MAX_EXCERPT = 100
YEAR_1973 = 10**11  # in milliseconds: a time of 0 before a date means that it is unknown
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


# The types below decode only as much of a line as the selection needs. To skip the data of the
# other events saves a third of the time.


class _AnyObject(msgspec.Struct, frozen=True, gc=False):
    """A JSON object whose fields are skipped."""


class _KeyFields(_AnyObject, frozen=True, gc=False):
    """The fields of an event's data by which an event can be selected."""

    topic: Any = None
    cost_dollars: Any = None
    cost_usd: Any = None
    total_cost_usd: Any = None
    data: Any = None  # of a line in an older format: the fields may be in there


NO_KEY_FIELDS = _KeyFields()


class _Line(msgspec.Struct, frozen=True, gc=False):
    """An event without its data."""

    ts: int
    event: str
    data: _AnyObject = _AnyObject()
    seq: int = 0
    id: str = ""
    context: _AnyObject = _AnyObject()
    parent: str = ""


class _LineWithKeys(_Line, frozen=True, gc=False):
    """An event with only the key fields of its data."""

    data: _KeyFields = NO_KEY_FIELDS


_decode = msgspec.json.Decoder(Event).decode
_decode_events = msgspec.json.Decoder(Event).decode_lines
_decode_lines = msgspec.json.Decoder(_Line).decode_lines
_decode_with_keys = msgspec.json.Decoder(_LineWithKeys).decode_lines


class LineFault(NamedTuple):
    """A line that could not be read, the reason, and the beginning of its text.

    `torn` if it is the last line and incomplete, as after a crash.
    """

    line: int
    reason: str
    torn: bool = False
    text: str = ""


class Trace:
    """A trace file. Iterating continues where the last iteration stopped, and keeps no event.

    After an iteration, `faults` has the damaged lines and `total` the number of events; with
    `count=True`, `counts` has the number by name. `first` and `last` are the times of the first
    and last event, verdicts excluded. The header is checked and skipped. With
    `masked=True`, the events have no secrets.
    """

    def __init__(self, path: Path | str, *, count: bool = False, masked: bool = False) -> None:
        self.path = path if isinstance(path, Path) else Path(path)
        self.faults: list[LineFault] = []
        self.counts: Counter[str] | None = Counter() if count else None
        self.version = 0
        self.total = 0
        self.first: int | None = None
        self.last: int | None = None
        self._offset = 0
        self._line = 0
        self._now = 0
        self._dense = False
        self._masked = masked
        self._pending: Iterator[Event] = iter(())

    def __iter__(self) -> Iterator[Event]:
        return self.select()

    def select(
        self, names: Iterable[str] | None = None, *, fields: Iterable[str] = ()
    ) -> Iterator[Event]:
        """Yield the events with one of these names, or all.

        With `fields`, also those that have one of these in their data: `topic`, or a cost.
        """
        selection = None if names is None else _Selection(frozenset(names), tuple(fields))
        try:
            if self.path.is_char_device():  # /dev/zero has no end
                raise FormatError("cannot read the trace: it is a device", path=self.path)
            file = cast("BufferedReader", self.path.open("rb", buffering=BLOCK))
        except OSError as error:
            reason = error.strerror or str(error)
            raise FormatError(f"cannot read the trace: {reason}", path=self.path) from error
        with file:
            if self._offset:  # a pipe cannot seek, not even to its start
                file.seek(self._offset)
            if self.faults and self.faults[-1].torn:
                self.faults.pop()  # it is read again, and may be complete now
            yield from self._pending  # an iteration that stopped within a block
            while block := file.read1(BLOCK):
                if not block.endswith(b"\n"):
                    block += file.readline()
                if not self._offset and block.startswith(BOM):
                    block, self._offset = block[len(BOM) :], len(BOM)
                self._pending = iter(self._read_block(block, selection))
                yield from self._pending

    def _read_block(self, block: bytes, selection: _Selection | None) -> list[Event]:
        end = block.rfind(b"\n") + 1
        complete, torn = (block, b"") if end == len(block) else (block[:end], block[end:])
        size = len(torn)
        if self._masked:
            known = known_secret_bytes()
            complete, torn = hide_lines(complete, known), hide_bytes(torn, known)
        lines = complete.split(b"\n")[:-1]
        try:
            selected = self._read_regular(complete, lines, selection)
        except UNREADABLE:
            numbered = enumerate(lines, self._line + 1)
            read = (self.read_line(raw, number) for number, raw in numbered)
            events = [event for event in read if event is not None]
            self._count(events)
            selected = events if selection is None else list(filter(selection.matches, events))
        self._line += len(lines)
        self._offset += end
        if torn and (event := self.read_line(torn, self._line + 1, torn=True)) is not None:
            self._offset += size
            self._count([event])
            selected += [event] if selection is None or selection.matches(event) else []
        return selected

    def _read_regular(
        self, block: bytes, lines: list[bytes], selection: _Selection | None
    ) -> list[Event]:
        """Return the selected events of a block of regular lines; raise if a line is not."""
        # msgspec ignores line ends, so an object could go on in the next line; not so if a brace
        # ends each line and another begins the next one
        if block[:1] != b"{" or block[-2:] != b"}\n" or block.count(b"}\n{") != len(lines) - 1:
            raise msgspec.ValidationError("a line is not an object")
        if HEADER.encode() in block:
            raise msgspec.ValidationError("a header is checked separately")
        if not block.isascii():
            block.decode()  # msgspec does not check the texts that it skips
        read: Sequence[Event | _Line]
        selected: list[Event] = []
        if selection is None:
            read = selected = _decode_events(block)
        elif self._dense and not selection.fields:  # most are selected: decode all with one call
            read = _decode_events(block)
            selected = [event for event in read if event.event in selection.names]
        else:
            read = _decode_with_keys(block) if selection.fields else _decode_lines(block)
            if len(read) == len(lines):
                selected = [_decode(lines[index]) for index in selection.candidates(read)]
        if len(read) != len(lines):
            raise msgspec.ValidationError("a line has more than one object")
        self._dense = len(selected) > len(read) // 3
        self._count(read)
        if b"ux." in block:
            selected = [
                unnest_terminal_event(event) if "event" in event.data else event
                for event in selected
            ]
        if selection is not None and selection.fields:  # a candidate is known only when decoded
            return list(filter(selection.matches, selected))
        return selected

    def _count(self, lines: Sequence[Event | _Line]) -> None:
        self.total += len(lines)
        if self.counts is not None:
            self.counts.update(map(attrgetter("event"), lines))
        if lines:
            self.first = lines[0].ts if self.first is None else self.first
            self._now = lines[-1].ts
        last = next((line.ts for line in reversed(lines) if line.event != VERDICT), None)
        self.last = self.last if last is None else last

    def read_line(self, raw: bytes, line: int, *, torn: bool = False) -> Event | None:
        """Return the event of one line; None for an empty line, a header or a fault."""
        if not raw.strip():
            return None
        try:
            event = unnest_terminal_event(_decode(raw))
        except UNREADABLE as error:
            converted = convert_line(raw, self._now)
            if converted is None:
                if not self.total and not self.faults and not torn:
                    require_kind(self.path, "trace")
                reason = "the line is incomplete" if torn else str(error)
                shown = excerpt(raw.decode("utf-8", "replace"), MAX_EXCERPT)
                self.faults.append(LineFault(line, reason, torn, shown))
                return None
            event = converted
        self._now = event.ts
        if event.event != HEADER:
            return event
        version = event.data.get("version")
        if event.data.get("format") != FORMAT or not isinstance(version, int):
            raise FormatError("this is not an Offbook trace", path=self.path, line=line)
        if version > VERSION:
            raise FormatError(
                f"this trace has version {version}, newer than {VERSION}",
                path=self.path,
                line=line,
                hint="upgrade Offbook to read it",
            )
        self.version = version
        return None


class _Selection(NamedTuple):
    """The events to yield: by their names, or by the fields of their data."""

    names: frozenset[str]
    fields: tuple[str, ...] = ()

    def matches(self, event: Event) -> bool:
        return event.event in self.names or any(
            event.data.get(field) is not None for field in self.fields
        )

    def candidates(self, lines: Sequence[_Line]) -> list[int]:
        """Return the indices of the lines that may match."""
        names = self.names
        if not self.fields:
            return [index for index, line in enumerate(lines) if line.event in names]
        return [
            index
            for index, line in enumerate(lines)
            if line.event in names or line.data != NO_KEY_FIELDS
        ]


def elapsed_seconds(first: int, last: int) -> float | None:
    """Return the seconds between two times of a trace, or None if one is unknown."""
    if not last or (not first and last > YEAR_1973):
        return None
    return max(0, last - first) / 1000


def raise_if_corrupt(faults: Iterable[LineFault], path: Path) -> None:
    """Raise FormatError for a damaged line, unless it is the last one and torn."""
    damaged = next((fault for fault in faults if not fault.torn), None)
    if damaged is not None:
        raise FormatError(
            f"the session is corrupt: {damaged.reason}",
            path=path,
            line=damaged.line,
            hint=f"the line begins: {damaged.text}",
        )


def read_trace(path: Path | str) -> tuple[list[Event], list[LineFault]]:
    """Return all events of a trace, and its damaged lines."""
    trace = Trace(path)
    events = list(trace)
    return events, trace.faults


# --- Lines of Ralph: its session.jsonl, its event files, and their older formats
#
# A line of a session is an event, but its time may be a text, and other fields of any type. A line
# of an event file has a topic and a payload instead.

ITERATION_SUMMARY = "iteration.summary"  # the topic under which Ralph reports costs


class _LooseEvent(msgspec.Struct, frozen=True):
    """An event whose fields may have any type."""

    ts: int | float | str
    event: str
    data: Any = None
    seq: Any = 0
    id: Any = ""
    context: Any = None
    parent: Any = ""


_decode_loose = msgspec.json.Decoder(_LooseEvent).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


def convert_line(raw: bytes, last: int = 0) -> Event | None:
    """Return a line in one of Ralph's formats as an event, or None if it has none of them.

    A line without a time gets that of the line before it, `last`.
    """
    try:
        loose = _decode_loose(raw)
    except UNREADABLE:
        pass
    else:
        ts = _to_millis(loose.ts)
        if ts is None:
            return None
        seq = loose.seq if isinstance(loose.seq, int) else 0
        data, context = _to_object(loose.data), _to_object(loose.context)
        event_id, parent = payload_text(loose.id), payload_text(loose.parent)
        return unnest_terminal_event(Event(ts, loose.event, data, seq, event_id, context, parent))
    try:
        row = _decode_object(raw)
    except UNREADABLE:
        return None
    if "event" in row or not isinstance(row.get("topic"), str):
        return None
    ts = _to_millis(row.pop("ts", None))
    data = {"topic": row.pop("topic"), "payload": row.pop("payload", None)}
    data |= {name: value for name, value in row.items() if value is not None}
    return Event(last if ts is None else ts, PUBLISH, {**_summary_cost(data), **data})


def unnest_terminal_event(event: Event) -> Event:
    """Return a terminal event without the second event that some versions nest in its data."""
    if not event.event.startswith("ux."):
        return event
    inner = event.data.get("data")
    if isinstance(inner, dict) and "event" in event.data:
        return msgspec.structs.replace(event, data=inner)
    return event


def _to_object(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    return {} if value is None else {"value": value}


def _summary_cost(data: dict[str, Any]) -> dict[str, Any]:
    """Return the cost in the payload of an iteration's summary as a field of the event."""
    payload = data["payload"] if data["topic"] == ITERATION_SUMMARY else None
    if isinstance(payload, str):
        try:
            payload = msgspec.json.decode(payload)
        except UNREADABLE:  # Ralph truncates long payloads
            return {}
    if not isinstance(payload, dict):
        return {}
    summary = cast("dict[str, Any]", payload)
    return {"cost_usd": summary["cost_usd"]} if "cost_usd" in summary else {}


def _to_millis(time: Any) -> int | None:
    """Return a number or an ISO time as milliseconds, or None if it is neither."""
    try:
        if isinstance(time, str) and not time.isdigit():
            return int(datetime.fromisoformat(time).timestamp() * 1000)
        return int(time)
    except (TypeError, ValueError, OverflowError):
        return None


# --- Views of a trace: selected events, a summary in numbers, or a timeline of iterations

MAX_TEXT = 100_000
LOOP_EVENTS = (PUBLISH, ITERATION, TERMINATION)


class EventFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Conditions that an event must meet; None means any."""

    event_types: tuple[str, ...] | None = None
    topics: tuple[str, ...] | None = None
    after_iteration: int | None = None
    before_iteration: int | None = None
    payload_pattern: str | None = None

    def select(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the matching events. Those before the first iteration belong to number 0."""
        matches = self.matcher()
        if isinstance(events, Trace) and (self.event_types, self.topics) != (None, None):
            # a trace decodes only the events that can match, and those that the matcher counts
            counted = (self.after_iteration, self.before_iteration) != (None, None)
            names = {*(self.event_types or ()), *([ITERATION] if counted else [])}
            events = events.select(names, fields=() if self.event_types is not None else ("topic",))
        return (event for event in events if matches(event))

    def matcher(self) -> Callable[[Event], bool]:
        """Return a predicate that must be called with all events in order: it counts iterations."""
        source = self.payload_pattern
        pattern = None if source is None else compile_pattern(source, "filter.payload_pattern")
        types = None if self.event_types is None else set(self.event_types)
        after = -math.inf if self.after_iteration is None else self.after_iteration
        before = math.inf if self.before_iteration is None else self.before_iteration
        iteration = 0

        def matches(event: Event) -> bool:
            nonlocal iteration
            if event.event == ITERATION:
                iteration = _iteration_number(event, iteration + 1)
            if types is not None and event.event not in types:
                return False
            if not after < iteration < before:
                return False
            if self.topics is not None:
                topic = event.data.get("topic")
                if not isinstance(topic, str) or not any(
                    topic_matches(wanted, topic) for wanted in self.topics
                ):
                    return False
            if pattern is None:
                return True
            payload = payload_text(event.data.get("payload", event.data))
            return pattern.search(payload) is not None

        return matches


def _iteration_number(event: Event, default: int) -> int:
    """Return the number that an iteration's event has, or the counted one."""
    number = event.data.get("n")
    return number if isinstance(number, int) else default


class RecordPage(msgspec.Struct, frozen=True):
    """The first events of a selection, and whether there are more."""

    records: list[Any]
    total_matched: int
    truncated: bool
    truncated_tail: bool = False


def list_records(events: Iterable[Event], event_filter: EventFilter, limit: int) -> RecordPage:
    """Return the first `limit` matching events."""
    decode(limit, Count, "limit")
    records: list[Any] = []
    total = 0
    for event in event_filter.select(events):
        total += 1
        if total <= limit:
            data = truncate_texts(event.data, MAX_TEXT)
            records.append({"ts": event.ts, "event": event.event, "data": data})
    return RecordPage(records, total, total > limit)


class TraceSummary(msgspec.Struct, frozen=True):
    """A trace in numbers."""

    total_events: int
    by_type: dict[str, int]
    by_topic: dict[str, int]
    iterations: int
    hats_used: list[str]
    hat_sequence: list[str]
    duration_secs: float
    termination: list[dict[str, Any]]


def summarize(events: Iterable[Event]) -> TraceSummary:
    """Return the numbers of all events."""
    types: Counter[str] = Counter()
    topics: Counter[str] = Counter()
    hats: list[str] = []
    terminations: list[dict[str, Any]] = []
    first = last = None
    # a trace that counts needs to decode only the events of the loop
    counted = events if isinstance(events, Trace) and events.counts is not None else None
    for event in events if counted is None else counted.select(LOOP_EVENTS):
        types[event.event] += 1
        first = event.ts if first is None else first
        last = last if event.event == VERDICT else event.ts
        if event.event == PUBLISH:
            topics[text_field(event, "topic")] += 1
        elif event.event == ITERATION:
            hats.append(text_field(event, "hat"))
        elif event.event == TERMINATION:
            terminations.append(event.data)
    if counted is not None:
        types, first, last = counted.counts or types, counted.first, counted.last
    seconds = 0.0 if first is None or last is None else elapsed_seconds(first, last) or 0.0
    return TraceSummary(
        total_events=types.total(),
        by_type=dict(types),
        by_topic=dict(topics),
        iterations=len(hats),
        hats_used=list(dict.fromkeys(hats)),
        hat_sequence=hats,
        duration_secs=seconds,
        termination=terminations,
    )


class TimelineEntry(msgspec.Struct, frozen=True):
    """One iteration: its hat, the topics published in it, and its duration.

    `events` has each topic with the one published last before the iteration: `build → done`.
    """

    iteration: int
    hat: str
    events: list[str]
    duration_ms: int
    topics: list[str] = []


def build_timeline(events: Iterable[Event], event_filter: EventFilter) -> list[TimelineEntry]:
    """Return the matching iterations, also those in which nothing matching was published."""
    entries: list[TimelineEntry] = []
    matches = event_filter.matcher()
    # types, topics and patterns select the published events; only the numbers the iterations
    in_range = msgspec.structs.replace(
        event_filter, event_types=None, topics=None, payload_pattern=None
    ).matcher()
    current: tuple[int, str, int] | None = None  # number, hat and start of the open iteration
    topics: list[str] = []
    number = last = 0
    latest = cause = ""
    ended = False

    def close_iteration(ts: int) -> None:
        if current is not None:
            shown = [f"{cause} → {topic}" if cause else topic for topic in topics]
            entries.append(TimelineEntry(*current[:2], shown, ts - current[2], topics))

    for event in events.select(LOOP_EVENTS) if isinstance(events, Trace) else events:
        is_match, is_in_range = matches(event), in_range(event)
        if ended or event.event == VERDICT:
            continue  # later events do not count for the duration of an iteration
        if event.event == ITERATION:
            close_iteration(event.ts)
            number = _iteration_number(event, number + 1)
            current = (number, text_field(event, "hat"), event.ts) if is_in_range else None
            topics = []
            cause = latest
        elif event.event == PUBLISH:
            latest = text_field(event, "topic")
            if current is not None and is_match:
                topics.append(latest)
        last = event.ts
        ended = event.event == TERMINATION
    if isinstance(events, Trace) and not ended:
        last = events.last or last  # of an event that was not decoded
    close_iteration(last)
    return entries
