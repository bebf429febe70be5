"""How long something may take, and where it was when the time was up.

The time that others kept this thread from running is not held against it, where the system tells.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from pathlib import Path
from threading import Timer, get_ident
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

SCHEDULE = Path("/proc/thread-self/schedstat")
NANOS = 1_000_000_000


class Stopwatch:
    """What was spent, and the line that was at work when the budget was."""

    def __init__(self, seconds: float, blame: str) -> None:
        self.seconds = seconds
        self.spent = 0.0
        self.line = ""
        self._blame = blame
        self._thread = get_ident()

    @property
    def over(self) -> bool:
        """Whether it took too long."""
        return self.spent > self.seconds

    def look(self) -> None:
        """Remember the line at work now, in the file that is to blame."""
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the only way to see another thread
        self.line = _line_in(self._blame, frame) or _line_of_tasks(self._blame, frame)


@contextmanager
def budget(seconds: float, blame: str) -> Generator[Stopwatch]:
    """Measure what happens in here; `blame` is the file whose line is named when it is too long."""
    watch = Stopwatch(seconds, blame)
    timer = Timer(seconds, watch.look)
    timer.daemon = True
    began, waited = time.perf_counter(), waiting()
    timer.start()
    try:
        yield watch
    finally:
        timer.cancel()
        watch.spent = time.perf_counter() - began - (waiting() - waited)


def waiting() -> float:
    """For how long this thread could have run and was not let, as far as the system tells."""
    try:
        return int(SCHEDULE.read_bytes().split()[1]) / NANOS
    except (OSError, IndexError, ValueError):
        return 0.0


def _line_in(file: str, frame: FrameType | None) -> str:
    while frame is not None:
        if frame.f_code.co_filename == file:
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _line_of_tasks(file: str, frame: FrameType | None) -> str:
    """The line in the file at which a task of the event loop waits, which this thread runs."""
    from asyncio import AbstractEventLoop, all_tasks

    while frame is not None:
        loop: Any = frame.f_locals.get("self")
        if isinstance(loop, AbstractEventLoop):
            lines = (
                f"{file}:{waiting.f_lineno}"
                for task in all_tasks(loop)
                for waiting in task.get_stack()
                if waiting.f_code.co_filename == file
            )
            return next(lines, "")
        frame = frame.f_back
    return ""
