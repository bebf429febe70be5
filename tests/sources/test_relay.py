"""While it is recorded, a stream is handed on as it comes, and no client hears it half."""

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

from offbook.determinism.network_guard import block_network
from offbook.exchange.dialects.conversations import ConversationStore
from offbook.exchange.dialects.dialect import HttpRequest
from offbook.exchange.messages import Text
from offbook.exchange.model import ModelSource, Reply, Usage
from offbook.exchange.providers import detect_dialect
from offbook.sources.cassette.journal import load_cassette
from offbook.sources.cassette.recording import Recording
from offbook.sources.cassette.replay import Cassette
from offbook.sources.inprocess.patching import intercept
from offbook.sources.live import Live
from offbook.sources.server.endpoint import Endpoint
from offbook.sources.server.server import Server
from tests.sources.cassette.conversations import record

PATIENCE = 10
SAID = Reply((Text("Hello, world"),), usage=Usage(9, 3), chunks=("Hel", "lo, ", "world"))
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


class Upstream(BaseHTTPRequestHandler):
    """A provider that says half, and the rest when it is let; or goes away instead."""

    protocol_version = "HTTP/1.1"
    heard = threading.Event()
    broken = False
    unheard = False

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        wire = HttpRequest("POST", path, headers, body, query)
        dialect = detect_dialect(wire)
        assert dialect is not None
        answer = dialect.encode(SAID, dialect.decode(wire, ConversationStore()))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        half = len(answer.chunks) // 2
        for at, chunk in enumerate(answer.chunks):
            if at == half:
                type(self).unheard = not self.heard.wait(PATIENCE)
                if self.broken:
                    self.close_connection = True
                    return
            self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is called
        """Nothing."""


@pytest.fixture
def upstream() -> Iterator[tuple[str, type[Upstream]]]:
    class Own(Upstream):
        heard = threading.Event()

    with ThreadingHTTPServer(("127.0.0.1", 0), Own) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", Own
        server.shutdown()


@contextmanager
def asked(url: str, path: str) -> Generator[HTTPResponse]:
    """The answer of a server, to be read as it comes."""
    place = urlsplit(url)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE)
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
def test_the_first_events_are_there_before_the_last_are_written(
    path: str, tmp_path: Path, upstream: tuple[str, type[Upstream]]
):
    url, provider = upstream
    cassette = tmp_path / "one.yaml"
    with Server() as server, Recording(live(url), cassette) as recording:
        endpoint = server.mount(recording, run="")
        with asked(endpoint.url, path) as answer:
            first = answer.readline()
            assert first.strip()
            assert not provider.heard.is_set()
            provider.heard.set()
            rest = answer.read()
        assert not provider.unheard
        assert recording.summary().interactions == 1  # it was kept before the end was told
    with asked(url, path) as direct:
        whole = direct.read()
    assert first + rest == whole if "chat" not in path else b"[DONE]" in rest
    assert b'"choices":[]' not in rest.replace(b" ", b"")  # the usage, which nobody asked for
    (item,) = load_cassette(cassette)
    assert item.response.output == "Hello, world"
    assert item.response.tokens == 12
    pieces = [piece.split("@") for piece in item.response.chunks.split()]
    assert [int(piece[0]) for piece in pieces] == [3, 4, 5]
    assert sum(float(piece[1]) for piece in pieces if piece[1:]) > 0
    with Server() as server, asked(server.mount(Cassette(cassette), run="").url, path) as again:
        told = again.read()
    assert all(piece.encode() in told for piece in SAID.chunks)


def test_a_provider_that_goes_away_in_the_middle_is_no_interaction(
    tmp_path: Path, upstream: tuple[str, type[Upstream]]
):
    url, provider = upstream
    cassette = tmp_path / "one.yaml"
    path = "/v1/chat/completions"
    provider.heard.set()
    with Server() as server, Recording(live(url), cassette) as recording:
        endpoint = server.mount(recording, run="")
        with asked(endpoint.url, path) as answer:
            assert b"[DONE]" in answer.read()
        provider.broken = True
        with asked(endpoint.url, path) as answer, pytest.raises((IncompleteRead, OSError)):
            answer.read()
    assert endpoint.failure is not None
    assert recording.summary().interrupted
    assert len(load_cassette(cassette)) == 1
    assert load_cassette(cassette).header.metadata["interrupted"] is True


def test_what_a_client_did_not_wait_for_is_kept_whole(
    tmp_path: Path, upstream: tuple[str, type[Upstream]]
):
    url, provider = upstream
    cassette = tmp_path / "one.yaml"
    kept = threading.Event()

    class Noting(Recording):
        async def reply(self, request: Any, /) -> Reply:
            try:
                return await super().reply(request)
            finally:
                kept.set()

    with Server() as server, Noting(live(url), cassette) as recording:
        with asked(server.mount(recording, run="").url, "/v1/messages") as answer:
            answer.readline()
        provider.heard.set()
        assert kept.wait(PATIENCE)
    assert [item.response.output for item in load_cassette(cassette)] == ["Hello, world"]


