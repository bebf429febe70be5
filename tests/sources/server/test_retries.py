"""What is asked again is answered and told as if nobody remembered anything."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from offbook.determinism.clock import FrozenClock
from offbook.exchange.dialects.chat import chat_stream
from offbook.exchange.dialects.dialect import HttpRequest
from offbook.sources.mocks.mocks import Mocks, Receipt
from offbook.sources.server.connection import Connection
from offbook.sources.server.request_head import HeadCache
from offbook.sources.server.server import Server
from offbook.trace.events import Event
from offbook.trace.hub import Hub
from tests.sources.server.raw_http import post
from tests.sources.server.test_request_head import Wall

URL = "http://127.0.0.1/v1/chat/completions"
LINES: list[dict[str, Any]] = [
    {"match": "*a*", "text": "For a."},
    {"match": "*b*", "text": "In pieces.", "stream_chunks": ["In ", "pieces."]},
    {"match": "*b*", "text": "Once for b.", "consume_match": True},
    {"match": "*c*", "tool_calls": [{"name": "look", "arguments": {"at": 1}}]},
    {"match": "*c*", "tool_calls": [{"name": "look", "id": "mine"}]},
    {"match": "*d*", "error": {"status": 429, "kind": "transient", "reason": "x"}},
    {"match": "*", "text": "For anybody.", "input_tokens": 7},
    {"text": "In order."},
]
PROBE = "quota"  # which is answered beside the work, if Claude Code asks
HEADERS = [(), ("connection: close",), ("user-agent: claude-cli/2",)]


class Asked(msgspec.Struct, frozen=True):
    """A request of few possible ones, so that it comes again."""

    said: str
    stream: bool
    headers: tuple[str, ...]
    old: bool

    def spell(self) -> bytes:
        message = {"role": "user", "content": self.said}
        body = msgspec.json.encode({"model": "m", "messages": [message], "stream": self.stream})
        sent = post(URL, body, *self.headers)
        return sent.replace(b"HTTP/1.1", b"HTTP/1.0") if self.old else sent


class Client(Wall):
    """A transport that shows where it was closed."""

    written: bytes

    def close(self) -> None:
        self.written += b"(closed)"


asking = st.builds(
    Asked,
    st.sampled_from([*"abcd", PROBE]),
    st.booleans(),
    st.sampled_from(HEADERS),
    st.booleans(),
)


def forget(*_: object) -> None:
    """Know nothing of it."""


@contextmanager
def forgetful() -> Generator[None]:
    """Inside, every head is read and every reply is written as if for the first time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HeadCache, "find", forget)
        patch.setattr(chat_stream, "_text_template", chat_stream._text_template.__wrapped__)  # pyright: ignore[reportPrivateUsage] - without its memory
        yield


async def serve(
    lines: list[dict[str, Any]], asked: list[Asked]
) -> tuple[list[bytes], list[Event], list[Receipt]]:
    """What is written for these requests, and what the trace and the mocks tell of them."""
    hub, events = Hub(FrozenClock()), list[Event]()
    hub.subscribe(events.append)
    server = Server()
    server.loop = asyncio.get_running_loop()
    mocks = Mocks(lines)
    server.mount(mocks, run="", hub=hub)
    written: list[bytes] = []
    for one in asked:
        client = Client()
        reached = Connection(server)
        reached.connection_made(cast("Any", client))
        server.loop.call_soon(reached.data_received, one.spell())  # by the loop, in no task
        await asyncio.sleep(0)
        written.append(client.written)
    return written, events, list(mocks.receipts)


@example(
    [LINES[0], LINES[-1]],
    [Asked(PROBE, False, headers, False) for headers in (HEADERS[2], HEADERS[0])],
)
@given(
    st.lists(st.sampled_from(LINES), min_size=1, max_size=6),
    st.lists(asking, min_size=2, max_size=12),
)
def test_nothing_shows_that_a_request_was_there_before(
    lines: list[dict[str, Any]], asked: list[Asked]
):
    remembered = asyncio.run(serve(lines, asked))
    with forgetful():
        assert asyncio.run(serve(lines, asked)) == remembered
    assert all(remembered[0])


async def test_of_two_equal_answers_that_were_lost_each_is_given_once_more():
    hub, events = Hub(), list[Event]()
    hub.subscribe(events.append)
    endpoint = Server().mount(Mocks(LINES[:1]), run="", hub=hub)
    body = b'{"model": "m", "messages": [{"role": "user", "content": "a"}]}'
    wires = [HttpRequest("POST", "/v1/chat/completions", {}, body) for _ in range(6)]
    answers = [await endpoint.answer(wire) for wire in wires[:3]]
    for wire, answer in zip(wires[1:3], answers[1:3], strict=True):
        endpoint.lose(wire, answer)
        endpoint.lose(wire, answer)  # a connection may notice it twice
    answers += [await endpoint.answer(wire) for wire in wires[3:]]
    assert len({answer.body for answer in answers}) == 1
    told = [event.event for event in events if event.event != "model.reply"]
    assert told == ["model.request"] * 3 + ["model.aside"] * 2 + ["model.request"]
