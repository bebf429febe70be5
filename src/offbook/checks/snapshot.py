"""Snapshots of a folder, the line-by-line difference of two, and the changes since the last."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import UsageError
from offbook.files import is_hard_linked

if TYPE_CHECKING:
    from offbook.trace.redaction import Redaction

MAX_TEXT_SIZE = 1024 * 1024
CONTEXT_LINES = 3
NO_NEWLINE = "\\ No newline at end of file"
# The limits of FileStates, whose changes go to the trace.
MAX_STATES = 2_000
MAX_STATE_TEXT = 16 * 1024
MAX_STATE_TEXTS = 256 * 1024  # of one call; further files are hashes
FALSE_WORDS = {"", "0", "false", "no"}
# Files that the tools themselves write, or that differ in every run.
ALWAYS_EXCLUDED = (
    ".offbook/**",
    ".git/**",
    ".agent/home/**",
    "cassettes/**",
    "reports/**",
)


class Snapshot(msgspec.Struct, frozen=True):
    """The texts of files by path; a binary or large file is represented by its digest."""

    files: dict[str, str] = {}


class Hunk(msgspec.Struct, frozen=True):
    """A group of changed lines as in a unified diff, with its line numbers in the newer file."""

    start: int
    end: int
    content: str


class FileDiff(msgspec.Struct, frozen=True):
    """The changes of one file."""

    additions: int
    deletions: int
    hunks: list[Hunk]


class SnapshotDiff(msgspec.Struct, frozen=True):
    """The changes between two snapshots."""

    changed_files: list[str]
    added_files: list[str]
    deleted_files: list[str]
    diffs: dict[str, FileDiff]

    @property
    def empty(self) -> bool:
        """True if the snapshots are the same."""
        return not self.diffs


class FileStates:
    """The files of a folder, and what has changed in them since the last call.

    A text of up to 16 KiB is given as it is, another file as its size and hash.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, tuple[int, int, int]] = {}

    def changes(self) -> tuple[dict[str, str], list[str]]:
        """Return the new and changed files with their texts, and the names of the deleted ones."""
        written: dict[str, str] = {}
        room = MAX_STATE_TEXTS
        with suppress(OSError):  # the agent may remove files meanwhile, or the whole folder
            for name, path in islice(list_files(self._root), MAX_STATES):
                stat = path.lstat()
                state = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
                if state != self._known.get(name):
                    written[name] = _describe(path, min(MAX_STATE_TEXT, room))
                    room = max(0, room - len(written[name]))
                    self._known[name] = state
        # Not seen is not deleted: the list of files may have ended before.
        deleted = sorted(name for name in self._known if not os.path.lexists(self._root / name))
        for name in deleted:
            del self._known[name]
        return written, deleted


def in_ci() -> bool:
    """Return whether the environment variable CI is set: there nothing is approved or updated."""
    return os.environ.get("CI", "").lower() not in FALSE_WORDS


