"""HTTP on the wire: real sockets, and requests written by hand."""

import asyncio
import errno
import socket
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest

from offbook.errors import UsageError
from offbook.exchange.messages import Text, user
from offbook.exchange.model import Reply, Request
from offbook.sources.server.endpoint import Pacing
from offbook.sources.server.server import Server
from tests.sources.server.plain_dialect import body, detect_plain
from tests.sources.server.raw_http import Reader, ask, connect, post


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
        (
            b"POST / HTTP/1.1\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\n",
            415,
            b"compressed",
        ),
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
