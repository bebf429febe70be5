"""A stream is passed on while it is recorded, and a broken one never looks complete."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse, IncompleteRead
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import openai
import pytest
import requests

from offbook.determinism import block_network
from offbook.errors import ModelError
from offbook.exchange import ModelSource, Reply, Request, Text, Usage, all_dialects, detect_dialect
from offbook.exchange.dialects import ConversationStore, Dialect, HttpRequest, HttpResponse
from offbook.sources import Live
from offbook.sources.cassette import Cassette, Recording, load_cassette
from offbook.sources.inprocess import intercept
from offbook.sources.live import read_reply
from offbook.sources.server import Endpoint, Server
from tests.sources.cassette.conversations import record

TIMEOUT = 60
REPLY = Reply((Text("Hello, world"),), usage=Usage(9, 3), chunks=("Hel", "lo, ", "world"))
USER: dict[str, Any] = {"role": "user", "content": "hi"}
MESSAGES: list[Any] = [USER]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "m", "messages": [USER], "stream": True},
    "/v1/responses": {"model": "m", "input": "hi", "stream": True},
    "/v1/messages": {"model": "m", "max_tokens": 9, "messages": [USER], "stream": True},
    "/v1beta/models/m:streamGenerateContent": {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}]
    },
}


OVERLOADED = (
    b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"busy"}}\n\n'
)


class Upstream(BaseHTTPRequestHandler):
    """A provider that sends half of a stream, waits for `released`, and ends or breaks off."""

    protocol_version = "HTTP/1.1"
    released = threading.Event()
    broken = False
    cut = False
    overloaded = False
    timed_out = False

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = HttpRequest("POST", path, headers, body, query)
        dialect = detect_dialect(request)
        assert dialect is not None
        response = dialect.encode(REPLY, dialect.decode(request, ConversationStore()))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        half = len(response.chunks) // 2
        for index, chunk in enumerate(response.chunks):
            if index == half:
                type(self).timed_out = not self.released.wait(TIMEOUT)
                if self.broken:
                    self.close_connection = True
                    return
                if self.cut:
                    self.wfile.write(b"0\r\n\r\n")
                    return
                if self.overloaded:
                    self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(OVERLOADED), OVERLOADED))
                    return
            self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - inherited
        """Do nothing."""


@pytest.fixture
def upstream() -> Iterator[tuple[str, type[Upstream]]]:
    class Provider(Upstream):
        released = threading.Event()

    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", Provider
        server.shutdown()


@contextmanager
def post(url: str, path: str) -> Generator[HTTPResponse]:
    """Send a request, and return the response to read it as it arrives."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT)
    headers = {"content-type": "application/json"}
    query = "?alt=sse" if "models" in path else ""
    connection.request("POST", path + query, msgspec.json.encode(BODIES[path]), headers)
    try:
        yield connection.getresponse()
    finally:
        connection.close()


def live(url: str) -> Live:
    return Live({"": url, "openai-chat": f"{url}/v1", "openai-responses": f"{url}/v1"})


@pytest.mark.parametrize("path", BODIES)
def test_the_first_events_arrive_before_the_last_are_sent(
    path: str, tmp_path: Path, upstream: tuple[str, type[Upstream]]
):
    url, provider = upstream
    cassette = tmp_path / "one.yaml"
    with Server() as server, Recording(live(url), cassette) as recording:
        endpoint = server.mount(recording, run="")
        with post(endpoint.url, path) as response:
            first = response.readline()
            assert first.strip()
            assert not provider.released.is_set()
            provider.released.set()
            rest = response.read()
        assert not provider.timed_out
        assert recording.summary().interactions == 1  # recorded before the last event was sent
    with post(url, path) as direct:
        whole = direct.read()
    assert first + rest == whole if "chat" not in path else b"[DONE]" in rest
    assert b'"choices":[]' not in rest.replace(b" ", b"")  # the usage, which was not requested
    (item,) = load_cassette(cassette)
    assert item.response.output == "Hello, world"
    assert item.response.tokens == 12
    pieces = [piece.split("@") for piece in item.response.chunks.split()]
    assert [int(piece[0]) for piece in pieces] == [3, 4, 5]
    assert sum(float(piece[1]) for piece in pieces if piece[1:]) > 0
    with Server() as server, post(server.mount(Cassette(cassette), run="").url, path) as again:
        text = again.read()
    assert all(piece.encode() in text for piece in REPLY.chunks)