async def test_a_stream_may_take_as_long_as_it_did(tmp_path: Path):
    cassette = tmp_path / "one.yaml"
    path = "/v1/chat/completions"
    wire = HttpRequest("POST", path, {}, msgspec.json.encode(BODIES[path]))
    said = msgspec.structs.replace(SAID, delays=(250.0, 0, 40.5))
    dialect = detect_dialect(wire)
    assert dialect is not None
    await record(cassette, [dialect.decode(wire, ConversationStore())], said)
    async with Server() as server:
        for timed in (True, False):
            endpoint = server.mount(Cassette(cassette, timed=timed))
            answer = await endpoint.answer(wire)
            waits = list(endpoint.delays(answer) or ())
            brought = [n for n, chunk in enumerate(answer.chunks) if b'"content":"' in chunk]
            assert [wait for wait in waits if wait] == ([0.25, 0.0405] if timed else [])
            assert not timed or waits[brought[-1]] == 0.0405


# --------------------------------------------------------------------------------- in process


@contextmanager
def played(source: ModelSource) -> Generator[Endpoint]:
    """The clients of this process are answered by this source."""
    endpoint = Endpoint(source, url="", detect_dialect=detect_dialect)
    with block_network(), intercept(endpoint.answer, relay=endpoint.relays):
        yield endpoint


OPENAI = "https://api.openai.com/v1/chat/completions"
BODY = msgspec.json.encode(BODIES["/v1/chat/completions"])


def by_sdk(first: Callable[[], object]) -> list[str]:
    with openai.OpenAI(api_key="none") as client:
        stream = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        pieces = [next(stream)]
        first()
        pieces += stream
    return [choice.delta.content or "" for piece in pieces for choice in piece.choices]


async def by_sdk_awaited(first: Callable[[], object]) -> list[str]:
    pieces: list[Any] = []
    async with openai.AsyncOpenAI(api_key="none") as client:
        stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        async for piece in stream:
            pieces.append(piece)
            first()
    return [choice.delta.content or "" for piece in pieces for choice in piece.choices]


def read_events(events: Iterable[bytes], first: Callable[[], object]) -> list[str]:
    said: list[str] = []
    for event in events:
        first()
        data = event.removeprefix(b"data: ").strip()
        if data and data != b"[DONE]":
            choices = msgspec.json.decode(data)["choices"]
            said += [choice["delta"].get("content") or "" for choice in choices]
    return said


def by_requests(first: Callable[[], object]) -> list[str]:
    with requests.Session() as session:
        session.trust_env = False
        with session.post(OPENAI, data=BODY, stream=True, timeout=PATIENCE) as response:
            return read_events(response.iter_content(None), first)


async def by_aiohttp(first: Callable[[], object]) -> list[str]:
    async with aiohttp.ClientSession() as session, session.post(OPENAI, data=BODY) as response:
        events: list[bytes] = []
        async for event, _ in response.content.iter_chunks():
            events.append(event)
            first()
    return read_events(events, lambda: None)


def run(ask: Callable[..., Any], first: Callable[[], object]) -> list[str]:
    return asyncio.run(ask(first)) if iscoroutinefunction(ask) else ask(first)


ASKING = [by_sdk, by_sdk_awaited, by_requests, by_aiohttp]


@pytest.mark.parametrize("ask", ASKING)
def test_a_client_of_this_process_hears_the_first_before_the_last_is_written(
    ask: Callable[..., Any], tmp_path: Path, upstream: tuple[str, type[Upstream]]
):
    url, provider = upstream
    cassette = tmp_path / "one.yaml"
    with Recording(live(url), cassette) as recording, played(recording):
        said = run(ask, provider.heard.set)
        assert recording.summary().interactions == 1
    assert not provider.unheard
    assert [piece for piece in said if piece] == ["Hel", "lo, ", "world"]
    (item,) = load_cassette(cassette)
    assert item.response.output == "Hello, world"
    with played(Cassette(cassette)):
        again = run(ask, lambda: None)
    assert [piece for piece in again if piece] == ["Hel", "lo, ", "world"]


@pytest.mark.parametrize("ask", ASKING)
def test_one_that_goes_on_alone_hears_that_its_provider_went_away(
    ask: Callable[..., Any], tmp_path: Path, upstream: tuple[str, type[Upstream]]
):
    url, provider = upstream
    provider.broken = True
    with Recording(live(url), tmp_path / "one.yaml") as recording, played(recording) as endpoint:
        with pytest.raises(Exception):  # noqa: B017, PT011 - each client words it in its own way
            run(ask, provider.heard.set)
        assert endpoint.failure is not None
    assert recording.summary().interrupted


def test_what_a_client_of_this_process_did_not_wait_for_is_kept_whole(
    tmp_path: Path, upstream: tuple[str, type[Upstream]]
):
    url, provider = upstream
    cassette = tmp_path / "one.yaml"
    with Recording(live(url), cassette) as recording, played(recording):
        with openai.OpenAI(api_key="none") as client:
            stream = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            next(stream)
            stream.close()
        provider.heard.set()
    assert [item.response.output for item in load_cassette(cassette)] == ["Hello, world"]
