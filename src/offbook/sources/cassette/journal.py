"""One process at a time: a lock on an open file, which the system frees when its holder dies."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import RunError, UsageError
from offbook.secrets import hide_bytes, known_secrets
from offbook.sources.cassette.cassette_file import (
    PRIVATE_MODE,
    CassetteFile,
    open_cassette_file,
    read_cassette_bytes,
    write_cassette_bytes,
)
from offbook.sources.cassette.editing import (
    CassetteTitle,
    append_interactions,
    new_cassette,
    update_header,
)
from offbook.sources.cassette.format import Interaction
from offbook.trace.recorder import encode_unknown, write_line

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path


# --- One process at a time: a lock on an open file, which the system frees when its holder dies.

if sys.platform == "win32":
    import msvcrt
    import os

    _FAR = 1 << 30  # a byte that nobody writes: what is locked cannot be read by others

    def _hold(file: int, *, wait: bool) -> None:
        os.lseek(file, _FAR, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)

    def _free(file: int) -> None:
        os.lseek(file, _FAR, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _hold(file: int, *, wait: bool) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))

    def _free(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)


def try_lock(file: int) -> bool:
    """Lock an open file; tells whether it was free. It stays locked until it is closed."""
    try:
        _hold(file, wait=False)
    except OSError:
        return False
    return True


@contextmanager
def locked(file: int) -> Generator[None]:
    """Hold the lock of an open file, waiting for it."""
    _hold(file, wait=True)
    try:
        yield
    finally:
        _free(file)


# --- What is being recorded, line by line, beside the cassette: a killed recorder loses nothing.


class JournalOpening(msgspec.Struct, frozen=True, tag="opening"):
    """The first line: who records, and what the cassette will say of itself."""

    pid: int
    title: CassetteTitle
    fresh: bool = False


class JournalInteraction(msgspec.Struct, frozen=True, tag="finished"):
    """An interaction; `place` is its turn by when it began."""

    place: int
    interaction: Interaction


class JournalMerged(msgspec.Struct, frozen=True, tag="folded"):
    """The cassette with this digest has it all already."""

    digest: str


JournalLine = JournalOpening | JournalInteraction | JournalMerged
_decode = msgspec.json.Decoder(JournalLine).decode


def journal_path(path: Path) -> Path:
    """The journal of a cassette."""
    return path.with_name(f".{path.name}.journal")


class Journal:
    """The one recorder of a cassette. With `fresh`, the cassette is begun anew at the end."""

    def __init__(
        self,
        path: Path,
        title: CassetteTitle,
        *,
        fresh: bool = False,
    ) -> None:
        self.path = path
        self._encode = msgspec.json.Encoder(enc_hook=encode_unknown).encode
        self._known = [v.encode("utf-8", "surrogateescape") for v in known_secrets()]
        path.parent.mkdir(parents=True, exist_ok=True)
        self._open = True
        self.failure: RunError | None = None
        self.file = _seize(path)
        recover(path, self.file)
        self._write(JournalOpening(os.getpid(), title, fresh))

    def add(self, place: int, interaction: Interaction) -> None:
        """Note a finished interaction."""
        self._write(JournalInteraction(place, interaction))

    def _write(self, line: JournalLine) -> None:
        if not self._open:
            raise UsageError("the recording is over", where=str(self.path))
        try:
            write_line(self.file, self._hide(line) + b"\n")
        except OSError as error:
            self.failure = _complain(error, self.path)
            raise self.failure from error

    def _hide(self, line: JournalLine) -> bytes:
        """The line without a secret, and still one that can be read."""
        hidden = hide_bytes(self._encode(line), self._known)
        try:
            _decode(hidden)
        except msgspec.MsgspecError:  # a secret that looks like one of our own words
            return self._encode(self._veil(msgspec.to_builtins(line, enc_hook=encode_unknown)))
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
            journal_path(self.path).unlink(missing_ok=True)
            os.close(self.file)


def _complain(error: OSError, path: Path) -> RunError:
    why = error.strerror or str(error)
    return RunError(
        f"cannot write the cassette: {why}",
        where=str(path),
        hint=f"make room for it; what was recorded is in {journal_path(path)}, and comes into the "
        "cassette when it is opened next",
    )


def _seize(path: Path) -> int:
    journal = journal_path(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
    while True:
        file = os.open(journal, flags, PRIVATE_MODE)
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
    return f" by process {first.pid}" if isinstance(first, JournalOpening) else ""


def _lines(raw: bytes) -> list[JournalLine]:
    """The whole lines; a torn last one never was an interaction."""
    found: list[JournalLine] = []
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
    raw = read_cassette_bytes(path) if path.exists() else b""
    lines = _lines(_content(file))
    last = lines[-1] if lines else None
    done = isinstance(last, JournalMerged) and raw and last.digest == CassetteFile(raw, path).digest
    if lines and not done:
        raw = folded(raw, lines, metadata, path)
        write_line(file, msgspec.json.encode(JournalMerged(CassetteFile(raw, path).digest)) + b"\n")
        write_cassette_bytes(path, raw)
    if not keep:
        journal_path(path).unlink(missing_ok=True)
    return raw


def folded(raw: bytes, lines: list[JournalLine], metadata: Mapping[str, Any], path: Path) -> bytes:
    """The cassette with the interactions of a journal in it."""
    opening = next((line for line in lines if isinstance(line, JournalOpening)), None)
    done = [line for line in lines if isinstance(line, JournalInteraction)]
    if not raw or (opening is not None and opening.fresh):
        raw = new_cassette(opening.title if opening else CassetteTitle(path.name))
    new = [line.interaction for line in sorted(done, key=lambda line: line.place)]
    raw = append_interactions(raw, new)
    if not new and not metadata:
        return raw
    tape = CassetteFile(raw, path)
    return update_header(
        raw, tape, {"metadata": {**tape.header.metadata, **_totals(tape), **metadata}}
    )


def _totals(tape: CassetteFile) -> dict[str, Any]:
    responses = [item.response for item in tape]
    costs = [response.cost_dollars for response in responses if response.cost_dollars is not None]
    totals: dict[str, Any] = {"total_tokens": sum(response.tokens for response in responses)}
    if costs:
        totals["total_cost_dollars"] = round(sum(costs), 8)
    return totals


def load_cassette(path: Path) -> CassetteFile:
    """A cassette, with what a recorder that died has left beside it."""
    journal = journal_path(path)
    if not journal.exists():
        return open_cassette_file(path)
    try:
        file = os.open(journal, os.O_RDWR | os.O_APPEND)
    except FileNotFoundError:
        return open_cassette_file(path)
    except OSError:  # not ours to write: read it together, change nothing
        raw = read_cassette_bytes(path) if path.exists() else b""
        return CassetteFile(
            folded(raw, _lines(journal.read_bytes()), {"interrupted": True}, path), path
        )
    try:
        if try_lock(file) and _same_file(file, journal):
            _fold(path, file, {"interrupted": True})
    finally:
        os.close(file)
    return (
        open_cassette_file(path) if path.exists() else CassetteFile(read_cassette_bytes(path), path)
    )
