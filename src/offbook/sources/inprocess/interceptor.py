"""The interceptor of one run: it answers the requests that this process sends to a model.

To support another HTTP library, write a file with a `Transport` and add it to
`patching.TRANSPORTS`. The library is not imported here: a transport patches its modules if they
are loaded, or as soon as they are.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import partial
from itertools import repeat
from queue import SimpleQueue
from threading import Condition, Lock, Thread, get_ident, local
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

import msgspec

from offbook.determinism.run_context import thread_variable
from offbook.exchange.providers import QUIET_HOSTS, ModelHosts

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Coroutine,
        Iterable,
        Iterator,
        Sequence,
    )

    from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
    from offbook.exchange.tool_track import HttpTrack
    from offbook.sources.http_destination import HttpDestination

    Answer = Callable[[HttpRequest], Coroutine[Any, Any, HttpResponse]]

    Piece = HttpResponse | bytes | BaseException | None

    Put = Callable[[Piece], object]


class Transport(Protocol):
    """The support for one HTTP library."""

    @property
    def modules(self) -> tuple[str, ...]:
        """The names of the modules that `patch` changes."""
        ...

    def patch(self, module: Any) -> Iterable[Callable[[], None]]:
        """Direct the requests of a module's clients to the interceptor; return how to undo it."""
        ...


