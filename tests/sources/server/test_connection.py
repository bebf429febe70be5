"""HTTP on the wire: real sockets, and requests written by hand."""

import asyncio
import contextvars
import errno
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest

from offbook.errors import UsageError
from offbook.exchange import Reply, Request, Text, user
from offbook.exchange.dialects import HttpRequest, HttpResponse
from offbook.sources.server import Connection, HeadCache, Pacing, RequestHead, Server
from tests.sources.server.plain_dialect import body, detect_plain
from tests.sources.server.raw_http import Reader, ask, connect, post
from tests.sources.server.test_websocket import CLOSE, TEXT, masked


class Echo:
    """Repeats the prompt."""

    async def reply(self, request: Request) -> Reply:
        await asyncio.sleep(0)  # so that the next request has to wait
        return Reply((Text(f"you said {request.prompt}"),))


@pytest.fixture
def url(server: Server):
    """The base URL of a run that echoes."""
    endpoint = server.mount(Echo())
    yield endpoint.openai
    endpoint.close()


def test_a_reply_is_returned(url: str):
    status, headers, text = ask(f"{url}/plain", body(user("hi")))
    assert status == 200
    assert headers["content-type"] == "application/json"
    assert msgspec.json.decode(text, type=Reply).text == "you said hi"


def test_each_event_of_a_stream_is_a_separate_chunk(url: str):
    with connect(url) as connection:
        connection.sendall(post(f"{url}/plain", body(user("hi"), stream=True)))
        reader = Reader(connection)
        assert reader.head()[1]["transfer-encoding"] == "chunked"
        assert list(reader.chunks()) == [b'data: "you"\n\n', b'data: "said"\n\n', b'data: "hi"\n\n']


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("count", [3, 40])
def test_pipelined_requests_are_answered_in_order(url: str, count: int, *, streams: bool):
    requests = b"".join(
        post(f"{url}/plain", body(user(str(n)), stream=streams)) for n in range(count)
    )
    with connect(url) as connection:
        reader = Reader(connection)
        for _ in range(2):
            connection.sendall(requests)
            replies = [reader.response()[2] for _ in range(count)]
            assert [str(n).encode() in text for n, text in enumerate(replies)] == [True] * count


def test_a_request_may_arrive_byte_by_byte(url: str):
    with connect(url) as connection:
        for byte in post(f"{url}/plain", body(user("slowly"))):
            connection.sendall(bytes([byte]))
        assert b"you said slowly" in Reader(connection).response()[2]


def test_a_body_may_be_chunked(url: str):
    sent = body(user("in pieces"))
    chunks = b"".join(b"%x\r\n%b\r\n" % (1, sent[n : n + 1]) for n in range(len(sent)))
    request = post(f"{url}/plain", chunks + b"0\r\n\r\n", "transfer-encoding: chunked")
    with connect(url) as connection:
        connection.sendall(request)
        assert b"you said in pieces" in Reader(connection).response()[2]


def test_a_client_that_expects_100_continue_gets_it(url: str):
    sent = body(user("may I"))
    request = post(f"{url}/plain", sent, "expect: 100-continue")
    with connect(url) as connection:
        connection.sendall(request[: -len(sent)])
        reader = Reader(connection)
        assert reader.head()[0] == 100
        connection.sendall(sent)
        assert reader.response()[0] == 200


def test_a_client_that_closed_its_half_still_gets_the_response(url: str):
    with connect(url) as connection:
        connection.sendall(post(f"{url}/plain", body(user("bye"))))
        connection.shutdown(1)
        assert Reader(connection).response()[0] == 200


