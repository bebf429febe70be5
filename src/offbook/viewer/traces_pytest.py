"""The traces of tests with their outcomes, and the lines of a test that failed."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbook.secrets import hide_secrets
from offbook.viewer.html_page import PageTrace, read_page_trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pytest

LINES_BEFORE, LINES_AFTER = 8, 2  # of the line that failed


def folder_of_test(folder: Path, nodeid: str) -> Path:
    """Return the folder for the traces of one test."""
    return folder / blake2b(nodeid.encode(), digest_size=12).hexdigest()


def read_test_traces(folder: Path, tests: Mapping[str, Mapping[str, Any]]) -> Iterator[PageTrace]:
    """Yield the traces of tests below this folder, each with the outcome of its test."""
    for nodeid, test in tests.items():
        for path in sorted(folder_of_test(folder, nodeid).glob("*.jsonl")):
            yield read_page_trace(path, nodeid)._replace(path="", about={"test": test})


def find_source(report: pytest.TestReport) -> dict[str, Any] | None:
    """Return the lines of the test file around the one that failed, or None if it has none.

    A limit that a test exceeded has no line of its own: its source begins with the markers.
    """
    entries = getattr(getattr(report.longrepr, "reprtraceback", None), "reprentries", ())
    places = [entry.reprfileloc for entry in entries if getattr(entry, "reprfileloc", None)]
    file, start, _ = report.location
    own = [place for place in places if place.path.endswith(file)]
    if own:
        path, line = own[-1].path, own[-1].lineno
    elif report.when == "call" and start is not None:
        path, line = file, start + 1
    else:
        return None
    try:
        text = hide_secrets(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    first = max(1, line - LINES_BEFORE)
    lines = text.splitlines()[first - 1 : line + LINES_AFTER]
    source: dict[str, Any] = {"path": file, "line": line, "first": first, "lines": lines}
    if own and own[-1] is not places[-1] and _is_of_project(places[-1].path):
        source["raised"] = f"{places[-1].path}:{places[-1].lineno}"
    return source


def _is_of_project(path: str) -> bool:
    """Whether pytest shows a path relative to its folder, and it is not an installed package."""
    parts = Path(path).parts
    return not Path(path).is_absolute() and not {"..", "site-packages"} & {*parts}
