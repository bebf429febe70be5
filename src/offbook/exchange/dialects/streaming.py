"""Server-sent events: how they are written, and how they are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, overload

import msgspec

if TYPE_CHECKING:
    from offbook.exchange.model import Reply


# --- Server-sent events: how they are written, and how they are read.

_LINE_END = re.compile(r"\r\n|\n|\r")


class SseEvent(msgspec.Struct, frozen=True):
    """One event of a stream."""

    data: str
    name: str = ""


def encode_sse(data: bytes, name: str = "") -> bytes:
    """The event as it goes over the wire; the data has no line ends in it."""
    if name:
        return b"event: %b\ndata: %b\n\n" % (name.encode(), data)
    return b"data: %b\n\n" % data


def parse_sse(stream: bytes) -> Iterator[SseEvent]:
    """The events of a whole stream, also one that ends without the last empty line."""
    name = ""
    data: list[str] = []
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


# --- How a text is cut into the pieces in which it is streamed.

_WORD = re.compile(r"\s*\S{1,24}|\s+")
_RUN = 24


def split_words(text: str) -> list[str]:
    """The text word by word, each with the space before it; longer words in several pieces."""
    return _WORD.findall(text)


def split_fixed(text: str) -> list[str]:
    """The text in runs of one length, for what has no words: the arguments of a call."""
    return [text[at : at + _RUN] for at in range(0, len(text), _RUN)]


def split_reply_text(reply: Reply, text: str) -> Sequence[str]:
    """The pieces of this text of the reply: as they once came, if that is known."""
    if reply.chunks and "".join(reply.chunks) == text:
        return reply.chunks
    return split_words(text)


# --- Answers with holes where their id will be: what says the same again is written once.

PLACEHOLDER = b"\0"  # it stands in no JSON as it is


class ByteTemplate:
    """The pieces of an answer, with holes."""

    __slots__ = ("joined", "pieces")

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.pieces = tuple(pieces)
        self.joined: dict[tuple[object, int], list[bytes]] = {}


class FilledTemplate(Sequence[bytes]):
    """The pieces of a template with one name, of a byte at least, in all their holes."""

    __slots__ = ("_name", "_template")

    def __init__(self, template: ByteTemplate, name: bytes) -> None:
        self._template = template
        self._name = name

    def join(self, join: Callable[[Sequence[bytes]], bytes]) -> bytes:
        """What `join` makes of the pieces; it is asked once for all names of one length."""
        name, joined = self._name, self._template.joined
        parts = joined.get((join, len(name)))
        if parts is None:
            blank = PLACEHOLDER * len(name)
            parts = joined[join, len(name)] = join(FilledTemplate(self._template, blank)).split(
                blank
            )
        return name.join(parts)

    def __len__(self) -> int:
        return len(self._template.pieces)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[bytes, ...]: ...
    def __getitem__(self, index: int | slice) -> bytes | tuple[bytes, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        return self._template.pieces[index].replace(PLACEHOLDER, self._name)

    def __iter__(self) -> Iterator[bytes]:
        name = self._name
        return iter([piece.replace(PLACEHOLDER, name) for piece in self._template.pieces])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - of whatever it is

    def __hash__(self) -> int:
        return hash(tuple(self))
