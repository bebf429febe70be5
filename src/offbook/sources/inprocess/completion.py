"""Coroutines brought to their end by callers that cannot await.

A blocking client may be called in a thread without an event loop, or in the very thread whose loop
it blocks. In both cases the coroutine belongs to a loop of our own, in which it is begun at once.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from contextlib import contextmanager
from contextvars import copy_context
from threading import local
from typing import TYPE_CHECKING, Any, TypeVar

from offbook.sources.eager import Eager

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

T = TypeVar("T")


class Completion:
    """The drivers of one run, for each thread its own, and one more where a call is in a call."""

    def __init__(self) -> None:
        self._mine = _Mine()
        self._drivers: list[_Driver] = []

    def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """What this coroutine comes to."""
        free = self._mine.free
        driver = free.pop() if free else self._make()
        try:
            return driver.finish(work)
        finally:
            if not driver.spent:
                free.append(driver)

    def _make(self) -> _Driver:
        driver = _Driver()
        self._drivers.append(driver)
        return driver

    def close(self) -> None:
        """Close the loops; one that is still at work is left to its thread."""
        for driver in self._drivers:
            driver.close()


class _Mine(local):
    """The drivers of this thread that are not at work."""

    def __init__(self) -> None:
        self.free: list[_Driver] = []


class _Driver:
    """A loop of our own, and the one task in it."""

    def __init__(self) -> None:
        self._loop = asyncio.SelectorEventLoop()
        self._eager = Eager(self._loop)
        with _apart():
            self._loop.call_soon(self._loop.stop)
            self._loop.run_forever()

    @property
    def spent(self) -> bool:
        return self._eager.spent

    def finish(self, work: Coroutine[Any, Any, T]) -> T:
        outer = events._get_running_loop()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - there is no public way
        events._set_running_loop(self._loop)  # noqa: SLF001 - there is no public way
        try:
            value, waiting = self._eager.begin(work, copy_context())
            if waiting is None:
                return value
            events._set_running_loop(None)  # noqa: SLF001 - there is no public way
            return self._loop.run_until_complete(waiting)
        finally:
            events._set_running_loop(outer)  # noqa: SLF001 - there is no public way

    def close(self) -> None:
        if self._loop.is_running():
            return
        with _apart():
            self._loop.run_until_complete(self._eager.close())
            self._loop.close()


@contextmanager
def _apart() -> Generator[None]:
    """As if no loop ran in this thread: asyncio lets one run at a time, and the outer one waits."""
    outer = events._get_running_loop()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - there is no public way
    events._set_running_loop(None)  # noqa: SLF001 - there is no public way
    try:
        yield
    finally:
        events._set_running_loop(outer)  # noqa: SLF001 - there is no public way
