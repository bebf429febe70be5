"""Two texts line by line: the fewest lines that make one the other, as `git diff` counts them."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import msgspec

from offbook.files import is_hard_linked
from offbook.trace.redaction import Redaction

# --- Two texts line by line: the fewest lines that make one the other, as `git diff` counts them.

MOST = 800  # lines that differ; beyond, a longer way is found sooner


def split_lines(text: str) -> list[str]:
    """The lines of a text, each with its end; nothing but a line feed ends one."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def match_lines(before: Sequence[str], after: Sequence[str]) -> difflib.SequenceMatcher[str]:
    """Two lists of lines, matched by what is longest in common, where there is time for it."""
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    start, least = 0, min(len(before), len(after))
    while start < least and before[start] == after[start]:
        start += 1
    end = 0
    while end < least - start and before[-1 - end] == after[-1 - end]:
        end += 1
    rows, columns = len(before), len(after)
    middle = pair_lines(before[start : rows - end], after[start : columns - end])
    if middle is not None:
        pairs = [(at, at) for at in range(start)]
        pairs += [(a + start, b + start) for a, b in middle]
        pairs += [(rows - end + at, columns - end + at) for at in range(end)]
        # where difflib keeps what it has found, and looks before it searches
        vars(matcher)["matching_blocks"] = [*_join(pairs), difflib.Match(rows, columns, 0)]
    return matcher


def pair_lines(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int]] | None:
    """The longest list of pairs that are the same, in both orders; None when it takes too long.

    Myers' way: with ever more lines that differ, how far each diagonal reaches.
    """
    rows, columns = len(before), len(after)
    reach = {1: 0}
    trail: list[dict[int, int]] = []
    for most in range(min(rows + columns, MOST) + 1):
        trail.append(dict(reach))
        for diagonal in range(-most, most + 1, 2):
            down = diagonal == -most or (
                diagonal != most and reach[diagonal - 1] < reach[diagonal + 1]
            )
            at = reach[diagonal + 1] if down else reach[diagonal - 1] + 1
            while at < rows and at - diagonal < columns and before[at] == after[at - diagonal]:
                at += 1
            reach[diagonal] = at
            if at >= rows and at - diagonal >= columns:
                return _walk_back(trail, rows, columns)
    return None


def _walk_back(trail: list[dict[int, int]], rows: int, columns: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    a, b = rows, columns
    for most in range(len(trail) - 1, -1, -1):
        reach, diagonal = trail[most], a - b
        down = diagonal == -most or (diagonal != most and reach[diagonal - 1] < reach[diagonal + 1])
        before = diagonal + 1 if down else diagonal - 1
        x = reach[before]
        y = x - before
        while a > x and b > y:
            a, b = a - 1, b - 1
            pairs.append((a, b))
        a, b = x, y
    return pairs[::-1]


def _join(pairs: list[tuple[int, int]]) -> list[difflib.Match]:
    blocks: list[difflib.Match] = []
    for a, b in pairs:
        last = blocks[-1] if blocks else None
        if last and (last.a + last.size, last.b + last.size) == (a, b):
            blocks[-1] = difflib.Match(last.a, last.b, last.size + 1)
        else:
            blocks.append(difflib.Match(a, b, 1))
    return blocks


# --- A folder at one moment, and the difference between two of them, line by line.

SNAPSHOT_FOLDER = ".offbook/snapshots"
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


class SnapshotDiff(msgspec.Struct, frozen=True):
    """How two snapshots differ."""

    changed_files: list[str]
    added_files: list[str]
    deleted_files: list[str]
    diffs: dict[str, FileDiff]

    @property
    def nothing(self) -> bool:
        """Whether they are the same."""
        return not self.diffs


def capture_snapshot(
    root: Path, include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> Snapshot:
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


def read_small_text(path: Path) -> str | None:
    """The text of a file; None where it is none, or long, or a link, of whichever kind."""
    if (
        path.is_symlink()
        or not path.is_file()
        or path.stat().st_size > LARGEST
        or is_hard_linked(path)
    ):
        return None
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError:
        return None


def redact_snapshot(snapshot: Snapshot, redaction: Redaction) -> Snapshot:
    """A snapshot without what may differ."""
    told = redaction.value({"files": snapshot.files})
    files = cast("dict[str, Any]", told["files"])
    return Snapshot({name: str(text) for name, text in files.items()})


def compare_snapshots(before: Snapshot, after: Snapshot) -> SnapshotDiff:
    """What changed from one to the other."""
    old, new = before.files, after.files
    changed = sorted(name for name in old.keys() & new.keys() if old[name] != new[name])
    added, deleted = sorted(new.keys() - old.keys()), sorted(old.keys() - new.keys())
    names = sorted((*changed, *added, *deleted))
    diffs = {name: _compare_file(old.get(name, ""), new.get(name, "")) for name in names}
    return SnapshotDiff(changed, added, deleted, diffs)


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
    if (text := read_small_text(path)) is not None:
        return text
    size = path.stat().st_size
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    kind = "hard link" if is_hard_linked(path) else "binary" if size <= LARGEST else "large"
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