def test_http_1_0_gets_a_stream_that_ends_with_the_connection(url: str):
    request = post(f"{url}/plain", body(user("hi"), stream=True)).replace(b"HTTP/1.1", b"HTTP/1.0")
    with connect(url) as connection:
        connection.sendall(request)
        reader = Reader(connection)
        assert "transfer-encoding" not in reader.head()[1]
        assert reader.rest().endswith(b'data: "hi"\n\n')


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "localhost:1", "LOCALHOST"])
def test_the_names_of_this_machine_are_accepted(url: str, host: str):
    assert ask(f"{url}/plain", body(user("hi")), host=host)[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost:x", "127.0.0.2"]
)
def test_another_host_name_is_rejected(url: str, host: str):
    status, _, text = ask(f"{url}/plain", body(user("hi")), host=host)
    assert status == 403
    assert host in text.decode()


@pytest.mark.parametrize(
    "sent, status, message",
    [
        (b"\x16\x03\x01\x02\x00\x01", 400, b"invalid HTTP"),
        (b"GET / HTTP/1.1\r\nhost: x\r\nbad header\r\n\r\n", 400, b"invalid HTTP"),
        (b"POST / HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n", 400, b""),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 431, b"headers"),
    ],
)
def test_an_invalid_request_gets_an_error_and_the_connection_is_closed(
    url: str, sent: bytes, status: int, message: bytes
):
    with connect(url) as connection:
        connection.sendall(sent)
        reader = Reader(connection)
        got, _, text = reader.response()
        assert (got, message in text) == (status, True)
        connection.shutdown(1)
        assert reader.rest() == b""
    assert ask(f"{url}/plain", body(user("still there?")))[0] == 200


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_50_mb_is_rejected_and_the_client_gets_the_error(url: str, *, chunked: bool):
    size = 50 * 1024 * 1024
    headers = ["transfer-encoding: chunked"] if chunked else [f"content-length: {size}"]
    with connect(url) as connection:
        connection.sendall(post(f"{url}/plain", b"", *headers))
        piece = b" " * (1 << 20)
        try:
            for _ in range(50):
                connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        except OSError:
            pytest.fail("the connection was closed before the client could read the response")
        status, _, text = Reader(connection).response()
    assert status == 413
    assert b"33554432 bytes" in text
    assert ask(f"{url}/plain", body(user("still there?")))[0] == 200


def test_an_incomplete_request_times_out_while_others_are_served():
    with Server(detect_dialect=detect_plain, timeout=0.05) as server:
        url = server.mount(Echo()).openai
        with connect(url) as slow:
            slow.sendall(b"POST / HTTP/1.1\r\nhost: localhost\r\nx-slow: ")
            assert ask(f"{url}/plain", body(user("hi")))[0] == 200
            assert Reader(slow).response()[0] == 408


def test_an_idle_connection_does_not_time_out():
    with Server(detect_dialect=detect_plain, timeout=0.02) as server:
        url = server.mount(Echo()).openai
        with connect(url) as idle, connect(url) as slow:
            slow.sendall(b"POST / HTTP/1.1\r\n")
            assert Reader(slow).response()[0] == 408
            idle.sendall(post(f"{url}/plain", body(user("hi"))))
            assert Reader(idle).response()[0] == 200


@pytest.mark.parametrize("port", [-1, 65_536, "80"])
def test_an_invalid_port_is_rejected(port: Any):
    with pytest.raises(UsageError, match="invalid port"):
        Server(port=port)


def test_a_port_in_use_is_reported():
    with (
        Server(detect_dialect=detect_plain) as first,
        pytest.raises(UsageError, match=str(first.port)),
    ):
        Server(detect_dialect=detect_plain, port=first.port).launch()


def test_a_forbidden_port_is_reported(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(UsageError, match="permission denied to bind port 80"):
        Server(detect_dialect=detect_plain, port=80).launch()


def test_five_hundred_streams_in_parallel_are_complete(server: Server):
    endpoint = server.mount(Echo(), pacing=Pacing(tokens_per_second=1000))
    url = endpoint.openai
    request = post(f"{url}/plain", body(user("hi"), stream=True))
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(url)) for _ in range(500)]
        for client in clients:
            client.sendall(request)
        ends = [Reader(client).response()[2].endswith(b'data: "hi"\n\n') for client in clients]
    assert ends == [True] * 500
    endpoint.close()


