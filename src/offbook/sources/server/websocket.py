"""WebSocket framing (RFC 6455) for the serving side: bytes in, messages out, no I/O.

Extensions are never accepted, so a frame with a reserved bit set is an error.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha1

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
CONTINUE = 0
NORMAL, PROTOCOL, NOT_TEXT, TOO_BIG = 1000, 1002, 1007, 1009

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_SHORT, _MEDIUM = 126, 127


class FramingError(Exception):
    """The other side broke the protocol; `code` is what to close with."""

    def __init__(self, reason: str, code: int = PROTOCOL) -> None:
        self.code = code
        super().__init__(reason)


def accept_key(key: str) -> str:
    """What the handshake answers to `Sec-WebSocket-Key`."""
    return b64encode(sha1(key.encode("latin-1") + _GUID).digest()).decode()  # noqa: S324 - as the RFC has it


def frame(opcode: int, payload: bytes = b"") -> bytes:
    """One whole, unmasked frame."""
    size = len(payload)
    if size < _SHORT:
        return bytes((0x80 | opcode, size)) + payload
    if size < 1 << 16:
        return bytes((0x80 | opcode, _SHORT)) + size.to_bytes(2, "big") + payload
    return bytes((0x80 | opcode, _MEDIUM)) + size.to_bytes(8, "big") + payload


def close_frame(code: int, reason: str = "") -> bytes:
    """The frame that ends a connection, with its reason."""
    return frame(CLOSE, code.to_bytes(2, "big") + reason.encode()[:120])


class Frames:
    """What came in so far, put together to messages."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._parts = bytearray()
        self._opcode = CONTINUE

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The messages that are complete now, each with its opcode."""
        self._buffer += data
        found: list[tuple[int, bytes]] = []
        while (taken := self._take()) is not None:
            message = self._join(*taken)
            if message is not None:
                found.append(message)
        return found

    def _take(self) -> tuple[bool, int, bytes] | None:
        """The next frame: whether it is the last of its message, its opcode, its payload."""
        buffer = self._buffer
        if len(buffer) < 2:  # noqa: PLR2004 - the two fixed bytes of a frame
            return None
        first, second = buffer[0], buffer[1]
        if first & 0x70:
            raise FramingError("a reserved bit is set, and no extension was agreed on")
        if not second & 0x80:
            raise FramingError("a frame of a client must be masked")
        size, at = second & 0x7F, 2
        if size >= _SHORT:
            at = 4 if size == _SHORT else 10
            size = int.from_bytes(buffer[2:at], "big")
        if first & 0x08 and (size >= _SHORT or not first & 0x80):
            raise FramingError("a control frame is short and in one piece")
        if size + len(self._parts) > self._limit:
            raise FramingError(f"a message may have {self._limit} bytes", TOO_BIG)
        end = at + 4 + size
        if len(buffer) < end:
            return None
        payload = _unmask(bytes(buffer[at + 4 : end]), bytes(buffer[at : at + 4]))
        del buffer[:end]
        return bool(first & 0x80), first & 0x0F, payload

    def _join(self, last: bool, opcode: int, payload: bytes) -> tuple[int, bytes] | None:  # noqa: FBT001 - as the frame has it
        if opcode >= CLOSE:
            return opcode, payload
        if (opcode == CONTINUE) != (self._opcode != CONTINUE):
            raise FramingError("the pieces of a message are out of order")
        self._opcode = opcode or self._opcode
        self._parts += payload
        if not last:
            return None
        message = self._opcode, bytes(self._parts)
        self._parts.clear()
        self._opcode = CONTINUE
        return message


def _unmask(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    stretched = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(stretched, "big")).to_bytes(size, "big")
