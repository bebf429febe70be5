"""Assertions about the files that the run left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import msgspec

from offbook.checks.assertion import Assertion, AssertionResult
from offbook.checks.context import CheckContext, NoData
from offbook.checks.snapshot import (
    SNAPSHOT_FOLDER,
    Snapshot,
    capture_snapshot,
    compare_snapshots,
    redact_snapshot,
)
from offbook.errors import UsageError, did_you_mean
from offbook.trace.redaction import Redaction
from offbook.trace.text_patterns import compile_pattern

# --- Assertions about the files that the run left behind.

SCRATCHPADS = (".agent/scratchpad.md", ".ralph/agent/scratchpad.md")
SHOWN = 200


class FileExists(Assertion, frozen=True, forbid_unknown_fields=True, tag="file_exists"):
    """There is such a file."""

    path: str
    subject: ClassVar[tuple[str, ...]] = ("path",)

    def look(self, evidence: CheckContext) -> AssertionResult:
        place = evidence.place(self.path)
        context = {"path": self.path, "there": _neighbours(place)}
        return AssertionResult(place.exists(), self.path, _kind(place), context=context)


class FileContains(Assertion, frozen=True, forbid_unknown_fields=True, tag="file_contains"):
    """The pattern is found in the file."""

    path: str
    pattern: str
    subject: ClassVar[tuple[str, ...]] = ("path", "pattern")

    def look(self, evidence: CheckContext) -> AssertionResult:
        pattern = compile_pattern(self.pattern, "file_contains.pattern")
        text = _read(evidence.place(self.path), self.path)
        if isinstance(text, AssertionResult):
            return text
        found = pattern.search(text) is not None
        return AssertionResult(found, self.pattern, text[:SHOWN], context={"path": self.path})


class FileNotContains(Assertion, frozen=True, forbid_unknown_fields=True, tag="file_not_contains"):
    """The file is there, and the pattern is not found in it."""

    path: str
    pattern: str
    subject: ClassVar[tuple[str, ...]] = ("path", "pattern")

    def look(self, evidence: CheckContext) -> AssertionResult:
        pattern = compile_pattern(self.pattern, "file_not_contains.pattern")
        text = _read(evidence.place(self.path), self.path)
        if isinstance(text, AssertionResult):
            return text
        span = pattern.search(text)
        around = "" if span is None else text[max(0, span[0] - 40) : span[1] + 40]
        return AssertionResult(
            span is None, f"no {self.pattern}", around, context={"path": self.path}
        )


class ScratchpadContains(
    Assertion, frozen=True, forbid_unknown_fields=True, tag="scratchpad_contains"
):
    """The pattern is found in the scratchpad as the run left it."""

    pattern: str
    subject: ClassVar[tuple[str, ...]] = ("pattern",)

    def look(self, evidence: CheckContext) -> AssertionResult:
        pattern = compile_pattern(self.pattern, "scratchpad_contains.pattern")
        for path in SCRATCHPADS:
            place = evidence.place(path)
            if place.is_file():
                text = _read(place, path)
                if isinstance(text, AssertionResult):
                    return text
                found = pattern.search(text) is not None
                return AssertionResult(found, self.pattern, text[:SHOWN], context={"path": path})
        raise NoData("there is no scratchpad")


def _read(place: Path, shown: str) -> str | AssertionResult:
    """The file's text, or the finding that there is none to read."""
    if place.is_dir():
        return AssertionResult(
            holds=False, expected=shown, actual="a folder", message="it is a folder"
        )
    try:
        return place.read_text(encoding="utf-8")
    except FileNotFoundError:
        context = {"path": shown, "there": _neighbours(place)}
        message = f"{shown} is missing"
        return AssertionResult(holds=False, expected=shown, message=message, context=context)
    except UnicodeDecodeError:
        return AssertionResult(holds=False, expected=shown, message=f"{shown} is not a UTF-8 text")
    except OSError as error:
        return AssertionResult(holds=False, expected=shown, message=f"{shown}: {error.strerror}")


def _kind(place: Path) -> str:
    return "a folder" if place.is_dir() else "a file" if place.exists() else "missing"


def _neighbours(place: Path) -> list[str]:
    return sorted(p.name for p in place.parent.iterdir())[:20] if place.parent.is_dir() else []


# --- The assertion that a folder looks as it was approved.


class SnapshotMatches(Assertion, frozen=True, forbid_unknown_fields=True, tag="snapshot_matches"):
    """The files are as in the snapshot of this name, but for what is redacted."""

    snapshot_id: str
    redactions: dict[str, Any] | None = None
    include_patterns: tuple[str, ...] = ()
    exclude_patterns: tuple[str, ...] = ()
    subject: ClassVar[tuple[str, ...]] = ("snapshot_id",)

    def look(self, evidence: CheckContext) -> AssertionResult:
        place = evidence.place(f"{SNAPSHOT_FOLDER}/{self.snapshot_id}.json")
        if not place.is_file():
            there = [p.stem for p in place.parent.glob("*.json") if ".pending" not in p.name]
            raise UsageError(
                f"there is no snapshot {self.snapshot_id!r}",
                hint=did_you_mean(self.snapshot_id, there),
            )
        root = evidence.place(".")
        redaction = Redaction(self.redactions, roots={"WORKSPACE": root})
        approved = redact_snapshot(
            msgspec.json.decode(place.read_bytes(), type=Snapshot), redaction
        )
        now = redact_snapshot(
            capture_snapshot(root, self.include_patterns, self.exclude_patterns), redaction
        )
        found = compare_snapshots(approved, now)
        names = [*found.changed_files, *found.added_files, *found.deleted_files]
        message = "" if found.nothing else f"{len(names)} files differ: {', '.join(names[:10])}"
        context = {"diff": msgspec.to_builtins(found)} if not found.nothing else {}
        return AssertionResult(found.nothing, self.snapshot_id, names, message, context)