def test_a_paced_stream_sends_its_first_event_early(server: Server):
    endpoint = server.mount(Echo(), pacing=Pacing(first_token=1, tokens_per_second=200, jitter=0.5))
    with connect(endpoint.url) as connection:
        connection.sendall(post(f"{endpoint.openai}/plain", body(user("hi"), stream=True)))
        first = connection.recv(65536)
        while b"you" not in first:
            first += connection.recv(65536)
        assert b'"hi"' not in first
    endpoint.close()


def test_the_same_seed_gives_the_same_delays():
    pacing = Pacing(first_token=100, tokens_per_second=10, jitter=0.2, seed=7)
    first, *others = delays = list(pacing.delays(20, salt=3))
    assert delays == list(pacing.delays(20, salt=3))
    assert delays != list(pacing.delays(20, salt=4))
    assert 0.08 <= first <= 0.12
    assert all(0.08 <= delay <= 0.12 for delay in others)
    assert len(set(others)) > 10


# --- the calls of an event loop, in an order that real sockets do not promise

EVENTS: tuple[bytes, ...] = (b"data: one\n\n", b"data: two\n\n")
Answer = Callable[[HttpRequest], Coroutine[Any, Any, HttpResponse]]


class Wire(asyncio.Transport):
    """Keeps what is written, and how the connection was ended."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b""
        self.ended: list[str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.data += bytes(data)

    def write_eof(self) -> None:
        self.ended.append("eof")

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: the test calls pause_writing itself."""

    def close(self) -> None:
        self.ended.append("close")

    def abort(self) -> None:
        self.ended.append("abort")


class OneHandler:
    """The server of one connection, which answers all requests with one function."""

    limit = 1000
    refuses_pages = True
    at_once = False

    def __init__(self, answer: Answer) -> None:
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self.head_cache = HeadCache()
        self.context = contextvars.copy_context()
        self.requests: list[HttpRequest] = []
        self.undelivered: list[HttpResponse] = []
        self.paces = False
        self.task: asyncio.Task[None] | None = None
        self._answer = answer

    def route(self, head: RequestHead) -> "OneHandler":  # noqa: ARG002 - the protocol
        return self

    def start_task(
        self, work: Coroutine[Any, Any, None], context: contextvars.Context
    ) -> asyncio.Task[None]:
        self.task = self.loop.create_task(work, context=context)
        return self.task

    async def answer(self, request: HttpRequest) -> HttpResponse:
        self.requests.append(request)
        return await self._answer(request)

    def delays(self, response: HttpResponse) -> list[float] | None:
        return [0.0] * len(response.chunks) if self.paces else None

    def mark_undelivered(self, response: HttpResponse) -> None:
        self.undelivered.append(response)

    async def converse(self, request: HttpRequest, message: bytes) -> AsyncIterator[bytes]:
        if not message:  # the start of the conversation
            return
        response = await self._answer(request)
        for chunk in response.chunks:
            yield chunk
        if response.ending:
            raise ConnectionResetError


def open_wire(answer: Answer) -> tuple[OneHandler, Connection, Wire]:
    """Return a connection that is open, with its server and its transport."""
    server, wire = OneHandler(answer), Wire()
    connection = Connection(server)
    connection.connection_made(wire)
    return server, connection, wire


def always(response: HttpResponse) -> Answer:
    async def answer(request: HttpRequest) -> HttpResponse:
        return response

    return answer


def when_set(event: asyncio.Event, response: HttpResponse) -> Answer:
    async def answer(request: HttpRequest) -> HttpResponse:
        await event.wait()
        return response

    return answer


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


