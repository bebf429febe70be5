"""A head that was read once is known again, and never taken for another."""

import asyncio
from itertools import pairwise
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.exchange.messages import Text, user
from offbook.exchange.model import Reply, Request
from offbook.sources.server.connection import Connection
from offbook.sources.server.request_head import CACHE_SIZE, HeadCache, parse_head
from offbook.sources.server.server import Server
from tests.sources.server.plain_dialect import body, recognise
from tests.sources.server.raw_http import post

URL = "http://127.0.0.1/plain"
HEAD = b"POST /plain HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n"


class Echo:
    """Says what it was told."""

    async def reply(self, request: Request) -> Reply:
        return Reply((Text(request.prompt),))


class Wall:
    """What a connection takes for its transport; it keeps what is written."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def set_write_buffer_limits(self, high: int) -> None:
        """There is room for anything."""

    def pause_reading(self) -> None:
        """It goes on all the same."""

    def resume_reading(self) -> None:
        """It never stopped."""


async def speak(pieces: list[bytes]) -> list[str]:
    """What is answered to these pieces of a connection's bytes."""
    server = Server(recognise=recognise)
    server.loop = asyncio.get_running_loop()
    server.mount(Echo(), run="")
    wall = Wall()
    connection = Connection(server)
    connection.connection_made(cast("Any", wall))
    for piece in pieces:
        server.loop.call_soon(connection.data_received, piece)  # by the loop, in nobody's task
        await asyncio.sleep(0)
    for _ in range(20):  # pipelined requests have their turn one by one
        await asyncio.sleep(0)
    parts = wall.written.split(b"\r\n\r\n")[1:]
    return [msgspec.json.decode(part.split(b"HTTP/1.1")[0], type=Reply).text for part in parts]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The bytes, cut at these places."""
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(ends)]


@given(st.lists(st.text(max_size=3), min_size=1, max_size=6), st.lists(st.integers(0, 5000)))
def test_however_its_bytes_are_cut_each_request_gets_its_answer(said: list[str], at: list[int]):
    asked = b"".join(post(URL, body(user(text))) for text in said)
    assert asyncio.run(speak(cut(asked, at))) == said


@given(st.lists(st.text(max_size=2), min_size=2, max_size=6), st.booleans())
def test_one_request_after_the_other_gets_its_answer(said: list[str], apart: bool):  # noqa: FBT001 - drawn or given by a table
    pieces: list[bytes] = []
    for text in said:
        sent = body(user(text))
        request = post(URL, sent)
        pieces += [request[: -len(sent)], sent] if apart else [request]
    assert asyncio.run(speak(pieces)) == said


def test_a_known_head_is_not_parsed_again():
    heads = HeadCache()
    head = parse_head(
        "POST", b"/s/one/plain?a=1", {"host": "localhost:1", "content-length": "2"}, HEAD
    )
    heads.keep(head)
    assert heads.find(HEAD) is head
    assert (head.run, head.path, head.query, head.length, head.local) == (
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
def test_a_head_that_does_not_say_all_by_itself_is_not_kept(raw: bytes, headers: dict[str, str]):
    heads = HeadCache()
    heads.keep(parse_head("POST", b"/plain", headers, raw))
    assert heads.find(raw) is None


def test_no_more_heads_are_kept_than_there_is_room_for():
    heads = HeadCache()
    raws = [HEAD.replace(b"plain", b"%d" % number) for number in range(CACHE_SIZE + 1)]
    for raw in raws:
        heads.keep(parse_head("POST", b"/", {}, raw))
    assert sum(heads.find(raw) is not None for raw in raws) == 1
