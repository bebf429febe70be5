"""Temporary folders: made for a run, gone after it."""

from __future__ import annotations

import errno
import shutil
import tempfile
from pathlib import Path

BUSY = {errno.EPERM, errno.EBUSY, errno.ENOENT}


def make_folder() -> Path:
    """A new, empty folder that belongs to one run."""
    return Path(tempfile.mkdtemp(prefix="offbook-")).resolve()


def remove_folder(path: Path) -> None:
    """Remove a folder; one that is gone already, or held by somebody else, is left alone."""
    try:
        shutil.rmtree(path)
    except OSError as error:
        if error.errno not in BUSY:
            raise
