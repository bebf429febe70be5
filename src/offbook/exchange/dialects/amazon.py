"""Code shared by the dialects that Amazon's Bedrock serves: frames of streams, and errors.

A frame of an event stream has its length and a checksum, string headers, a JSON payload and a
checksum of the whole frame.
"""

from __future__ import annotations

import struct
from binascii import crc32
from typing import TYPE_CHECKING

from offbook.determinism.run_context import stable_id
from offbook.errors import ModelError
from offbook.exchange.dialects.dialect import HttpResponse, error_headers
from offbook.exchange.dialects.provider_responses import (
    interrupted_stream,
)
from offbook.exchange.messages import JSON, to_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

EVENT_STREAM = "application/vnd.amazon.eventstream"
ERROR_TYPES = {
    400: "ValidationException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
}

_STRING_TYPE = 7
_PRELUDE = struct.Struct("!II")
_CHECKSUM = struct.Struct("!I")
_MIN_FRAME_SIZE = _PRELUDE.size + 2 * _CHECKSUM.size


def encode_frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Encode a frame."""
    head = b"".join(
        bytes([len(name)])
        + name.encode()
        + struct.pack("!BH", _STRING_TYPE, len(value.encode()))
        + value.encode()
        for name, value in headers.items()
    )
    prelude = _PRELUDE.pack(_MIN_FRAME_SIZE + len(head) + len(payload), len(head))
    frame = prelude + _CHECKSUM.pack(crc32(prelude)) + head + payload
    return frame + _CHECKSUM.pack(crc32(frame))


def parse_frames(data: bytes) -> Iterator[tuple[dict[str, str], bytes]]:
    """Yield the headers and the payload of each frame; raise `ModelError` for a damaged one."""
    start = 0
    while start < len(data):
        if len(data) - start < _MIN_FRAME_SIZE:
            raise interrupted_stream("the stream ended in the middle of a frame")
        size, head_size = _PRELUDE.unpack_from(data, start)
        frame = data[start : start + size]
        if not _MIN_FRAME_SIZE + head_size <= size == len(frame):
            raise interrupted_stream("the stream ended in the middle of a frame")
        (checksum,) = _CHECKSUM.unpack_from(frame, size - _CHECKSUM.size)
        if checksum != crc32(frame[: -_CHECKSUM.size]):
            raise ModelError("a frame of the stream has a wrong checksum", status=500)
        head_start = _PRELUDE.size + _CHECKSUM.size
        head_end = head_start + head_size
        yield _parse_headers(frame[head_start:head_end]), frame[head_end : -_CHECKSUM.size]
        start += size


def _parse_headers(head: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    start = 0
    while start < len(head):
        name_end = start + 1 + head[start]
        value_type, size = struct.unpack_from("!BH", head, name_end)
        if value_type != _STRING_TYPE:
            raise ModelError(f"unsupported type {value_type} of a frame header", status=500)
        # One byte for the type and two for the size.
        value_start = name_end + 3
        name = head[start + 1 : name_end].decode()
        headers[name] = head[value_start : value_start + size].decode()
        start = value_start + size
    return headers


def encode_event(event_type: str, payload: JSON) -> bytes:
    """Encode the frame of an event."""
    headers = {
        ":event-type": event_type,
        ":content-type": "application/json",
        ":message-type": "event",
    }
    return encode_frame(headers, to_json(payload))


def encode_exception(message: str) -> bytes:
    """Encode the frame of an error in a stream."""
    headers = {
        ":exception-type": "internalServerException",
        ":content-type": "application/json",
        ":message-type": "exception",
    }
    return encode_frame(headers, to_json({"message": message}))


def error_response(error: ModelError) -> HttpResponse:
    """Return the error response; the type of the error is in a header."""
    default = ERROR_TYPES[400 if error.status < 500 else 500]  # noqa: PLR2004 - HTTP's
    headers = {
        "content-type": "application/json",
        "x-amzn-errortype": ERROR_TYPES.get(error.status, default),
        "x-amzn-requestid": stable_id("bedrock-", str(error.status), error.message),
    }
    headers |= error_headers(error)
    return HttpResponse(error.status, headers, to_json({"message": error.message}))