def capture_snapshot(
    root: Path, include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> Snapshot:
    """Read the files of a folder; a link is stored as a link and never followed."""
    return Snapshot({name: _describe(path) for name, path in list_files(root, include, exclude)})


def list_files(
    root: Path, include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> Iterator[tuple[str, Path]]:
    """Yield the relative name and the path of each selected file in a folder.

    `*` matches within a folder, `**` across folders; a pattern without a slash matches at any
    depth.
    """
    excluded = [_compile_glob(pattern) for pattern in (*ALWAYS_EXCLUDED, *exclude)]
    included = [_compile_glob(pattern) for pattern in include]
    for path in _walk(root):
        name = path.relative_to(root).as_posix()
        if included and not any(pattern.match(name) for pattern in included):
            continue
        if not any(pattern.match(name) for pattern in excluded):
            yield name, path


def read_small_text(path: Path, max_size: int = MAX_TEXT_SIZE) -> str | None:
    """Return the text of a file, or None if it is binary, large, a link or a hard link."""
    # A link could point at a file outside of the folder, such as a key in the home directory.
    if path.is_symlink() or not path.is_file() or is_hard_linked(path):
        return None
    if path.stat().st_size > max_size:
        return None
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError:
        return None


def redact_snapshot(snapshot: Snapshot, redaction: Redaction) -> Snapshot:
    """Return the snapshot with redacted texts."""
    redacted = cast("dict[str, Any] | str", redaction.value({"files": snapshot.files}))
    files = redacted if isinstance(redacted, str) else redacted["files"]
    if isinstance(files, str):  # a path such as `$..*` matches more than the texts
        raise UsageError(
            "a redaction path replaces the whole snapshot", hint="paths: [\"$.files['a.txt']\"]"
        )
    return Snapshot({name: str(text) for name, text in files.items()})


def compare_snapshots(before: Snapshot, after: Snapshot) -> SnapshotDiff:
    """Return the changes from one snapshot to the other."""
    old, new = before.files, after.files
    changed = sorted(name for name in old.keys() & new.keys() if old[name] != new[name])
    added, deleted = sorted(new.keys() - old.keys()), sorted(old.keys() - new.keys())
    names = sorted((*changed, *added, *deleted))
    diffs = {name: diff_texts(old.get(name, ""), new.get(name, "")) for name in names}
    return SnapshotDiff(changed, added, deleted, diffs)


def diff_texts(old: str, new: str) -> FileDiff:
    """Return the changes from one text to the other as a unified diff."""
    from offbook.trace.matching import align_runs  # for differences only

    before, after = split_lines(old), split_lines(new)
    line_end = f"\n{NO_NEWLINE}\n" if old.endswith("\n") != new.endswith("\n") else "\n"
    hunks: list[Hunk] = []
    additions = deletions = 0
    lines: list[str] = []
    start = 0
    runs = align_runs(before, after)

    def end_hunk(end: int) -> None:
        text = "".join(line if line.endswith("\n") else f"{line}{line_end}" for line in lines)
        hunks.append(Hunk(start + 1, end, text.removesuffix("\n")))
        lines.clear()

    for number, (equal, a, b, c, d) in enumerate(runs):
        if not equal:
            if not lines:  # the first of a hunk: with the lines before it
                shown = min(CONTEXT_LINES, a)
                start = c - shown
                lines += [f" {line}" for line in before[a - shown : a]]
            lines += [f"-{line}" for line in before[a:b]] + [f"+{line}" for line in after[c:d]]
            deletions += b - a
            additions += d - c
            if number == len(runs) - 1:
                end_hunk(d)
        elif lines:
            joins = b - a <= 2 * CONTEXT_LINES and number < len(runs) - 1
            shown = b - a if joins else min(CONTEXT_LINES, b - a)
            lines += [f" {line}" for line in before[a : a + shown]]
            if not joins:
                end_hunk(c + shown)
    return FileDiff(additions, deletions, hunks)


def split_lines(text: str) -> list[str]:
    """Split a text at line feeds only, as git does; `str.splitlines` knows ten more separators."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _walk(root: Path) -> Iterator[Path]:
    for path in sorted(root.iterdir()):
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)
        else:
            yield path


def _describe(path: Path, max_size: int = MAX_TEXT_SIZE) -> str:
    if path.is_symlink():
        return f"link to {path.readlink()}"
    if not path.is_file():
        return "no file"
    if (text := read_small_text(path, max_size)) is not None:
        return text
    size = path.stat().st_size
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    kind = "hard link" if is_hard_linked(path) else "binary" if size <= max_size else "large"
    return f"{kind}, {size} bytes, sha256 {digest}"


@lru_cache(maxsize=256)
def _compile_glob(pattern: str) -> re.Pattern[str]:
    # glob.translate does this from Python 3.13 on.
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern if "/" in pattern else f"**/{pattern}")
    wildcards = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(wildcards.get(part, re.escape(part)) for part in parts) + r"\Z")
