"""A loopback server for many runs at once, each under its own base URL.

with Server() as server:                        # in a separate thread
endpoint = server.mount(playbook, hub=hub)
OpenAI(base_url=endpoint.openai)

async with Server() as server: …                # in the caller's event loop
"""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Self

from offbook.determinism.run_context import IdCounter
from offbook.errors import UsageError
from offbook.exchange.providers import dialect_detector
from offbook.sources.server.connection import BODY_LIMIT, Connection, HeadCache, error_response
from offbook.sources.server.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
    from contextvars import Context

    from offbook.determinism.faults import FaultInjector
    from offbook.exchange.dialects.dialect import Dialect, HttpRequest, HttpResponse
    from offbook.exchange.model import ModelSource
    from offbook.sources.server.connection import Handler, RequestHead
    from offbook.sources.server.endpoint import Pacing
    from offbook.trace.hub import Hub

    DetectDialect = Callable[[HttpRequest], Dialect | None]

HOST = "127.0.0.1"
REQUEST_TIMEOUT = 30.0
BACKLOG = 1024  # hundreds of clients may connect at once


class Server:
    """An HTTP server on one port of the loopback interface.

    A request may have `limit` bytes, and must be complete within `timeout` seconds. `lenient`
    names the providers' validation rules that are not enforced. A request for a run that is not
    mounted calls `on_unknown_run` with its name, if it is set, and is answered by the endpoint
    that it returns.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        limit: int = BODY_LIMIT,
        timeout: float = REQUEST_TIMEOUT,
        detect_dialect: DetectDialect | None = None,
        lenient: Iterable[str] = (),
        on_unknown_run: Callable[[str], Endpoint] | None = None,
    ) -> None:
        if not isinstance(port, int) or port not in range(65_536):
            raise UsageError(f"invalid port {port!r}", hint="use a number from 0 to 65535")
        self.port = port
        self.limit = limit
        self.loop: asyncio.AbstractEventLoop
        # For the connections (see `ServerState`).
        self.connections: set[Connection] = set()
        self.head_cache = HeadCache()
        self.refuses_pages = True
        self._timeout = timeout
        self._detect_dialect = detect_dialect or dialect_detector(lenient)
        self._lenient = tuple(lenient)
        self._on_unknown_run = on_unknown_run
        self._endpoints: dict[str, Handler] = {}
        self._ids = IdCounter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._timeout_check: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None

    # ---------------------------------------------------------------------- start and stop

    def bind(self) -> None:
        """Take the port; clients cannot connect before the start. Idempotent."""
        if self._listener is None:
            self._listener = _listen(self.port)
            self.port = self._listener.getsockname()[1]

    async def start(self) -> Self:
        """Serve in the caller's loop; only for agents that do not block it."""
        self.loop = asyncio.get_running_loop()
        self.bind()
        self._server = await self.loop.create_server(
            lambda: Connection(self), sock=self._listener, backlog=BACKLOG
        )
        self._check_timeouts()
        return self

    async def stop(self, *, grace: float = 0) -> None:
        """Stop serving, and close all connections; `grace` are the seconds for open responses."""
        if self._server is None:
            return
        if self._timeout_check is not None:
            self._timeout_check.cancel()
        self._server.close()
        if grace and self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        for connection in list(self.connections):
            connection.abort()
        # Also those whose client is gone: they may still drain a stream.
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        self._server = self._listener = None

    def launch(self) -> Self:
        """Serve in a separate thread: for agents that block, and for other processes."""
        started = threading.Event()
        errors: list[BaseException] = []

        def run() -> None:
            loop = _make_loop()
            try:
                loop.run_until_complete(self.start())
            except BaseException as error:  # noqa: BLE001 - raised in the caller's thread below
                errors.append(error)
            started.set()
            if not errors:
                loop.run_forever()
                loop.run_until_complete(self.stop())
            loop.close()

        self._thread = threading.Thread(target=run, name="offbook-server", daemon=True)
        self._thread.start()
        started.wait()
        if errors:
            raise errors[0]
        return self

    def close(self) -> None:
        """Stop the thread; idempotent."""
        if self._thread is not None:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Self:
        return self.launch()

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _check_timeouts(self) -> None:
        """Expire the connections whose request takes too long; one timer serves all of them."""
        deadline = self.loop.time() - self._timeout
        for connection in list(self.connections):
            if connection.started is not None and connection.started < deadline:
                connection.expire()
        self._timeout_check = self.loop.call_later(self._timeout / 4, self._check_timeouts)

    # ------------------------------------------------------------------------------- runs

    def mount(
        self,
        source: ModelSource,
        *,
        run: str | None = None,
        hub: Hub | None = None,
        tools: bool = True,
        pacing: Pacing | None = None,
        lenient: Iterable[str] = (),
        mocked: Iterable[str] = (),
        faults: FaultInjector | None = None,
    ) -> Endpoint:
        """Serve a source under `/s/<run>`, or under `/` if the name is empty.

        With a hub, every request and reply is emitted to it; with `tools`, the tool calls and
        results in them too. `lenient` names validation rules that this run does not enforce,
        `mocked` the tools whose results are mocked. `faults` break some of the responses.
        """
        name = self._ids.next("run") if run is None else run
        if name in self._endpoints:
            raise UsageError(f"the run {name!r} already exists", hint="close its endpoint first")
        base = f"http://{HOST}:{self.port}"
        endpoint = Endpoint(
            source,
            url=f"{base}/s/{name}" if name else base,
            detect_dialect=dialect_detector(lenient) if lenient else self._detect_dialect,
            hub=hub,
            tools=tools,
            pacing=pacing,
            mocked=set(mocked),
            faults=faults,
            lenient_history="history" in (*lenient, *self._lenient),
            on_close=lambda: self._endpoints.pop(name, None),
        )
        self._endpoints[name] = endpoint
        return endpoint

    def mount_handler(
        self, answer: Callable[[HttpRequest], Awaitable[HttpResponse]], run: str
    ) -> tuple[str, Callable[[], None]]:
        """Answer the requests below `/s/<run>` by a function; return the URL, and how to end it."""
        self._endpoints[run] = PlainHandler(answer)

        def remove() -> None:
            self._endpoints.pop(run, None)

        return f"http://{HOST}:{self.port}/s/{run}", remove

    def route(self, head: RequestHead) -> Handler:
        """Return the endpoint of a request, or a handler that rejects it."""
        # A web page may direct its host name to this machine to read from it (DNS rebinding).
        if not head.is_local:
            return _rejection(403, f"unknown host {head.host!r}: this server is {HOST}")
        endpoint = self._endpoints.get(head.run)
        if endpoint is None and head.run and self._on_unknown_run is not None:
            endpoint = self._on_unknown_run(head.run)
        if endpoint is not None:
            return endpoint
        message = "missing run: a path begins with /s/ and the name of its run"
        if head.run:
            message = f"unknown run {head.run!r}: it does not exist, or it has ended"
        runs = [f"/s/{name}" for name in sorted(self._endpoints)]
        return _rejection(404, message, runs=runs)

    def start_task(self, work: Coroutine[Any, Any, None], context: Context) -> asyncio.Task[None]:
        """Run a coroutine in the server's loop, until it ends or the server stops."""
        task = self.loop.create_task(work, context=context)
        self._tasks.add(task)  # a loop has only weak references to its tasks
        task.add_done_callback(self._tasks.discard)
        return task


