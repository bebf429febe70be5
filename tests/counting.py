"""The work of a coroutine, counted in calls: unlike its time, it is the same in every run."""

from __future__ import annotations

import gc
import sys
from collections.abc import Awaitable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


async def count_calls(work: Awaitable[T]) -> tuple[T, int]:
    """Return the result, and the number of Python and C functions that were called for it."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    gc.disable()  # finalizers of other objects would be counted
    sys.setprofile(count)
    try:
        result = await work
    finally:
        sys.setprofile(before)
        gc.enable()
    return result, calls


async def count_steps(work: Awaitable[T]) -> tuple[T, int]:
    """Return the result, and the number of executed lines, with each turn of a loop in a line."""
    steps = 0

    def count(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal steps
        steps += event == "line"
        return count

    before = sys.gettrace()
    gc.disable()
    sys.settrace(count)
    try:
        result = await work
    finally:
        sys.settrace(before)
        gc.enable()
    return result, steps
