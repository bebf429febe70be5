"""Every client inside is answered, in its own task and threads, and nobody else is."""

import asyncio
import http.client
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
import requests
import urllib3.connection
from hypothesis import given
from hypothesis.strategies import binary

from offbook.determinism.network_guard import block_network
from offbook.errors import IsolationError
from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
from offbook.sources.inprocess.patching import intercept
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
    """Answers everything, and remembers what it was asked."""

    def __init__(self, answer: HttpResponse | None = None) -> None:
        self.asked: list[HttpRequest] = []
        self._answer = answer or HttpResponse(
            headers={"content-type": "text/plain"}, body=b"answered"
        )

    async def answer(self, wire: HttpRequest) -> HttpResponse:
        self.asked.append(wire)
        await asyncio.sleep(0)
        return self._answer


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def streaming() -> Model:
    return Model(HttpResponse(headers={"content-type": "text/event-stream"}, chunks=EVENTS))


class Real(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "4")
        self.end_headers()
        self.wfile.write(b"real")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as above
        """Say nothing."""


@pytest.fixture
def real() -> Iterator[str]:
    """A server that is really there, on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Real) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join()


def causes(error: BaseException | None) -> set[type[BaseException]]:
    """The kinds of an error and of all that led to it."""
    kinds: set[type[BaseException]] = set()
    while error is not None:
        kinds.add(type(error))
        error = error.__cause__ or error.__context__
    return kinds


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_is_answered(client: Client, model: Model):
    with block_network(), intercept(model.answer):
        assert b"".join(client(OPENAI)) == b"answered"
    [wire] = model.asked
    assert (wire.method, wire.path, wire.query, wire.body) == (
        "POST",
        "/v1/chat/completions",
        "",
        BODY,
    )
    assert wire.headers["content-length"] == str(len(BODY))


@pytest.mark.parametrize("client", CLIENTS)
def test_a_stream_comes_event_by_event(client: Client, streaming: Model):
    with block_network(), intercept(streaming.answer):
        assert client(OPENAI) == list(EVENTS)


def _describe(library: Any, client: Any) -> list[object]:
    """All that a client can see of a response, read at once and as a stream."""
    whole = client.post(OPENAI, content=BODY)
    with client.stream("POST", OPENAI, content=BODY) as streamed:
        pieces = b"".join(streamed.iter_bytes())
    told = [whole.content, whole.text, sorted(whole.headers.items()), bool(whole.elapsed < DAY)]
    return [library.codes(whole.status_code), *told, pieces, list(whole.iter_lines())]


@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
@given(body=binary())
def test_a_whole_response_is_what_the_library_reads_from_its_pieces(library: Any, body: bytes):
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
def test_without_interception_the_border_holds(client: Client):
    with block_network(), pytest.raises(Exception) as caught:  # noqa: PT011 - each wraps it in its own
        client(OPENAI)
    assert IsolationError in causes(caught.value)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_given_base_url_is_answered_inside_and_real_outside(
    client: Client, model: Model, real: str
):
    assert client(f"{real}/chat/completions") == [b"real"]
    with block_network(), intercept(model.answer, urls=(real,)):
        assert client(f"{real}/chat/completions") == [b"answered"]
    assert client(f"{real}/chat/completions") == [b"real"]


@pytest.mark.parametrize("client", CLIENTS)
def test_an_address_that_nobody_gave_is_left_alone(client: Client, model: Model, real: str):
    with block_network(), intercept(model.answer):
        assert client(f"{real}/chat/completions") == [b"real"]
    assert not model.asked


def test_a_connection_from_before_is_not_used_inside(model: Model, real: str):
    url = f"{real}/chat/completions"
    with httpx2.Client() as client, requests.Session() as session:
        for _ in range(2):
            assert client.post(url, content=BODY).content == b"real"
            assert session.post(url, data=BODY, timeout=5).content == b"real"
            with intercept(model.answer, urls=(real,)):
                assert client.post(url, content=BODY).content == b"answered"
                assert session.post(url, data=BODY, timeout=5).content == b"answered"
                assert session.post(url, data=BODY, timeout=5).content == b"answered"


async def test_nor_is_one_of_aiohttp(model: Model, real: str):
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
def test_a_path_comes_decoded_and_apart_from_its_query(client: Client, model: Model):
    with intercept(model.answer, urls=("https://gateway.example/a%20team/v1",)):
        client("https://gateway.example/a%20team/v1/models/m:ask?alt=sse&x=%20")
    [wire] = model.asked
    assert (wire.path, wire.query) == ("/a team/v1/models/m:ask", "alt=sse&x=%20")


def test_a_base_url_of_the_environment_counts_as_given(
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
def test_the_providers_are_known(url: str, model: Model):
    with block_network(), intercept(model.answer):
        assert by_httpx2(url) == [b"answered"]


@pytest.mark.parametrize(
    "url", ["https://api.openai.com.example/v1", "https://openai.azure.com.example/v1"]
)
def test_an_address_that_only_looks_like_a_provider_is_not(url: str, model: Model):
    with block_network(), intercept(model.answer), pytest.raises(IsolationError):
        by_httpx2(url)


@pytest.mark.parametrize("client", BLOCKING)
async def test_a_blocking_client_is_answered_in_a_thread_whose_loop_runs(
    client: Client, model: Model
):
    loop = asyncio.get_running_loop()
    with block_network(), intercept(model.answer):
        assert client(OPENAI) == [b"answered"]
    assert asyncio.get_running_loop() is loop
    await asyncio.sleep(0)


async def test_threads_and_tasks_of_the_run_are_answered(model: Model):
    with block_network(), intercept(model.answer):
        answers = await asyncio.gather(
            asyncio.to_thread(by_httpx2, OPENAI),
            asyncio.to_thread(by_requests, OPENAI),
            asyncio.create_task(by_httpx2_async(OPENAI)),
            asyncio.get_running_loop().run_in_executor(None, by_httpx2, OPENAI),
        )
    assert answers == [[b"answered"]] * 4


def test_a_pool_of_threads_is_answered_without_a_collision():
    inside = 0
    most = 0

    async def answer(wire: HttpRequest) -> HttpResponse:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        inside -= 1
        return HttpResponse(body=wire.body)

    with block_network(), intercept(answer), ThreadPoolExecutor(4) as pool:
        assert list(pool.map(by_httpx2, [OPENAI] * 20)) == [[BODY]] * 20
    assert most == 1


async def test_concurrent_tasks_of_one_loop_do_not_wait_for_each_other():
    both = asyncio.Barrier(2)

    async def answer(wire: HttpRequest) -> HttpResponse:
        await both.wait()
        return HttpResponse(body=wire.body)

    with intercept(answer):
        await asyncio.gather(by_httpx2_async(OPENAI), by_httpx2_async(OPENAI))


async def test_two_runs_at_once_each_hear_their_own():
    async def run(word: bytes) -> list[list[bytes]]:
        model = Model(HttpResponse(body=word))
        with block_network(), intercept(model.answer):
            heard = [await client(OPENAI) for client in AWAITED for _ in range(2)]
            await asyncio.sleep(0)
            return [*heard, await asyncio.to_thread(by_requests, OPENAI)]

    first, second = await asyncio.gather(run(b"first"), run(b"second"))
    assert first == [[b"first"]] * 7
    assert second == [[b"second"]] * 7


def test_a_run_inside_a_run_is_answered_by_the_inner_one(model: Model):
    inner = Model(HttpResponse(body=b"inner"))
    with intercept(model.answer):
        with intercept(inner.answer):
            assert by_httpx2(OPENAI) == [b"inner"]
        assert by_httpx2(OPENAI) == [b"answered"]


async def test_a_neighbour_task_is_not_answered(model: Model):
    inside, tried = asyncio.Event(), asyncio.Event()

    async def neighbour() -> None:
        await inside.wait()
        with block_network(), pytest.raises(IsolationError):
            await by_httpx2_async(OPENAI)
        tried.set()

    async def run() -> None:
        with intercept(model.answer):
            inside.set()
            await tried.wait()

    await asyncio.gather(neighbour(), run())
    assert not model.asked


def snapshot() -> list[object]:
    return [
        httpx.HTTPTransport.handle_request,
        httpx.AsyncHTTPTransport.handle_async_request,
        httpx2.HTTPTransport.handle_request,
        httpx2.AsyncHTTPTransport.handle_async_request,
        aiohttp.TCPConnector._create_connection,  # pyright: ignore[reportPrivateUsage] - there is no public way
        http.client.HTTPConnection.connect,
        http.client.HTTPConnection.putrequest,
        urllib3.connection.HTTPConnection.connect,
        urllib3.connection.HTTPSConnection.connect,
        threading.Thread.start,
        list(sys.meta_path),
    ]


def test_everything_is_as_it_was_afterwards(model: Model):
    before = snapshot()
    with suppress(ZeroDivisionError), intercept(model.answer), intercept(model.answer):
        assert snapshot() != before
        raise ZeroDivisionError
    assert snapshot() == before


@pytest.mark.parametrize("client", CLIENTS)
def test_what_the_model_raises_reaches_the_client(client: Client):
    async def answer(wire: HttpRequest) -> HttpResponse:
        raise LookupError(wire.path)

    with intercept(answer), pytest.raises(Exception) as caught:  # noqa: PT011 - as above
        client(OPENAI)
    assert LookupError in causes(caught.value)


LATE = """
import asyncio, sys
from offbook.determinism.network_guard import block_network
from offbook.exchange.dialects.dialect import HttpResponse
from offbook.sources.inprocess.patching import intercept

libraries = {"httpx", "httpx2", "aiohttp", "urllib3", "requests", "http.client"}
assert not libraries & set(sys.modules), libraries & set(sys.modules)

async def answer(wire):
    return HttpResponse(body=b"answered")

with block_network(), intercept(answer):
    from tests.sources.inprocess.clients import CLIENTS
    for client in CLIENTS:
        print(client.__name__, client("https://api.openai.com/v1/chat/completions"))
"""


def test_a_library_that_comes_in_the_middle_of_a_run_is_caught(unwatched: dict[str, str]):
    done = subprocess.run(
        [sys.executable, "-c", LATE], env=unwatched, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[b'answered']") == len(CLIENTS)
