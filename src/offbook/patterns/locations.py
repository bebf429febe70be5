"""Places in the code that messages of patterns name: a caller, a handler, a raised error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = __file__.rpartition("/")[0]


def caller() -> tuple[str, int]:
    """Return the file and line of the code outside of this package that called it."""
    frame = sys._getframe(2)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - as in warnings
    while frame.f_back is not None and frame.f_code.co_filename.startswith(HERE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def raised_at(error: BaseException) -> str:
    """Return the innermost line outside of this package in which an error was raised."""
    place = ""
    traceback = error.__traceback__
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not file.startswith(HERE):
            place = f" at {file}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place


def format_place(place: str | tuple[str, int]) -> str:
    """Return a handler as it is, and a file and line as `file:line`."""
    return place if isinstance(place, str) else f"{place[0]}:{place[1]}"


def locate_function(function: Callable[..., Any]) -> str:
    """Return the file and the line of a function."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else describe_function(function)


def describe_function(function: Callable[..., Any]) -> str:
    """Return the name of a function, or the place of a lambda."""
    name = getattr(function, "__name__", type(function).__name__)
    code = getattr(function, "__code__", None)
    if name == "<lambda>" and code is not None:
        return f"lambda at {code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}"
    return name
