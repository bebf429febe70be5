"""Assertions for plain tests, whose messages show both sides; and `require`, for other code.

assert_eq(order, {"id": 7, "status": "paid"})
require(order is not None, "the order must be loaded first")
"""

from __future__ import annotations

from typing import Any

from offbook.checks.alignment import describe_mismatch
from offbook.checks.snapshot import diff_texts
from offbook.errors import CheckFailed, RequirementFailed
from offbook.trace.matching import find_mismatches, render_value

MAX_SHOWN = 10


def assert_eq(actual: Any, expected: Any, message: str | None = None) -> None:
    """Fail unless two values are equal; the message has each place where they differ."""
    if actual == expected:
        return
    lines = [f"  expected {render_value(expected)}", f"  got      {render_value(actual)}"]
    if isinstance(actual, str) and isinstance(expected, str) and "\n" in actual + expected:
        lines = [
            "- expected, + got",
            *(hunk.content for hunk in diff_texts(expected, actual).hunks),
        ]
    elif isinstance(expected, (dict, list, tuple)):
        places = list(find_mismatches(actual, expected, subset="none"))
        lines += [f"  {describe_mismatch(place, 'value')}" for place in places[:MAX_SHOWN]]
    raise CheckFailed(message or "the values differ", hint="\n".join(lines))


def assert_ne(actual: Any, unexpected: Any, message: str | None = None) -> None:
    """Fail if two values are equal."""
    if actual == unexpected:
        what = message or "the values are equal"
        raise CheckFailed(what, hint=f"  both are {render_value(actual)}")


def require(condition: object, message: str = "a required condition is false") -> None:
    """Raise `RequirementFailed` unless a condition holds; for the code under test."""
    if not condition:
        raise RequirementFailed(message)
