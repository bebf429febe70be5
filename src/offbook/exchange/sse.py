"""Server-sent events: how they are written, and how they are read."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

_LINE_END = re.compile(r"\r\n|\n|\r")


class Event(msgspec.Struct, frozen=True):
    """One event of a stream."""

    data: str
    name: str = ""


def frame(data: bytes, name: str = "") -> bytes:
    """The event as it goes over the wire; the data has no line ends in it."""
    if name:
        return b"event: %b\ndata: %b\n\n" % (name.encode(), data)
    return b"data: %b\n\n" % data


def read(stream: bytes) -> Iterator[Event]:
    """The events of a whole stream, also one that ends without the last empty line."""
    name = ""
    data: list[str] = []
    for line in (*_LINE_END.split(stream.decode("utf-8-sig", "replace")), ""):
        if not line:
            if data:
                yield Event("\n".join(data), name)
            name, data = "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
