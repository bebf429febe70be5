"""WebSocket: framing against frames written by hand, and conversations over one socket."""

import socket
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.exchange import Reply, Request, Text, user
from offbook.sources.server import Server, WebSocket, handshake
from tests.sources.server.raw_http import Reader, connect

CONTINUE, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
MASK = b"\x01\x02\x03\x04"


def masked(opcode: int, payload: bytes, *, last: bool = True, mask: bytes = MASK) -> bytes:
    """Return a client's frame, written as RFC 6455 defines it."""
    size = len(payload)
    head = bytes([(0x80 if last else 0) | opcode])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 65536:
        head += bytes([0x80 | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([0x80 | 127]) + size.to_bytes(8, "big")
    return head + mask + bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))


def test_the_handshake_has_the_key_of_the_rfc():
    assert b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in handshake(
        "dGhlIHNhbXBsZSBub25jZQ=="
    )


@given(
    st.lists(st.binary(max_size=300), min_size=1, max_size=6),
    st.binary(min_size=4, max_size=4),
    st.integers(1, 50),
)
def test_messages_survive_any_mask_and_any_split(messages: list[bytes], mask: bytes, size: int):
    stream = b"".join(masked(TEXT, message, mask=mask) for message in messages)
    websocket = WebSocket(10_000)
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert [message for piece in pieces for message in websocket.receive(piece)] == messages


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536, 70_000])
def test_each_encoding_of_a_length_is_read_and_written(size: int):
    payload = b"x" * size
    websocket = WebSocket(100_000)
    assert websocket.receive(masked(TEXT, payload)) == [payload]
    frame = websocket.render_text(payload)
    assert frame.endswith(payload)
    assert len(frame) - size == (2 if size < 126 else 4 if size < 65536 else 10)


def test_a_fragmented_message_is_joined_around_a_ping():
    websocket = WebSocket(100)
    data = masked(TEXT, b"a", last=False) + masked(PING, b"?") + masked(CONTINUE, b"b")
    assert websocket.receive(data) == [b"ab"]
    assert websocket.pending_bytes() == (bytes([0x80 | PONG, 1]) + b"?", False)


@pytest.mark.parametrize(
    "data, code",
    [
        (b"\x81\x01x", 1002),
        (b"\xf1\x80" + MASK, 1002),
        (masked(CONTINUE, b"without a start"), 1002),
        (masked(TEXT, b"a", last=False) + masked(TEXT, b"b"), 1002),
        (masked(PING, b"x", last=False), 1002),
        (masked(TEXT, b"x" * 101), 1009),
        (masked(TEXT, b"x" * 60, last=False) + masked(CONTINUE, b"x" * 60), 1009),
    ],
    ids=["unmasked", "reserved bits", "no start", "no end", "split ping", "long", "long in parts"],
)
def test_a_protocol_error_closes_the_websocket(data: bytes, code: int):
    websocket = WebSocket(100)
    assert websocket.receive(data) == []
    frame, closes = websocket.pending_bytes()
    assert (frame[0] & 0x0F, int.from_bytes(frame[2:4], "big"), closes) == (CLOSE, code, True)
    assert not websocket.is_open


class Echo:
    async def reply(self, request: Request) -> Reply:
        return Reply((Text(f"you said {request.prompt}"),))


@pytest.fixture
def client(server: Server) -> Iterator[socket.socket]:
    """A WebSocket to a run that echoes."""
    endpoint = server.mount(Echo())
    with connect(endpoint.url) as connection:
        connection.sendall(
            f"GET /s/{endpoint.url.rpartition('/')[2]}/v1/responses HTTP/1.1\r\nhost: localhost\r\n"
            "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
            "sec-websocket-extensions: permessage-deflate\r\n"
            "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        status, headers = Reader(connection).head()
        assert status == 101
        assert headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        assert "sec-websocket-extensions" not in headers
        yield connection
    endpoint.close()


def read_frames(connection: socket.socket, count: int) -> list[tuple[int, bytes]]:
    """Read frames of the server, as opcode and payload."""
    file = connection.makefile("rb")
    frames: list[tuple[int, bytes]] = []
    for _ in range(count):
        first, size = file.read(2)
        size = int.from_bytes(file.read(2), "big") if size == 126 else size
        frames.append((first & 0x0F, file.read(size)))
    return frames


def create(text: str) -> bytes:
    """Return a request as a WebSocket message."""
    message = {"type": "response.create", "messages": [user(text)]}
    return masked(TEXT, msgspec.json.encode(message))


def test_one_socket_carries_several_turns(client: socket.socket):
    for text in ("one", "two"):
        client.sendall(create(text))
        payloads = [payload for _, payload in read_frames(client, 3)]
        assert payloads == [b'"you"', b'"said"', f'"{text}"'.encode()]


def test_messages_that_arrive_together_are_answered_in_order(client: socket.socket):
    client.sendall(create("one") + create("two"))
    assert [payload for _, payload in read_frames(client, 6)][2::3] == [b'"one"', b'"two"']


@pytest.mark.parametrize("message", [b"{not json", b'{"type": "session.update"}'])
def test_a_message_that_is_not_a_request_gets_an_error_event(client: socket.socket, message: bytes):
    client.sendall(masked(TEXT, message))
    [(_, payload)] = read_frames(client, 1)
    assert msgspec.json.decode(payload)["type"] == "error"


def test_a_request_that_the_dialect_rejects_gets_an_error_event(client: socket.socket):
    client.sendall(masked(TEXT, b'{"type": "response.create", "messages": 3}'))
    [(_, payload)] = read_frames(client, 1)
    assert msgspec.json.decode(payload)["status"] == 400


def test_a_ping_and_a_close_are_answered(client: socket.socket):
    client.sendall(masked(PING, b"there?") + masked(CLOSE, b"\x03\xe8"))
    assert read_frames(client, 2) == [(PONG, b"there?"), (CLOSE, b"\x03\xe8")]


def test_a_binary_message_closes_the_websocket(client: socket.socket):
    client.sendall(masked(BINARY, b"\x00"))
    [(opcode, payload)] = read_frames(client, 1)
    assert (opcode, payload[:2]) == (CLOSE, (1007).to_bytes(2, "big"))
