"""Bodies that come again, longer: what was read once is not read again.

An agent sends the whole conversation with every request, as a JSON array that only grows. A
`Memory` keeps what was read from the beginning of such a body, so that reading the next one costs
what is new in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

S = TypeVar("S")

WORTH = 4_096
"""Bodies shorter than this are read faster than they are remembered."""

MOST = 32
ROOM = 16_000_000
_PROBE = 48
_SPACE = b" \t\r\n"


class Known(msgspec.Struct, Generic[S], frozen=True):
    """The beginning of a body up to its last element, and what was read from it."""

    head: bytes
    seen: bytes
    end: bytes
    state: S


class Memory(Generic[S]):
    """What was read from the beginnings of bodies, the latest first.

    `find_array` gives the JSON of the array that grows, out of a body.
    """

    def __init__(self, find_array: Callable[[bytes], bytes]) -> None:
        self._find_array = find_array
        self._known: tuple[Known[S], ...] = ()

    def recall(self, body: bytes) -> tuple[Known[S], bytes] | None:
        """What is known of this body, and the body without those elements."""
        if len(body) < WORTH:
            return None
        best: Known[S] | None = None
        for known in self._known:
            at = len(known.seen)
            if (best is None or at > len(best.seen)) and body.endswith(known.end, 0, at):
                best = known if body.startswith(known.seen) else best
        if best is None:
            return None
        rest = body[len(best.seen) :].lstrip(_SPACE)
        if rest.startswith(b","):
            return best, best.head + rest[1:]
        return (best, best.head + rest) if rest.startswith(b"]") else None

    def keep(self, body: bytes, text: bytes, state: S, before: Known[S] | None = None) -> None:
        """Remember what was read from this body: all of it, or what `recall` left to read."""
        if len(body) < WORTH:
            return
        array = self._find_array(text)
        if not array.startswith(b"[") or not array[1:-1].strip(_SPACE):
            return
        start = len(before.head) - 1 if before else self._locate(text, array)
        if start is None:
            return
        behind = len(text) - (start + len(array) - 1)  # from the closing bracket on
        seen = body[: len(body) - behind].rstrip(_SPACE)
        known = Known(text[: start + 1], seen, seen[-_PROBE:], state)
        self._known = _fitting((known, *(k for k in self._known if k.seen != seen)))

    def _locate(self, text: bytes, array: bytes) -> int | None:
        """Where the array begins. The same words elsewhere are told apart by taking them away."""
        start = text.find(array[:_PROBE])
        if not text.startswith(array, start):
            return None
        emptied = text[:start] + b"[]" + text[start + len(array) :]
        return start if self._find_array(emptied) == b"[]" else None


def _fitting(known: tuple[Known[S], ...]) -> tuple[Known[S], ...]:
    """As many of them as there is room for."""
    room = ROOM
    for count, one in enumerate(known[:MOST]):
        room -= len(one.seen)
        if room < 0:
            return known[:count]
    return known[:MOST]
