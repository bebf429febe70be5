"""Coroutines begun at once: one that has its answer ready, as most have, never enters the loop."""

from __future__ import annotations

import asyncio
from asyncio import tasks
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator
    from contextvars import Context


class EagerTask:
    """A task of a loop, in whose name work is begun; it goes on with what has to wait.

    It does one work at a time. Whatever asks for the current task finds this one, before and
    after it waited.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: _Waiting | None = None
        self._closed = False
        self._wake: asyncio.Future[None] = loop.create_future()
        self.task = loop.create_task(self._serve())

    @property
    def spent(self) -> bool:
        """Whether the task was cancelled by what it did, and that came to its end all the same."""
        return self.task.cancelling() > 0

    def begin(
        self, work: Coroutine[Any, Any, Any], context: Context
    ) -> tuple[Any, asyncio.Future[Any] | None]:
        """What the work comes to; or, behind it, the future of that if it has to wait."""
        tasks._enter_task(self._loop, self.task)  # noqa: SLF001 - there is no public way
        try:
            first = context.run(work.send, None)
        except StopIteration as stop:
            return stop.value, None
        finally:
            tasks._leave_task(self._loop, self.task)  # noqa: SLF001 - there is no public way
        waiting = _Waiting(work, first, context, self._loop.create_future())
        self._waiting = waiting
        if not self._wake.done():
            self._wake.set_result(None)
        return None, waiting.done

    async def _serve(self) -> None:
        """Go on with whatever has to wait, piece by piece, as the task that began it."""
        while not self._closed:
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
            except asyncio.CancelledError:
                waiting.done.cancel()
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                waiting.done.set_exception(error)

    def close(self) -> asyncio.Task[None]:
        """Cancel what it does, and end; the task is over when the loop has run."""
        self._closed = True
        self.task.cancel()
        return self.task


class _Waiting:
    """A coroutine that waits for something, to be gone on with in its own context."""

    def __init__(
        self,
        work: Coroutine[Any, Any, Any],
        first: Any,
        context: Context,
        done: asyncio.Future[Any],
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