def test_a_stream_that_breaks_off_is_not_recorded(
    tmp_path: Path, upstream: tuple[str, type[Upstream]]
):
    url, provider = upstream
    cassette = tmp_path / "one.yaml"
    path = "/v1/chat/completions"
    provider.released.set()
    with Server() as server, Recording(live(url), cassette) as recording:
        endpoint = server.mount(recording, run="")
        with post(endpoint.url, path) as response:
            assert b"[DONE]" in response.read()
        provider.broken = True
        with post(endpoint.url, path) as response, pytest.raises((IncompleteRead, OSError)):
            response.read()
    assert endpoint.failure is not None
    assert recording.summary().interrupted
    assert len(load_cassette(cassette)) == 1
    assert load_cassette(cassette).header.metadata["interrupted"] is True


@pytest.mark.parametrize("path", BODIES)
def test_a_stream_without_its_end_is_passed_on_and_not_recorded(
    path: str, tmp_path: Path, upstream: tuple[str, type[Upstream]]
):
    url, provider = upstream
    cassette = tmp_path / "one.yaml"
    provider.released.set()
    provider.cut = True
    with Server() as server, Recording(live(url), cassette) as recording:
        endpoint = server.mount(recording, run="")
        with post(endpoint.url, path) as response:
            assert response.read()
        provider.cut = False
        with post(endpoint.url, path) as response:
            assert response.read()
    assert endpoint.failure is None
    assert recording.summary().interrupted
    (item,) = load_cassette(cassette)
    assert item.response.output == "Hello, world"


DIALECTS = all_dialects()
REQUEST = Request(model="m")
NO_REPLIES = {
    "nothing": b"{}",
    "another object": b'{"foo": 1}',
    "a page": b"<html>Bad Gateway</html>",
}


@pytest.mark.parametrize("dialect", DIALECTS, ids=[dialect.name for dialect in DIALECTS])
@pytest.mark.parametrize("body", NO_REPLIES.values(), ids=NO_REPLIES)
def test_a_body_that_is_not_a_reply_is_an_error(dialect: Dialect, body: bytes):
    with pytest.raises(ModelError) as caught:
        read_reply(dialect, HttpResponse(200, {"content-type": "application/json"}, body), REQUEST)
    assert caught.value.status == 502


@pytest.mark.parametrize("dialect", DIALECTS, ids=[dialect.name for dialect in DIALECTS])
def test_an_error_with_the_status_of_a_reply_is_an_error(dialect: Dialect):
    body = b'{"error": {"message": "boom", "code": 503}}'
    with pytest.raises(ModelError, match="boom") as caught:
        read_reply(dialect, HttpResponse(200, {"content-type": "application/json"}, body), REQUEST)
    assert caught.value.status == 503


def test_an_error_in_a_stream_is_passed_on_and_recorded(
    tmp_path: Path, upstream: tuple[str, type[Upstream]]
):
    url, provider = upstream
    cassette = tmp_path / "one.yaml"
    provider.released.set()
    provider.overloaded = True
    with Server() as server, Recording(live(url), cassette) as recording:
        endpoint = server.mount(recording, run="")
        with post(endpoint.url, "/v1/messages") as response:
            assert response.read().endswith(OVERLOADED)
    assert endpoint.failure is None
    (stored,) = load_cassette(cassette)
    assert stored.response.error is not None
    assert stored.response.error.message == "busy"


def test_a_stream_is_recorded_whole_after_the_client_disconnected(
    tmp_path: Path, upstream: tuple[str, type[Upstream]]
):
    url, provider = upstream
    cassette = tmp_path / "one.yaml"
    recorded = threading.Event()

    class SignallingRecording(Recording):
        async def reply(self, request: Any, /) -> Reply:
            try:
                return await super().reply(request)
            finally:
                recorded.set()

    with Server() as server, SignallingRecording(live(url), cassette) as recording:
        with post(server.mount(recording, run="").url, "/v1/messages") as response:
            response.readline()
        provider.released.set()
        assert recorded.wait(TIMEOUT)
    assert [item.response.output for item in load_cassette(cassette)] == ["Hello, world"]


async def test_a_stream_is_replayed_with_its_recorded_delays(tmp_path: Path):
    cassette = tmp_path / "one.yaml"
    path = "/v1/chat/completions"
    request = HttpRequest("POST", path, {}, msgspec.json.encode(BODIES[path]))
    reply = msgspec.structs.replace(REPLY, delays=(250.0, 0, 40.5))
    dialect = detect_dialect(request)
    assert dialect is not None
    await record(cassette, [dialect.decode(request, ConversationStore())], reply)
    async with Server() as server:
        for timed in (True, False):
            endpoint = server.mount(Cassette(cassette, timed=timed))
            response = await endpoint.answer(request)
            waits = list(endpoint.delays(response) or ())
            texts = [n for n, chunk in enumerate(response.chunks) if b'"content":"' in chunk]
            assert [wait for wait in waits if wait] == ([0.25, 0.0405] if timed else [])
            assert not timed or waits[texts[-1]] == 0.0405


