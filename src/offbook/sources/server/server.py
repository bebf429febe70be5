"""A loopback server for many runs at once, each under a base URL of its own.

with Server() as server:                        # in a thread of its own
    endpoint = server.mount(playbook, hub=hub)
    OpenAI(base_url=endpoint.openai)

async with Server() as server: …                # in the loop of the caller
"""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Self

from offbook.determinism.clock import IdCounter
from offbook.errors import UsageError
from offbook.exchange.dialects.validation import rules_except
from offbook.sources.eager_task import EagerTask
from offbook.sources.server.connection import Connection, error_response
from offbook.sources.server.endpoint import Endpoint
from offbook.sources.server.request_head import HeadCache

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
    from contextvars import Context

    from offbook.exchange.dialects.dialect import Dialect, HttpRequest, HttpResponse
    from offbook.exchange.model import ModelSource
    from offbook.sources.server.connection import Handler
    from offbook.sources.server.endpoint import Pacing
    from offbook.sources.server.request_head import RequestHead
    from offbook.trace.hub import Hub

    Recognise = Callable[[HttpRequest], Dialect | None]

HOST = "127.0.0.1"
BODY_LIMIT = 32 * 1024 * 1024
REQUEST_TIMEOUT = 30.0
BACKLOG = 1024


class Server:
    """Answers on one port of this machine, and of no other.

    A request may have `limit` bytes and take `patience` seconds to arrive. `lenient` names the
    rules of the providers that are not held here. A run that is asked for and not there is made
    by `spare`, if there is one.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        limit: int = BODY_LIMIT,
        patience: float = REQUEST_TIMEOUT,
        recognise: Recognise | None = None,
        lenient: Iterable[str] = (),
        spare: Callable[[str], Endpoint] | None = None,
    ) -> None:
        if not isinstance(port, int) or port not in range(65_536):
            raise UsageError(f"there is no port {port!r}", hint="take one from 0 to 65535")
        self._spare = spare
        self.port = port
        self.limit = limit
        self.loop: asyncio.AbstractEventLoop
        self.connections: set[Connection] = set()
        self._patience = patience
        self._recognise = recognise or _all_dialects(lenient)
        self._endpoints: dict[str, Endpoint] = {}
        self._eagers: set[EagerTask] = set()
        self._free: list[EagerTask] = []
        self.heads = HeadCache()
        self._ids = IdCounter()
        self._server: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None

    # ---------------------------------------------------------------------------- its life

    async def start(self) -> Self:
        """Serve in the caller's loop; only for agents that do not block it."""
        self.loop = asyncio.get_running_loop()
        listener = _listen(self.port)
        self.port = listener.getsockname()[1]
        self._server = await self.loop.create_server(
            lambda: Connection(self), sock=listener, backlog=BACKLOG
        )
        self._watch()
        return self

    async def stop(self) -> None:
        """Stop serving; whoever is still connected is cut off."""
        if self._server is None:
            return
        if self._sweep is not None:
            self._sweep.cancel()
        self._server.close()
        for connection in list(self.connections):
            connection.abort()
        await asyncio.gather(*(eager.close() for eager in self._eagers), return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    def launch(self) -> Self:
        """Serve in a thread of its own: for agents that block, and for other processes."""
        started = threading.Event()
        failed: list[BaseException] = []

        def live() -> None:
            loop = _make_loop()
            try:
                loop.run_until_complete(self.start())
            except BaseException as error:  # noqa: BLE001 - raised by whoever launched it
                failed.append(error)
            started.set()
            if not failed:
                loop.run_forever()
                loop.run_until_complete(self.stop())
            loop.close()

        self._thread = threading.Thread(target=live, name="offbook-server", daemon=True)
        self._thread.start()
        started.wait()
        if failed:
            raise failed[0]
        return self

    def close(self) -> None:
        """End the thread; a second time is nothing."""
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

    def _watch(self) -> None:
        """Look, now and then, for clients that never come to the end of their request."""
        late = self.loop.time() - self._patience
        for connection in list(self.connections):
            if connection.since is not None and connection.since < late:
                connection.expire()
        self._sweep = self.loop.call_later(self._patience / 4, self._watch)

    # ---------------------------------------------------------------------------- its runs

    def mount(
        self,
        source: ModelSource,
        *,
        run: str | None = None,
        hub: Hub | None = None,
        tools: bool = True,
        pacing: Pacing | None = None,
        lenient: Iterable[str] = (),
    ) -> Endpoint:
        """Serve this source under `/s/<run>`; under `/` itself for an empty name.

        With a hub, every request and its answer is told to it; with `tools`, the tool calls and
        results that pass by as well. `lenient` names rules that are not held for this run alone.
        """
        name = self._ids.next("run") if run is None else run
        if name in self._endpoints:
            raise UsageError(f"there is a run {name!r} already", hint="close its endpoint first")
        base = f"http://{HOST}:{self.port}"
        endpoint = Endpoint(
            source,
            url=f"{base}/s/{name}" if name else base,
            recognise=_all_dialects(lenient) if lenient else self._recognise,
            hub=hub,
            tools=tools,
            pacing=pacing,
            leave=lambda: self._endpoints.pop(name, None),
        )
        self._endpoints[name] = endpoint
        return endpoint

    def route(self, head: RequestHead) -> Handler:
        """Who answers this request."""
        if not head.local:
            return _RefusingHandler(
                error_response(403, f"this server is not {head.host!r}: it is {HOST}")
            )
        endpoint = self._endpoints.get(head.run)
        if endpoint is None and head.run and self._spare is not None:
            endpoint = self._spare(head.run)
        if endpoint is None:
            return _RefusingHandler(self._explain_absence(head.run))
        return endpoint

    def play(self, work: Coroutine[Any, Any, None], context: Context) -> asyncio.Task[None] | None:
        """Begin this work at once; the task that goes on with it, if it has to wait."""
        eager = self._free.pop() if self._free else self._hire()
        waiting = None
        try:
            _, waiting = eager.begin(work, context)
        finally:
            if waiting is None:
                self._release(eager)
        if waiting is not None:
            waiting.add_done_callback(lambda _: self._release(eager))
            return eager.task
        return None

    def _hire(self) -> EagerTask:
        eager = EagerTask(self.loop)
        self._eagers.add(eager)
        return eager

    def _release(self, eager: EagerTask) -> None:
        if eager.spent:
            self._eagers.discard(eager)
        else:
            self._free.append(eager)

    def _explain_absence(self, name: str) -> HttpResponse:
        there = [f"/s/{known}" for known in sorted(self._endpoints)]
        if not name:
            return error_response(404, "a path begins with /s/ and the name of its run", runs=there)
        return error_response(404, f"there is no run {name!r}, or it is over", runs=there)


class _RefusingHandler:
    """Answers for nobody: one refusal, whatever was asked."""

    def __init__(self, refusal: HttpResponse) -> None:
        self.context = copy_context()
        self._refusal = refusal

    async def answer(self, wire: HttpRequest) -> HttpResponse:  # noqa: ARG002 - whatever was asked
        return self._refusal

    def delays(self, answer: HttpResponse) -> None:
        """At once."""

    def lose(self, wire: HttpRequest, answer: HttpResponse) -> None:
        """Nobody minds."""

    async def converse(self, wire: HttpRequest, message: bytes) -> AsyncIterator[bytes]:  # noqa: ARG002 - as above
        yield self._refusal.body


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        listener.close()
        if error.errno in {errno.EADDRINUSE, errno.EACCES}:
            why = "is in use" if error.errno == errno.EADDRINUSE else "is not for everyone"
            raise UsageError(
                f"port {port} {why}", where=HOST, hint="take another, or 0 for any that is free"
            ) from error
        raise
    return listener


def _make_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # not on every platform; slower without, but the same
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _all_dialects(lenient: Iterable[str]) -> Recognise:
    from offbook.exchange.providers import dialect_detector

    return dialect_detector(rules_except(lenient))
