"""The files of a run: its temporary folder and its trace."""

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

# The folder is gone, or another process uses it: a mount point, a shell that is still in it.
IGNORED_ERRORS = {errno.EPERM, errno.EBUSY, errno.ENOENT}


def make_temp_folder() -> Path:
    """Create an empty folder for one run."""
    return Path(tempfile.mkdtemp(prefix="offbook-")).resolve()


def remove_temp_folder(path: Path) -> None:
    """Remove a folder, unless it is gone already or in use."""
    try:
        shutil.rmtree(path)
    except OSError as error:
        if error.errno not in IGNORED_ERRORS:
            raise


@contextmanager
def record_trace(path: Path | None, **header: Any) -> Generator[Hub]:
    """Yield a hub whose events are recorded in a file, if there is a path.

    With `append=True`, the events are appended to an existing trace.
    """
    clock = SystemClock()
    hub = Hub(clock)
    if path is None:
        yield hub
        return
    recorder = Recorder(path, ts=clock.millis(), **header)
    hub.subscribe(recorder.record)
    try:
        yield hub
    finally:
        recorder.close()