class Interceptor:
    """Answers the requests of one run, from any client and in any thread.

    With `relay`, a response may be a stream that is still being received.
    """

    def __init__(self, answer: Answer, urls: tuple[str, ...] = (), *, relay: bool = False) -> None:
        self.hosts = ModelHosts(urls)
        self._answer = answer
        self._relay = StreamRelay() if relay else None
        self._gate = Gate()
        self._runner = CoroutineRunner()

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Return the response to a request, for clients that await it."""
        if self._relay is not None:
            return await self._relay.await_response(partial(self._relay_async, request))
        async with self._gate:
            return await self._answer(request)

    def answer_blocking(self, request: HttpRequest) -> HttpResponse:
        """Return the response to a request, for clients that block."""
        if self._relay is not None:
            return self._relay.wait_for_response(partial(self._relay_blocking, request))
        with self._gate:
            return self._runner.run(self._answer(request))

    async def _relay_async(self, request: HttpRequest, put: Put) -> None:
        async with self._gate:
            await relay_response(self._answer(request), put)

    def _relay_blocking(self, request: HttpRequest, put: Put) -> None:
        with self._gate:
            self._runner.run(relay_response(self._answer(request), put))

    def close(self) -> None:
        """Wait for the threads of this run, and close its event loops."""
        if self._relay is not None:
            self._relay.close()
        self._runner.close()


current_interceptor: ContextVar[Interceptor | None] = thread_variable("offbook_interceptor")
"""The interceptor of the current run, in all its tasks and threads; None outside of a run."""


class TrackedHttp(NamedTuple):
    """The HTTP track of the current run, and the addresses that are none of its business."""

    track: HttpTrack
    skipped: frozenset[tuple[str, int | None]] = frozenset()


current_http: ContextVar[TrackedHttp | None] = thread_variable("offbook_http_track")


def find_interceptor(
    host: str, port: int | None, scheme: str = "http"
) -> Interceptor | HttpDestination | None:
    """Return what answers requests to an address, or None if they are to be sent."""
    interceptor = current_interceptor.get()
    if interceptor is not None and (host, port) in interceptor.hosts:
        return interceptor
    tracked = current_http.get()
    # Telemetry is refused, and not missed.
    if tracked is None or (host, port) in tracked.skipped or host in QUIET_HOSTS:
        return None
    from offbook.sources.http_destination import HttpDestination, sending

    return None if sending.get() else HttpDestination(tracked.track, scheme, host, port)


def paced_chunks(response: HttpResponse) -> Iterator[tuple[bytes, float]]:
    """Yield the events of a stream, or the body, each with the seconds before it."""
    chunks = response.chunks or ((response.body,) if response.body else ())
    # A stream in progress has no length.
    yield from zip(chunks, response.chunk_delays or repeat(0.0), strict=False)


# ----------------------------------------------------------------------------- blocking
# Coroutines for callers that cannot await, and streams for callers in any thread.
#
# A blocking HTTP client may run in a thread without an event loop, or in the thread of a loop that
# it blocks. `CoroutineRunner` completes a coroutine for it in either case. `Gate` lets one thread
# at a time use the source, which therefore needs no locks. `StreamRelay` passes on a stream that is
# still being received.

T = TypeVar("T")
POLL_INTERVAL = 0.001
JOIN_TIMEOUT = 60.0
MAX_WORKERS = 64  # one for each level of requests within requests, so never reached

_calling_thread: ContextVar[int] = ContextVar("offbook_calling_thread", default=0)
"""The thread that waits for this work, in a worker; 0 elsewhere."""


def _thread_id() -> int:
    return _calling_thread.get() or get_ident()


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class CoroutineRunner:
    """Runs coroutines to completion for blocking callers."""

    def __init__(self) -> None:
        self._local = local()
        self._loops: list[asyncio.AbstractEventLoop] = []
        self._workers: ThreadPoolExecutor | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine."""
        # Not in an `except` block: an error of the work would name "no running event loop" as its
        # context.
        if not _in_event_loop():
            return self._run_here(work)
        # A loop runs in this thread already, and a thread has one at most: use another thread.
        if self._workers is None:
            self._workers = ThreadPoolExecutor(MAX_WORKERS, "offbook-blocking")
        context = copy_context()
        context.run(_calling_thread.set, _thread_id())
        return self._workers.submit(context.run, self._run_here, work).result()

    def _run_here(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in this thread's own loop.

        The task stops the loop itself: `run_until_complete` takes 17 µs for a coroutine that does
        not wait, this 9 µs.
        """
        loop: asyncio.AbstractEventLoop | None = getattr(self._local, "loop", None)
        if loop is None:
            loop = self._local.loop = asyncio.SelectorEventLoop()
            self._loops.append(loop)
        results: list[T] = []

        async def complete() -> None:
            try:
                results.append(await work)
            finally:
                loop.stop()

        task = loop.create_task(complete())
        try:
            loop.run_forever()
        except BaseException:  # Ctrl-C: the task is still in this loop, so do not use it again
            self._local.loop = None
            raise
        if results:  # also if the work cancelled its own task at the end
            return results[0]
        task.result()  # raises
        raise AssertionError  # pragma: no cover - a task without a result has an exception

    def close(self) -> None:
        """Close the loops; one that still runs is left to its thread."""
        if self._workers is not None:
            self._workers.shutdown(wait=False)
        for loop in self._loops:
            if not loop.is_running():
                loop.close()


class Gate:
    """A lock that admits one thread at a time, with all its tasks and nested requests."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._left = Condition(self._lock)
        self._owner = 0
        self._inside = 0
        self._waiting = 0

    def __enter__(self) -> None:
        with self._lock:
            while not self._admit():
                self._waiting += 1
                try:
                    self._left.wait()
                finally:
                    self._waiting -= 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._waiting:
                self._left.notify_all()

    async def __aenter__(self) -> None:
        # Polling does not block the loop. The thread inside may have no loop to signal from, and
        # threads seldom meet here.
        while not self._try_admit():  # noqa: ASYNC110 - see above
            await asyncio.sleep(POLL_INTERVAL)

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    def _try_admit(self) -> bool:
        with self._lock:
            return self._admit()

    def _admit(self) -> bool:
        thread = _thread_id()
        if self._inside and self._owner != thread:
            return False
        self._owner = thread
        self._inside += 1
        return True


async def relay_response(work: Awaitable[HttpResponse], put: Put) -> None:
    """Put a response, the chunks of its live stream, and None at the end; or the exception."""
    try:
        response = await work
        put(response)
        if response.live_chunks is not None:
            async for chunk in response.live_chunks:
                put(chunk)
        put(None)
    except BaseException as error:
        put(error)
        if isinstance(error, (asyncio.CancelledError, KeyboardInterrupt)):
            raise


class StreamRelay:
    """Receives streams in the background, to their end, even if the client stops reading.

    So a stream can be recorded whole. A client that awaits is served from a task, a blocking one
    from a thread.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()  # a loop has only weak references
        self._threads: list[Thread] = []

    async def await_response(
        self, work: Callable[[Put], Coroutine[Any, Any, None]]
    ) -> HttpResponse:
        """Return the response that `work` puts, with its stream still being received."""
        pieces: asyncio.Queue[Piece] = asyncio.Queue()
        task = asyncio.get_running_loop().create_task(work(pieces.put_nowait))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            response = cast("HttpResponse", _raise_error(await pieces.get()))
        except asyncio.CancelledError:
            task.cancel()
            raise
        if response.live_chunks is None:
            return response

        async def follow() -> AsyncIterator[bytes]:
            while (chunk := _raise_error(await pieces.get())) is not None:
                yield cast("bytes", chunk)

        return msgspec.structs.replace(response, live_chunks=follow())

    def wait_for_response(self, work: Callable[[Put], None]) -> HttpResponse:
        """Return the response that `work` puts; its chunks can be iterated once."""
        pieces: SimpleQueue[Piece] = SimpleQueue()
        thread = Thread(target=copy_context().run, args=(work, pieces.put), daemon=True)
        self._threads = [*(other for other in self._threads if other.is_alive()), thread]
        thread.start()
        response = cast("HttpResponse", _raise_error(pieces.get()))
        if response.live_chunks is None:
            return response
        chunks = cast("Sequence[bytes]", _BlockingChunks(pieces))
        return msgspec.structs.replace(response, live_chunks=None, chunks=chunks)

    def close(self) -> None:
        """Wait for the threads, with a timeout: one may itself wait for the caller."""
        for thread in self._threads:
            thread.join(JOIN_TIMEOUT)


class _BlockingChunks:
    """The chunks of a stream; the iterator blocks until the next one is there."""

    def __init__(self, pieces: SimpleQueue[Piece]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        while (chunk := _raise_error(self._pieces.get())) is not None:
            yield cast("bytes", chunk)


def _raise_error(piece: Piece) -> HttpResponse | bytes | None:
    if isinstance(piece, BaseException):
        raise piece
    return piece
