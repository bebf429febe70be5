"""Assertions about the files that the run left behind."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from offbook.checks.assertions.assertion import Assertion, Finding
from offbook.checks.evidence import Evidence, NoData
from offbook.trace.patterns import compile_pattern

SCRATCHPADS = (".agent/scratchpad.md", ".ralph/agent/scratchpad.md")
SHOWN = 200


class FileExists(Assertion, frozen=True, forbid_unknown_fields=True, tag="file_exists"):
    """There is such a file."""

    path: str
    subject: ClassVar[tuple[str, ...]] = ("path",)

    def look(self, evidence: Evidence) -> Finding:
        place = evidence.place(self.path)
        context = {"path": self.path, "there": _neighbours(place)}
        return Finding(place.exists(), self.path, _kind(place), context=context)


class FileContains(Assertion, frozen=True, forbid_unknown_fields=True, tag="file_contains"):
    """The pattern is found in the file."""

    path: str
    pattern: str
    subject: ClassVar[tuple[str, ...]] = ("path", "pattern")

    def look(self, evidence: Evidence) -> Finding:
        pattern = compile_pattern(self.pattern, "file_contains.pattern")
        text = _read(evidence.place(self.path), self.path)
        if isinstance(text, Finding):
            return text
        found = pattern.search(text) is not None
        return Finding(found, self.pattern, text[:SHOWN], context={"path": self.path})


class FileNotContains(Assertion, frozen=True, forbid_unknown_fields=True, tag="file_not_contains"):
    """The file is there, and the pattern is not found in it."""

    path: str
    pattern: str
    subject: ClassVar[tuple[str, ...]] = ("path", "pattern")

    def look(self, evidence: Evidence) -> Finding:
        pattern = compile_pattern(self.pattern, "file_not_contains.pattern")
        text = _read(evidence.place(self.path), self.path)
        if isinstance(text, Finding):
            return text
        span = pattern.search(text)
        around = "" if span is None else text[max(0, span[0] - 40) : span[1] + 40]
        return Finding(span is None, f"no {self.pattern}", around, context={"path": self.path})


class ScratchpadContains(
    Assertion, frozen=True, forbid_unknown_fields=True, tag="scratchpad_contains"
):
    """The pattern is found in the scratchpad as the run left it."""

    pattern: str
    subject: ClassVar[tuple[str, ...]] = ("pattern",)

    def look(self, evidence: Evidence) -> Finding:
        pattern = compile_pattern(self.pattern, "scratchpad_contains.pattern")
        for path in SCRATCHPADS:
            place = evidence.place(path)
            if place.is_file():
                text = _read(place, path)
                if isinstance(text, Finding):
                    return text
                found = pattern.search(text) is not None
                return Finding(found, self.pattern, text[:SHOWN], context={"path": path})
        raise NoData("there is no scratchpad")


def _read(place: Path, shown: str) -> str | Finding:
    """The file's text, or the finding that there is none to read."""
    if place.is_dir():
        return Finding(holds=False, expected=shown, actual="a folder", message="it is a folder")
    try:
        return place.read_text(encoding="utf-8")
    except FileNotFoundError:
        context = {"path": shown, "there": _neighbours(place)}
        message = f"{shown} is missing"
        return Finding(holds=False, expected=shown, message=message, context=context)
    except UnicodeDecodeError:
        return Finding(holds=False, expected=shown, message=f"{shown} is not a UTF-8 text")
    except OSError as error:
        return Finding(holds=False, expected=shown, message=f"{shown}: {error.strerror}")


def _kind(place: Path) -> str:
    return "a folder" if place.is_dir() else "a file" if place.exists() else "missing"


def _neighbours(place: Path) -> list[str]:
    return sorted(p.name for p in place.parent.iterdir())[:20] if place.parent.is_dir() else []
