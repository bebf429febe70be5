"""Intercept the requests that this process sends to a model.

    with intercept(endpoint.answer):
        agent.run("Hello")        # its requests to a model never reach a socket

Only the code inside the block is intercepted: what it awaits, and the tasks and threads that it
starts. Other tasks and threads of the process are not, and of two blocks at the same time each
has its own answers. The HTTP libraries are patched while a block is active.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from threading import RLock
from typing import TYPE_CHECKING, Any

from offbook.determinism.run_context import propagate_to_threads
from offbook.sources.inprocess.aiohttp_transport import AiohttpTransport
from offbook.sources.inprocess.http_client_transport import HttpClientTransport, Urllib3Transport
from offbook.sources.inprocess.httpx_transport import HttpxTransport
from offbook.sources.inprocess.interceptor import Interceptor, Transport, current_interceptor

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from offbook.sources.inprocess.interceptor import Answer

TRANSPORTS: tuple[Transport, ...] = (
    HttpxTransport("httpx"),
    HttpxTransport("httpx2"),  # of the current SDKs of OpenAI, Anthropic and Google
    AiohttpTransport(),
    HttpClientTransport(),
    Urllib3Transport(),
)


@contextmanager
def intercept(
    answer: Answer, *, urls: tuple[str, ...] = (), relay: bool = False
) -> Generator[Interceptor]:
    """Answer every request to a model that is sent inside the block.

    The addresses of the providers are known; `urls` are further base URLs of models. With
    `relay`, a response may be a stream that is still being received.
    """
    interceptor = Interceptor(answer, urls, relay=relay)
    _patcher.enter()
    try:
        with propagate_to_threads():
            token = current_interceptor.set(interceptor)
            try:
                yield interceptor
            finally:
                current_interceptor.reset(token)
    finally:
        _patcher.leave()
        interceptor.close()


class Patcher(MetaPathFinder):
    """Patches the HTTP libraries while at least one block is active.

    A library may be imported in the middle of a run: as the first finder in `sys.meta_path`, the
    patcher sees the import, and patches the module after its execution.
    """

    def __init__(self, transports: tuple[Transport, ...]) -> None:
        self._transports = {name: t for t in transports for name in t.modules}
        self._lock = RLock()  # reentrant: patching one library may import another
        self._active = 0
        self._undo: list[Callable[[], None]] = []

    def enter(self) -> None:
        """Patch the libraries if this is the first active block."""
        with self._lock:
            self._active += 1
            if self._active > 1:
                return
            sys.meta_path.insert(0, self)
            for name in self._transports:
                if (module := sys.modules.get(name)) is not None:
                    self._patch(name, module)

    def leave(self) -> None:
        """Undo the patches if this was the last active block."""
        with self._lock:
            self._active -= 1
            if self._active:
                return
            sys.meta_path.remove(self)
            while self._undo:
                self._undo.pop()()

    def _patch(self, name: str, module: ModuleType) -> None:
        with self._lock:
            if self._active:
                self._undo.extend(self._transports[name].patch(module))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that the other finders find, with a loader that patches the module."""
        if fullname not in self._transports:
            return None
        # The other finders are asked here: importlib would take our answer as the last word.
        for finder in sys.meta_path:
            find: Any = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(fullname, path, target)
            if spec is not None:
                self._patch_after_load(spec)
                return spec
        return None

    def _patch_after_load(self, spec: ModuleSpec) -> None:
        # On this loader only: a loader is created for each import.
        loader: Any = spec.loader
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # the loader's own method is visible again
            original(module)
            self._patch(spec.name, module)

        loader.exec_module = exec_module


_patcher = Patcher(TRANSPORTS)
