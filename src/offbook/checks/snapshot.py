"""A folder at one moment, and the difference between two of them, line by line."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import msgspec

from offbook.checks.lines import match_lines, split_lines
from offbook.files import is_shared
from offbook.trace.redaction import Redaction

FOLDER = ".offbook/snapshots"
LARGEST = 1024 * 1024
CONTEXT = 3
UNENDED = "\\ No newline at end of file"
# What the tools themselves write, and what never stays the same.
LEFT_OUT = (
    ".offbook/**",
    ".offbook-workspace.json",
    ".git/**",
    ".agent/home/**",
    "cassettes/**",
    "reports/**",
    "session.jsonl",
    "session-*.jsonl",
)


class Snapshot(msgspec.Struct, frozen=True):
    """Files by their paths; what is no text, or too long, stands there as its digest."""

    files: dict[str, str] = {}


class Hunk(msgspec.Struct, frozen=True):
    """Some lines that differ, where they are in the newer file, as a unified diff has them."""

    start: int
    end: int
    content: str


class FileDiff(msgspec.Struct, frozen=True):
    """How one file differs."""

    additions: int
    deletions: int
    hunks: list[Hunk]


class Difference(msgspec.Struct, frozen=True):
    """How two snapshots differ."""

    changed_files: list[str]
    added_files: list[str]
    deleted_files: list[str]
    diffs: dict[str, FileDiff]

    @property
    def nothing(self) -> bool:
        """Whether they are the same."""
        return not self.diffs


def capture(root: Path, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> Snapshot:
    """The files of a folder as they are; a link is told as a link, and never followed."""
    return Snapshot({name: _read(path) for name, path in list_files(root, include, exclude)})


def list_files(
    root: Path, include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> Iterator[tuple[str, Path]]:
    """The files of a folder by their names in it, but for what the tools themselves write."""
    for path in _walk(root):
        name = path.relative_to(root).as_posix()
        wanted = not include or any(_glob(pattern).match(name) for pattern in include)
        if wanted and not any(_glob(pattern).match(name) for pattern in (*LEFT_OUT, *exclude)):
            yield name, path


def read_small(path: Path) -> str | None:
    """The text of a file; None where it is none, or long, or a link, of whichever kind."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST or is_shared(path):
        return None
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError:
        return None


def redact(snapshot: Snapshot, redaction: Redaction) -> Snapshot:
    """A snapshot without what may differ."""
    told = redaction.value({"files": snapshot.files})
    files = cast("dict[str, Any]", told["files"])
    return Snapshot({name: str(text) for name, text in files.items()})


def compare(before: Snapshot, after: Snapshot) -> Difference:
    """What changed from one to the other."""
    old, new = before.files, after.files
    changed = sorted(name for name in old.keys() & new.keys() if old[name] != new[name])
    added, deleted = sorted(new.keys() - old.keys()), sorted(old.keys() - new.keys())
    names = sorted((*changed, *added, *deleted))
    diffs = {name: _compare_file(old.get(name, ""), new.get(name, "")) for name in names}
    return Difference(changed, added, deleted, diffs)


def _walk(root: Path) -> Iterator[Path]:
    for path in sorted(root.iterdir()):
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)
        else:
            yield path


def _read(path: Path) -> str:
    if path.is_symlink():
        return f"link to {path.readlink()}"
    if not path.is_file():
        return "no file"
    if (text := read_small(path)) is not None:
        return text
    size = path.stat().st_size
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    kind = "hard link" if is_shared(path) else "binary" if size <= LARGEST else "large"
    return f"{kind}, {size} bytes, sha256 {digest}"


@lru_cache(maxsize=256)
def _glob(pattern: str) -> re.Pattern[str]:
    """`*` stays in its folder, `**` does not; a pattern without a slash fits at any depth."""
    found = pattern if "/" in pattern else f"**/{pattern}"
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", found)
    signs = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(signs.get(part, re.escape(part)) for part in parts) + r"\Z")


def _compare_file(old: str, new: str) -> FileDiff:
    before, after = split_lines(old), split_lines(new)
    matcher = match_lines(before, after)
    unended = f"\n{UNENDED}\n" if old.endswith("\n") != new.endswith("\n") else "\n"
    hunks: list[Hunk] = []
    additions = deletions = 0
    for group in matcher.get_grouped_opcodes(CONTEXT):
        lines: list[str] = []
        for tag, a, b, c, d in group:
            if tag == "equal":
                lines += [f" {line}" for line in before[a:b]]
                continue
            lines += [f"-{line}" for line in before[a:b]] + [f"+{line}" for line in after[c:d]]
            deletions += b - a
            additions += d - c
        told = "".join(line if line.endswith("\n") else f"{line}{unended}" for line in lines)
        hunks.append(Hunk(group[0][3] + 1, group[-1][4], told.removesuffix("\n")))
    return FileDiff(additions, deletions, hunks)
