"""What is being recorded, line by line, beside the cassette: a killed recorder loses nothing.

Each finished interaction is one line, written at once. At the end, or when somebody opens the
cassette after a crash, the lines are folded into it and the journal goes away. The journal's lock
is the recorder's: a second one on the same cassette is refused.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import RunError, UsageError
from offbook.secrets import hide_bytes, known_secrets
from offbook.sources.cassette.edit import Title, add_items, begin_text, revise_header
from offbook.sources.cassette.format import Interaction
from offbook.sources.cassette.lock import try_lock
from offbook.sources.cassette.tape import PRIVATE, Tape, open_tape, read_raw, write_raw
from offbook.trace.recorder import plain, write_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Opening(msgspec.Struct, frozen=True, tag="opening"):
    """The first line: who records, and what the cassette will say of itself."""

    pid: int
    title: Title
    fresh: bool = False


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """An interaction; `place` is its turn by when it began."""

    place: int
    interaction: Interaction


class Folded(msgspec.Struct, frozen=True, tag="folded"):
    """The cassette with this digest has it all already."""

    digest: str


Line = Opening | Finished | Folded
_decode = msgspec.json.Decoder(Line).decode


def beside(path: Path) -> Path:
    """The journal of a cassette."""
    return path.with_name(f".{path.name}.journal")


class Journal:
    """The one recorder of a cassette. With `fresh`, the cassette is begun anew at the end."""

    def __init__(
        self,
        path: Path,
        title: Title,
        *,
        fresh: bool = False,
    ) -> None:
        self.path = path
        self._encode = msgspec.json.Encoder(enc_hook=plain).encode
        self._known = [v.encode("utf-8", "surrogateescape") for v in known_secrets()]
        path.parent.mkdir(parents=True, exist_ok=True)
        self._open = True
        self.failure: RunError | None = None
        self.file = _seize(path)
        recover(path, self.file)
        self._write(Opening(os.getpid(), title, fresh))

    def add(self, place: int, interaction: Interaction) -> None:
        """Note a finished interaction."""
        self._write(Finished(place, interaction))

    def _write(self, line: Line) -> None:
        if not self._open:
            raise UsageError("the recording is over", where=str(self.path))
        try:
            write_line(self.file, self._hide(line) + b"\n")
        except OSError as error:
            self.failure = _complain(error, self.path)
            raise self.failure from error

    def _hide(self, line: Line) -> bytes:
        """The line without a secret, and still one that can be read."""
        hidden = hide_bytes(self._encode(line), self._known)
        try:
            _decode(hidden)
        except msgspec.MsgspecError:  # a secret that looks like one of our own words
            return self._encode(self._veil(msgspec.to_builtins(line, enc_hook=plain)))
        return hidden

    def _veil(self, value: Any) -> Any:
        if isinstance(value, str):
            return hide_bytes(value.encode(errors="replace"), self._known).decode()
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            tag = fields.get("type")
            veiled = {name: self._veil(held) for name, held in fields.items()}
            return veiled if tag is None else {**veiled, "type": tag}
        if isinstance(value, (list, tuple)):
            return [self._veil(item) for item in cast("list[Any]", value)]
        return value

    def close(self, metadata: Mapping[str, Any] | None = None) -> bytes | None:
        """Fold everything into the cassette, which is written whole; a second time is nothing."""
        if not self._open:
            return None
        self._open = False
        try:
            return _fold(self.path, self.file, metadata or {})
        except OSError as error:
            raise _complain(error, self.path) from error
        finally:
            os.close(self.file)

    def discard(self) -> None:
        """Leave the cassette as it is; a second time is nothing."""
        if self._open:
            self._open = False
            beside(self.path).unlink(missing_ok=True)
            os.close(self.file)


def _complain(error: OSError, path: Path) -> RunError:
    why = error.strerror or str(error)
    return RunError(
        f"cannot write the cassette: {why}",
        where=str(path),
        hint=f"make room for it; what was recorded is in {beside(path)}, and comes into the "
        "cassette when it is opened next",
    )


def _seize(path: Path) -> int:
    journal = beside(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
    while True:
        file = os.open(journal, flags, PRIVATE)
        if not try_lock(file):
            holder = _holder(file)
            os.close(file)
            raise UsageError(
                f"this cassette is being recorded already{holder}",
                where=str(path),
                hint="wait for it to end, or record into another file",
            )
        if _same_file(file, journal):
            return file
        os.close(file)  # its owner folded it away between our two steps


def _same_file(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _holder(file: int) -> str:
    os.lseek(file, 0, os.SEEK_SET)
    lines = _lines(os.read(file, 4096))
    first = lines[0] if lines else None
    return f" by process {first.pid}" if isinstance(first, Opening) else ""


def _lines(raw: bytes) -> list[Line]:
    """The whole lines; a torn last one never was an interaction."""
    found: list[Line] = []
    for line in raw.split(b"\n")[:-1]:
        try:
            found.append(_decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    return found


def _content(file: int) -> bytes:
    os.lseek(file, 0, os.SEEK_SET)
    parts: list[bytes] = []
    while part := os.read(file, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def recover(path: Path, file: int) -> None:
    """Fold in what a recorder that died has left, and begin an empty journal."""
    if os.fstat(file).st_size:
        _fold(path, file, {"interrupted": True}, keep=True)
        os.ftruncate(file, 0)


def _fold(path: Path, file: int, metadata: Mapping[str, Any], *, keep: bool = False) -> bytes:
    raw = read_raw(path) if path.exists() else b""
    lines = _lines(_content(file))
    last = lines[-1] if lines else None
    done = isinstance(last, Folded) and raw and last.digest == Tape(raw, path).digest
    if lines and not done:
        raw = folded(raw, lines, metadata, path)
        write_line(file, msgspec.json.encode(Folded(Tape(raw, path).digest)) + b"\n")
        write_raw(path, raw)
    if not keep:
        beside(path).unlink(missing_ok=True)
    return raw


def folded(raw: bytes, lines: list[Line], metadata: Mapping[str, Any], path: Path) -> bytes:
    """The cassette with the interactions of a journal in it."""
    opening = next((line for line in lines if isinstance(line, Opening)), None)
    done = [line for line in lines if isinstance(line, Finished)]
    if not raw or (opening is not None and opening.fresh):
        raw = begin_text(opening.title if opening else Title(path.name))
    new = [line.interaction for line in sorted(done, key=lambda line: line.place)]
    raw = add_items(raw, new)
    if not new and not metadata:
        return raw
    tape = Tape(raw, path)
    return revise_header(
        raw, tape, {"metadata": {**tape.header.metadata, **_totals(tape), **metadata}}
    )


def _totals(tape: Tape) -> dict[str, Any]:
    responses = [item.response for item in tape]
    costs = [response.cost_dollars for response in responses if response.cost_dollars is not None]
    totals: dict[str, Any] = {"total_tokens": sum(response.tokens for response in responses)}
    if costs:
        totals["total_cost_dollars"] = round(sum(costs), 8)
    return totals


def load(path: Path) -> Tape:
    """A cassette, with what a recorder that died has left beside it."""
    journal = beside(path)
    if not journal.exists():
        return open_tape(path)
    try:
        file = os.open(journal, os.O_RDWR | os.O_APPEND)
    except FileNotFoundError:
        return open_tape(path)
    except OSError:  # not ours to write: read it together, change nothing
        raw = read_raw(path) if path.exists() else b""
        return Tape(folded(raw, _lines(journal.read_bytes()), {"interrupted": True}, path), path)
    try:
        if try_lock(file) and _same_file(file, journal):
            _fold(path, file, {"interrupted": True})
    finally:
        os.close(file)
    return open_tape(path) if path.exists() else Tape(read_raw(path), path)