# --------------------------------------------------------------------------------- in process


@contextmanager
def intercepted_by(source: ModelSource) -> Generator[Endpoint]:
    """Answer the clients of this process by a source."""
    endpoint = Endpoint(source, url="", detect_dialect=detect_dialect)
    with block_network(), intercept(endpoint.answer, relay=endpoint.relays):
        yield endpoint


OPENAI = "https://api.openai.com/v1/chat/completions"
BODY = msgspec.json.encode(BODIES["/v1/chat/completions"])


def by_sdk(on_first: Callable[[], object]) -> list[str]:
    with openai.OpenAI(api_key="none") as client:
        stream = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        pieces = [next(stream)]
        on_first()
        pieces += stream
    return [choice.delta.content or "" for piece in pieces for choice in piece.choices]


async def by_async_sdk(on_first: Callable[[], object]) -> list[str]:
    pieces: list[Any] = []
    async with openai.AsyncOpenAI(api_key="none") as client:
        stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        async for piece in stream:
            pieces.append(piece)
            on_first()
    return [choice.delta.content or "" for piece in pieces for choice in piece.choices]


def read_events(events: Iterable[bytes], on_first: Callable[[], object]) -> list[str]:
    texts: list[str] = []
    for event in events:
        on_first()
        data = event.removeprefix(b"data: ").strip()
        if data and data != b"[DONE]":
            choices = msgspec.json.decode(data)["choices"]
            texts += [choice["delta"].get("content") or "" for choice in choices]
    return texts


def by_requests(on_first: Callable[[], object]) -> list[str]:
    with requests.Session() as session:
        session.trust_env = False
        with session.post(OPENAI, data=BODY, stream=True, timeout=TIMEOUT) as response:
            return read_events(response.iter_content(None), on_first)


async def by_aiohttp(on_first: Callable[[], object]) -> list[str]:
    async with aiohttp.ClientSession() as session, session.post(OPENAI, data=BODY) as response:
        events: list[bytes] = []
        async for event, _ in response.content.iter_chunks():
            events.append(event)
            on_first()
    return read_events(events, lambda: None)


def run(ask: Callable[..., Any], on_first: Callable[[], object]) -> list[str]:
    return asyncio.run(ask(on_first)) if iscoroutinefunction(ask) else ask(on_first)


CLIENTS = [by_sdk, by_async_sdk, by_requests, by_aiohttp]


@pytest.mark.parametrize("ask", CLIENTS)
def test_an_intercepted_client_gets_the_first_event_before_the_last_is_sent(
    ask: Callable[..., Any], tmp_path: Path, upstream: tuple[str, type[Upstream]]
):
    url, provider = upstream
    cassette = tmp_path / "one.yaml"
    with Recording(live(url), cassette) as recording, intercepted_by(recording):
        texts = run(ask, provider.released.set)
        assert recording.summary().interactions == 1
    assert not provider.timed_out
    assert [text for text in texts if text] == ["Hel", "lo, ", "world"]
    (item,) = load_cassette(cassette)
    assert item.response.output == "Hello, world"
    with intercepted_by(Cassette(cassette)):
        again = run(ask, lambda: None)
    assert [piece for piece in again if piece] == ["Hel", "lo, ", "world"]


@pytest.mark.parametrize("ask", CLIENTS)
def test_an_intercepted_client_gets_an_error_if_the_stream_breaks_off(
    ask: Callable[..., Any], tmp_path: Path, upstream: tuple[str, type[Upstream]]
):
    url, provider = upstream
    provider.broken = True
    with (
        Recording(live(url), tmp_path / "one.yaml") as recording,
        intercepted_by(recording) as endpoint,
    ):
        with pytest.raises(Exception):  # noqa: B017, PT011 - each client has its own type
            run(ask, provider.released.set)
        assert endpoint.failure is not None
    assert recording.summary().interrupted


def test_a_stream_is_recorded_whole_after_an_intercepted_client_stopped_reading(
    tmp_path: Path, upstream: tuple[str, type[Upstream]]
):
    url, provider = upstream
    cassette = tmp_path / "one.yaml"
    with Recording(live(url), cassette) as recording, intercepted_by(recording):
        with openai.OpenAI(api_key="none") as client:
            stream = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            next(stream)
            stream.close()
        provider.released.set()
    assert [item.response.output for item in load_cassette(cassette)] == ["Hello, world"]
