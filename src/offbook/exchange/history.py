"""A conversation that only grows, shared without copying.

An agent sends the whole conversation with every request. A `History` is a view of the first
`length` messages of one shared, append-only log: a new request costs nothing, and the digest of
each prefix is computed once. So the thousandth turn costs what the first one did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from threading import Lock
from typing import overload

import msgspec

from offbook.exchange.messages import Message, Role

_encode = msgspec.json.Encoder(order="sorted", enc_hook=repr).encode
ROOT = ""

# conversations of several threads may share a log
_GROWING = Lock()


def extend_digest(before: str, message: Message) -> str:
    """The digest of a conversation after one more message."""
    try:
        spelled = _encode(message)
    except (TypeError, ValueError, RecursionError):  # the details of a result may be anything
        spelled = repr(message).encode()
    return blake2b(before.encode() + spelled, digest_size=12).hexdigest()


class _Log:
    """The messages that several histories share, with the digest after each."""

    __slots__ = ("digests", "messages")

    def __init__(self, messages: Iterable[Message]) -> None:
        self.messages = list(messages)
        self.digests: list[str] = [ROOT]

    def grow(self, length: int, messages: Sequence[Message]) -> _Log:
        """The log with these after the first `length`: another one if somebody has gone on."""
        with _GROWING:
            if len(self.messages) == length:
                self.messages.extend(messages)
                return self
            other = _Log((*self.messages[:length], *messages))
            other.digests = self.digests[: length + 1]
            return other

    def digest(self, length: int) -> str:
        digests = self.digests
        for at in range(len(digests), length + 1):
            # two threads at once come to the same: whoever is second puts it where it is already
            digests[at : at + 1] = [extend_digest(digests[at - 1], self.messages[at - 1])]
        return digests[length]


class History(Sequence[Message]):
    """The first messages of a conversation, unchangeable."""

    __slots__ = ("_length", "_log")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._log = log = _Log(messages)
        self._length = len(log.messages)

    def plus(self, *messages: Message) -> History:
        """The conversation after these messages; this one stays as it is."""
        longer = History.__new__(History)
        longer._log = self._log.grow(self._length, messages)  # noqa: SLF001 - one of its own kind
        longer._length = self._length + len(messages)  # noqa: SLF001 - as above
        return longer

    def digest(self, length: int | None = None) -> str:
        """The digest of the first `length` messages, of all by default."""
        at = self._length if length is None else length
        digests = self._log.digests
        return digests[at] if at < len(digests) else self._log.digest(at)

    def latest(self, role: Role) -> Message | None:
        """The latest message of this role."""
        messages = self._log.messages
        for at in range(self._length - 1, -1, -1):
            if messages[at].role == role:
                return messages[at]
        return None

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(index, slice):
            return tuple(self._log.messages[slice(*index.indices(self._length))])
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._log.messages[index + self._length if index < 0 else index]

    def __iter__(self) -> Iterator[Message]:
        return islice(self._log.messages, self._length)

    def __reversed__(self) -> Iterator[Message]:
        return reversed(self._log.messages[: self._length])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, History):
            return NotImplemented
        return len(self) == len(other) and self.digest() == other.digest()

    def __hash__(self) -> int:
        return hash(self.digest())

    def __repr__(self) -> str:
        return f"History({list(self)!r})"
