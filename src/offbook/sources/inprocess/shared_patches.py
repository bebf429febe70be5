"""The patches that blocks of one kind share in this process, such as those of HTTP libraries."""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class SharedPatches:
    """The patches of a block: applied by the first that is entered, undone by the last to exit."""

    def __init__(self) -> None:
        self._lock = RLock()  # reentrant: patching one library may import another
        self._active = 0
        self._undo: list[Callable[[], object]] = []

    def apply(self) -> None:
        """Patch what the block needs; `_undo` gets a function for each patch."""
        raise NotImplementedError

    def __enter__(self) -> None:
        with self._lock:
            self._active += 1
            if self._active == 1:
                self.apply()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._active -= 1
            while not self._active and self._undo:
                self._undo.pop()()
