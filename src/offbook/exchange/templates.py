"""Answers with holes where their id will be: what says the same again is written once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import overload

HOLE = b"\0"  # it stands in no JSON as it is


class Template:
    """The pieces of an answer, with holes."""

    __slots__ = ("joined", "pieces")

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.pieces = tuple(pieces)
        self.joined: dict[tuple[object, int], list[bytes]] = {}


class Filled(Sequence[bytes]):
    """The pieces of a template with one name, of a byte at least, in all their holes."""

    __slots__ = ("_name", "_template")

    def __init__(self, template: Template, name: bytes) -> None:
        self._template = template
        self._name = name

    def join(self, join: Callable[[Sequence[bytes]], bytes]) -> bytes:
        """What `join` makes of the pieces; it is asked once for all names of one length."""
        name, joined = self._name, self._template.joined
        parts = joined.get((join, len(name)))
        if parts is None:
            blank = HOLE * len(name)
            parts = joined[join, len(name)] = join(Filled(self._template, blank)).split(blank)
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
        return self._template.pieces[index].replace(HOLE, self._name)

    def __iter__(self) -> Iterator[bytes]:
        name = self._name
        return iter([piece.replace(HOLE, name) for piece in self._template.pieces])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - of whatever it is

    def __hash__(self) -> int:
        return hash(tuple(self))
