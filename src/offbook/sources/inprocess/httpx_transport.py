"""httpx and httpx2: both kinds of client pass every request to a transport."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from offbook.determinism.run_context import apply_patch
from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
from offbook.sources.inprocess.interceptor import (
    DEFAULT_PORTS,
    current_interceptor,
    find_interceptor,
    paced_chunks,
)

if TYPE_CHECKING:
    from offbook.sources.inprocess.interceptor import Interceptor

CACHE_SIZE = 512


class HttpxTransport:
    """The transports of httpx, or of a library with the same interface.

    Only the transports that open connections are patched: a test's own `MockTransport` stays.
    """

    def __init__(self, library: str) -> None:
        self.modules = (f"{library}._transports.default",)

    def patch(self, module: Any) -> Iterable[Callable[[], None]]:
        """Answer in place of the transports that open connections."""
        build_response = _response_builder(module)

        def handle(original: Callable[..., Any], transport: Any, request: Any) -> Any:
            interceptor = _find_interceptor(request)
            if interceptor is None:
                return original(transport, request)
            request.read()  # the body may be a stream
            return build_response(request, interceptor.answer_blocking(_to_request(request)))

        async def handle_async(original: Callable[..., Any], transport: Any, request: Any) -> Any:
            interceptor = _find_interceptor(request)
            if interceptor is None:
                return await original(transport, request)
            await request.aread()
            return build_response(request, await interceptor.answer(_to_request(request)))

        yield apply_patch(module.HTTPTransport, "handle_request", handle)
        yield apply_patch(module.AsyncHTTPTransport, "handle_async_request", handle_async)


def _find_interceptor(request: Any) -> Interceptor | None:
    if current_interceptor.get() is None:  # outside of a run: skip the parsing of the URL
        return None
    url = request.url
    return find_interceptor(url.host, url.port or DEFAULT_PORTS.get(url.scheme))


class _HeaderNames(dict[bytes, str]):
    """Header names in lower case; the same few come with every request, so decode each once."""

    def __missing__(self, raw: bytes) -> str:
        name = raw.decode("latin-1").lower()
        if len(self) < CACHE_SIZE:
            self[raw] = name
        return name


_header_names = _HeaderNames()


def _to_request(request: Any) -> HttpRequest:
    headers = {_header_names[name]: value.decode("latin-1") for name, value in request.headers.raw}
    path, query = _split_target(request.url.raw_path)
    return HttpRequest(request.method, path, headers, request.content, query)


@lru_cache(CACHE_SIZE)
def _split_target(target: bytes) -> tuple[str, str]:
    path, _, query = target.decode("ascii").partition("?")
    return unquote(path), query


@cache  # it makes classes, and each run patches anew
def _response_builder(module: Any) -> Callable[[Any, HttpResponse], Any]:
    """Return a function that builds responses of this library."""

    # Its base classes belong to the library, which is not imported here.
    class Events(module.SyncByteStream, module.AsyncByteStream):
        """A stream that yields each event separately."""

        def __init__(
            self, chunks: Sequence[bytes], live_chunks: AsyncIterator[bytes] | None = None
        ) -> None:
            self._chunks = chunks
            self._live_chunks = live_chunks

        def __iter__(self) -> Iterator[bytes]:
            return iter(self._chunks)

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for chunk in self._chunks:
                yield chunk
            if self._live_chunks is not None:
                async for chunk in self._live_chunks:
                    yield chunk

    build_faulty = _faulty_builder(module)

    def build(request: Any, response: HttpResponse) -> Any:
        status, headers, body = response.status, response.headers, response.body
        if response.ending or response.chunk_delays:
            return build_faulty(request, response)
        if response.chunks or response.live_chunks is not None:
            stream = Events(response.chunks, response.live_chunks)
            return module.Response(status, headers=headers, stream=stream, request=request)
        # The body is complete: spare the client the reading of a stream.
        headers = {**headers, "content-length": str(len(body))}
        stream = Events((body,))
        built = module.Response(status, headers=headers, stream=stream, request=request)
        built._content = body  # noqa: SLF001 - as after `read`, which takes 15 µs
        built.elapsed = timedelta()
        return built

    return build


def _faulty_builder(module: Any) -> Callable[[Any, HttpResponse], Any]:
    """Return a function that builds responses which are slow or break off."""

    class FaultyEvents(module.SyncByteStream, module.AsyncByteStream):
        """A stream that is slow, or breaks off after its last event."""

        def __init__(self, request: Any, response: HttpResponse) -> None:
            self._request = request
            self._response = response

        def __iter__(self) -> Iterator[bytes]:
            for chunk, delay in paced_chunks(self._response):
                time.sleep(delay)
                yield chunk
            raise_ending(self._request, self._response)

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for chunk, delay in paced_chunks(self._response):
                await asyncio.sleep(delay)
                yield chunk
            raise_ending(self._request, self._response)

    def raise_ending(request: Any, response: HttpResponse) -> None:
        """Raise what the library raises if a connection breaks off, or sends nothing more."""
        if response.ending == "timeout":
            raise module.ReadTimeout("the read operation timed out", request=request)
        if response.ending:
            kind = module.RemoteProtocolError if response.chunks else module.ReadError
            raise kind("the connection was closed by the server", request=request)

    def build(request: Any, response: HttpResponse) -> Any:
        if not response.chunks:
            raise_ending(request, response)
        stream = FaultyEvents(request, response)
        return module.Response(
            response.status, headers=response.headers, stream=stream, request=request
        )

    return build
