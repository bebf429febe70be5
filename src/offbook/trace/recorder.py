"""Writes a trace to disk: one event a line, every line complete, no secret in it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b, file_digest
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from offbook.determinism.run_context import SystemClock
from offbook.errors import RunError, UsageError
from offbook.files import close_locked, try_lock
from offbook.secrets import hide_lines, known_secret_bytes
from offbook.trace.events import REQUEST, Event, EventData, Verdict, trace_header

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from offbook.trace.event_contracts import Contracts
    from offbook.trace.hub import Hub

_decode = msgspec.json.Decoder(Event).decode
COLLECT_TRACES = "OFFBOOK_COLLECT_TRACES"
"""The folder that gets a copy of every trace of a process, to compare two runs of it."""


PRIVATE_MODE = 0o600  # a trace holds prompts and answers: only its owner may read it


class TraceObserver(Protocol):
    """Reads a trace while it is written, such as the coverage of a suite does."""

    def wants(self, name: str) -> bool:
        """Return whether to decode the events of this name."""
        ...

    def on_event(self, event: Event) -> None:
        """Read an event as it is in the file. An exception fails the run."""
        ...

    def on_close(self) -> None:
        """The trace is complete."""
        ...


_observers: list[Callable[[], TraceObserver]] = []


@contextmanager
def observe_traces(make_observer: Callable[[], TraceObserver]) -> Generator[None]:
    """Observe every trace that is opened inside, each with a new observer."""
    _observers.append(make_observer)
    try:
        yield
    finally:
        _observers.remove(make_observer)


# `tool.offbook`, or a table `tool`, however it is written.
_SETTINGS = rb"""(?m)tool["'\s]*\.["'\s]*offbook|^\s*\[?\s*["']?tool["']?\s*[\]=]"""


@cache
def _has_settings(folder: str) -> bool:
    """Return whether the project of a folder may have settings: read once, and not parsed."""
    while True:
        try:
            with open(os.path.join(folder, "pyproject.toml"), "rb") as file:  # noqa: PTH118, PTH123 - as above
                return re.search(_SETTINGS, file.read()) is not None
        except OSError:
            parent = os.path.dirname(folder)  # noqa: PTH120 - as above
            if parent == folder:
                return False
            folder = parent


def traces_are_read() -> bool:
    """Return whether something reads every trace of this process: a run may not skip its own."""
    return bool(_observers or os.environ.get(COLLECT_TRACES)) or _find_contracts() is not None


def _find_contracts() -> Contracts | None:
    """Return the contracts of the project, which every run must keep."""
    if not _has_settings(os.getcwd()):  # noqa: PTH109 - for each run
        return None
    from offbook.trace.event_contracts import project_contracts

    return project_contracts()


class KeptEvent(msgspec.Struct, gc=False):
    """An event that is decoded when it is first read: of most, only the name is ever asked for.

    `new` is the number of new messages of a request, if that was known when it was emitted.
    """

    event: str
    seq: int = 0
    line: bytes = b""
    decoded: Event | None = None
    new: int | None = None

    def read(self) -> Event:
        """Return the event as it was when it was emitted."""
        line = self.line  # first: another thread may decode it now, and empties it last
        if self.decoded is None:
            self.decoded = _decode(line)
            self.line = b""
        return self.decoded


_decode_names = msgspec.json.Decoder(KeptEvent).decode_lines


class KeptEvents:
    """The events of a run in memory; each is taken once, as it was when it was emitted.

    Encoded, because the data of an event may change afterwards; in memory, because the file has
    masks instead of secrets, and an agent can change it. One buffer for those of a file: a million
    separate lines would need half as much again. Those of a run without one are kept as separate
    lines: nothing has to find them in the buffer, and such a run is short.
    """

    observed = False

    def __init__(self) -> None:
        self._lines = bytearray()
        self._events: list[KeptEvent] = []  # of a run without a trace file
        self._reading = Lock()
        self.extend = self._lines.extend

    def keep(self, event: Event) -> None:
        """Append an event, for a run without a trace file."""
        self.write([event])

    def write(self, events: list[Event]) -> None:
        """Append events, likewise."""
        append = self._events.append
        for event in events:
            new = getattr(event.data, "new", None) if event.event == REQUEST else None  # if typed
            count = None if new is None else len(new)
            append(KeptEvent(event.event, event.seq, encode_event(event), None, count))

    def take(self) -> list[KeptEvent]:
        """Return the events since the last time."""
        with self._reading:
            kept = self._events[:]
            del self._events[: len(kept)]  # a run in another thread may have added more
            taken = bytes(self._lines)
            del self._lines[: len(taken)]
        if not taken:
            return kept
        events = _decode_names(taken)
        for event, line in zip(events, taken.split(b"\n")[:-1], strict=True):
            event.line = line
        return events

    def __iter__(self) -> Iterator[Event]:
        return (event.read() for event in self.take())


class Recorder:
    """Writes one trace file, whole lines with a single call: a killed process loses no event.

    With `append=True` it continues the file; otherwise it overwrites it, and a second writer is
    refused until it is closed. `kept` gets the events as
    they were, without masks. `fields` go into the header. After `close`, `changed` is true if the
    file was replaced, or written by another process: an agent could edit the evidence of its
    run.
    """

    def __init__(
        self,
        path: Path,
        *,
        ts: int,
        append: bool = False,
        kept: KeptEvents | None = None,
        **fields: Any,
    ) -> None:
        self.path = path
        self._observers = [make() for make in _observers]
        if (contracts := _find_contracts()) is not None:
            from offbook.trace.event_contracts import ContractReader

            self._observers.append(ContractReader(contracts))
        self.observed = bool(self._observers)  # something reads each event when it is written
        self._kept: KeptEvents | None = None
        self._known = known_secret_bytes()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: int | None = os.open(path, flags, PRIVATE_MODE)
            if not append:
                _overwrite(self._file, path)
            self._copy = _open_copy()
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(
                f"cannot write the trace: {reason}", where=str(path), hint="give another trace=…"
            ) from error
        self.changed = False
        opened = os.fstat(self._file)
        # Several processes may append, and a pipe has no content: both are not checked.
        checked = not append and stat.S_ISREG(opened.st_mode)
        self._written = blake2b() if checked else None
        header = trace_header(ts, **fields)
        if not append:
            self.record(header)
        elif self._copy is not None:  # the copy is a new file and needs its header
            write_line(self._copy, encode_event(header) + b"\n")
        self._kept = kept  # without the header

    def record(self, event: Event) -> None:
        """Append one event; after `close`, do nothing."""
        written = self.write([event])
        if written:
            for observer in self._observers:
                if observer.wants(event.event):
                    observer.on_event(_decode(written))

    def write(self, events: list[Event]) -> bytes:
        """Append events with one call; return them as they are in the file."""
        if self._file is None:
            return b""
        lines = encode_events(events)
        if self._kept is not None:
            self._kept.extend(lines)
        hidden = hide_lines(lines, self._known)
        try:
            write_line(self._file, hidden)
            if self._written is not None:
                self._written.update(hidden)
            if self._copy is not None:
                write_line(self._copy, hidden)
        except OSError as error:
            self.close()
            reason = error.strerror or str(error)
            raise RunError(
                f"cannot write the trace: {reason}", where=str(self.path), hint="free disk space"
            ) from error
        return hidden

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._file is not None:
            if self._written is not None:
                opened = os.fstat(self._file)
                try:
                    found = os.lstat(self.path)
                    # Compared before it is opened: a fifo in its place would block.
                    same = (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)
                    if same:
                        with self.path.open("rb") as file:
                            content = file_digest(file, blake2b).digest()
                        same = content == self._written.digest()
                except OSError:
                    same = False
                self.changed = not same
            close_locked(self._file)
            self._file = None
            if self._copy is not None:
                os.close(self._copy)
            for observer in self._observers:
                observer.on_close()


def _overwrite(file: int, path: Path) -> None:
    """Empty an open trace, unless another run is writing it."""
    if not stat.S_ISREG(os.fstat(file).st_mode):
        return
    with suppress(OSError):  # a file system without locks
        if not try_lock(file):
            os.close(file)
            raise UsageError(
                "another run is writing this trace",
                where=str(path),
                hint="wait for its end, or give another trace=…",
            )
    os.ftruncate(file, 0)


def encode_events(events: list[Event]) -> bytes:
    """Return events as lines of JSON."""
    try:
        return _encode_lines(events)
    except (TypeError, ValueError, RecursionError):
        return b"".join([encode_event(event) + b"\n" for event in events])


def encode_event(event: Event) -> bytes:
    """Return an event as JSON, whatever its values are."""
    try:
        return _encode(event)
    except (TypeError, ValueError, RecursionError):
        # An odd key, half a surrogate pair, a cycle. To convert every event first would make
        # encoding 17 times as slow.
        given: object = event.data  # those of Offbook's own events may be typed
        data = to_json_value(given.as_dict() if isinstance(given, (EventData, Verdict)) else given)
        context = to_json_value(event.context)
        return _encode(msgspec.structs.replace(event, data=data, context=context))


def write_line(file: int, line: bytes) -> None:
    """Write a line, or several, or remove the part that was written."""
    written = os.write(file, line)
    try:
        while written < len(line):  # a disk that is nearly full takes a part of it
            written += os.write(file, line[written:])
    except OSError:
        os.ftruncate(file, os.fstat(file).st_size - written)
        raise


def _open_copy() -> int | None:
    """Open the next numbered file in the folder that collects traces, if there is one."""
    folder = os.environ.get(COLLECT_TRACES)
    number = 0
    while folder:
        number += 1
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            return os.open(os.path.join(folder, f"{number:04}.jsonl"), flags, PRIVATE_MODE)  # noqa: PTH118 - faster than a Path
        except FileExistsError:  # of this process or of another one
            continue
    return None


def encode_unknown(value: object) -> Any:
    """Return a value that JSON does not have as one that it has: a sorted list, or its repr."""
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - any set
    return repr(value)


_encoder = msgspec.json.Encoder(enc_hook=encode_unknown)
_encode, _encode_lines = _encoder.encode, _encoder.encode_lines


def to_json_value(value: object, depth: int = 40) -> Any:
    """Return any value as JSON values. Slow: for values that the encoder rejects."""
    match value:
        case None | bool() | int() | float():
            converted = value
        case str():
            converted = value.encode(errors="backslashreplace").decode()  # half a surrogate pair
        case _ if depth == 0:  # a cycle, or nesting that deep
            converted = to_json_value(repr(value))
        case Mapping():
            pairs = cast("Mapping[object, object]", value).items()
            converted = {
                to_json_value(str(key)): to_json_value(item, depth - 1) for key, item in pairs
            }
        case list() | tuple():
            converted = [to_json_value(item, depth - 1) for item in cast("list[object]", value)]
        case msgspec.Struct():
            config = value.__struct_config__
            names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
            fields = {encoded: getattr(value, name) for encoded, name in names}
            tag = {config.tag_field: config.tag} if config.tag_field else {}
            converted = to_json_value({**fields, **tag}, depth)
        case _:
            converted = to_json_value(encode_unknown(value), depth - 1)
    return converted


@contextmanager
def record_trace(path: Path | None, **options: Any) -> Generator[Hub]:
    """Yield a hub whose events are recorded in a file, if there is a path or something reads it.

    The options are those of `Recorder`.
    """
    # Late: the hub imports asyncio (30 ms), which commands that only read a trace do not need.
    from offbook.trace.hub import Hub

    clock = SystemClock()
    hub = Hub(clock)
    folder = None
    if path is None:
        if not traces_are_read():
            yield hub
            return
        from offbook.files import make_temp_folder  # few commands without a trace need it

        folder = make_temp_folder()
        path = folder / "trace.jsonl"
    recorder = Recorder(path, ts=clock.millis(), **options)
    hub.subscribe(recorder.record, plain=True)
    try:
        yield hub
    finally:
        recorder.close()
        if folder is not None:
            from offbook.files import remove_temp_folder

            remove_temp_folder(folder)
