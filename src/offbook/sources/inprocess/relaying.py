"""Streams that somebody else still writes, handed on as they come to the clients of this process.

The work is done in a task or a thread of its own, and to its end: what a client did not wait for
is kept all the same.
"""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, cast

import msgspec

PATIENCE = 60.0

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence

    from offbook.exchange.dialects.dialect import Answer

    Part = Answer | bytes | BaseException | None
    Put = Callable[[Part], object]


async def hand_on(work: Awaitable[Answer], put: Put) -> None:
    """Put the answer, the pieces of its stream and None, in the end; or what went wrong."""
    try:
        answer = await work
        put(answer)
        if answer.coming is not None:
            async for piece in answer.coming:
                put(piece)
        put(None)
    except BaseException as error:
        put(error)
        if isinstance(error, (asyncio.CancelledError, KeyboardInterrupt)):
            raise


class Relays:
    """What is at work for the clients of one run."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()  # a loop forgets what nobody remembers
        self._threads: list[Thread] = []

    async def await_answer(self, work: Callable[[Put], Coroutine[Any, Any, None]]) -> Answer:
        """The answer of work that is done in a task, with a stream that is still coming."""
        parts: asyncio.Queue[Part] = asyncio.Queue()
        task = asyncio.get_running_loop().create_task(work(parts.put_nowait))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            answer = cast("Answer", _check(await parts.get()))
        except asyncio.CancelledError:
            task.cancel()
            raise
        if answer.coming is None:
            return answer
        return msgspec.structs.replace(answer, coming=_follow(parts))

    def wait_for_answer(self, work: Callable[[Put], None]) -> Answer:
        """The answer of work that is done in a thread; its chunks can be gone through once."""
        parts: SimpleQueue[Part] = SimpleQueue()
        thread = Thread(target=copy_context().run, args=(work, parts.put), daemon=True)
        self._threads = [*(other for other in self._threads if other.is_alive()), thread]
        thread.start()
        answer = cast("Answer", _check(parts.get()))
        if answer.coming is None:
            return answer
        chunks = cast("Sequence[bytes]", _Chunks(parts))
        return msgspec.structs.replace(answer, coming=None, chunks=chunks)

    def close(self) -> None:
        """Wait for what the threads still do; not for ever, since one may wait for who closes."""
        for thread in self._threads:
            thread.join(PATIENCE)


async def _follow(parts: asyncio.Queue[Part]) -> AsyncIterator[bytes]:
    while (piece := _check(await parts.get())) is not None:
        yield cast("bytes", piece)


class _Chunks:
    """The pieces of a stream, each waited for."""

    def __init__(self, parts: SimpleQueue[Part]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[bytes]:
        while (piece := _check(self._parts.get())) is not None:
            yield cast("bytes", piece)


def _check(part: Part) -> Answer | bytes | None:
    if isinstance(part, BaseException):
        raise part
    return part
