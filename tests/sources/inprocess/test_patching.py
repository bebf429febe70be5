"""Requests inside an `intercept` block are answered, in its tasks and threads, and no others."""

import asyncio
import http.client
import importlib
import importlib.util
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
import requests
import urllib3.connection
from hypothesis import given
from hypothesis.strategies import binary

from offbook.determinism import apply_patch, block_network
from offbook.errors import ConnectionBlocked
from offbook.exchange.dialects import HttpRequest, HttpResponse
from offbook.sources.inprocess import HttpClientTransport, Patcher, intercept
from tests.sources.inprocess.clients import (
    AWAITED,
    BLOCKING,
    BODY,
    CLIENTS,
    Client,
    by_httpx2,
    by_httpx2_async,
    by_requests,
)

OPENAI = "https://api.openai.com/v1/chat/completions"
DAY = timedelta(days=1)
EVENTS = (b"data: one\n\n", b"data: two\n\n", b"data: [DONE]\n\n")


class Model:
    """Answers every request, and keeps it."""

    def __init__(self, response: HttpResponse | None = None) -> None:
        self.requests: list[HttpRequest] = []
        self._response = response or HttpResponse(
            headers={"content-type": "text/plain"}, body=b"answered"
        )

    async def answer(self, request: HttpRequest) -> HttpResponse:
        self.requests.append(request)
        await asyncio.sleep(0)
        return self._response


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def streaming() -> Model:
    return Model(HttpResponse(headers={"content-type": "text/event-stream"}, chunks=EVENTS))


class RealHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "4")
        self.end_headers()
        self.wfile.write(b"real")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - inherited
        """Do nothing."""


