"""The clock track of a tape: `ClockRecorder` moves the clock of a recording.

The time of the agent does not change between two interactions, and is then that of the end of the
last one. So it is the same in each replay, however long the agent and the model take.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from secrets import randbits
from typing import TYPE_CHECKING

from offbook.sources.cassette.format import RecordedClock
from offbook.sources.cassette.replay import Cassette

if TYPE_CHECKING:
    from offbook.determinism.frozen_time import RunClock
    from offbook.exchange.model import ModelSource
    from offbook.sources.cassette.cassette_file import CassetteFile


def open_clock(
    source: ModelSource, existing: CassetteFile | None, started_ms: int
) -> ClockRecorder | None:
    """Return the clock of a recording: that of the tape it extends or replays, or a new one."""
    if existing is not None and len(existing):
        clock = existing.header.clock
        return None if clock is None else ClockRecorder(clock)
    if isinstance(source, Cassette) and (inner := source.clock_track) is not None:
        return ClockRecorder(source.recorded_clock, inner)
    offset = datetime.fromtimestamp(started_ms / 1000).astimezone().utcoffset() or timedelta()
    return ClockRecorder(RecordedClock(started_ms, randbits(32), int(offset.total_seconds())))


class ClockRecorder:
    """The clock of a recording; `inner` is that of a recorded source that replays."""

    def __init__(self, recorded: RecordedClock, inner: RunClock | None = None) -> None:
        self.clock = recorded.open()
        self.recorded = recorded
        self._inner = inner
        self._inner_second = 0.0
        self._ended_ms = 0

    def time_interaction(self, started_ms: int, duration_ms: float) -> int:
        """Move the clock to the end of an interaction; return its start on this clock."""
        if self._inner is not None:  # the interaction is on another tape, or follows a fork of it
            second, before = self._inner.second, self._inner_second
            self._inner_second = second
            started_ms = self._ended_ms
            if second != before:
                ended_ms = round(second * 1000) - self.recorded.start_ms
                started_ms = max(0, ended_ms - int(duration_ms))
        self.move_to(started_ms + duration_ms)
        return started_ms

    def move_to(self, ended_ms: float) -> None:
        """Move the clock to the end of an interaction."""
        self._ended_ms = max(self._ended_ms, int(ended_ms))
        self.clock.move_to(self.recorded.second(ended_ms))
