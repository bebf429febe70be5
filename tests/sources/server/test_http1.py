"""A cached head is found again, and never confused with another."""

import asyncio
from itertools import pairwise
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.exchange import Reply, Request, Text, user
from offbook.sources.server import (
    CACHE_SIZE,
    Connection,
    HeadCache,
    RequestBuffer,
    Server,
    parse_head,
)
from tests.sources.server.plain_dialect import body, detect_plain
from tests.sources.server.raw_http import post

URL = "http://127.0.0.1/plain"
HEAD = b"POST /plain HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n"


class Echo:
    """Repeats the prompt."""

    async def reply(self, request: Request) -> Reply:
        return Reply((Text(request.prompt),))


class FakeTransport:
    """A transport that keeps the bytes that are written."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def set_write_buffer_limits(self, high: int) -> None:
        """Do nothing."""

    def pause_reading(self) -> None:
        """Do nothing."""

    def resume_reading(self) -> None:
        """Do nothing."""


async def exchange(pieces: list[bytes]) -> list[str]:
    """Return the replies to the pieces of a connection's bytes."""
    server = Server(detect_dialect=detect_plain)
    server.loop = asyncio.get_running_loop()
    server.mount(Echo(), run="")
    transport = FakeTransport()
    connection = Connection(server)
    connection.connection_made(cast("Any", transport))
    for piece in pieces:
        connection.data_received(piece)
        await asyncio.sleep(0)
    for _ in range(20):  # pipelined requests are answered one by one
        await asyncio.sleep(0)
    parts = transport.written.split(b"\r\n\r\n")[1:]
    return [msgspec.json.decode(part.split(b"HTTP/1.1")[0], type=Reply).text for part in parts]


def split(data: bytes, positions: list[int]) -> list[bytes]:
    """Split the bytes at these positions."""
    ends = sorted({position % (len(data) + 1) for position in positions} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(ends)]


@given(st.lists(st.text(max_size=3), min_size=1, max_size=6), st.lists(st.integers(0, 5000)))
def test_each_request_is_answered_however_its_bytes_are_split(
    prompts: list[str], positions: list[int]
):
    data = b"".join(post(URL, body(user(text))) for text in prompts)
    assert asyncio.run(exchange(split(data, positions))) == prompts


@given(st.lists(st.text(max_size=2), min_size=2, max_size=6), st.booleans())
def test_each_of_several_requests_is_answered(prompts: list[str], apart: bool):  # noqa: FBT001 - drawn by hypothesis
    pieces: list[bytes] = []
    for text in prompts:
        sent = body(user(text))
        request = post(URL, sent)
        pieces += [request[: -len(sent)], sent] if apart else [request]
    assert asyncio.run(exchange(pieces)) == prompts


def test_a_cached_head_is_found_by_its_bytes():
    cache = HeadCache()
    head = parse_head(
        "POST", b"/s/one/plain?a=1", {"host": "localhost:1", "content-length": "2"}, HEAD
    )
    cache.add(head)
    assert cache.get(HEAD) is head
    assert (head.run, head.path, head.query, head.length, head.is_local) == (
        "one",
        "/plain",
        "a=1",
        2,
        True,
    )


@pytest.mark.parametrize(
    "raw, headers",
    [
        (b"\r\n\r\n", {}),
        (HEAD.replace(b"\r\n", b"\n") + b"{}\r\n\r\n", {}),
        (HEAD, {"transfer-encoding": "chunked"}),
        (HEAD, {"expect": "100-continue"}),
        (HEAD, {"upgrade": "websocket"}),
        (HEAD + b"x" * 10_000, {}),
        (HEAD[:-2], {}),
        (HEAD[:3], {}),
        (b"", {}),
    ],
)
def test_a_head_whose_bytes_do_not_define_the_body_is_not_cached(
    raw: bytes, headers: dict[str, str]
):
    cache = HeadCache()
    cache.add(parse_head("POST", b"/plain", headers, raw))
    assert cache.get(raw) is None


def test_a_request_to_a_proxy_loses_its_host():
    buffer = RequestBuffer()
    assert buffer.feed(b"POST http://api.openai.com/v1/x?to=http://y HTTP/1.1\r\n") is None
    request = buffer.feed(memoryview(b"Content-Length: 2\r\n\r\n{}"))
    assert request is not None
    assert (request.path, request.query, request.body) == ("/v1/x", "to=http://y", b"{}")
    assert request.headers == {"content-length": "2"}


def test_the_cache_is_limited():
    cache = HeadCache()
    raws = [HEAD.replace(b"plain", b"%d" % number) for number in range(CACHE_SIZE + 1)]
    for raw in raws:
        cache.add(parse_head("POST", b"/", {}, raw))
    assert sum(cache.get(raw) is not None for raw in raws) == 1