ASK = post("http://localhost/plain", b"12345678")
UPGRADE = (
    b"GET /v1/responses HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\n"
    b"upgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.mark.parametrize("sizes", [(8,), (3, 5), (1,) * 8], ids=str)
async def test_the_body_of_a_known_head_may_come_in_pieces(sizes: tuple[int, ...]):
    server, connection, _ = open_wire(always(HttpResponse()))
    head, body_ = ASK[:-8], ASK[-8:]
    connection.data_received(ASK)
    await settle()
    connection.data_received(head)
    for size in sizes:
        assert connection.started is not None  # so that it can time out
        connection.data_received(body_[:size])
        body_ = body_[size:]
    await settle()
    first, second = server.requests
    assert (first.body, first) == (b"12345678", second)
    assert connection.started is None


async def test_an_answer_that_never_waits_is_written_at_once():
    server, connection, wire = open_wire(always(HttpResponse(body=b"here")))
    connection.data_received(ASK)  # its head is known from now on
    await settle()
    server.at_once, server.task, wire.data = True, None, wire.data[:0]
    connection.data_received(ASK)
    assert wire.data.endswith(b"here")
    assert server.task is None


async def test_an_answer_that_never_waits_is_written_at_once_to_an_unknown_head_too():
    server, connection, wire = open_wire(always(HttpResponse(body=b"here")))
    server.at_once = True
    connection.data_received(ASK)
    assert wire.data.endswith(b"here")
    assert server.task is None


async def test_pipelined_requests_are_answered_at_once_in_their_order():
    async def repeat(request: HttpRequest) -> HttpResponse:
        return HttpResponse(body=request.body)

    server, connection, wire = open_wire(repeat)
    server.at_once = True
    connection.data_received(b"".join(post("http://localhost/plain", b) for b in (b"one", b"two")))
    assert wire.data.index(b"one") < wire.data.index(b"two")


@pytest.mark.parametrize("error", [pytest.fail.Exception, KeyboardInterrupt])
async def test_an_error_of_an_answer_that_never_waits_is_raised(error: type[BaseException]):
    async def answer(_: HttpRequest) -> HttpResponse:
        raise error("of a listener")

    server, connection, wire = open_wire(answer)
    server.at_once = True
    with pytest.raises(error, match="of a listener"):
        connection.data_received(ASK)
    assert wire.ended == ["abort"]


async def test_a_client_is_disconnected_if_its_answer_waits_after_all():
    event = asyncio.Event()
    event.set()
    server, connection, wire = open_wire(when_set(event, HttpResponse()))
    connection.data_received(ASK)
    await settle()
    event.clear()
    server.at_once = True
    connection.data_received(ASK)
    assert wire.ended == ["abort"]


async def test_a_body_after_the_timeout_is_no_request():
    server, connection, wire = open_wire(always(HttpResponse()))
    connection.data_received(ASK)  # its head is known from now on
    await settle()
    connection.data_received(ASK[:-8])
    connection.expire()
    connection.data_received(ASK[-8:])
    await settle()
    assert len(server.requests) == 1
    assert wire.data.count(b"HTTP/1.1") == 2


async def test_a_header_is_read_when_the_table_of_names_is_full(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("offbook.sources.server.connection.HEADER_NAMES_LIMIT", 0)
    server, connection, _ = open_wire(always(HttpResponse()))
    connection.data_received(ASK.replace(b"\r\nhost", b"\r\nX-Name-Seen-Once: 7\r\nhost"))
    await settle()
    assert server.requests[0].headers["x-name-seen-once"] == "7"


H2C = ("connection: upgrade", "upgrade: h2c")
FOREIGN = post("http://localhost/", b"", "sec-fetch-site: cross-site")


@pytest.mark.parametrize(
    "sent, status",
    [
        (post("http://localhost/", b"x" * 1001), b"413"),
        (post(f"http://localhost/{'x' * 70_000}", b"", "x-more: y"), b"431"),
        (post(f"http://localhost/{'x' * 70_000}", b"", *H2C), b"431"),
        (FOREIGN + post("http://localhost/", b"", method="CONNECT"), b"403"),
    ],
    ids=["a long body", "more headers", "an upgrade", "a CONNECT"],
)
async def test_what_follows_a_rejected_head_is_ignored(sent: bytes, status: bytes):
    server, connection, wire = open_wire(always(HttpResponse()))
    connection.data_received(sent)
    await settle()
    assert wire.data.startswith(b"HTTP/1.1 " + status)
    assert wire.data.count(b"HTTP/1.1") == 1
    assert (server.requests, wire.ended) == ([], ["eof"])


async def test_a_rejected_client_that_sends_on_is_disconnected_at_the_timeout():
    _, connection, wire = open_wire(always(HttpResponse()))
    connection.data_received(b"no HTTP\r\n\r\n")
    connection.expire()
    assert wire.ended == ["eof", "abort"]


async def test_a_connection_without_a_request_can_be_aborted():
    _, connection, wire = open_wire(always(HttpResponse()))
    connection.abort()
    assert wire.ended == ["abort"]


JAVA = post(
    "http://localhost/plain",
    b"12345678",
    *("connection: Upgrade, HTTP2-Settings", "http2-settings: AAEAAEAA", "upgrade: h2c"),
)


@pytest.mark.parametrize("size", [1, len(JAVA) - 8, len(JAVA) - 3, len(JAVA)])
async def test_a_request_for_http_2_is_answered_by_http_1(size: int):
    server, connection, wire = open_wire(always(HttpResponse(body=b"hello")))
    for _ in range(2):
        for start in range(0, len(JAVA), size):
            connection.data_received(JAVA[start : start + size])
        await settle()
    assert [request.body for request in server.requests] == [b"12345678"] * 2
    assert wire.data.count(b"\r\n\r\nhello") == 2
    assert wire.ended == []


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("headers", [(), ("connection: upgrade", "upgrade: h2c")])
async def test_a_client_that_takes_the_server_for_a_proxy_is_disconnected(
    headers: tuple[str, ...],
    at_once: bool,  # noqa: FBT001 - given by a table
):
    server, connection, wire = open_wire(always(HttpResponse(404)))
    server.at_once = at_once
    connection.data_received(post("http://localhost/", b"", *headers, method="CONNECT"))
    await settle()
    assert (len(server.requests), wire.ended) == (1, ["close"])


async def test_a_response_to_a_client_that_disconnected_is_undelivered():
    ready, response = asyncio.Event(), HttpResponse(body=b"late")
    server, connection, wire = open_wire(when_set(ready, response))
    connection.data_received(ASK)
    await settle()
    connection.connection_lost(None)
    ready.set()
    await settle()
    assert (server.undelivered, wire.data) == ([response], b"")
    assert server.connections == set()


async def test_a_response_that_was_not_sent_completely_is_undelivered():
    response = HttpResponse(body=b"large")
    server, connection, _ = open_wire(always(response))
    connection.data_received(ASK)
    await settle()
    connection.pause_writing()
    connection.connection_lost(None)
    assert server.undelivered == [response]


async def test_a_response_that_was_sent_is_delivered():
    server, connection, _ = open_wire(always(HttpResponse(body=b"small")))
    connection.data_received(ASK)
    await settle()
    connection.pause_writing()
    connection.pause_writing()
    connection.resume_writing()
    connection.connection_lost(None)
    assert server.undelivered == []


async def test_a_fault_of_a_client_that_disconnected_sends_nothing():
    ready = asyncio.Event()
    _, connection, wire = open_wire(when_set(ready, HttpResponse(chunks=EVENTS, ending="reset")))
    connection.data_received(ASK)
    await settle()
    connection.connection_lost(None)
    ready.set()
    await settle()
    assert (wire.data, wire.ended) == (b"", [])


async def follow(events: list[bytes]) -> AsyncIterator[bytes]:
    """Yield live events, and remove each that was taken."""
    while events:
        yield events.pop(0)


async def test_a_live_stream_is_drained_without_its_client():
    ready, events = asyncio.Event(), list(EVENTS)
    _, connection, wire = open_wire(when_set(ready, HttpResponse(live_chunks=follow(events))))
    connection.data_received(ASK)
    await settle()
    connection.connection_lost(None)
    ready.set()
    await settle()
    assert (events, wire.data) == ([], b"")


@pytest.mark.parametrize("kind", ["live", "paced"])
async def test_a_stream_waits_for_a_client_that_does_not_read(kind: str):
    live = HttpResponse(live_chunks=follow(list(EVENTS)))
    response = live if kind == "live" else HttpResponse(chunks=EVENTS)
    server, connection, wire = open_wire(always(response))
    server.paces = True
    connection.data_received(ASK)
    connection.pause_writing()
    await settle()
    assert b"transfer-encoding: chunked" in wire.data
    assert b"data:" not in wire.data
    connection.resume_writing()
    await settle()
    assert wire.data.endswith(b"data: two\n\n\r\n0\r\n\r\n")


async def test_a_paced_stream_ends_with_its_client():
    response = HttpResponse(chunks=EVENTS)
    server, connection, wire = open_wire(always(response))
    server.paces = True
    connection.data_received(ASK)
    connection.pause_writing()
    await settle()
    connection.connection_lost(None)
    await settle()
    assert b"data:" not in wire.data
    assert server.undelivered[-1] == response


async def test_a_handler_that_raises_ends_the_connection():
    async def answer(request: HttpRequest) -> HttpResponse:
        raise LookupError(request.path)

    server, connection, wire = open_wire(answer)
    connection.data_received(ASK)
    await settle()
    assert wire.ended == ["abort"]
    assert server.task is not None
    assert isinstance(server.task.exception(), LookupError)


async def test_a_stream_has_no_events_in_the_response_to_head():
    _, connection, wire = open_wire(always(HttpResponse(chunks=EVENTS)))
    connection.data_received(post("http://localhost/plain", b"", method="HEAD"))
    await settle()
    assert wire.data.endswith(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in wire.data
    assert b"data:" not in wire.data


def open_websocket(answer: Answer) -> tuple[OneHandler, Connection, Wire]:
    server, connection, wire = open_wire(answer)
    connection.data_received(UPGRADE)
    assert wire.data.startswith(b"HTTP/1.1 101")
    wire.data = b""
    return server, connection, wire


async def test_a_websocket_waits_for_a_client_that_does_not_read():
    _, connection, wire = open_websocket(always(HttpResponse(chunks=(b"one", b"two"))))
    connection.data_received(masked(TEXT, b"{}"))
    connection.pause_writing()
    await settle()
    assert wire.data == b""
    connection.resume_writing()
    await settle()
    assert wire.data == b"\x81\x03one\x81\x03two"


@pytest.mark.parametrize("end", ["lost", "closed"])
async def test_a_conversation_ends_with_its_websocket(end: str):
    ready = asyncio.Event()
    server, connection, wire = open_websocket(when_set(ready, HttpResponse(chunks=(b"one",))))
    connection.data_received(masked(TEXT, b"{}"))
    await settle()
    if end == "lost":
        connection.connection_lost(None)
        connection.data_received(masked(TEXT, b"{}"))
    else:
        connection.data_received(masked(CLOSE, b"\x03\xe8"))
    ready.set()
    await settle()
    assert b"one" not in wire.data
    assert server.task is not None
    assert server.task.done()


@pytest.mark.parametrize("fails", [False, True], ids=["a fault", "an exception"])
async def test_a_conversation_that_fails_ends_the_connection(*, fails: bool):
    async def answer(request: HttpRequest) -> HttpResponse:
        if fails:
            raise LookupError(request.path)
        return HttpResponse(chunks=(b"one",), ending="reset")

    server, connection, wire = open_websocket(answer)
    connection.data_received(masked(TEXT, b"{}"))
    await settle()
    assert wire.ended == ["abort"]
    assert server.task is not None
    assert isinstance(server.task.exception(), LookupError) is fails


async def test_an_open_websocket_is_disconnected_at_the_timeout():
    _, connection, wire = open_websocket(always(HttpResponse()))
    connection.expire()
    assert wire.ended == ["abort"]
