"""aiohttp: a connector makes the connections; ours leads to the source instead of a host."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from offbook.determinism.patch import apply_patch
from offbook.sources.inprocess.http1 import LAST, RequestBuffer, respond, write_chunk, write_head
from offbook.sources.inprocess.interceptor import find_interceptor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from offbook.exchange.dialects.dialect import HttpResponse
    from offbook.sources.inprocess.interceptor import Interceptor


class AiohttpTransport:
    """The connector for TCP."""

    modules = ("aiohttp.connector",)

    def patch(self, module: Any) -> Iterable[Callable[[], None]]:
        """Make every connection anew, and make it to the line."""
        yield apply_patch(module.TCPConnector, "_get", _get)
        yield apply_patch(module.TCPConnector, "_create_connection", _create_connection)


async def _get(original: Callable[..., Any], connector: Any, key: Any, *rest: Any) -> Any:
    """No connection from the pool: that one was made before, and leads out of the machine."""
    if find_interceptor(key.host, key.port) is not None:
        return None
    return await original(connector, key, *rest)


async def _create_connection(
    original: Callable[..., Any], connector: Any, request: Any, *rest: Any
) -> Any:
    found = find_interceptor(request.url.host, request.url.port)
    if found is None:
        return await original(connector, request, *rest)
    protocol = connector._factory()  # noqa: SLF001 - how a connector makes its protocols
    protocol.connection_made(_Connection(protocol, found))
    return protocol


async def _respond(answer: HttpResponse, method: str) -> AsyncIterator[bytes]:
    if answer.live_chunks is None:
        for piece in respond(answer, method):
            yield piece
        return
    yield write_head(answer)
    async for chunk in answer.live_chunks:
        yield write_chunk(chunk)
    yield LAST


class _Connection(asyncio.Transport):
    """A connection for one request: what is written to it is answered by the line."""

    def __init__(self, protocol: Any, line: Interceptor) -> None:
        super().__init__()
        self._protocol = protocol
        self._line = line
        self._incoming = RequestBuffer()
        self._work: asyncio.Task[None] | None = None
        self._reading = asyncio.Event()
        self._reading.set()
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._incoming.feed(data)
        wire = self._incoming.wire()
        if wire is not None and self._work is None:
            self._work = asyncio.ensure_future(self._serve(wire))

    async def _serve(self, wire: Any) -> None:
        try:
            answer = await self._line.answer(wire)
        except Exception as error:  # noqa: BLE001 - whoever waits for the response gets it
            self._protocol.set_exception(error)
            return
        try:
            async for piece in _respond(answer, wire.method):
                await self._reading.wait()
                if self._closing:
                    return
                self._protocol.data_received(piece)
                await asyncio.sleep(0)  # so that a reader sees one event at a time
        except ConnectionError as error:
            self._protocol.connection_lost(error)

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading.is_set()

    def pause_reading(self) -> None:
        self._reading.clear()

    def resume_reading(self) -> None:
        self._reading.set()

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._reading.set()
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    abort = close
