"""Coroutines brought to their end by callers that cannot await.

A blocking client may be called in a thread without an event loop, or in the very thread whose loop
it blocks. In both cases the coroutine belongs to a loop of our own. It is begun at once, without
going through that loop: a source that has its answer ready, as most have, never enters it.
"""

from __future__ import annotations

import asyncio
from asyncio import events, tasks
from contextlib import contextmanager
from contextvars import Context, copy_context
from threading import local
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

T = TypeVar("T")


class Completion:
    """The drivers of one run, for each thread its own, and one more where a call is in a call."""

    def __init__(self) -> None:
        self._mine = local()
        self._drivers: list[_Driver] = []

    def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """What this coroutine comes to."""
        driver = self._take()
        try:
            return driver.finish(work)
        finally:
            if not driver.spent:
                self._mine.free.append(driver)

    def _take(self) -> _Driver:
        free: list[_Driver] | None = getattr(self._mine, "free", None)
        if free is None:
            free = self._mine.free = []
        if free:
            return free.pop()
        driver = _Driver()
        self._drivers.append(driver)
        return driver

    def close(self) -> None:
        """Close the loops; one that is still at work is left to its thread."""
        for driver in self._drivers:
            driver.close()


class _Driver:
    """A loop with one task, in whose name everything here is done."""

    def __init__(self) -> None:
        self._loop = asyncio.SelectorEventLoop()
        self._waiting: _Waiting | None = None
        self._wake: asyncio.Future[None] = self._loop.create_future()
        self._task = self._loop.create_task(self._serve())
        self._begin()

    def _begin(self) -> None:
        with _apart():
            self._loop.call_soon(self._loop.stop)
            self._loop.run_forever()

    @property
    def spent(self) -> bool:
        """Whether the task was cancelled by what it did, and that came to its end all the same."""
        return self._wake.cancelled()

    def finish(self, work: Coroutine[Any, Any, T]) -> T:
        context = copy_context()
        outer = events._get_running_loop()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        events._set_running_loop(self._loop)  # noqa: SLF001
        try:
            tasks._enter_task(self._loop, self._task)  # noqa: SLF001
            try:
                first = context.run(work.send, None)
            except StopIteration as stop:
                return stop.value
            finally:
                tasks._leave_task(self._loop, self._task)  # noqa: SLF001
            events._set_running_loop(None)  # noqa: SLF001
            return self._wait(_Waiting(work, first, context, self._loop.create_future()))
        finally:
            events._set_running_loop(outer)  # noqa: SLF001

    def _wait(self, waiting: _Waiting) -> Any:
        self._waiting = waiting
        if not self._wake.done():
            self._wake.set_result(None)
        return self._loop.run_until_complete(waiting.done)

    async def _serve(self) -> None:
        """Go on with whatever has to wait, piece by piece, as the task that began it."""
        while True:
            cancelled: BaseException | None = None
            try:
                await self._wake
            except asyncio.CancelledError as error:
                cancelled = error
            waiting, self._waiting = self._waiting, None
            if waiting is None:
                return
            self._wake = self._loop.create_future()
            waiting.cancelled = cancelled
            try:
                waiting.done.set_result(await waiting)
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                waiting.done.set_exception(error)

    def close(self) -> None:
        if self._loop.is_running():
            return
        with _apart():
            self._task.cancel()
            self._loop.run_until_complete(self._task)
            self._loop.close()


@contextmanager
def _apart() -> Generator[None]:
    """As if no loop ran in this thread: asyncio lets one run at a time, and the outer one waits."""
    outer = events._get_running_loop()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    events._set_running_loop(None)  # noqa: SLF001
    try:
        yield
    finally:
        events._set_running_loop(outer)  # noqa: SLF001


class _Waiting:
    """A coroutine that waits for something, to be gone on with in its own context."""

    def __init__(
        self, work: Coroutine[Any, Any, Any], first: Any, context: Context, done: Any
    ) -> None:
        self._work = work
        self._first = first
        self._context = context
        self.done = done
        self.cancelled: BaseException | None = None

    def __await__(self) -> Generator[Any, Any, Any]:
        awaited = self._first
        while True:
            try:
                if self.cancelled is not None:  # by itself, before it began to wait
                    error, self.cancelled = self.cancelled, None
                    raise error  # noqa: TRY301 - as if it had come from the loop
                sent = yield awaited
            except BaseException as error:  # noqa: BLE001 - it is the coroutine's to handle
                step, given = self._work.throw, error
            else:
                step, given = self._work.send, sent
            try:
                awaited = self._context.run(step, given)
            except StopIteration as stop:
                return stop.value
