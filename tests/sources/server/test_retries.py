"""Caches are invisible: a repeated request is answered and traced like a new one."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from offbook.determinism import FrozenClock
from offbook.exchange.dialects import HttpRequest
from offbook.exchange.dialects.chat import chat_dialect
from offbook.sources.mocks import Mocks, Receipt
from offbook.sources.server import Connection, HeadCache, Server
from offbook.trace import Event, Hub
from tests.sources.server.raw_http import post
from tests.sources.server.test_http1 import FakeTransport

URL = "http://127.0.0.1/v1/chat/completions"
LINES: list[dict[str, Any]] = [
    {"match": "*a*", "text": "For a."},
    {"match": "*b*", "text": "In pieces.", "stream_chunks": ["In ", "pieces."]},
    {"match": "*b*", "text": "Once for b.", "consume_match": True},
    {"match": "*c*", "tool_calls": [{"name": "look", "arguments": {"at": 1}}]},
    {"match": "*c*", "tool_calls": [{"name": "look", "id": "mine"}]},
    {"match": "*d*", "error": {"status": 429, "kind": "transient", "reason": "x"}},
    {"match": "*", "text": "For any prompt.", "input_tokens": 7},
    {"text": "In order."},
]
PROBE = "quota"  # a side request, from Claude Code
HEADERS = [(), ("connection: close",), ("user-agent: claude-cli/2",)]


class Call(msgspec.Struct, frozen=True):
    """One of few possible requests, so that it is repeated."""

    prompt: str
    stream: bool
    headers: tuple[str, ...]
    http10: bool

    def render(self) -> bytes:
        message = {"role": "user", "content": self.prompt}
        body = msgspec.json.encode({"model": "m", "messages": [message], "stream": self.stream})
        sent = post(URL, body, *self.headers)
        return sent.replace(b"HTTP/1.1", b"HTTP/1.0") if self.http10 else sent


class Client(FakeTransport):
    """A transport that records when it was closed."""

    written: bytes

    def close(self) -> None:
        self.written += b"(closed)"


calls = st.builds(
    Call,
    st.sampled_from([*"abcd", PROBE]),
    st.booleans(),
    st.sampled_from(HEADERS),
    st.booleans(),
)


def find_nothing(*_: object) -> None:
    """Return None."""


@contextmanager
def without_caches() -> Generator[None]:
    """Parse every head and render every reply without a cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HeadCache, "get", find_nothing)
        patch.setattr(chat_dialect, "_text_template", chat_dialect._text_template.__wrapped__)  # pyright: ignore[reportPrivateUsage] - without its cache
        yield


async def serve(
    lines: list[dict[str, Any]], requests: list[Call]
) -> tuple[list[bytes], list[Event], list[Receipt]]:
    """Return the bytes written for the requests, the events and the receipts."""
    hub, events = Hub(FrozenClock()), list[Event]()
    hub.subscribe(events.append)
    server = Server()
    server.loop = asyncio.get_running_loop()
    mocks = Mocks(lines)
    server.mount(mocks, run="", hub=hub)
    written: list[bytes] = []
    for request in requests:
        client = Client()
        connection = Connection(server)
        connection.connection_made(cast("Any", client))
        connection.data_received(request.render())
        await asyncio.sleep(0)  # its task runs
        written.append(client.written)
    return written, events, list(mocks.receipts)


@example(
    [LINES[0], LINES[-1]],
    [Call(PROBE, False, headers, False) for headers in (HEADERS[2], HEADERS[0])],
)
@given(
    st.lists(st.sampled_from(LINES), min_size=1, max_size=6),
    st.lists(calls, min_size=2, max_size=12),
)
def test_a_repeated_request_is_answered_like_a_new_one(
    lines: list[dict[str, Any]], requests: list[Call]
):
    cached = asyncio.run(serve(lines, requests))
    with without_caches():
        assert asyncio.run(serve(lines, requests)) == cached
    assert all(cached[0])


async def test_each_of_two_equal_undelivered_responses_is_sent_once_more():
    hub, events = Hub(), list[Event]()
    hub.subscribe(events.append)
    endpoint = Server().mount(Mocks(LINES[:1]), run="", hub=hub)
    body = b'{"model": "m", "messages": [{"role": "user", "content": "a"}]}'
    request = HttpRequest("POST", "/v1/chat/completions", {}, body)
    responses = [await endpoint.answer(request) for _ in range(3)]
    for response in responses[1:3]:
        endpoint.mark_undelivered(response)
        endpoint.mark_undelivered(response)  # a connection may notice it twice
    responses += [await endpoint.answer(request) for _ in range(3)]
    assert len({response.body for response in responses}) == 1
    names = [event.event for event in events if event.event != "model.reply"]
    assert names == ["model.request"] * 3 + ["model.aside"] * 2 + ["model.request"]
