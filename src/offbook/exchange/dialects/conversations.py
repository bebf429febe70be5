"""Conversations that the provider keeps: a request names the reply it goes on from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Container

    from offbook.exchange.messages import JSON
    from offbook.exchange.model import Reply, Request


# --- Conversations that the provider keeps: a request names the reply it goes on from.

MAX_EXCHANGES = 1024  # a server may run for days


class ConversationStore:
    """The latest exchanges of one run, by the id of their reply."""

    def __init__(self) -> None:
        self._exchanges: OrderedDict[str, tuple[Request, Reply]] = OrderedDict()
        self._callers: OrderedDict[str, Reply] = OrderedDict()

    @property
    def count(self) -> int:
        """How many exchanges are kept."""
        return len(self._exchanges)

    def remember(self, reply_id: str, request: Request, reply: Reply) -> None:
        """Keep an exchange under this id, and as the latest of its conversation, if it has one."""
        exchanges = self._exchanges
        exchanges[reply_id] = (request, reply)
        if conversation := request.metadata.get("conversation"):
            exchanges.pop(conversation, None)  # the latest is forgotten last
            exchanges[conversation] = (request, reply)
        while len(exchanges) > MAX_EXCHANGES:
            exchanges.popitem(last=False)
        if calls := reply.calls:
            self._callers.update((call.id, reply) for call in calls)
            while len(self._callers) > MAX_EXCHANGES:
                self._callers.popitem(last=False)

    def recall(self, reply_id: str) -> tuple[Request, Reply] | None:
        """The exchange with this id, if there was one."""
        return self._exchanges.get(reply_id)

    def caller(self, call_id: str) -> Reply | None:
        """The reply that made this tool call, if it is one of this run's."""
        return self._callers.get(call_id)

    def find_call(self, name: str, arguments: JSON, taken: Container[str]) -> str | None:
        """The id of the first such call that is not taken: some clients send none of them back."""
        for call_id, reply in self._callers.items():
            if call_id not in taken:
                for call in reply.calls:
                    if (call.id, call.name, call.arguments) == (call_id, name, arguments):
                        return call_id
        return None


# --- Bodies that come again, longer: what was read once is not read again.

S = TypeVar("S")

MIN_BODY_SIZE = 4_096
"""Bodies shorter than this are read faster than they are remembered."""

MAX_PREFIXES = 32
MAX_PREFIX_BYTES = 16_000_000
_PROBE = 48
_SPACE = b" \t\r\n"


class CachedPrefix(msgspec.Struct, Generic[S], frozen=True):
    """The beginning of a body up to its last element, and what was read from it."""

    head: bytes
    seen: bytes
    end: bytes
    state: S


class PrefixCache(Generic[S]):
    """What was read from the beginnings of bodies, the latest first.

    `find_array` gives the JSON of the array that grows, out of a body.
    """

    def __init__(self, find_array: Callable[[bytes], bytes]) -> None:
        self._find_array = find_array
        self._known: tuple[CachedPrefix[S], ...] = ()

    def recall(self, body: bytes) -> tuple[CachedPrefix[S], bytes] | None:
        """What is known of this body, and the body without those elements."""
        if len(body) < MIN_BODY_SIZE:
            return None
        best: CachedPrefix[S] | None = None
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

    def keep(
        self, body: bytes, text: bytes, state: S, before: CachedPrefix[S] | None = None
    ) -> None:
        """Remember what was read from this body: all of it, or what `recall` left to read."""
        if len(body) < MIN_BODY_SIZE:
            return
        array = self._find_array(text)
        if not array.startswith(b"[") or not array[1:-1].strip(_SPACE):
            return
        start = len(before.head) - 1 if before else self._locate(text, array)
        if start is None:
            return
        behind = len(text) - (start + len(array) - 1)  # from the closing bracket on
        seen = body[: len(body) - behind].rstrip(_SPACE)
        known = CachedPrefix(text[: start + 1], seen, seen[-_PROBE:], state)
        self._known = _fitting((known, *(k for k in self._known if k.seen != seen)))

    def _locate(self, text: bytes, array: bytes) -> int | None:
        """Where the array begins. The same words elsewhere are told apart by taking them away."""
        start = text.find(array[:_PROBE])
        if not text.startswith(array, start):
            return None
        emptied = text[:start] + b"[]" + text[start + len(array) :]
        return start if self._find_array(emptied) == b"[]" else None


def _fitting(known: tuple[CachedPrefix[S], ...]) -> tuple[CachedPrefix[S], ...]:
    """As many of them as there is room for."""
    room = MAX_PREFIX_BYTES
    for count, one in enumerate(known[:MAX_PREFIXES]):
        room -= len(one.seen)
        if room < 0:
            return known[:count]
    return known[:MAX_PREFIXES]
