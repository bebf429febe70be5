"""The channel between a test and the witness that runs inside pi.

The witness (`witness.js`) connects to a Unix socket in pi's home directory and asks questions,
one JSON object a line. Each is answered in the order in which it arrives; mocks run concurrently.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

CHANNEL_VARIABLE = "OFFBOOK_PI_CHANNEL"
MAX_PATH_LENGTH = 100  # of a Unix socket: 104 bytes on macOS, 108 on Linux, with the zero
LINE_LIMIT = 64 * 1024 * 1024  # one line has all new tool results of a turn

Handler = Callable[[str, dict[str, Any]], Awaitable[Any]]


class PiChannel:
    """A Unix socket on which the witness asks; `handler` returns the answer to a question."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._folder: Path | None = None

    async def open(self, folder: Path) -> Path:
        """Listen in this folder, or in one of /tmp if its path is too long; return the path."""
        path = folder / "channel"
        if len(os.fsencode(path)) > MAX_PATH_LENGTH:
            self._folder = Path(tempfile.mkdtemp(prefix="offbook-pi-", dir="/tmp"))
            path = self._folder / "channel"
        self._server = await asyncio.start_unix_server(self._serve, path, limit=LINE_LIMIT)
        return path

    async def close(self) -> None:
        """Stop listening; questions that are not answered yet are dropped."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        if connection is not None:
            self._tasks.add(connection)
            connection.add_done_callback(self._tasks.discard)
        try:
            while line := await reader.readline():
                question = msgspec.json.decode(line, type=dict[str, Any])
                number, kind = question.pop("id"), question.pop("type")
                if kind != "mock":
                    await self._answer(writer, number, kind, question)
                    continue
                # Calls of one message run concurrently, and so do their mocks.
                task = asyncio.create_task(self._answer(writer, number, kind, question))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except (ConnectionError, asyncio.CancelledError):
            pass  # pi has ended, or the test has
        finally:
            writer.close()

    async def _answer(
        self, writer: asyncio.StreamWriter, number: int, kind: str, question: dict[str, Any]
    ) -> None:
        try:
            answer: dict[str, Any] = {"id": number, "value": await self._handler(kind, question)}
        except Exception as error:  # noqa: BLE001 - the handler keeps it for the test, too
            answer = {"id": number, "error": str(error)}
        with contextlib.suppress(ConnectionError):
            writer.write(msgspec.json.encode(answer) + b"\n")
            await writer.drain()
