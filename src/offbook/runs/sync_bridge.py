"""The bridge between plain functions and coroutines; everything inside is asynchronous.

In a plain `def test_…` there is no event loop: the bridge runs the coroutine to its end. In an
`async def` there is one: the caller awaits.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextvars import Context, copy_context
from functools import cache, wraps
from selectors import DefaultSelector
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast
from weakref import WeakSet

import msgspec

from offbook.determinism.run_context import snapshot_variables
from offbook.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Executor

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
            if isinstance(loop := asyncio.get_running_loop(), WatchedLoop):
                loop.watch_generators()
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
    return asyncio.Runner(loop_factory=_make_loop)


def _return_runner(runner: asyncio.Runner) -> None:
    """Keep a runner for the next bridge if its loop is empty, close it otherwise."""
    idle = _idle_runners(os.getpid()) if current_thread() is main_thread() else [runner]
    loop = runner.get_loop()
    if idle or not isinstance(loop, WatchedLoop) or not loop.is_empty():
        runner.close()
        return
    asyncio.set_event_loop(None)
    idle.append(runner)


def _make_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    if type(loop) is not asyncio.SelectorEventLoop:
        return loop  # of another policy, such as uvloop's: it is closed with its bridge
    loop.close()
    return WatchedLoop()


class WatchedLoop(asyncio.SelectorEventLoop):
    """An event loop that knows what was left in it; asyncio has no public way to ask."""

    def __init__(self) -> None:
        self._watched = DefaultSelector()
        self._own_files = 0
        self._timers: WeakSet[asyncio.TimerHandle] = WeakSet()
        self._generators: WeakSet[AsyncGenerator[Any, Any]] = WeakSet()
        self._has_threads = False
        super().__init__(self._watched)
        self._own_files = len(self._watched.get_map())  # what wakes it up

    def is_empty(self) -> bool:
        """Return whether no task, timer, connection, generator or thread is left."""
        for _ in range(3):  # callbacks, and those that they schedule
            self.call_soon(self.stop)
            self.run_forever()
        now = self.time()
        timers = [timer for timer in self._timers if timer.when() > now and not timer.cancelled()]
        files = len(self._watched.get_map()) - self._own_files
        return not any(
            (asyncio.all_tasks(self), timers, files, self._generators, self._has_threads)
        )

    def call_at(self, *args: Any, **options: Any) -> asyncio.TimerHandle:
        timer = super().call_at(*args, **options)
        self._timers.add(timer)
        return timer

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        self._has_threads = True
        return super().run_in_executor(executor, func, *args)

    def watch_generators(self) -> None:
        """Note the async generators that start from now until the loop stops."""
        hooks = sys.get_asyncgen_hooks()

        def start(generator: AsyncGenerator[Any, Any]) -> None:
            self._generators.add(generator)
            if hooks.firstiter is not None:
                hooks.firstiter(generator)

        sys.set_asyncgen_hooks(firstiter=start)


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
