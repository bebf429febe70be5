"""Coroutines brought to their end by callers that cannot await."""

from __future__ import annotations

import asyncio
from threading import local
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class Completion:
    """An event loop for each thread that needs one, apart from any that runs there already.

    A blocking client may be called in a thread without a loop, or in the very thread whose loop
    it blocks. In both cases the coroutine is a task of a loop of our own.
    """

    def __init__(self) -> None:
        self._mine = local()
        self._loops: list[asyncio.AbstractEventLoop] = []

    def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """What this coroutine comes to."""
        loop = self._loop()
        running = asyncio._get_running_loop()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        # asyncio lets a thread run one loop only, or says that it does; the outer one waits anyway
        asyncio._set_running_loop(None)  # noqa: SLF001
        try:
            return loop.run_until_complete(work)
        finally:
            asyncio._set_running_loop(running)  # noqa: SLF001

    def _loop(self) -> asyncio.AbstractEventLoop:
        loop: asyncio.AbstractEventLoop | None = getattr(self._mine, "loop", None)
        if loop is None:
            loop = self._mine.loop = asyncio.SelectorEventLoop()
            self._loops.append(loop)
        return loop

    def close(self) -> None:
        """Close the loops; one that is still at work is left to its thread."""
        for loop in self._loops:
            if not loop.is_running():
                loop.close()
