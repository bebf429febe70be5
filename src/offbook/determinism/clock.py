"""Time comes in here, and nowhere else."""

from __future__ import annotations

import time
from typing import Protocol

EPOCH = 1_700_000_000
"""The second at which every rehearsal takes place."""


class Clock(Protocol):
    """Tells the time, in milliseconds since 1970."""

    def millis(self) -> int:
        """The time now."""
        ...


class SystemClock:
    """The machine's own time."""

    def millis(self) -> int:
        """The time now."""
        return time.time_ns() // 1_000_000


class FrozenClock:
    """A time that stands still, or moves `tick` milliseconds each time it is asked."""

    def __init__(self, start: int = EPOCH * 1000, tick: int = 0) -> None:
        self._at = start
        self._tick = tick

    def millis(self) -> int:
        """The time now; afterwards one tick later."""
        at = self._at
        self._at += self._tick
        return at

    def advance(self, millis: int) -> None:
        """Let time pass."""
        self._at += millis
