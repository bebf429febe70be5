"""Lets one thread at a time in, so that a source needs to know nothing of threads."""

from __future__ import annotations

import asyncio
from threading import Condition, Lock, get_ident

PATIENCE = 0.001


class Gate:
    """Open to all the tasks of one thread together, and to one thread at a time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._free = Condition(self._lock)
        self._owner = 0
        self._inside = 0
        self._waiting = 0

    def __enter__(self) -> None:
        with self._lock:
            while not self._admit():
                self._waiting += 1
                try:
                    self._free.wait()
                finally:
                    self._waiting -= 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._waiting:
                self._free.notify_all()

    async def __aenter__(self) -> None:
        """Get in without blocking the loop while another thread is inside."""
        while not self._try():  # noqa: ASYNC110 - whoever leaves may have no loop to set an event in
            await asyncio.sleep(PATIENCE)

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    def _try(self) -> bool:
        with self._lock:
            return self._admit()

    def _admit(self) -> bool:
        me = get_ident()
        if self._inside and self._owner != me:
            return False
        self._owner = me
        self._inside += 1
        return True
