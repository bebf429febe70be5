"""How far a replay has come: in memory, or in a file beside the run.

A command-line agent may be started anew for each of its turns, and several processes may replay
for one run: whoever takes an interaction notes it in the file, under its lock, so that no reply is
given twice. A process that dies between two replies leaves the notes of those it gave.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from offbook.errors import FormatError
from offbook.sources.cassette.lock import locked

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


class Cursor:
    """The numbers of the interactions that were given already."""

    def __init__(self, path: Path | None = None, *, cassette: str = "") -> None:
        self.taken: set[int] = set()
        self._alone = nullcontext(self.taken)
        self._path = path
        self._cassette = cassette
        self._read = 0
        self._file: int | None = None

    def turn(self) -> AbstractContextManager[set[int]]:
        """Decide what to give while nobody else does; what others gave meanwhile is known."""
        return self._alone if self._path is None else self._share(self._path)

    @contextmanager
    def _share(self, path: Path) -> Generator[set[int]]:
        if self._file is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
            self._file = os.open(path, flags, 0o600)
        with locked(self._file):
            self._catch_up(self._file)
            yield self.taken

    def take(self, number: int) -> None:
        """Note that this interaction is given; inside a turn."""
        self.taken.add(number)
        if self._file is not None:
            self._read += os.write(self._file, b"%d\n" % number)

    def _catch_up(self, file: int) -> None:
        size = os.fstat(file).st_size
        if not size:
            self._read = os.write(file, f"{self._cassette}\n".encode())
            return
        if size <= self._read:
            return
        os.lseek(file, self._read, os.SEEK_SET)
        raw = os.read(file, size - self._read)
        lines = raw.decode("utf-8", "replace").split("\n")
        if not self._read and lines.pop(0) != self._cassette:
            raise FormatError(
                "this cursor belongs to another cassette, or to an earlier state of it",
                path=self._path or "",
                hint="remove the file to begin at the first interaction",
            )
        self.taken.update(int(line) for line in lines if line.isdigit())
        self._read = size

    def close(self) -> None:
        """Let go of the file; a second time is nothing."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