class PlainHandler:
    """Answers requests by a function, without a model."""

    at_once = False

    def __init__(self, answer: Callable[[HttpRequest], Awaitable[HttpResponse]]) -> None:
        self.context = copy_context()
        self._answer = answer

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Return the response of the function."""
        return await self._answer(request)

    def delays(self, response: HttpResponse) -> None:
        """Return None: nothing is paced."""

    def mark_undelivered(self, response: HttpResponse) -> None:
        """Do nothing: no response depends on earlier requests."""

    async def converse(self, request: HttpRequest, message: bytes) -> AsyncIterator[bytes]:  # noqa: ARG002 - the protocol's
        """Yield the response as a message."""
        yield (await self._answer(request)).body


def _rejection(status: int, message: str, **details: object) -> PlainHandler:
    """Return a handler that answers every request with the same error."""

    async def answer(_: HttpRequest) -> HttpResponse:
        return error_response(status, message, **details)

    return PlainHandler(answer)


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # A restarted server gets its port back although old connections linger.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} is already in use"
        elif error.errno == errno.EACCES:
            message = f"permission denied to bind port {port}"
        else:
            raise
        raise UsageError(message, where=HOST, hint="use another port, or 0 for any") from error
    return listener


def _make_loop() -> asyncio.AbstractEventLoop:
    try:  # less CPU for each request than asyncio's own loop, see bench/server.py
        import uvloop
    except ImportError:  # not available on every platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
