"""Assertions about the files of a run: their existence, their content, a whole snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import msgspec

from offbook.checks.assertion import Assertion, AssertionResult
from offbook.checks.context import CheckContext, NoData
from offbook.checks.snapshot import (
    Snapshot,
    capture_snapshot,
    compare_snapshots,
    redact_snapshot,
)
from offbook.errors import UsageError, counted, did_you_mean
from offbook.files import resolve_within
from offbook.secrets import MASK, outgoing
from offbook.trace.redaction import Redaction
from offbook.trace.text_patterns import compile_pattern

# Ours, and Ralph's.
SCRATCHPADS = (".agent/scratchpad.md", ".ralph/agent/scratchpad.md")
MAX_SHOWN = 200
CONTEXT_CHARACTERS = 40
MAX_NEIGHBOURS = 20


class FileExists(Assertion, frozen=True, tag="file_exists"):
    """The file exists."""

    path: str
    title_fields: ClassVar[tuple[str, ...]] = ("path",)

    def evaluate(self, context: CheckContext) -> AssertionResult:
        path = context.resolve(self.path)
        kind = "a folder" if path.is_dir() else "a file" if path.exists() else "missing"
        details = {"path": self.path, "there": _list_neighbours(path)}
        return AssertionResult(path.exists(), self.path, kind, context=details)


class FileContains(Assertion, frozen=True, tag="file_contains"):
    """The pattern matches the content of the file."""

    path: str
    pattern: str
    title_fields: ClassVar[tuple[str, ...]] = ("path", "pattern")

    def evaluate(self, context: CheckContext) -> AssertionResult:
        return _search_file(context, self.path, self.pattern, "file_contains.pattern")


class FileNotContains(Assertion, frozen=True, tag="file_not_contains"):
    """The file exists and the pattern does not match its content."""

    path: str
    pattern: str
    title_fields: ClassVar[tuple[str, ...]] = ("path", "pattern")

    def evaluate(self, context: CheckContext) -> AssertionResult:
        pattern = compile_pattern(self.pattern, "file_not_contains.pattern")
        text = _read_text(context.resolve(self.path), self.path)
        if isinstance(text, AssertionResult):
            return text
        passed = pattern.search(text) is None
        match = ""
        if not passed:
            # In the masked text: half a secret at the edge is not recognised any more.
            shown = outgoing(text)
            span = pattern.search(shown)
            match = MASK  # the pattern matches a secret itself
            if span is not None:
                start = max(0, span[0] - CONTEXT_CHARACTERS)
                match = shown[start : span[1] + CONTEXT_CHARACTERS]
        return AssertionResult(passed, f"no {self.pattern}", match, context={"path": self.path})


class ScratchpadContains(Assertion, frozen=True, tag="scratchpad_contains"):
    """The pattern matches the scratchpad at the end of the run."""

    pattern: str
    title_fields: ClassVar[tuple[str, ...]] = ("pattern",)

    def evaluate(self, context: CheckContext) -> AssertionResult:
        # An invalid pattern is an error of the check, also without a scratchpad.
        compile_pattern(self.pattern, "scratchpad_contains.pattern")
        for path in SCRATCHPADS:
            if context.resolve(path).is_file():
                return _search_file(context, path, self.pattern, "scratchpad_contains.pattern")
        raise NoData("no scratchpad found")


class SnapshotMatches(Assertion, frozen=True, tag="snapshot_matches"):
    """The files are the same as in the approved snapshot, apart from redacted values."""

    snapshot_id: str
    redactions: dict[str, Any] | None = None
    include_patterns: tuple[str, ...] = ()
    exclude_patterns: tuple[str, ...] = ()
    title_fields: ClassVar[tuple[str, ...]] = ("snapshot_id",)

    def evaluate(self, context: CheckContext) -> AssertionResult:
        if context.snapshots is None:
            raise NoData("the run has no snapshots")
        path = resolve_within(context.snapshots, f"{self.snapshot_id}.json")
        if not path.is_file():
            # Pending snapshots wait for a review and are not suggested.
            approved = [p.stem for p in path.parent.glob("*.json") if ".pending" not in p.name]
            raise UsageError(
                f"no snapshot {self.snapshot_id!r}", hint=did_you_mean(self.snapshot_id, approved)
            )
        root = context.resolve(".")
        redaction = Redaction(self.redactions, roots={"WORKSPACE": root})
        expected = msgspec.json.decode(path.read_bytes(), type=Snapshot)
        actual = capture_snapshot(root, self.include_patterns, self.exclude_patterns)
        if not expected.files and not actual.files:
            raise NoData("neither the snapshot nor the workspace has a file to compare")
        # Both sides are redacted: the approved one may have been captured with other rules.
        diff = compare_snapshots(
            redact_snapshot(expected, redaction), redact_snapshot(actual, redaction)
        )
        if diff.empty:
            return AssertionResult(True, self.snapshot_id, [])
        names = [*diff.changed_files, *diff.added_files, *diff.deleted_files]
        message = f"{counted(len(names), 'file')} with differences: {', '.join(names[:10])}"
        details = {"diff": msgspec.to_builtins(diff)}
        return AssertionResult(False, self.snapshot_id, names, message, details)


def _search_file(context: CheckContext, path: str, source: str, field: str) -> AssertionResult:
    pattern = compile_pattern(source, field)
    text = _read_text(context.resolve(path), path)
    if isinstance(text, AssertionResult):
        return text
    matched = pattern.search(text) is not None
    return AssertionResult(matched, source, outgoing(text)[:MAX_SHOWN], context={"path": path})


def _read_text(file: Path, name: str) -> str | AssertionResult:
    """Return the text of a file, or the failure if it cannot be read."""
    if file.is_dir():
        return AssertionResult(False, name, "a folder", f"{name} is a folder")
    if file.exists() and not file.is_file():  # a pipe, which could be read for ever
        return AssertionResult(False, name, message=f"{name} is not a regular file")
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        details = {"path": name, "there": _list_neighbours(file)}
        return AssertionResult(False, name, message=f"{name} is missing", context=details)
    except UnicodeDecodeError:
        return AssertionResult(False, name, message=f"{name} is not UTF-8 text")
    except OSError as error:
        return AssertionResult(False, name, message=f"{name}: {error.strerror}")


def _list_neighbours(file: Path) -> list[str]:
    """Return the names in the same folder, for a path with a typing error."""
    if not file.parent.is_dir():
        return []
    return sorted(neighbour.name for neighbour in file.parent.iterdir())[:MAX_NEIGHBOURS]
