"""The place that a verdict is about: the file and the line of a test, a playbook or a scenario.

A stored trace is reported without its run. A failed verdict has the place in its context, so that
an annotation of CI is at that line.
"""

from __future__ import annotations

import os
import re
import sys
from ast import literal_eval
from pathlib import Path
from typing import Any, NamedTuple

OWN_PACKAGES = {"offbook", "pytest_offbook"}
_TURN = re.compile(r"(?:when|role)\((?P<text>'.*'|\".*\")", re.DOTALL)
_FILE_AND_LINE = re.compile(r"(?P<file>.+):(?P<line>\d+)")


class FileLine(NamedTuple):
    """A line of a file; 0 if the line is not known."""

    file: str
    line: int = 0

    @property
    def context(self) -> dict[str, Any]:
        """The fields of a verdict; a path in the working directory is relative."""
        path = os.path.abspath(self.file)  # noqa: PTH100 - a link is not followed
        inside = path.startswith(f"{os.getcwd()}{os.sep}")  # noqa: PTH109 - as above
        shown = os.path.relpath(path) if inside else path
        return {"file": shown, "line": self.line} if self.line else {"file": shown}


def caller_place() -> FileLine | None:
    """Return the line outside of this package that called it; None for code without a file."""
    frame = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the only way to see the caller
    while frame.f_globals.get("__name__", "").partition(".")[0] in OWN_PACKAGES:
        if frame.f_back is None:
            return None
        frame = frame.f_back
    file = frame.f_code.co_filename
    return None if file.startswith("<") else FileLine(file, frame.f_lineno)


def place_of_error(where: str, place: FileLine | None) -> FileLine | None:
    """Return the line that the location of an error names, such as `when('Refund order 7')`.

    Without a name in it, or if the file does not contain it, it is the place that is known.
    """
    named = _FILE_AND_LINE.fullmatch(where)
    if named is not None and Path(named["file"]).is_file():
        return FileLine(named["file"], int(named["line"]))
    turn = _TURN.match(where)
    if place is None or place.line or turn is None:
        return place
    words = str(literal_eval(turn["text"])).removesuffix("…").splitlines()[:1]
    try:
        lines = Path(place.file).read_text("utf-8", "replace").splitlines()
    except OSError:
        return place
    found = (number for number, line in enumerate(lines, 1) for text in words if text in line)
    return FileLine(place.file, next(found, 0))
