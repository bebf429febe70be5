"""The frames of Amazon's event streams: lengths, headers, a payload, and a checksum for each."""

from __future__ import annotations

import struct
from binascii import crc32
from typing import TYPE_CHECKING

from offbook.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CONTENT_TYPE = "application/vnd.amazon.eventstream"
STRING = 7
PRELUDE = struct.Struct("!II")
CHECK = struct.Struct("!I")
SHORTEST = PRELUDE.size + 2 * CHECK.size


def write_frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """One frame."""
    head = b"".join(
        bytes([len(name)])
        + name.encode()
        + struct.pack("!BH", STRING, len(value.encode()))
        + value.encode()
        for name, value in headers.items()
    )
    prelude = PRELUDE.pack(SHORTEST + len(head) + len(payload), len(head))
    frame = prelude + CHECK.pack(crc32(prelude)) + head + payload
    return frame + CHECK.pack(crc32(frame))


def write_event(kind: str, payload: bytes) -> bytes:
    """One event of a stream."""
    headers = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    return write_frame(headers, payload)


def write_exception(kind: str, payload: bytes) -> bytes:
    """An error in the middle of a stream."""
    headers = {":exception-type": kind, ":content-type": "application/json"}
    return write_frame({**headers, ":message-type": "exception"}, payload)


def read_frames(data: bytes) -> Iterator[tuple[dict[str, str], bytes]]:
    """The headers and the payload of each frame; a torn or damaged one is the provider's error."""
    at = 0
    while at < len(data):
        if len(data) - at < SHORTEST:
            raise ModelError("the stream breaks off in the middle of a frame", status=500)
        total, size = PRELUDE.unpack_from(data, at)
        frame = data[at : at + total]
        if not SHORTEST + size <= total == len(frame):
            raise ModelError("the stream breaks off in the middle of a frame", status=500)
        if CHECK.unpack_from(frame, total - CHECK.size)[0] != crc32(frame[: -CHECK.size]):
            raise ModelError("a frame of the stream is damaged", status=500)
        start = PRELUDE.size + CHECK.size
        yield _read_headers(frame[start : start + size]), frame[start + size : -CHECK.size]
        at += total


def _read_headers(head: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    at = 0
    while at < len(head):
        end = at + 1 + head[at]
        kind, size = struct.unpack_from("!BH", head, end)
        if kind != STRING:
            raise ModelError(f"a header of a frame has the type {kind}", status=500)
        headers[head[at + 1 : end].decode()] = head[end + 3 : end + 3 + size].decode()
        at = end + 3 + size
    return headers
