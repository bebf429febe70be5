"""The one bridge between plain functions and coroutines: everything inside is asynchronous.

In a plain `def test_…` there is no event loop: the bridge runs the coroutine to its end. In an
`async def` there is one: the caller awaits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast

import msgspec

if TYPE_CHECKING:
    from collections.abc import Coroutine

P = ParamSpec("P")
S = TypeVar("S", bound="AwaitableResult")
T = TypeVar("T")


def in_event_loop() -> bool:
    """Whether the caller is inside a running event loop, and so has to await."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class SyncBridge:
    """An event loop of one's own, made when it is first needed."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this work to its end, in this thread."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(work)

    def close(self) -> None:
        """End whatever still runs in the loop; a second time is nothing."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None


class AwaitableResult(msgspec.Struct, frozen=True):
    """What came of something that takes time: it is there, and may be awaited all the same."""

    def __await__(self) -> Generator[Any, None, Self]:
        yield from ()
        return self


def sync_or_async(function: Callable[P, Coroutine[Any, Any, S]]) -> Callable[P, S]:
    """The function for both: outside of an event loop it has happened, inside one it is awaited."""

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> S:
        work = function(*args, **options)
        return cast("S", work) if in_event_loop() else asyncio.run(work)

    return call
