"""The journal of a recording: a killed recorder loses nothing that was finished.

Each finished interaction is one line of JSON in a file next to the cassette, written at once.
When the recording ends, or when the cassette is opened after a crash, the lines are merged into
the cassette and the journal is removed. The recorder holds the lock of its journal, so a second
recorder of the same cassette is refused.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import RunError, UsageError
from offbook.secrets import hide_bytes, known_secret_bytes
from offbook.sources.cassette.cassette_file import (
    PRIVATE_MODE,
    CassetteFile,
    open_cassette_file,
    read_cassette_bytes,
    write_cassette_bytes,
)
from offbook.sources.cassette.format import CassetteTitle, Interaction
from offbook.trace.recorder import encode_unknown, write_line

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

# ------------------------------------------------------------------------------------- locks
#
# Not filelock: it truncates the file that it locks, so it would need a second file next to the
# journal, and a crash between the two could leave a journal that looks unlocked. Here the lock
# belongs to the open journal itself and is gone when its process is.


def try_lock(file: int) -> bool:
    """Lock an open file until it is closed; return False if another process has the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def locked(file: int) -> Generator[None]:
    """Wait for the lock of an open file, and release it at the end of the block."""
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


# ----------------------------------------------------------------------------------- the journal


class JournalOpening(msgspec.Struct, frozen=True, tag="opening"):
    """The first line: the recording process and the title of a new cassette."""

    pid: int
    title: CassetteTitle
    fresh: bool = False


class JournalInteraction(msgspec.Struct, frozen=True, tag="finished"):
    """A finished interaction; `place` is its position in the order of their starts."""

    place: int
    interaction: Interaction


class JournalMerged(msgspec.Struct, frozen=True, tag="folded"):
    """The last line: the cassette with this digest contains everything above."""

    digest: str


JournalLine = JournalOpening | JournalInteraction | JournalMerged
_decode = msgspec.json.Decoder(JournalLine).decode


def journal_path(path: Path) -> Path:
    """Return the path of a cassette's journal."""
    return path.with_name(f".{path.name}.journal")


class Journal:
    """The open journal of a cassette; `fresh` replaces the cassette at the end."""

    def __init__(self, path: Path, title: CassetteTitle, *, fresh: bool = False) -> None:
        self.path = path
        self._encode = msgspec.json.Encoder(enc_hook=encode_unknown).encode
        self._secrets = known_secret_bytes()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._is_open = True
        self.failure: RunError | None = None
        self.file = _open_locked(path)
        if os.fstat(self.file).st_size:  # left by a recorder that was killed
            _merge(path, self.file, {"interrupted": True}, keep=True)
            os.ftruncate(self.file, 0)
        self._write(JournalOpening(os.getpid(), title, fresh))

    def add(self, place: int, interaction: Interaction) -> None:
        """Write a finished interaction."""
        self._write(JournalInteraction(place, interaction))

    def _write(self, line: JournalLine) -> None:
        if not self._is_open:
            raise UsageError("the recording is closed", where=str(self.path))
        raw = hide_bytes(self._encode(line), self._secrets)
        try:
            _decode(raw)
        except msgspec.MsgspecError:  # a secret is also one of our keys: hide it in values only
            raw = self._encode(
                self._hide_values(msgspec.to_builtins(line, enc_hook=encode_unknown))
            )
        try:
            write_line(self.file, raw + b"\n")
        except OSError as error:
            self.failure = _write_error(error, self.path)
            raise self.failure from error

    def _hide_values(self, value: Any) -> Any:
        if isinstance(value, str):
            return hide_bytes(value.encode(errors="replace"), self._secrets).decode()
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            hidden = {name: self._hide_values(field) for name, field in fields.items()}
            return {**hidden, "type": fields["type"]} if "type" in fields else hidden
        if isinstance(value, (list, tuple)):
            return [self._hide_values(item) for item in cast("list[Any]", value)]
        return value

    def close(self, metadata: Mapping[str, Any] | None = None) -> bytes | None:
        """Merge everything into the cassette and remove the journal. Idempotent."""
        if not self._is_open:
            return None
        self._is_open = False
        try:
            return _merge(self.path, self.file, metadata or {})
        except OSError as error:
            raise _write_error(error, self.path) from error
        finally:
            os.close(self.file)

    def discard(self) -> None:
        """Remove the journal and leave the cassette unchanged. Idempotent."""
        if self._is_open:
            self._is_open = False
            journal_path(self.path).unlink(missing_ok=True)
            os.close(self.file)


