"""Intercept the requests that this process sends to a model.

    with intercept(endpoint.answer):
        agent.run("Hello")        # its requests to a model never reach a socket

Only the code inside the block is intercepted: what it awaits, and the tasks and threads that it
starts. Other tasks and threads of the process are not, and of two blocks at the same time each
has its own answers. The HTTP libraries are patched while a block is active.
"""

from __future__ import annotations

import asyncio
import errno
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import cache, lru_cache, partial
from importlib.abc import MetaPathFinder
from io import BufferedReader, RawIOBase
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from offbook.determinism.run_context import (
    apply_patch,
    propagate_to_threads,
    use_variable,
)
from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
from offbook.exchange.providers import DEFAULT_PORTS
from offbook.sources.inprocess.interceptor import (
    Interceptor,
    TrackedHttp,
    Transport,
    current_http,
    current_interceptor,
    find_interceptor,
    paced_chunks,
)
from offbook.sources.inprocess.shared_patches import SharedPatches
from offbook.sources.server.connection import (
    CHUNKED,
    CLOSE,
    LAST_CHUNK,
    RequestBuffer,
    render_chunk,
    render_head,
    render_pieces,
)

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from offbook.exchange.tool_track import HttpTrack
    from offbook.sources.http_destination import HttpDestination
    from offbook.sources.inprocess.interceptor import Answer


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


def _find_interceptor(request: Any) -> Interceptor | HttpDestination | None:
    # Outside of a run: skip the parsing of the URL.
    if current_interceptor.get() is None and current_http.get() is None:
        return None
    url = request.url
    return find_interceptor(url.host, url.port or DEFAULT_PORTS.get(url.scheme), url.scheme)


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


@cache  # it makes classes, and each run patches again
def _response_builder(module: Any) -> Callable[[Any, HttpResponse], Any]:
    """Return a function that builds responses of this library."""

    # Its base classes belong to the library, which is not imported here.
    class Events(module.SyncByteStream, module.AsyncByteStream):
        """A stream that yields each event separately; a fault makes it slow, or breaks it off."""

        def __init__(self, request: Any, response: HttpResponse) -> None:
            self._request = request
            self._response = response

        def __iter__(self) -> Iterator[bytes]:
            for chunk, delay in paced_chunks(self._response):
                if delay:
                    time.sleep(delay)
                yield chunk
            raise_ending(self._request, self._response)

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for chunk, delay in paced_chunks(self._response):
                if delay:
                    await asyncio.sleep(delay)
                yield chunk
            raise_ending(self._request, self._response)
            if self._response.live_chunks is not None:
                async for chunk in self._response.live_chunks:
                    yield chunk

    def raise_ending(request: Any, response: HttpResponse) -> None:
        """Raise what the library raises if a connection breaks off, or sends nothing more."""
        if response.ending == "timeout":
            raise module.ReadTimeout("the read operation timed out", request=request)
        if response.ending:
            kind = module.RemoteProtocolError if response.chunks else module.ReadError
            raise kind("the connection was closed by the server", request=request)

    def build(request: Any, response: HttpResponse) -> Any:
        status, headers, body = response.status, response.headers, response.body
        if not response.chunks:
            raise_ending(request, response)
        stream = Events(request, response)
        if response.chunks or response.live_chunks is not None:
            return module.Response(status, headers=headers, stream=stream, request=request)
        # The body is complete: spare the client the reading of a stream.
        headers = {**headers, "content-length": str(len(body))}
        built = module.Response(status, headers=headers, stream=stream, request=request)
        built._content = body  # noqa: SLF001 - as after `read`, which takes 15 µs
        built.elapsed = timedelta()
        return built

    return build


# -------------------------------------------------------------------- aiohttp transport
# aiohttp: its connector opens connections; a patched one connects to the interceptor.


class AiohttpTransport:
    """The TCP connector of aiohttp."""

    modules = ("aiohttp.connector",)

    def patch(self, module: Any) -> Iterable[Callable[[], None]]:
        """Create a new fake connection for every intercepted request."""
        yield apply_patch(module.TCPConnector, "_get", _get)
        yield apply_patch(module.TCPConnector, "_create_connection", _create_connection)


async def _get(original: Callable[..., Any], connector: Any, key: Any, *rest: Any) -> Any:
    """Return no pooled connection: it was opened before, and leads to the network."""
    if find_interceptor(key.host, key.port, "https" if key.is_ssl else "http") is not None:
        return None
    return await original(connector, key, *rest)


async def _create_connection(
    original: Callable[..., Any], connector: Any, request: Any, *rest: Any
) -> Any:
    interceptor = find_interceptor(request.url.host, request.url.port, request.url.scheme)
    if interceptor is None:
        return await original(connector, request, *rest)
    protocol = connector._factory()  # noqa: SLF001 - as the connector itself creates its protocols
    protocol.connection_made(_FakeTransport(protocol, interceptor))
    return protocol


async def _render(response: HttpResponse, method: str) -> AsyncIterator[bytes]:
    if response.live_chunks is None:
        for piece, delay in _paced_pieces(response, method):
            if delay:
                await asyncio.sleep(delay)
            yield piece
        return
    # `close` keeps the fake connection out of the pool.
    yield render_head(response, CHUNKED + CLOSE)
    async for chunk in response.live_chunks:
        yield render_chunk(chunk)
    yield LAST_CHUNK


