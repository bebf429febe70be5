"""Encoding of streams, shared by all dialects.

Three parts: server-sent events; splitting a text into the chunks of a stream; and byte templates,
which hold an encoded response with placeholders for its id, so that a response which is sent
again is encoded once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, overload

import msgspec

if TYPE_CHECKING:
    from offbook.exchange.model import Reply

EVENT_STREAM = "text/event-stream; charset=utf-8"
_LINE_END = re.compile(r"\r\n|\n|\r")


class SseEvent(msgspec.Struct, frozen=True):
    """A server-sent event."""

    data: str
    name: str = ""


def encode_sse(data: bytes, name: str = "") -> bytes:
    """Encode an event; its data must not contain line breaks."""
    if name:
        return b"event: %b\ndata: %b\n\n" % (name.encode(), data)
    return b"data: %b\n\n" % data


def parse_sse(stream: bytes) -> Iterator[SseEvent]:
    """Yield the events of a complete stream; the last empty line may be missing."""
    name = ""
    data: list[str] = []
    # An empty last line ends an event whose own empty line is missing.
    for line in (*_LINE_END.split(stream.decode("utf-8-sig", "replace")), ""):
        if not line:
            if data:
                yield SseEvent("\n".join(data), name)
            name, data = "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value


# ---------------------------------------------------------------------------- chunking

_WORD = re.compile(r"\s*\S{1,24}|\s+")
_CHUNK_SIZE = 24


def split_words(text: str) -> list[str]:
    """Split a text into words with the space before them; long words become several chunks."""
    return _WORD.findall(text)


def split_fixed(text: str) -> list[str]:
    """Split a text into chunks of one size, for text without words such as JSON arguments."""
    return [text[start : start + _CHUNK_SIZE] for start in range(0, len(text), _CHUNK_SIZE)]


def split_reply_text(reply: Reply, text: str) -> Sequence[str]:
    """Split a text of the reply into its recorded chunks if they are known, else into words."""
    if reply.chunks and "".join(reply.chunks) == text:
        return reply.chunks
    return split_words(text)


# ---------------------------------------------------------------------- byte templates

PLACEHOLDER = b"\0"  # JSON escapes NUL bytes, so encoded JSON never contains one


class ByteTemplate:
    """The chunks of a response, with placeholders for its id."""

    __slots__ = ("chunks", "joined")

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.chunks = tuple(chunks)
        # By the joining function and the length of the id: the joined bytes, split at the id.
        self.joined: dict[tuple[object, int], list[bytes]] = {}


class FilledTemplate(Sequence[bytes]):
    """The chunks of a template with an id (of at least one byte) in every placeholder."""

    __slots__ = ("_id", "_template")

    def __init__(self, template: ByteTemplate, id_: bytes) -> None:
        self._template = template
        self._id = id_

    def join(self, join: Callable[[Sequence[bytes]], bytes]) -> bytes:
        """Return `join(chunks)`; it is computed once for all ids of one length.

        The server frames a whole stream this way: joining the cached parts by the id takes the
        place of encoding every chunk.
        """
        id_, joined = self._id, self._template.joined
        parts = joined.get((join, len(id_)))
        if parts is None:
            blank = PLACEHOLDER * len(id_)
            parts = join(FilledTemplate(self._template, blank)).split(blank)
            joined[join, len(id_)] = parts
        return id_.join(parts)

    def __len__(self) -> int:
        return len(self._template.chunks)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[bytes, ...]: ...
    def __getitem__(self, index: int | slice) -> bytes | tuple[bytes, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        return self._template.chunks[index].replace(PLACEHOLDER, self._id)

    def __iter__(self) -> Iterator[bytes]:
        id_ = self._id
        return iter([chunk.replace(PLACEHOLDER, id_) for chunk in self._template.chunks])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - a sequence of any type

    def __hash__(self) -> int:
        return hash(tuple(self))
