"""Temporary folders: made for a run, gone after it."""

from __future__ import annotations

import errno
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbook.determinism.clock import SystemClock
from offbook.trace.hub import Hub
from offbook.trace.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Generator


# --- Temporary folders: made for a run, gone after it.

BUSY = {errno.EPERM, errno.EBUSY, errno.ENOENT}


def make_temp_folder() -> Path:
    """A new, empty folder that belongs to one run."""
    return Path(tempfile.mkdtemp(prefix="offbook-")).resolve()


def remove_temp_folder(path: Path) -> None:
    """Remove a folder; one that is gone already, or held by somebody else, is left alone."""
    try:
        shutil.rmtree(path)
    except OSError as error:
        if error.errno not in BUSY:
            raise


# --- A hub whose events are written down: what commands and test tools tell their trace through.


@contextmanager
def record_trace(path: Path | None, **about: Any) -> Generator[Hub]:
    """A hub whose events go to a file, if one is named; with `append=True`, after what is there."""
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
