"""Answers the HTTP clients of this process, for whoever is inside.

    with intercepted(endpoint.answer):
        agent.run("Hello")        # its requests to a model never reach a socket

Only the code inside is answered: what it awaits and the tasks and threads that it starts. Other
tasks and threads of the process are not touched, and two runs at once each hear their own. The
libraries are patched while anybody is inside, and are as they were afterwards.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any

from offbook.determinism.following import following
from offbook.sources.inprocess.aiohttp import Aiohttp
from offbook.sources.inprocess.completion import Completion
from offbook.sources.inprocess.gate import Gate
from offbook.sources.inprocess.hosts import Hosts
from offbook.sources.inprocess.httpx import Httpx
from offbook.sources.inprocess.httpx2 import Httpx2
from offbook.sources.inprocess.imports import Arrivals
from offbook.sources.inprocess.relaying import Relays, hand_on
from offbook.sources.inprocess.stdlib import Stdlib
from offbook.sources.inprocess.transport import line
from offbook.sources.inprocess.urllib3 import Urllib3

if TYPE_CHECKING:
    from types import ModuleType

    from offbook.exchange.dialects.dialect import Answer, Wire
    from offbook.sources.inprocess.relaying import Put
    from offbook.sources.inprocess.transport import Transport

    Answerer = Callable[[Wire], Coroutine[Any, Any, Answer]]

TRANSPORTS: tuple[Transport, ...] = (Httpx("httpx"), Httpx2(), Aiohttp(), Stdlib(), Urllib3())


class Interception:
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
        self._completion = Completion()

    async def answer(self, wire: Wire) -> Answer:
        """The answer to a request, for clients that await it."""
        if self._relays is not None:
            return await self._relays.await_answer(partial(self._relay, wire))
        async with self._gate:
            return await self._answer(wire)

    def answer_now(self, wire: Wire) -> Answer:
        """The answer to a request, for clients that block until they have it."""
        if self._relays is not None:
            return self._relays.wait_for_answer(partial(self._relay_now, wire))
        with self._gate:
            return self._completion.finish(self._answer(wire))

    async def _relay(self, wire: Wire, put: Put) -> None:
        async with self._gate:
            await hand_on(self._answer(wire), put)

    def _relay_now(self, wire: Wire, put: Put) -> None:
        with self._gate:
            self._completion.finish(hand_on(self._answer(wire), put))

    def close(self) -> None:
        """Leave nothing behind."""
        if self._relays is not None:
            self._relays.close()
        self._completion.close()


class Switchboard:
    """Patches the libraries while anybody is inside: those there are, and those that come."""

    def __init__(self, transports: tuple[Transport, ...]) -> None:
        self._transports = {name: t for t in transports for name in t.modules}
        self._arrivals = Arrivals(self._transports, self._patch)
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


_switchboard = Switchboard(TRANSPORTS)


@contextmanager
def intercepted(
    answer: Answerer, *, urls: tuple[str, ...] = (), relay: bool = False
) -> Generator[Interception]:
    """Answer whatever is sent to a model from in here.

    The providers' addresses are known; `urls` are further base URLs at which a model is expected.
    With `relay`, an answer may be a stream that is still being written.
    """
    interception = Interception(answer, urls, relay=relay)
    _switchboard.enter()
    try:
        with following():
            token = line.set(interception)
            try:
                yield interception
            finally:
                line.reset(token)
    finally:
        _switchboard.leave()
        interception.close()