def _paced_pieces(response: HttpResponse, method: str) -> Iterator[tuple[bytes, float]]:
    """Yield the pieces of a response, each with the seconds before it.

    Raise as a socket does that breaks off, or receives nothing more.
    """
    if not (response.ending or response.chunk_delays):
        yield from ((piece, 0.0) for piece in render_pieces(response, method))
        return
    if response.chunks:
        yield render_head(response, CHUNKED + CLOSE), 0.0
        yield from ((render_chunk(chunk), delay) for chunk, delay in paced_chunks(response))
    if response.ending == "timeout":
        raise TimeoutError("timed out")
    if response.ending:
        raise ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
    yield LAST_CHUNK, 0.0


class _FakeTransport(asyncio.Transport):
    """A connection for one request, which is answered by the interceptor."""

    def __init__(self, protocol: Any, interceptor: Interceptor | HttpDestination) -> None:
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


# ---------------------------------------------------------------- http client transport
# http.client and the libraries above it: urllib, and with urllib3 requests and botocore.
#
# Their connections get a fake socket, which passes the request to the interceptor.


class HttpClientTransport:
    """The connections of the standard library."""

    modules = ("http.client",)

    def patch(self, module: Any) -> Iterable[Callable[[], None]]:
        """Connect to the interceptor, also where an open connection is used again."""
        yield apply_patch(module.HTTPConnection, "putrequest", _putrequest)
        yield apply_patch(module.HTTPConnection, "connect", _connect)
        if hasattr(module, "HTTPSConnection"):  # absent in a Python without SSL
            yield apply_patch(module.HTTPSConnection, "connect", _connect)


class Urllib3Transport:
    """The connections of urllib3, which inherit from http.client's and replace `connect`."""

    modules = ("urllib3.connection",)

    def patch(self, module: Any) -> Iterable[Callable[[], None]]:
        """Connect to the interceptor."""
        yield apply_patch(module.HTTPConnection, "connect", _connect_urllib3)
        yield apply_patch(module.HTTPSConnection, "connect", _connect_urllib3)


def _connect(original: Callable[..., None], connection: Any) -> None:
    if not _connect_to_interceptor(connection):
        original(connection)


def _connect_urllib3(original: Callable[..., None], connection: Any) -> None:
    if _connect_to_interceptor(connection):
        connection.is_verified = True  # else urllib3 warns of a missing certificate
    else:
        original(connection)


def _putrequest(original: Callable[..., None], connection: Any, *args: Any, **kwargs: Any) -> None:
    socket = connection.sock
    if socket is not None and not isinstance(socket, FakeSocket):  # noqa: SIM102 - see the comment
        # A socket from before the block leads to the network.
        if _connect_to_interceptor(connection):
            socket.close()
    original(connection, *args, **kwargs)


def _connect_to_interceptor(connection: Any) -> bool:
    """Give a connection a fake socket if its address is intercepted; return whether it is."""
    # Through a proxy, the tunnel has the address of the model.
    tunnel = getattr(connection, "_tunnel_host", None)
    host = tunnel or connection.host
    port = connection._tunnel_port if tunnel else connection.port  # noqa: SLF001 - no public name
    scheme = "https" if connection.default_port == DEFAULT_PORTS["https"] else "http"
    interceptor = find_interceptor(host, port, scheme)
    if interceptor is None:
        return False
    connection.sock = FakeSocket(interceptor)
    return True


class FakeSocket:
    """The methods of a socket that http.client and urllib3 use, answered by the interceptor."""

    def __init__(self, interceptor: Interceptor | HttpDestination) -> None:
        self._interceptor = interceptor
        self._buffer = RequestBuffer()

    def sendall(self, data: bytes) -> None:
        """Take a piece of the request."""
        self._buffer.feed(data)

    def makefile(self, *_: object, **__: object) -> BufferedReader:
        """Return a file to read the response from."""
        return BufferedReader(_ResponseFile(self._pieces()))

    def _pieces(self) -> Iterator[bytes]:
        request = self._buffer.request
        self._buffer = RequestBuffer()
        if request is not None:
            response = self._interceptor.answer_blocking(request)
            for piece, delay in _paced_pieces(response, request.method):
                if delay:
                    time.sleep(delay)
                yield piece

    def settimeout(self, *_: object) -> None:
        """Do nothing."""

    def setsockopt(self, *_: object) -> None:
        """Do nothing."""

    def shutdown(self, *_: object) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class _ResponseFile(RawIOBase):
    """The pieces of a response, at most one for each read, so that events arrive separately."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


# ----------------------------------------------------------------------------- patching

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
    with (
        closing(interceptor),
        _patcher,
        propagate_to_threads(),
        use_variable(current_interceptor, interceptor),
    ):
        yield interceptor


@contextmanager
def track_http(track: HttpTrack, skipped: Iterable[tuple[str, int | None]]) -> Generator[None]:
    """Record or answer the requests to other servers that are sent inside the block."""
    tracked = TrackedHttp(track, frozenset(skipped))
    with _patcher, propagate_to_threads(), use_variable(current_http, tracked):
        yield


class Patcher(SharedPatches, MetaPathFinder):
    """Patches the HTTP libraries while at least one block is active.

    A library may be imported in the middle of a run: as the first finder in `sys.meta_path`, the
    patcher sees the import, and patches the module after its execution.
    """

    def __init__(self, transports: tuple[Transport, ...]) -> None:
        super().__init__()
        self._transports = {name: t for t in transports for name in t.modules}

    def apply(self) -> None:
        """Patch the libraries that are imported, and wait for the others."""
        sys.meta_path.insert(0, self)
        self._undo.append(partial(sys.meta_path.remove, self))
        for name in self._transports:
            if (module := sys.modules.get(name)) is not None:
                self._patch(name, module)

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
