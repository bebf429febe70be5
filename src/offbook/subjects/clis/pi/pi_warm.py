"""Warm processes of pi: started once, and used by one test after another.

A test has its own event loop, which ends with it. A warm process lives in a thread with an event
loop of its own, until this Python process exits. Each test gets a new session in its own working
directory. The factories of the extensions run again; whether the state of their modules is kept
depends on the version of pi.
"""

from __future__ import annotations

import asyncio
import atexit
import shutil
import threading
from collections.abc import Coroutine, Hashable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import msgspec

from offbook.subjects.clis.pi.pi_channel import CHANNEL_VARIABLE, Handler, PiChannel
from offbook.subjects.clis.pi.pi_process import PiProcess

T = TypeVar("T")
SESSION_VERSION = 3  # of pi's session files
CLOSE_TIME = 5.0
_hosts: dict[Hashable, list[WarmHost]] = {}
_closes_at_exit = False


class WarmHost:
    """One warm process, with its home and its channel. `handler` answers the current test."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.process: PiProcess | None = None
        self.handler: Handler | None = None
        self._channel: PiChannel | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pi", daemon=True)
        self._thread.start()

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop of this process, from the loop of a test."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return await asyncio.wrap_future(future)

    async def start(
        self, command: Sequence[str], env: Mapping[str, str], witness: Path, deadline: float
    ) -> None:
        """Start pi."""
        self._channel = PiChannel(self._answer)
        channel = await self._channel.open(witness)
        self.process = PiProcess(
            command, cwd=self.home, env={**env, CHANNEL_VARIABLE: str(channel)}
        )
        await self.process.start(deadline)

    async def new_session(self, cwd: Path) -> None:
        """Replace the session by a new one in this working directory."""
        header = {
            "type": "session",
            "version": SESSION_VERSION,
            "id": str(uuid4()),
            "timestamp": "2000-01-01T00:00:00.000Z",
            "cwd": str(cwd),
        }
        path = self.home / f"session-{header['id']}.jsonl"
        path.write_bytes(msgspec.json.encode(header) + b"\n")
        if self.process is not None:
            await self.process.request("switch_session", sessionPath=str(path))

    async def _answer(self, kind: str, question: dict[str, Any]) -> Any:
        return None if self.handler is None else await self.handler(kind, question)

    def close(self) -> None:
        """End pi and the thread, and delete the home."""

        async def end() -> None:
            if self.process is not None:
                await self.process.close()
            if self._channel is not None:
                await self._channel.close()

        try:
            asyncio.run_coroutine_threadsafe(end(), self._loop).result(CLOSE_TIME)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CLOSE_TIME)
            if not self._thread.is_alive():
                self._loop.close()
            shutil.rmtree(self.home, ignore_errors=True)


def find_host(key: Hashable) -> WarmHost | None:
    """Return a warm process with these options that runs and that no other rehearsal uses."""
    for host in [*_hosts.get(key, ())]:
        if host.process is None or not host.process.running or not host.home.is_dir():
            _hosts[key].remove(host)
            host.close()
        elif host.handler is None:
            return host
    return None


def keep_host(key: Hashable, host: WarmHost) -> None:
    """Keep a process for later tests."""
    global _closes_at_exit  # noqa: PLW0603 - once in a process
    if not _closes_at_exit:
        atexit.register(close_hosts)
        _closes_at_exit = True
    _hosts.setdefault(key, []).append(host)


def close_hosts() -> None:
    """End all warm processes of pi."""
    while _hosts:
        for host in _hosts.popitem()[1]:
            host.close()