@pytest.fixture
def real() -> Iterator[str]:
    """A real server on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), RealHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join()


def causes(error: BaseException | None) -> set[type[BaseException]]:
    """Return the types of an error and of its causes."""
    kinds: set[type[BaseException]] = set()
    while error is not None:
        kinds.add(type(error))
        error = error.__cause__ or error.__context__
    return kinds


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_is_intercepted(client: Client, model: Model):
    with block_network(), intercept(model.answer):
        assert b"".join(client(OPENAI)) == b"answered"
    [request] = model.requests
    assert (request.method, request.path, request.query, request.body) == (
        "POST",
        "/v1/chat/completions",
        "",
        BODY,
    )
    assert request.headers["content-length"] == str(len(BODY))


@pytest.mark.parametrize("client", CLIENTS)
def test_a_stream_arrives_event_by_event(client: Client, streaming: Model):
    with block_network(), intercept(streaming.answer):
        assert client(OPENAI) == list(EVENTS)


def _describe(library: Any, client: Any) -> list[object]:
    """Return the visible parts of a response, read as a whole and as a stream."""
    whole = client.post(OPENAI, content=BODY)
    with client.stream("POST", OPENAI, content=BODY) as streamed:
        pieces = b"".join(streamed.iter_bytes())
    parts = [whole.content, whole.text, sorted(whole.headers.items()), bool(whole.elapsed < DAY)]
    return [library.codes(whole.status_code), *parts, pieces, list(whole.iter_lines())]


@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
@given(body=binary())
def test_a_response_equals_one_that_the_library_has_read(library: Any, body: bytes):
    headers = {"content-type": "application/json"}

    def read(_: Any) -> Any:
        length = {"content-length": str(len(body))}
        return library.Response(200, headers=headers | length, content=iter([body]))

    model = Model(HttpResponse(headers=headers, body=body))
    plain = library.Client(verify=False, trust_env=False)
    with plain as client, block_network(), intercept(model.answer):
        seen = _describe(library, client)
    with library.Client(transport=library.MockTransport(read)) as client:
        assert seen == _describe(library, client)


@pytest.mark.parametrize("client", CLIENTS)
def test_outside_of_a_block_the_network_guard_refuses_requests(client: Client):
    with block_network(), pytest.raises(Exception) as caught:  # noqa: PT011 - each client wraps it in another type
        client(OPENAI)
    assert ConnectionBlocked in causes(caught.value)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_base_url_is_intercepted_inside_the_block_only(client: Client, model: Model, real: str):
    assert client(f"{real}/chat/completions") == [b"real"]
    with block_network(), intercept(model.answer, urls=(real,)):
        assert client(f"{real}/chat/completions") == [b"answered"]
    assert client(f"{real}/chat/completions") == [b"real"]


@pytest.mark.parametrize("client", CLIENTS)
def test_another_address_is_not_intercepted(client: Client, model: Model, real: str):
    with block_network(), intercept(model.answer):
        assert client(f"{real}/chat/completions") == [b"real"]
    assert not model.requests


def test_an_open_connection_is_not_used_inside_the_block(model: Model, real: str):
    url = f"{real}/chat/completions"
    with httpx2.Client() as client, requests.Session() as session:
        for _ in range(2):
            assert client.post(url, content=BODY).content == b"real"
            assert session.post(url, data=BODY, timeout=60).content == b"real"
            with intercept(model.answer, urls=(real,)):
                assert client.post(url, content=BODY).content == b"answered"
                assert session.post(url, data=BODY, timeout=60).content == b"answered"
                assert session.post(url, data=BODY, timeout=60).content == b"answered"


async def test_an_open_connection_of_aiohttp_is_not_used_inside_the_block(model: Model, real: str):
    url = f"{real}/chat/completions"

    async def ask(session: aiohttp.ClientSession) -> bytes:
        async with session.post(url, data=BODY) as response:
            return await response.read()

    async with aiohttp.ClientSession() as session:
        for _ in range(2):
            assert await ask(session) == b"real"
            with intercept(model.answer, urls=(real,)):
                assert await ask(session) == b"answered"
                assert await ask(session) == b"answered"


@pytest.mark.parametrize("client", CLIENTS)
def test_a_path_is_decoded_and_separate_from_its_query(client: Client, model: Model):
    with intercept(model.answer, urls=("https://gateway.example/a%20team/v1",)):
        client("https://gateway.example/a%20team/v1/models/m:ask?alt=sse&x=%20")
    [request] = model.requests
    assert (request.path, request.query) == ("/a team/v1/models/m:ask", "alt=sse&x=%20")


def test_a_base_url_in_the_environment_is_intercepted(
    model: Model, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_BASE_URL", "https://gateway.example/v1")
    with block_network(), intercept(model.answer):
        assert by_httpx2("https://gateway.example/v1/chat/completions") == [b"answered"]


@pytest.mark.parametrize(
    "url",
    [
        "https://api.anthropic.com/v1/messages",
        "https://generativelanguage.googleapis.com/v1beta/models/m:generateContent",
        "https://us-central1-aiplatform.googleapis.com/v1/x",
        "https://mine.openai.azure.com/openai/v1/responses",
        "https://bedrock-runtime.eu-west-1.amazonaws.com/model/m/converse",
        "https://openrouter.ai/api/v1/chat/completions",
        "https://API.Groq.com/openai/v1/chat/completions",
        "http://localhost:11434/v1/chat/completions",
    ],
)
def test_the_addresses_of_providers_are_known(url: str, model: Model):
    with block_network(), intercept(model.answer):
        assert by_httpx2(url) == [b"answered"]


@pytest.mark.parametrize(
    "url", ["https://api.openai.com.example/v1", "https://openai.azure.com.example/v1"]
)
def test_an_address_that_only_resembles_a_provider_is_not_intercepted(url: str, model: Model):
    with block_network(), intercept(model.answer), pytest.raises(httpx2.ConnectError):
        by_httpx2(url)


@pytest.mark.parametrize("client", BLOCKING)
async def test_a_blocking_client_is_answered_in_a_thread_with_a_running_loop(
    client: Client, model: Model
):
    loop = asyncio.get_running_loop()
    with block_network(), intercept(model.answer):
        assert client(OPENAI) == [b"answered"]
    assert asyncio.get_running_loop() is loop
    await asyncio.sleep(0)


async def test_a_source_may_send_a_blocking_request_itself(model: Model):
    async def answer(request: HttpRequest) -> HttpResponse:
        if request.path == "/v1/inner":
            return await model.answer(request)
        await asyncio.sleep(0)
        return HttpResponse(body=b"".join(by_httpx2("https://api.openai.com/v1/inner")))

    with block_network(), intercept(answer):
        assert by_requests(OPENAI) == [b"answered"]
        assert await asyncio.to_thread(by_httpx2, OPENAI) == [b"answered"]
        assert await by_httpx2_async(OPENAI) == [b"answered"]


async def test_threads_and_tasks_of_a_block_are_intercepted(model: Model):
    with block_network(), intercept(model.answer):
        answers = await asyncio.gather(
            asyncio.to_thread(by_httpx2, OPENAI),
            asyncio.to_thread(by_requests, OPENAI),
            asyncio.create_task(by_httpx2_async(OPENAI)),
            asyncio.get_running_loop().run_in_executor(None, by_httpx2, OPENAI),
        )
    assert answers == [[b"answered"]] * 4


def test_threads_use_the_source_one_at_a_time():
    inside = 0
    most = 0

    async def answer(request: HttpRequest) -> HttpResponse:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        inside -= 1
        return HttpResponse(body=request.body)

    with block_network(), intercept(answer), ThreadPoolExecutor(4) as pool:
        assert list(pool.map(by_httpx2, [OPENAI] * 20)) == [[BODY]] * 20
    assert most == 1


async def test_tasks_of_one_loop_use_the_source_concurrently():
    both = asyncio.Barrier(2)

    async def answer(request: HttpRequest) -> HttpResponse:
        await both.wait()
        return HttpResponse(body=request.body)

    with intercept(answer):
        await asyncio.gather(by_httpx2_async(OPENAI), by_httpx2_async(OPENAI))


async def test_two_blocks_in_parallel_have_their_own_answers():
    async def run(word: bytes) -> list[list[bytes]]:
        model = Model(HttpResponse(body=word))
        with block_network(), intercept(model.answer):
            answers = [await client(OPENAI) for client in AWAITED for _ in range(2)]
            await asyncio.sleep(0)
            return [*answers, await asyncio.to_thread(by_requests, OPENAI)]

    first, second = await asyncio.gather(run(b"first"), run(b"second"))
    assert first == [[b"first"]] * 7
    assert second == [[b"second"]] * 7


def test_the_inner_of_two_nested_blocks_answers(model: Model):
    inner = Model(HttpResponse(body=b"inner"))
    with intercept(model.answer):
        with intercept(inner.answer):
            assert by_httpx2(OPENAI) == [b"inner"]
        assert by_httpx2(OPENAI) == [b"answered"]


async def test_a_task_outside_of_the_block_is_not_intercepted(model: Model):
    inside, tried = asyncio.Event(), asyncio.Event()

    async def outsider() -> None:
        await inside.wait()
        with block_network(), pytest.raises(httpx2.ConnectError):
            await by_httpx2_async(OPENAI)
        tried.set()

    async def run() -> None:
        with intercept(model.answer):
            inside.set()
            await tried.wait()

    await asyncio.gather(outsider(), run())
    assert not model.requests


def snapshot() -> list[object]:
    return [
        httpx.HTTPTransport.handle_request,
        httpx.AsyncHTTPTransport.handle_async_request,
        httpx2.HTTPTransport.handle_request,
        httpx2.AsyncHTTPTransport.handle_async_request,
        aiohttp.TCPConnector._create_connection,  # pyright: ignore[reportPrivateUsage] - not public
        http.client.HTTPConnection.connect,
        http.client.HTTPConnection.putrequest,
        urllib3.connection.HTTPConnection.connect,
        urllib3.connection.HTTPSConnection.connect,
        threading.Thread.start,
        list(sys.meta_path),
    ]


def test_all_patches_are_undone(model: Model):
    before = snapshot()
    with suppress(ZeroDivisionError), intercept(model.answer), intercept(model.answer):
        assert snapshot() != before
        raise ZeroDivisionError
    assert snapshot() == before


@pytest.mark.parametrize("client", CLIENTS)
def test_an_exception_of_the_source_reaches_the_client(client: Client):
    async def answer(request: HttpRequest) -> HttpResponse:
        raise LookupError(request.path)

    with intercept(answer), pytest.raises(Exception) as caught:  # noqa: PT011 - each client wraps it in another type
        client(OPENAI)
    assert LookupError in causes(caught.value)


# --- faults and slow responses

FAULTS: dict[str, tuple[type[Exception], ...]] = {
    "reset": (
        ConnectionResetError,
        *(httpx.ReadError, httpx.RemoteProtocolError),
        *(httpx2.ReadError, httpx2.RemoteProtocolError),
    ),
    "timeout": (TimeoutError, httpx.ReadTimeout, httpx2.ReadTimeout),
}


@pytest.mark.parametrize("chunks", [(), EVENTS[:1]], ids=["before the head", "in the stream"])
@pytest.mark.parametrize("ending", FAULTS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_response_that_breaks_off_is_an_error_of_the_client(
    client: Client, ending: Any, chunks: tuple[bytes, ...]
):
    model = Model(HttpResponse(chunks=chunks, ending=ending))
    with block_network(), intercept(model.answer), pytest.raises(Exception) as caught:  # noqa: PT011 - each client wraps it in another type
        client(OPENAI)
    assert any(issubclass(kind, FAULTS[ending]) for kind in causes(caught.value))


@pytest.mark.parametrize("client", CLIENTS)
def test_a_stream_with_delays_arrives_event_by_event(client: Client):
    model = Model(HttpResponse(chunks=EVENTS, chunk_delays=(0, 0.001, 0)))
    with block_network(), intercept(model.answer):
        assert client(OPENAI) == list(EVENTS)


async def test_a_body_that_aiohttp_sends_in_pieces_is_joined(model: Model):
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"one ", b"two"):
            yield piece
            await asyncio.sleep(0)

    with block_network(), intercept(model.answer):
        async with aiohttp.ClientSession() as session, session.post(OPENAI, data=pieces()) as got:
            assert await got.read() == b"answered"
    assert [request.body for request in model.requests] == [b"one two"]


async def test_a_large_stream_waits_for_the_reader_of_aiohttp():
    chunks = tuple(bytes([number]) * 100_000 for number in range(20))
    model = Model(HttpResponse(chunks=chunks))
    with block_network(), intercept(model.answer):
        async with aiohttp.ClientSession() as session, session.post(OPENAI, data=BODY) as response:
            for _ in range(50):  # the buffer of aiohttp is full long before the end
                await asyncio.sleep(0)
            assert not response.content.is_eof()
            assert await response.read() == b"".join(chunks)


async def test_a_stream_stops_when_aiohttp_closes_its_response():
    sent: list[bytes] = []
    closed = asyncio.Event()

    async def live() -> AsyncIterator[bytes]:
        for event in EVENTS:
            sent.append(event)
            yield event
            await closed.wait()

    model = Model(HttpResponse(live_chunks=live()))
    with block_network(), intercept(model.answer):
        async with aiohttp.ClientSession() as session:
            response = await session.post(OPENAI, data=BODY)
            assert await response.content.readany() == EVENTS[0]
            response.close()
            response.close()
            closed.set()
            for _ in range(10):
                await asyncio.sleep(0)
    assert sent == list(EVENTS[:2])  # the second was on its way


def test_a_request_without_its_whole_body_gets_no_response(model: Model):
    connection = http.client.HTTPConnection("api.openai.com")
    with intercept(model.answer):
        connection.request("POST", "/v1/models", b"half", {"content-length": "8"})
        with pytest.raises(http.client.RemoteDisconnected):
            connection.getresponse()
    assert not model.requests


def test_an_open_connection_to_another_address_stays_open(model: Model, real: str):
    url = f"{real}/chat/completions"
    with requests.Session() as session:
        assert session.post(url, data=BODY, timeout=60).content == b"real"
        with intercept(model.answer):
            assert session.post(url, data=BODY, timeout=60).content == b"real"
    assert not model.requests


def test_a_python_without_ssl_is_patched():
    class Plain(http.client.HTTPConnection):
        pass

    undo = list(HttpClientTransport().patch(SimpleNamespace(HTTPConnection=Plain)))
    assert {"connect", "putrequest"} <= set(vars(Plain))
    for restore in undo:
        restore()
    assert not {"connect", "putrequest"} & set(vars(Plain))


# --- a library that is imported late

LATE = "library_imported_late_7"


class LateTransport:
    modules = (LATE, f"{LATE}_missing")

    def patch(self, module: Any) -> Iterable[Callable[[], None]]:
        def connect(original: Callable[[], str]) -> str:
            return f"patched {original()}"

        yield apply_patch(module, "connect", connect)


@pytest.fixture
def patcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Patcher:
    """A patcher of a library that can be imported and was not."""
    (tmp_path / f"{LATE}.py").write_text("def connect():\n    return 'network'\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    monkeypatch.setitem(sys.modules, LATE, sys)  # so that it is removed after the test
    monkeypatch.delitem(sys.modules, LATE)
    return Patcher((LateTransport(),))


def test_a_library_is_patched_from_its_import_to_the_end_of_the_block(patcher: Patcher):
    with patcher:
        library = importlib.import_module(LATE)
        assert library.connect() == "patched network"
    assert library.connect() == "network"
    assert patcher not in sys.meta_path


def test_a_library_that_is_not_installed_is_not_found(patcher: Patcher):
    with patcher, pytest.raises(ModuleNotFoundError, match=f"{LATE}_missing"):
        importlib.import_module(f"{LATE}_missing")


def test_an_import_that_ends_after_the_block_is_not_patched(patcher: Patcher):
    with patcher:
        spec = importlib.util.find_spec(LATE)
    assert spec is not None
    assert spec.loader is not None
    library: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(library)
    assert library.connect() == "network"


LATE_IMPORT = """
import asyncio, sys
from offbook.determinism.network_guard import block_network
from offbook.exchange.dialects.dialect import HttpResponse
from offbook.sources.inprocess.patching import intercept

libraries = {"httpx", "httpx2", "aiohttp", "urllib3", "requests", "http.client"}
assert not libraries & set(sys.modules), libraries & set(sys.modules)

async def answer(request):
    return HttpResponse(body=b"answered")

with block_network(), intercept(answer):
    from tests.sources.inprocess.clients import CLIENTS
    for client in CLIENTS:
        print(client.__name__, client("https://api.openai.com/v1/chat/completions"))
"""


def test_a_library_imported_inside_the_block_is_patched(unwatched: dict[str, str]):
    done = subprocess.run(
        [sys.executable, "-c", LATE_IMPORT],
        env=unwatched,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[b'answered']") == len(CLIENTS)
