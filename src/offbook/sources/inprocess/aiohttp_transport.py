"""aiohttp: its connector opens connections; a patched one connects to the interceptor."""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Any

from offbook.determinism.run_context import apply_patch
from offbook.sources.inprocess.interceptor import find_interceptor, paced_chunks
from offbook.sources.server.http1 import (
    CHUNKED,
    CLOSE,
    LAST_CHUNK,
    RequestBuffer,
    render_chunk,
    render_head,
    render_pieces,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
    from offbook.sources.inprocess.interceptor import Interceptor


class AiohttpTransport:
    """The TCP connector of aiohttp."""

    modules = ("aiohttp.connector",)

    def patch(self, module: Any) -> Iterable[Callable[[], None]]:
        """Create a new fake connection for every intercepted request."""
        yield apply_patch(module.TCPConnector, "_get", _get)
        yield apply_patch(module.TCPConnector, "_create_connection", _create_connection)


async def _get(original: Callable[..., Any], connector: Any, key: Any, *rest: Any) -> Any:
    """Return no pooled connection: it was opened before, and leads to the network."""
    if find_interceptor(key.host, key.port) is not None:
        return None
    return await original(connector, key, *rest)


async def _create_connection(
    original: Callable[..., Any], connector: Any, request: Any, *rest: Any
) -> Any:
    interceptor = find_interceptor(request.url.host, request.url.port)
    if interceptor is None:
        return await original(connector, request, *rest)
    protocol = connector._factory()  # noqa: SLF001 - as the connector itself creates its protocols
    protocol.connection_made(_FakeTransport(protocol, interceptor))
    return protocol


async def _render(response: HttpResponse, method: str) -> AsyncIterator[bytes]:
    if response.ending or response.chunk_delays:
        if response.chunks:
            yield render_head(response, CHUNKED + CLOSE)
            for chunk, delay in paced_chunks(response):
                await asyncio.sleep(delay)
                yield render_chunk(chunk)
        if response.ending == "timeout":
            raise TimeoutError("timeout on reading data from socket")
        if response.ending:
            raise ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
        yield LAST_CHUNK
        return
    if response.live_chunks is None:
        for piece in render_pieces(response, method):
            yield piece
        return
    # `close` keeps the fake connection out of the pool.
    yield render_head(response, CHUNKED + CLOSE)
    async for chunk in response.live_chunks:
        yield render_chunk(chunk)
    yield LAST_CHUNK


class _FakeTransport(asyncio.Transport):
    """A connection for one request, which is answered by the interceptor."""

    def __init__(self, protocol: Any, interceptor: Interceptor) -> None:
        super().__init__()
        self._protocol = protocol
        self._interceptor = interceptor
        self._buffer = RequestBuffer()
        self._task: asyncio.Task[None] | None = None
        self._reading = asyncio.Event()
        self._reading.set()
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        request = self._buffer.feed(data)
        if request is not None and self._task is None:
            self._task = asyncio.ensure_future(self._respond(request))

    async def _respond(self, request: HttpRequest) -> None:
        try:
            response = await self._interceptor.answer(request)
        except Exception as error:  # noqa: BLE001 - raised in the caller that awaits the response
            self._protocol.set_exception(error)
            return
        try:
            async for piece in _render(response, request.method):
                await self._reading.wait()  # aiohttp pauses when its buffer is full
                if self._closing:
                    return
                self._protocol.data_received(piece)
                await asyncio.sleep(0)  # let the reader take the events one by one
        except ConnectionError as error:
            self._protocol.connection_lost(error)
        except TimeoutError:
            self._protocol._on_read_timeout()  # noqa: SLF001 - what aiohttp's own timer calls

    def is_closing(self) -> bool:
        return self._closing

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
