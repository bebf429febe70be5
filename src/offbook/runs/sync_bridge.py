"""The bridge between plain functions and coroutines; everything inside is asynchronous.

In a plain `def test_…` there is no event loop: the bridge runs the coroutine to its end. In an
`async def` there is one: the caller awaits.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import Callable, Generator
from contextvars import Context, copy_context
from functools import cache, wraps
from operator import attrgetter
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast

import msgspec

from offbook.determinism.thread_context import snapshot_variables
from offbook.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Coroutine

P = ParamSpec("P")
R = TypeVar("R", bound="AwaitableResult")
T = TypeVar("T")


def in_event_loop() -> bool:
    """Return whether the caller is inside a running event loop and has to await."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class SyncBridge:
    """An event loop of its own, taken when it is first needed.

    Clients of some SDKs belong to an event loop, and a new one loads its certificates again. So the
    loop of a closed bridge is used by the next one, unless something was left in it.
    """

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._context: Context | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end in this thread."""
        # One loop for all calls: subjects keep tasks and connections between two prompts.
        if self._runner is None:
            self._runner = _take_runner()
            self._context = copy_context()
        elif self._runner.get_loop().is_running():
            work.close()
            raise UsageError(
                "another thread is running this rehearsal",
                hint="open a rehearsal in each thread, or run one script after the other",
            )
        # The loop has the context in which it was taken. The scopes of mocks that the caller has
        # opened since then apply as well.
        restore = snapshot_variables()

        async def run_in_scopes() -> T:
            restore()
            return await work

        return self._runner.run(run_in_scopes(), context=self._context)

    def close(self) -> None:
        """Return the loop, or close it with the tasks that still run; idempotent."""
        runner, self._runner = self._runner, None
        if runner is not None:
            _return_runner(runner)


@cache
def _idle_runners(process_id: int) -> list[asyncio.Runner]:
    """Return the list of the runner that waits for the next bridge of this process, if any."""
    runners: list[asyncio.Runner] = []

    def close() -> None:
        # A fork inherits the handler, and shares the files of the loop with its parent.
        while runners and os.getpid() == process_id:
            runners.pop().close()

    atexit.register(close)
    return runners


def _take_runner() -> asyncio.Runner:
    """Return the idle runner, or a new one; other threads have their own."""
    if current_thread() is main_thread() and (idle := _idle_runners(os.getpid())):
        runner = idle.pop()
        asyncio.set_event_loop(runner.get_loop())
        return runner
    return asyncio.Runner()


def _return_runner(runner: asyncio.Runner) -> None:
    """Keep a runner for the next bridge if its loop is empty, close it otherwise."""
    idle = _idle_runners(os.getpid()) if current_thread() is main_thread() else [runner]
    if idle or not _is_empty(runner.get_loop()):
        runner.close()
        return
    asyncio.set_event_loop(None)
    idle.append(runner)


LOOP_PARTS = ("_ready", "_scheduled", "_asyncgens", "_default_executor", "_selector")


def _is_empty(loop: Any) -> bool:
    """Return whether a loop has no task, timer, connection, generator or thread left.

    asyncio has no public way to ask. A loop of another kind counts as not empty.
    """
    try:
        ready, scheduled, generators, executor, selector = attrgetter(*LOOP_PARTS)(loop)
    except AttributeError:
        return False
    timers = [timer for timer in scheduled if not timer.cancelled()]
    files = len(selector.get_map()) - 1  # without that which wakes it up
    return not any((ready, timers, generators, executor, files, asyncio.all_tasks(loop)))


class AwaitableResult(msgspec.Struct, frozen=True):
    """A result that is complete and can be awaited as well."""

    def __await__(self) -> Generator[Any, None, Self]:
        yield from ()
        return self


def sync_or_async(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    """Return a function that completes outside of an event loop and is awaited inside one.

    @sync_or_async
    async def load() -> LoadResult: ...

    result = load()          # in a plain function
    result = await load()    # in an async def
    """

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        # In an event loop the coroutine itself is returned; the caller awaits it.
        work = function(*args, **options)
        return cast("R", work) if in_event_loop() else asyncio.run(work)

    return call
