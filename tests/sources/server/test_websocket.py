"""WebSocket: frames against a second implementation, and conversations over one socket."""

import socket
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.exchange.messages import Text, user
from offbook.exchange.model import Reply, Request
from offbook.sources.server.server import Server
from offbook.sources.server.websocket import (
    BINARY,
    CLOSE,
    CONTINUE,
    PING,
    PONG,
    TEXT,
    Frames,
    FramingError,
    accept_key,
    close_frame,
    frame,
)
from tests.sources.server.raw_http import Reader, dialled

MASK = b"\x01\x02\x03\x04"


def masked(opcode: int, payload: bytes, *, last: bool = True, mask: bytes = MASK) -> bytes:
    """A frame as a client sends it, written as the RFC tells it."""
    size = len(payload)
    head = bytes([(0x80 if last else 0) | opcode])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 65536:
        head += bytes([0x80 | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([0x80 | 127]) + size.to_bytes(8, "big")
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


def test_the_handshake_is_that_of_the_rfc():
    assert accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@given(
    st.lists(st.binary(max_size=300), min_size=1, max_size=6),
    st.binary(min_size=4, max_size=4),
    st.integers(1, 50),
)
def test_messages_survive_any_mask_and_any_cut(messages: list[bytes], mask: bytes, cut: int):
    stream = b"".join(masked(TEXT, message, mask=mask) for message in messages)
    frames = Frames(10_000)
    got = [m for at in range(0, len(stream), cut) for m in frames.feed(stream[at : at + cut])]
    assert got == [(TEXT, message) for message in messages]


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536, 70_000])
def test_each_way_to_write_a_length_is_read_and_written(size: int):
    payload = b"x" * size
    assert Frames(100_000).feed(masked(BINARY, payload)) == [(BINARY, payload)]
    unmasked = frame(TEXT, payload)
    assert unmasked.endswith(payload)
    assert len(unmasked) - size == (2 if size < 126 else 4 if size < 65536 else 10)


def test_a_message_in_pieces_is_put_together_around_a_ping():
    sent = masked(TEXT, b"a", last=False) + masked(PING, b"?") + masked(CONTINUE, b"b")
    assert Frames(100).feed(sent) == [(PING, b"?"), (TEXT, b"ab")]


@pytest.mark.parametrize(
    "sent, code",
    [
        (frame(TEXT, b"unmasked"), 1002),
        (b"\xf1\x80" + MASK, 1002),
        (masked(CONTINUE, b"of what"), 1002),
        (masked(TEXT, b"a", last=False) + masked(TEXT, b"b"), 1002),
        (masked(PING, b"x", last=False), 1002),
        (masked(TEXT, b"x" * 101), 1009),
        (masked(TEXT, b"x" * 60, last=False) + masked(CONTINUE, b"x" * 60), 1009),
    ],
)
def test_a_broken_frame_ends_the_conversation(sent: bytes, code: int):
    with pytest.raises(FramingError) as caught:
        Frames(100).feed(sent)
    assert caught.value.code == code


class Echo:
    async def reply(self, request: Request) -> Reply:
        return Reply((Text(f"you said {request.prompt}"),))


@pytest.fixture
def talk(server: Server) -> Iterator[socket.socket]:
    """A WebSocket to a run that echoes."""
    endpoint = server.mount(Echo())
    with dialled(endpoint.url) as connection:
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


def heard(connection: socket.socket, count: int) -> list[tuple[int, bytes]]:
    """So many frames from the server."""
    file = connection.makefile("rb")
    got: list[tuple[int, bytes]] = []
    for _ in range(count):
        first, size = file.read(2)
        size = int.from_bytes(file.read(2), "big") if size == 126 else size
        got.append((first & 0x0F, file.read(size)))
    return got


def create(text: str) -> bytes:
    """A request as a message."""
    asked = {"type": "response.create", "messages": [user(text)]}
    return masked(TEXT, msgspec.json.encode(asked))


def test_several_turns_go_over_one_socket(talk: socket.socket):
    for text in ("one", "two"):
        talk.sendall(create(text))
        said = [payload for _, payload in heard(talk, 3)]
        assert said == [b'"you"', b'"said"', f'"{text}"'.encode()]


def test_turns_that_come_together_are_answered_in_order(talk: socket.socket):
    talk.sendall(create("one") + create("two"))
    assert [payload for _, payload in heard(talk, 6)][2::3] == [b'"one"', b'"two"']


@pytest.mark.parametrize("sent", [b"{not json", b'{"type": "session.update"}'])
def test_a_message_that_asks_nothing_is_told_so(talk: socket.socket, sent: bytes):
    talk.sendall(masked(TEXT, sent))
    [(_, answer)] = heard(talk, 1)
    assert msgspec.json.decode(answer)["type"] == "error"


def test_a_request_that_the_dialect_refuses_comes_back_as_an_error_event(talk: socket.socket):
    talk.sendall(masked(TEXT, b'{"type": "response.create", "messages": 3}'))
    [(_, answer)] = heard(talk, 1)
    assert msgspec.json.decode(answer)["status"] == 400


def test_a_ping_is_answered_and_a_close_too(talk: socket.socket):
    talk.sendall(masked(PING, b"there?") + masked(CLOSE, b"\x03\xe8"))
    assert heard(talk, 2) == [(PONG, b"there?"), (CLOSE, close_frame(1000)[2:])]


def test_what_is_not_text_ends_it(talk: socket.socket):
    talk.sendall(masked(BINARY, b"\x00"))
    [(opcode, payload)] = heard(talk, 1)
    assert (opcode, payload[:2]) == (CLOSE, (1007).to_bytes(2, "big"))
