"""Tells when a module comes: a client library may be imported in the middle of a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.abc import MetaPathFinder
from threading import RLock
from typing import TYPE_CHECKING, Any

from offbook.determinism.thread_context import propagate_to_threads
from offbook.sources.inprocess.aiohttp_transport import AiohttpTransport
from offbook.sources.inprocess.http_client_transport import HttpClientTransport, Urllib3Transport
from offbook.sources.inprocess.httpx_transport import Httpx2Transport, HttpxTransport
from offbook.sources.inprocess.interceptor import Hosts, current_interceptor
from offbook.sources.inprocess.sync_bridge import Gate, Relays, SyncBridge, hand_on

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType


# --- Tells when a module comes: a client library may be imported in the middle of a run.


class ImportHook(MetaPathFinder):
    """Stands first among the finders, and calls `arrived` with each of these modules in turn."""

    def __init__(self, names: Iterable[str], arrived: Callable[[str, ModuleType], None]) -> None:
        self._names = frozenset(names)
        self._arrived = arrived

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders find, with our word put behind its execution."""
        if fullname not in self._names:
            return None
        for finder in sys.meta_path:
            find: Any = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(fullname, path, target)
            if spec is not None:
                self._follow(spec)
                return spec
        return None

    def _follow(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # it is the loader's own again
            execute(module)
            self._arrived(spec.name, module)

        loader.exec_module = exec_module


# --- Answers the HTTP clients of this process, for whoever is inside.

if TYPE_CHECKING:
    from types import ModuleType

    from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
    from offbook.sources.inprocess.interceptor import Transport
    from offbook.sources.inprocess.sync_bridge import Put

    Answerer = Callable[[HttpRequest], Coroutine[Any, Any, HttpResponse]]

TRANSPORTS: tuple[Transport, ...] = (
    HttpxTransport("httpx"),
    Httpx2Transport(),
    AiohttpTransport(),
    HttpClientTransport(),
    Urllib3Transport(),
)


class ProcessInterceptor:
    """The line of one run: it takes requests from any client, in any thread, and answers them.

    With `relay`, an answer may be a stream that is still being written.
    """

    def __init__(
        self, answer: Answerer, urls: tuple[str, ...] = (), *, relay: bool = False
    ) -> None:
        self._answer = answer
        self._relays = Relays() if relay else None
        self.wants = Hosts(urls).has
        self._gate = Gate()
        self._completion = SyncBridge()

    async def answer(self, wire: HttpRequest) -> HttpResponse:
        """The answer to a request, for clients that await it."""
        if self._relays is not None:
            return await self._relays.await_answer(partial(self._relay, wire))
        async with self._gate:
            return await self._answer(wire)

    def answer_now(self, wire: HttpRequest) -> HttpResponse:
        """The answer to a request, for clients that block until they have it."""
        if self._relays is not None:
            return self._relays.wait_for_answer(partial(self._relay_now, wire))
        with self._gate:
            return self._completion.finish(self._answer(wire))

    async def _relay(self, wire: HttpRequest, put: Put) -> None:
        async with self._gate:
            await hand_on(self._answer(wire), put)

    def _relay_now(self, wire: HttpRequest, put: Put) -> None:
        with self._gate:
            self._completion.finish(hand_on(self._answer(wire), put))

    def close(self) -> None:
        """Leave nothing behind."""
        if self._relays is not None:
            self._relays.close()
        self._completion.close()


class Patcher:
    """Patches the libraries while anybody is inside: those there are, and those that come."""

    def __init__(self, transports: tuple[Transport, ...]) -> None:
        self._transports = {name: t for t in transports for name in t.modules}
        self._arrivals = ImportHook(self._transports, self._patch)
        self._lock = RLock()  # a library may arrive while another one is being patched
        self._inside = 0
        self._lifts: list[Callable[[], None]] = []

    def enter(self) -> None:
        """One more is inside."""
        with self._lock:
            self._inside += 1
            if self._inside > 1:
                return
            sys.meta_path.insert(0, self._arrivals)
            for name in self._transports:
                if (module := sys.modules.get(name)) is not None:
                    self._patch(name, module)

    def leave(self) -> None:
        """One less is inside."""
        with self._lock:
            self._inside -= 1
            if self._inside:
                return
            sys.meta_path.remove(self._arrivals)
            while self._lifts:
                self._lifts.pop()()

    def _patch(self, name: str, module: ModuleType) -> None:
        with self._lock:
            if self._inside:
                self._lifts.extend(self._transports[name].patch(module))


_patcher = Patcher(TRANSPORTS)


@contextmanager
def intercept(
    answer: Answerer, *, urls: tuple[str, ...] = (), relay: bool = False
) -> Generator[ProcessInterceptor]:
    """Answer whatever is sent to a model from in here.

    The providers' addresses are known; `urls` are further base URLs at which a model is expected.
    With `relay`, an answer may be a stream that is still being written.
    """
    interception = ProcessInterceptor(answer, urls, relay=relay)
    _patcher.enter()
    try:
        with propagate_to_threads():
            token = current_interceptor.set(interception)
            try:
                yield interception
            finally:
                current_interceptor.reset(token)
    finally:
        _patcher.leave()
        interception.close()
