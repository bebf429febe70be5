"""The file track of a tape: the files that a command changed in its folder.

`FileRecorder` writes them, each with the interaction that the change follows. `FileReplay` compares
the files at the end of a replay with those of the recording: the command runs for real.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Protocol

from offbook.sources.cassette.cassette_file import journal_path
from offbook.sources.cassette.format import RecordedFile
from offbook.sources.cassette.mismatch import (
    describe_differences,
    describe_track_mismatch,
    find_differences,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from offbook.sources.cassette.cassette_file import CassetteFile, Entry
    from offbook.sources.cassette.format import Normalizer


class WatchedFolder(Protocol):
    """The folder of a command: what has changed since the last call, and one file of it."""

    truncated: bool

    def changes(self) -> tuple[dict[str, str], list[str]]:
        """Return the changed files with their texts, and the names of the deleted ones."""
        ...

    def read(self, name: str) -> str | None:
        """Return the text of a file, or None if there is none."""
        ...


class FileWatch:
    """The changes of a folder; `ignored` are files that Offbook writes itself."""

    def __init__(self, normalizer: Normalizer) -> None:
        self._normalizer = normalizer
        self._folder: WatchedFolder | None = None
        self._ignored: frozenset[str] = frozenset()
        self._lock = Lock()

    def watch(self, folder: WatchedFolder, root: Path, ignored: Iterable[Path]) -> None:
        """Watch a folder from now on."""
        inside = (path.absolute() for path in ignored if path.absolute().is_relative_to(root))
        self._ignored = frozenset(path.relative_to(root).as_posix() for path in inside)
        self._folder = folder

    def end(self) -> None:
        """Note the last changes; the folder may be removed afterwards."""
        self.note()
        self._folder = None

    def note(self) -> None:
        """Note what has changed since the last time."""
        with self._lock:
            if self._folder is not None:
                written, deleted = self._folder.changes()
                for name, text in sorted([*written.items(), *((name, None) for name in deleted)]):
                    if name not in self._ignored:
                        self._changed(self._clean(name, text))

    def _clean(self, name: str, text: str | None) -> RecordedFile:
        clean = self._normalizer.clean_text
        if text is None:
            return RecordedFile(file=clean(name), removed=True)
        return RecordedFile(file=clean(name), text=clean(text))

    def _changed(self, file: RecordedFile) -> None:
        raise NotImplementedError


class FileRecorder(FileWatch):
    """Writes the files that a command changes; `path` is the tape."""

    def __init__(
        self, add: Callable[[RecordedFile], None], normalizer: Normalizer, path: Path
    ) -> None:
        super().__init__(normalizer)
        self.truncated = False  # the folder has too many files
        self._add = add
        self._own = (path, journal_path(path))

    def watch(self, folder: WatchedFolder, root: Path, ignored: Iterable[Path]) -> None:
        """Watch a folder from now on."""
        super().watch(folder, root, (*ignored, *self._own))

    def end(self) -> None:
        """Note the last changes; the folder may be removed afterwards."""
        if (folder := self._folder) is not None:
            super().end()
            self.truncated = self.truncated or folder.truncated

    def _changed(self, file: RecordedFile) -> None:
        self._add(file)


class FileReplay(FileWatch):
    """Compares the files that a command changed with those of a tape."""

    def __init__(self, file: CassetteFile, entries: list[Entry], normalizer: Normalizer) -> None:
        super().__init__(normalizer)
        self._seen: dict[str, RecordedFile] = {}
        self._watched = False
        # The last state of each file, and the interaction that it follows.
        self._recorded: dict[str, tuple[int, RecordedFile]] = {}
        for entry in entries:
            for changed in file.read(entry).files:
                self._recorded.pop(changed.file, None)
                self._recorded[changed.file] = entry.number, changed

    def watch(self, folder: WatchedFolder, root: Path, ignored: Iterable[Path]) -> None:
        """Watch a folder from now on."""
        self._watched = True
        super().watch(folder, root, ignored)

    def end(self) -> None:
        """Note the last changes, and files that are as recorded without a change."""
        self.note()
        if (folder := self._folder) is not None:
            for name in self._recorded:
                self._seen.setdefault(name, self._clean(name, folder.read(name)))
        self._folder = None

    def _changed(self, file: RecordedFile) -> None:
        self._seen[file.file] = file

    @property
    def not_compared(self) -> int:
        """The number of files on the tape, if no folder was watched."""
        return 0 if self._watched else len(self._recorded)

    def judge(self) -> str | None:
        """Return the first file that differs, or None."""
        self.end()
        if not self._watched:
            return None
        for name, (number, recorded) in self._recorded.items():
            if (got := self._seen[name]) != recorded:
                return _explain(number, recorded, got)
        for name, got in self._seen.items():
            if name not in self._recorded:
                return _explain(None, None, got)
        return None


def _explain(number: int | None, recorded: RecordedFile | None, got: RecordedFile) -> str:
    old, new = (_state(file) for file in (recorded, got))
    differences: list[str] = []
    if recorded is not None and old == new:
        differences = [*describe_differences([*find_differences(recorded.text, got.text)])]
    fact = f"{got.file} differs"
    return describe_track_mismatch("files", fact, old, new, differences, number=number)


def _state(file: RecordedFile | None) -> str:
    if file is None:
        return "not changed"
    return "removed" if file.removed else "written"
