"""The files of a workspace in the trace: all at the start of a loop, then the changes of each turn.

A text of up to 16 KiB is recorded as it is, another file as its size and hash. The recorder masks
secrets.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from offbook.checks.snapshot import list_files, read_small_text
from offbook.trace.events import WORKSPACE_FILES

if TYPE_CHECKING:
    from pathlib import Path

    from offbook.trace.hub import Hub

MAX_FILES = 2_000
MAX_TEXT = 16 * 1024
MAX_EVENT = 256 * 1024  # further texts of one event are hashes


class FileStates:
    """The files of a folder when they were recorded last."""

    def __init__(self, root: Path, hub: Hub) -> None:
        self._root = root
        self._hub = hub
        self._known: dict[str, tuple[int, int, int]] = {}

    def record(self) -> None:
        """Emit the files that are new, changed or deleted; nothing if there are none."""
        found: dict[str, tuple[int, int, int]] = {}
        written: dict[str, str] = {}
        room = MAX_EVENT
        with suppress(OSError):  # the agent may remove files meanwhile, or the whole folder
            for name, path in islice(list_files(self._root), MAX_FILES):
                state = path.lstat()
                found[name] = (state.st_ino, state.st_size, state.st_mtime_ns)
                if found[name] != self._known.get(name):
                    written[name] = _describe(path, state.st_size, room)
                    room -= len(written[name])
        deleted = sorted(self._known.keys() - found.keys())
        self._known = found
        if written or deleted:
            self._hub.emit(WORKSPACE_FILES, {"written": written, "deleted": deleted})


def _describe(path: Path, size: int, room: int) -> str:
    if path.is_symlink():
        return f"link to {path.readlink()}"
    text = read_small_text(path) if size <= min(MAX_TEXT, room) else None
    if text is not None:
        return text
    if not path.is_file():
        return "no file"
    with path.open("rb") as file:
        return f"{size} bytes, sha256 {hashlib.file_digest(file, 'sha256').hexdigest()}"
