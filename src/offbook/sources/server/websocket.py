"""The server's side of a WebSocket: bytes in, text messages out, no I/O.

`websockets` does the framing. It is imported by the connection when a client asks for an upgrade,
as most never do and the import takes about 20 ms.
"""

from __future__ import annotations

from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Protocol, Side, State
from websockets.utils import accept_key

END_OF_HEAD = b"\r\n\r\n"


def handshake(key: str) -> bytes:
    """Render the response that accepts an upgrade; extensions are not negotiated."""
    lines = (
        "HTTP/1.1 101 Switching Protocols",
        "upgrade: websocket",
        "connection: Upgrade",
        f"sec-websocket-accept: {accept_key(key)}",
    )
    return "\r\n".join(lines).encode() + END_OF_HEAD


class WebSocket:
    """An open WebSocket that carries text messages of up to `limit` bytes.

    Pings and close frames are answered by the protocol: send `pending_bytes` after each call of
    `receive`.
    """

    def __init__(self, limit: int) -> None:
        self._protocol = Protocol(Side.SERVER, max_size=limit)
        self._fragments: list[bytes] = []

    @property
    def is_open(self) -> bool:
        """True until either side has closed the conversation or broken the protocol."""
        return self._protocol.state is State.OPEN

    def receive(self, data: bytes) -> list[bytes]:
        """Return the text messages that these bytes complete."""
        messages: list[bytes] = []
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if not isinstance(event, Frame):  # never here: the handshake is done before
                continue
            if event.opcode is Opcode.BINARY:
                self._protocol.fail(CloseCode.INVALID_DATA, "expected a text message, got binary")
                break
            if event.opcode in {Opcode.TEXT, Opcode.CONT}:
                self._fragments.append(bytes(event.data))
                if event.fin:
                    messages.append(b"".join(self._fragments))
                    self._fragments.clear()
        return messages

    def render_text(self, message: bytes) -> bytes:
        """Render a text message as a frame."""
        self._protocol.send_text(message)
        return b"".join(self._protocol.data_to_send())

    def pending_bytes(self) -> tuple[bytes, bool]:
        """Return the bytes to send now, and whether to close the connection after them."""
        parts = self._protocol.data_to_send()
        return b"".join(parts), b"" in parts  # an empty part marks the end of the stream
