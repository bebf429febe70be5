"""A hub whose events are written down: what commands and test tools tell their trace through."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from offbook.determinism.clock import SystemClock
from offbook.trace.hub import Hub
from offbook.trace.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


@contextmanager
def tracing(path: Path | None, **about: Any) -> Generator[Hub]:
    """A hub whose events go to a file, if one is named; with `more=True`, after what is there."""
    clock = SystemClock()
    hub = Hub(clock)
    if path is None:
        yield hub
        return
    recorder = Recorder(path, ts=clock.millis(), **about)
    hub.subscribe(recorder.record)
    try:
        yield hub
    finally:
        recorder.close()
