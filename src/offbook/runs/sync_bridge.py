"""The bridge between plain functions and coroutines; everything inside is asynchronous.

In a plain `def test_…` there is no event loop: the bridge runs the coroutine to its end. In an
`async def` there is one: the caller awaits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast

import msgspec

from offbook.determinism.thread_context import snapshot_variables

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
    """A separate event loop, created when it is first needed."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end in this thread."""
        # One loop for all calls: subjects keep tasks and connections between two prompts.
        if self._runner is None:
            self._runner = asyncio.Runner()
        # The loop has the context in which it was created. The scopes of mocks that the caller
        # has opened since then apply as well.
        restore = snapshot_variables()

        async def run_in_scopes() -> T:
            restore()
            return await work

        return self._runner.run(run_in_scopes())

    def close(self) -> None:
        """Cancel the tasks that still run and close the loop; idempotent."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None


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
