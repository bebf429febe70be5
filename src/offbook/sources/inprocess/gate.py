"""Lets one thread at a time in, so that a source needs to know nothing of threads."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from threading import Condition, get_ident
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

PATIENCE = 0.001


class Gate:
    """Open to all the tasks of one thread together, and to one thread at a time."""

    def __init__(self) -> None:
        self._free = Condition()
        self._owner = 0
        self._inside = 0

    @contextmanager
    def passed(self) -> Generator[None]:
        """Inside; other threads wait."""
        with self._free:
            while not self._admit():
                self._free.wait()
        try:
            yield
        finally:
            self._leave()

    @asynccontextmanager
    async def awaited(self) -> AsyncGenerator[None]:
        """Inside, without blocking the loop while another thread is."""
        while not self._try():  # noqa: ASYNC110 - whoever leaves may have no loop to set an event in
            await asyncio.sleep(PATIENCE)
        try:
            yield
        finally:
            self._leave()

    def _try(self) -> bool:
        with self._free:
            return self._admit()

    def _admit(self) -> bool:
        me = get_ident()
        if self._inside and self._owner != me:
            return False
        self._owner = me
        self._inside += 1
        return True

    def _leave(self) -> None:
        with self._free:
            self._inside -= 1
            self._free.notify_all()
