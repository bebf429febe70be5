"""Lets one thread at a time in, so that a source needs to know nothing of threads."""

from __future__ import annotations

import asyncio
from asyncio import events
from contextlib import contextmanager
from contextvars import copy_context
from queue import SimpleQueue
from threading import Condition, Lock, Thread, get_ident, local
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from offbook.sources.eager_task import EagerTask

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator


# --- Lets one thread at a time in, so that a source needs to know nothing of threads.

POLL_INTERVAL = 0.001


class Gate:
    """Open to all the tasks of one thread together, and to one thread at a time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._free = Condition(self._lock)
        self._owner = 0
        self._inside = 0
        self._waiting = 0

    def __enter__(self) -> None:
        with self._lock:
            while not self._admit():
                self._waiting += 1
                try:
                    self._free.wait()
                finally:
                    self._waiting -= 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._waiting:
                self._free.notify_all()

    async def __aenter__(self) -> None:
        """Get in without blocking the loop while another thread is inside."""
        while not self._try():  # noqa: ASYNC110 - whoever leaves may have no loop to set an event in
            await asyncio.sleep(POLL_INTERVAL)

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    def _try(self) -> bool:
        with self._lock:
            return self._admit()

    def _admit(self) -> bool:
        me = get_ident()
        if self._inside and self._owner != me:
            return False
        self._owner = me
        self._inside += 1
        return True


# --- Coroutines brought to their end by callers that cannot await.

T = TypeVar("T")


class SyncBridge:
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
        self._eager = EagerTask(self._loop)
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


# --- Streams that somebody else still writes, handed on as they come to the clients of this process.

JOIN_TIMEOUT = 60.0

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence

    from offbook.exchange.dialects.dialect import HttpResponse

    Part = HttpResponse | bytes | BaseException | None
    Put = Callable[[Part], object]


async def hand_on(work: Awaitable[HttpResponse], put: Put) -> None:
    """Put the answer, the pieces of its stream and None, in the end; or what went wrong."""
    try:
        answer = await work
        put(answer)
        if answer.live_chunks is not None:
            async for piece in answer.live_chunks:
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

    async def await_answer(self, work: Callable[[Put], Coroutine[Any, Any, None]]) -> HttpResponse:
        """The answer of work that is done in a task, with a stream that is still coming."""
        parts: asyncio.Queue[Part] = asyncio.Queue()
        task = asyncio.get_running_loop().create_task(work(parts.put_nowait))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            answer = cast("HttpResponse", _check(await parts.get()))
        except asyncio.CancelledError:
            task.cancel()
            raise
        if answer.live_chunks is None:
            return answer
        return msgspec.structs.replace(answer, live_chunks=_follow(parts))

    def wait_for_answer(self, work: Callable[[Put], None]) -> HttpResponse:
        """The answer of work that is done in a thread; its chunks can be gone through once."""
        parts: SimpleQueue[Part] = SimpleQueue()
        thread = Thread(target=copy_context().run, args=(work, parts.put), daemon=True)
        self._threads = [*(other for other in self._threads if other.is_alive()), thread]
        thread.start()
        answer = cast("HttpResponse", _check(parts.get()))
        if answer.live_chunks is None:
            return answer
        chunks = cast("Sequence[bytes]", _Chunks(parts))
        return msgspec.structs.replace(answer, live_chunks=None, chunks=chunks)

    def close(self) -> None:
        """Wait for what the threads still do; not for ever, since one may wait for who closes."""
        for thread in self._threads:
            thread.join(JOIN_TIMEOUT)


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


def _check(part: Part) -> HttpResponse | bytes | None:
    if isinstance(part, BaseException):
        raise part
    return part
