"""One process at a time: a lock on an open file, which the system frees when its holder dies."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

from contextlib import contextmanager

if sys.platform == "win32":
    import msvcrt
    import os

    _FAR = 1 << 30  # a byte that nobody writes: what is locked cannot be read by others

    def _hold(file: int, *, wait: bool) -> None:
        os.lseek(file, _FAR, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)

    def _free(file: int) -> None:
        os.lseek(file, _FAR, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _hold(file: int, *, wait: bool) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))

    def _free(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)


def try_lock(file: int) -> bool:
    """Lock an open file; tells whether it was free. It stays locked until it is closed."""
    try:
        _hold(file, wait=False)
    except OSError:
        return False
    return True


@contextmanager
def locked(file: int) -> Generator[None]:
    """Hold the lock of an open file, waiting for it."""
    _hold(file, wait=True)
    try:
        yield
    finally:
        _free(file)
