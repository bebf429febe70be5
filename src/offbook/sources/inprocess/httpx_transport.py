"""httpx: both clients hand every request to a transport, which sends it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from offbook.determinism.patch import apply_patch
from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
from offbook.sources.inprocess.interceptor import (
    DEFAULT_PORTS,
    current_interceptor,
    find_interceptor,
)

if TYPE_CHECKING:
    from offbook.sources.inprocess.interceptor import Interceptor


# --- httpx: both clients hand every request to a transport, which sends it.

INSTANT = timedelta()
MOST = 512


class HttpxTransport:
    """The transports of a library that looks like httpx."""

    def __init__(self, library: str) -> None:
        self.modules = (f"{library}._transports.default",)

    def patch(self, module: Any) -> Iterable[Callable[[], None]]:
        """Answer in the place of the transports that open connections; mocks of others stay."""
        respond = _responder(module)

        def handle(original: Callable[..., Any], transport: Any, request: Any) -> Any:
            found = _find(request)
            if found is None:
                return original(transport, request)
            request.read()
            return respond(request, found.answer_now(_wire(request)))

        async def handle_async(original: Callable[..., Any], transport: Any, request: Any) -> Any:
            found = _find(request)
            if found is None:
                return await original(transport, request)
            await request.aread()
            return respond(request, await found.answer(_wire(request)))

        yield apply_patch(module.HTTPTransport, "handle_request", handle)
        yield apply_patch(module.AsyncHTTPTransport, "handle_async_request", handle_async)


def _find(request: Any) -> Interceptor | None:
    if current_interceptor.get() is None:  # nobody's: it costs no more than that
        return None
    url = request.url
    return find_interceptor(url.host, url.port or DEFAULT_PORTS.get(url.scheme))


def _wire(request: Any) -> HttpRequest:
    headers = {_NAMES[name]: value.decode("latin-1") for name, value in request.headers.raw}
    path, query = _read_target(request.url.raw_path)
    return HttpRequest(request.method, path, headers, request.content, query)


@lru_cache(MOST)
def _read_target(target: bytes) -> tuple[str, str]:
    path, _, query = target.decode("ascii").partition("?")
    return unquote(path), query


class _Names(dict[bytes, str]):
    """The names of headers in lower case, each made once."""

    def __missing__(self, raw: bytes) -> str:
        name = raw.decode("latin-1").lower()
        if len(self) < MOST:
            self[raw] = name
        return name


_NAMES = _Names()


def _responder(module: Any) -> Callable[[Any, HttpResponse], Any]:
    class Events(module.SyncByteStream, module.AsyncByteStream):
        """A stream that gives each event by itself."""

        def __init__(
            self, chunks: Sequence[bytes], live_chunks: AsyncIterator[bytes] | None = None
        ) -> None:
            self._chunks = chunks
            self._coming = live_chunks

        def __iter__(self) -> Iterator[bytes]:
            return iter(self._chunks)

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for chunk in self._chunks:
                yield chunk
            if self._coming is not None:
                async for chunk in self._coming:
                    yield chunk

    def respond(request: Any, answer: HttpResponse) -> Any:
        status, headers, body = answer.status, answer.headers, answer.body
        if answer.chunks or answer.live_chunks is not None:
            stream = Events(answer.chunks, answer.live_chunks)
            return module.Response(status, headers=headers, stream=stream, request=request)
        headers = {**headers, "content-length": str(len(body))}
        stream = Events((body,))
        response = module.Response(status, headers=headers, stream=stream, request=request)
        response._content = body  # noqa: SLF001 - it is all there: what `read` would come to
        response.elapsed = INSTANT
        return response

    return respond


# --- httpx2: what the present SDKs of OpenAI, Anthropic and Google send their requests with.


class Httpx2Transport(HttpxTransport):
    """It has the transports of httpx, under another name."""

    def __init__(self) -> None:
        super().__init__("httpx2")
