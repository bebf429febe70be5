"""The bytes of exchanges in the trace: complete, without secrets, of limited size, on request."""

import base64
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest

from offbook.determinism import keep_wire
from offbook.exchange import Reply, Request, Text, user
from offbook.exchange.dialects import HttpRequest, HttpResponse
from offbook.sources.server import MAX_BYTES, Server, WireExchange
from offbook.trace import ERROR, REPLY, REQUEST, WIRE, Event, Hub
from tests.sources.server.plain_dialect import body
from tests.sources.server.raw_http import ask, connect, post
from tests.sources.server.test_websocket import create, read_frames

SECRET = "Zq8kT3vLm1Rw9xYb"  # noqa: S105 - of no account
AT_THE_CUT = b"x" * (MAX_BYTES // 2 - 60) + SECRET.encode() * 99 + b"x" * MAX_BYTES


class Echo:
    async def reply(self, request: Request) -> Reply:
        return Reply((Text(f"you said {request.prompt}"),))


class Broken:
    async def reply(self, request: Request) -> Reply:
        raise KeyError(request.prompt)


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub that gets the bytes of exchanges."""
    token = keep_wire.set(True)
    yield Hub()
    keep_wire.reset(token)


def collect(hub: Hub, *names: str) -> list[Event]:
    events: list[Event] = []
    hub.subscribe(events.append, names)
    return events


def record_sides(hub: Hub, request: HttpRequest, response: HttpResponse) -> dict[str, Any]:
    events = collect(hub, WIRE)
    WireExchange(hub, request).record(response)
    return events[0].data


def test_an_exchange_has_the_bytes_of_both_sides(server: Server, hub: Hub):
    events = collect(hub, REQUEST, WIRE)
    endpoint = server.mount(Echo(), hub=hub)
    sent = body(user("hi"))
    _, _, answer = ask(f"{endpoint.url}/v1/plain?a=1", sent, "X-Trial: 7")
    asked, wire = events
    assert wire.data["exchange"] == asked.data["exchange"]
    request, response = wire.data["request"], wire.data["response"]
    head, _, content = request["start"].partition("\r\n\r\n")
    assert head.startswith("POST /v1/plain?a=1 HTTP/1.1\r\n")
    assert "\r\nx-trial: 7\r\n" in head
    assert content == sent.decode()
    assert request["size"] == len(request["start"])
    assert response["start"].startswith("HTTP/1.1 200 OK\r\n")
    assert response["start"].partition("\r\n\r\n")[2] == answer.decode()


def test_nothing_is_recorded_unless_it_is_asked_for(server: Server):
    hub = Hub()
    events = collect(hub, "*")
    ask(f"{server.mount(Echo(), hub=hub).url}/v1/plain", body(user("hi")))
    assert [event.event for event in events] == [REQUEST, REPLY]


def test_a_variable_asks_for_it_in_all_runs_of_a_process(
    server: Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OFFBOOK_WIRE", "1")
    hub = Hub()
    events = collect(hub, WIRE)
    ask(f"{server.mount(Echo(), hub=hub).url}/v1/plain", body(user("hi")))
    assert len(events) == 1


def test_requests_at_the_same_time_keep_their_ids(server: Server, hub: Hub):
    events = collect(hub, REQUEST, WIRE)
    endpoint = server.mount(Echo(), hub=hub)
    url = f"{endpoint.url}/v1/plain"
    texts = [f"number {number}" for number in range(8)]
    with connect(url) as first, connect(url) as second:
        for text, connection in zip(texts, [first, second] * 4, strict=True):
            connection.sendall(post(url, body(user(text))))
        for connection in (first, second):
            connection.shutdown(1)
            connection.makefile("rb").read()
    asked = {e.data["exchange"]: e.data["new"] for e in events if e.event == REQUEST}
    wires = [event.data for event in events if event.event == WIRE]
    assert len(wires) == len(texts)
    for wire in wires:
        prompt = asked[wire["exchange"]][-1].text
        assert f"you said {prompt}" in wire["response"]["start"]


def test_a_request_that_fails_the_run_has_its_bytes(server: Server, hub: Hub):
    events = collect(hub, REQUEST, ERROR, WIRE)
    endpoint = server.mount(Broken(), hub=hub)
    ask(f"{endpoint.url}/v1/plain", body(user("hi")))
    asked, _, wire = events
    assert wire.data["exchange"] == asked.data["exchange"]
    assert wire.data["response"]["start"].startswith("HTTP/1.1 400")


def test_a_request_without_a_dialect_has_its_bytes(server: Server, hub: Hub):
    events = collect(hub, WIRE)
    ask(f"{server.mount(Echo(), hub=hub).url}/elsewhere", b"{}")
    assert "exchange" not in events[0].data
    assert events[0].data["request"]["start"].startswith("POST /elsewhere HTTP/1.1")


def test_websocket_messages_are_recorded_as_they_were_sent(server: Server, hub: Hub):
    events = collect(hub, WIRE)
    endpoint = server.mount(Echo(), hub=hub)
    with connect(endpoint.url) as connection:
        connection.sendall(
            f"GET /s/{endpoint.url.rpartition('/')[2]}/v1/responses HTTP/1.1\r\nhost: localhost\r\n"
            "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
            "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        while b"\r\n\r\n" not in connection.recv(4096):
            pass
        connection.sendall(create("hi"))
        answer = [frame for _, frame in read_frames(connection, 3)]
        connection.sendall(create("again"))
        read_frames(connection, 3)  # so the first conversation has ended
    data = events[0].data
    assert msgspec.json.decode(data["request"]["start"])["type"] == "response.create"
    assert data["response"]["start"] == b"\n".join(answer).decode()


@pytest.mark.parametrize(
    "request_",
    [
        HttpRequest("POST", "/v1", {"authorization": f"Bearer {SECRET}"}),
        HttpRequest("POST", "/v1", {"x-goog-api-key": SECRET}),
        HttpRequest("POST", "/v1", {"cookie": f"session={SECRET}"}),
        HttpRequest("POST", "/v1", query=f"key={SECRET}"),
        HttpRequest("POST", "/v1", query=f"alt=sse&access_token={SECRET}"),
        HttpRequest("POST", "/v1", body=f'{{"api_key": "{SECRET}"}}'.encode()),
        HttpRequest("POST", "/v1", {"x-api-key": SECRET}, f"say {SECRET}".encode()),
        HttpRequest("POST", "/v1", {"x-api-key": SECRET}, b"\xff" + SECRET.encode()),
        HttpRequest("POST", "/v1", {"x-api-key": SECRET}, AT_THE_CUT),
    ],
    ids=["bearer", "header", "cookie", "query", "token", "body", "said", "binary", "at the cut"],
)
def test_secrets_are_masked(hub: Hub, request_: HttpRequest):
    side = record_sides(hub, request_, HttpResponse())["request"]
    raw = "".join(side.get(name, "") for name in ("start", "end"))
    shown = base64.b64decode(raw) if "encoding" in side else raw.encode()
    assert SECRET[:8].encode() not in shown
    assert SECRET[-8:].encode() not in shown


STREAMS = {
    "chat": 'data: {"id":"c","choices":[{"delta":{"content":"TEXT"}}]}\r\n\r\n',
    "anthropic": 'event: content_block_delta\ndata:{"index":0,"delta":{"text":"TEXT"}}\n\n',
    "lines": '{"message": {"content": "TEXT"}, "done": false}\n',
}


@pytest.mark.parametrize("frame", STREAMS.values(), ids=STREAMS)
def test_a_secret_that_is_split_over_the_events_of_a_stream_is_masked(hub: Hub, frame: str):
    parts = ("The key is sk-pr", f"oj-{SECRET}", SECRET, ", the pass", "word is hunter2", "Xy9!zz")
    chunks = tuple(frame.replace("TEXT", part).encode() for part in (*parts, " and more"))
    response = record_sides(hub, HttpRequest("POST", "/v1"), HttpResponse(chunks=chunks))[
        "response"
    ]
    shown = response["start"]
    assert not [part for part in (SECRET, "sk-pr", "hunter2", "Xy9!zz") if part in shown]
    assert shown.count("[API_KEY]") == 5
    assert frame.replace("TEXT", " and more") in shown


def test_a_cookie_of_the_response_is_masked(hub: Hub):
    response = HttpResponse(headers={"set-cookie": f"session={SECRET}"})
    data = record_sides(hub, HttpRequest("POST", "/v1"), response)
    assert "set-cookie: [API_KEY]\r\n" in data["response"]["start"]


def test_long_bytes_have_their_start_and_their_end(hub: Hub):
    sent = b"a" * MAX_BYTES + b"b" * MAX_BYTES
    side = record_sides(hub, HttpRequest("POST", "/v1", body=sent), HttpResponse())["request"]
    assert side["start"].endswith("aaa")
    assert side["end"] == "b" * (MAX_BYTES // 2)
    assert side["size"] > len(sent)
    assert len(side["start"]) + len(side["end"]) == MAX_BYTES


def test_bytes_that_are_not_text_are_in_base64(hub: Hub):
    response = HttpResponse(chunks=(b"\xff\x00", b"\x01"))
    side = record_sides(hub, HttpRequest("POST", "/v1"), response)["response"]
    assert side["encoding"] == "base64"
    assert base64.b64decode(side["start"]).endswith(b"\r\n\r\n\xff\x00\x01")


async def test_a_stream_in_progress_is_recorded_at_its_end(hub: Hub):
    async def stream() -> AsyncIterator[bytes]:
        yield b"one "
        yield b"two"

    events = collect(hub, WIRE)
    response = HttpResponse(live_chunks=stream())
    recorded = WireExchange(hub, HttpRequest("POST", "/v1")).record(response)
    assert recorded.live_chunks is not None
    assert [chunk async for chunk in recorded.live_chunks] == [b"one ", b"two"]
    assert events[0].data["response"]["start"].endswith("\r\n\r\none two")
    assert "ending" not in events[0].data


async def test_a_stream_that_breaks_is_marked(hub: Hub):
    async def stream() -> AsyncIterator[bytes]:
        yield b"one "
        raise ConnectionError

    events = collect(hub, WIRE)
    response = HttpResponse(live_chunks=stream())
    recorded = WireExchange(hub, HttpRequest("POST", "/v1")).record(response)
    assert recorded.live_chunks is not None
    with pytest.raises(ConnectionError):
        _ = [chunk async for chunk in recorded.live_chunks]
    assert events[0].data["ending"] == "reset"


def test_a_response_that_was_never_sent_has_no_bytes(hub: Hub):
    data = record_sides(hub, HttpRequest("POST", "/v1"), HttpResponse(ending="timeout"))
    assert data["response"] == {"size": 0, "start": ""}
    assert data["ending"] == "timeout"