def _write_error(error: OSError, path: Path) -> RunError:
    return RunError(
        f"cannot write the cassette: {error.strerror or error}",
        where=str(path),
        hint=f"free some disk space; the recording so far is in {journal_path(path)} and is "
        "merged into the cassette when it is opened next",
    )


def _open_locked(path: Path) -> int:
    journal = journal_path(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
    while True:
        file = os.open(journal, flags, PRIVATE_MODE)
        if not try_lock(file):
            os.lseek(file, 0, os.SEEK_SET)
            lines = _parse_lines(os.read(file, 4096))
            os.close(file)
            owner = lines[0] if lines else None
            by = f" by process {owner.pid}" if isinstance(owner, JournalOpening) else ""
            raise UsageError(
                f"the cassette is already being recorded{by}",
                where=str(path),
                hint="wait for that recording to end, or record into another file",
            )
        if _is_same_file(file, journal):
            return file
        os.close(file)  # its owner removed it between our open and our lock


def _is_same_file(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _parse_lines(raw: bytes) -> list[JournalLine]:
    """Return the complete lines; a torn last line is not a finished interaction."""
    lines: list[JournalLine] = []
    for line in raw.split(b"\n")[:-1]:
        try:
            lines.append(_decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    return lines


# ------------------------------------------------------------------------------------ merging


def _merge(path: Path, file: int, metadata: Mapping[str, Any], *, keep: bool = False) -> bytes:
    """Write the cassette with the interactions of its journal in it; return its text.

    The digest of the result goes into the journal before the cassette is replaced. After a crash
    between the two steps or after them, it shows whether the cassette is the merged one, so no
    interaction is added twice.
    """
    raw = read_cassette_bytes(path) if path.exists() else b""
    os.lseek(file, 0, os.SEEK_SET)
    parts: list[bytes] = []
    while part := os.read(file, 1 << 20):
        parts.append(part)
    lines = _parse_lines(b"".join(parts))
    last = lines[-1] if lines else None
    done = isinstance(last, JournalMerged) and raw and last.digest == CassetteFile(raw, path).digest
    if lines and not done:
        raw = _merged_text(raw, lines, metadata, path)
        digest = CassetteFile(raw, path).digest  # also checks the text before it is written
        write_line(file, msgspec.json.encode(JournalMerged(digest)) + b"\n")
        write_cassette_bytes(path, raw)
    if not keep:
        journal_path(path).unlink(missing_ok=True)
    return raw


def _merged_text(
    raw: bytes, lines: list[JournalLine], metadata: Mapping[str, Any], path: Path
) -> bytes:
    # Late: a replay opens a cassette and edits nothing.
    from offbook.sources.cassette.editing import append_interactions, new_cassette, update_header

    opening = next((line for line in lines if isinstance(line, JournalOpening)), None)
    finished = [line for line in lines if isinstance(line, JournalInteraction)]
    if not raw or (opening is not None and opening.fresh):
        raw = new_cassette(opening.title if opening else CassetteTitle(path.name))
    finished.sort(key=lambda line: line.place)
    raw = append_interactions(raw, [line.interaction for line in finished])
    if not finished and not metadata:
        return raw
    file = CassetteFile(raw, path)
    responses = [interaction.response for interaction in file]
    totals: dict[str, Any] = {"total_tokens": sum(response.tokens for response in responses)}
    costs = [response.cost_dollars for response in responses if response.cost_dollars is not None]
    if costs:
        totals["total_cost_dollars"] = round(sum(costs), 8)
    return update_header(file, {"metadata": {**file.header.metadata, **totals, **metadata}})


def load_cassette(path: Path, *, keep: bool = False) -> CassetteFile:
    """Open a cassette, and first merge the journal that a killed recorder has left.

    With `keep`, its interactions stay parsed, for a command that reads all of them.
    """
    journal = journal_path(path)
    try:
        file = os.open(journal, os.O_RDWR | os.O_APPEND)
    except FileNotFoundError:
        return open_cassette_file(path, keep=keep)
    except OSError:  # not writable for us: merge in memory only
        raw = read_cassette_bytes(path) if path.exists() else b""
        lines = _parse_lines(journal.read_bytes())
        return CassetteFile(_merged_text(raw, lines, {"interrupted": True}, path), path)
    try:
        # A locked journal belongs to a running recorder: read the cassette as it is so far.
        if try_lock(file) and _is_same_file(file, journal):
            _merge(path, file, {"interrupted": True})
    finally:
        os.close(file)
    return open_cassette_file(path, keep=keep)
