"""Memory of earlier requests: stored conversations, and a cache of decoded body prefixes.

`ConversationStore` keeps the exchanges of a run for requests that continue one by its id, as a
provider does, and recognises the calls of a client that gives them ids of its own. `PrefixCache`
saves time: an agent sends the whole conversation with every request, and the part that was decoded
for the last request is not decoded again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar, TypeVarTuple

import msgspec

from offbook.errors import ModelError
from offbook.exchange.messages import History, Message, ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import Container

    from offbook.exchange.messages import JSON, AnyBlock
    from offbook.exchange.model import Reply, Request

StateT = TypeVar("StateT")
ResultT = TypeVar("ResultT")
ArgumentsT = TypeVarTuple("ArgumentsT")

MAX_EXCHANGES = 1024  # bounds the memory of a server that runs for days


class RestoredCalls(msgspec.Struct, frozen=True):
    """A conversation with the call ids of this run in place of those that the client made.

    `replaced` has our id by the client's; `used` are all ids of this run that it contains.
    """

    messages: History
    replaced: dict[str, str]
    used: set[str]


class ConversationStore:
    """The latest exchanges of one run, by the id of their reply."""

    def __init__(self) -> None:
        self._exchanges: OrderedDict[str, tuple[Request, Reply]] = OrderedDict()
        self._replies_by_call: OrderedDict[str, Reply] = OrderedDict()
        self._other_calls: set[str] = set()  # calls in requests that this run did not make
        self._restored: dict[str, RestoredCalls] = {}  # by the digest of a conversation

    @property
    def count(self) -> int:
        """The number of stored exchanges."""
        return len(self._exchanges)

    def add(self, reply_id: str, request: Request, reply: Reply) -> None:
        """Store an exchange by its reply id, and as the latest of its conversation."""
        exchanges = self._exchanges
        exchanges[reply_id] = (request, reply)
        if conversation := request.metadata.get("conversation"):
            exchanges.pop(conversation, None)  # move it to the end, so that it is dropped last
            exchanges[conversation] = (request, reply)
        while len(exchanges) > MAX_EXCHANGES:
            exchanges.popitem(last=False)
        self.add_calls(reply)

    def add_calls(self, reply: Reply) -> None:
        """Store the tool calls of a reply by their ids."""
        if calls := reply.calls:
            self._replies_by_call.update((call.id, reply) for call in calls)
            while len(self._replies_by_call) > MAX_EXCHANGES:
                self._replies_by_call.popitem(last=False)

    def get(self, reply_id: str) -> tuple[Request, Reply] | None:
        """Return the exchange with this reply id or conversation id."""
        return self._exchanges.get(reply_id)

    def reply_with_call(self, call_id: str) -> Reply | None:
        """Return the reply of this run that made this tool call."""
        return self._replies_by_call.get(call_id)

    def find_call_id(self, name: str, arguments: JSON, used: Container[str]) -> str | None:
        """Return the id of the first such call that is not in `used`.

        Some clients do not send the ids of calls back.
        """
        # From the oldest: an agent sends its calls back in their order.
        for call_id, reply in self._replies_by_call.items():
            if call_id not in used:
                for call in reply.calls:
                    if (call.id, call.name, call.arguments) == (call_id, name, arguments):
                        return call_id
        return None

    def restore_call_ids(self, request: Request) -> Request:
        """Return a request with the call ids of this run where the client made its own.

        Such a call is found by its name and arguments, or by its name and position: the first
        call of that name that is not in the request. The ids that were replaced are noted in the
        metadata: `call_ids` has the client's id by ours.
        """
        known = self._replies_by_call
        if all(result.call_id in known for result in request.results):
            return request
        # The calls before the new messages were restored for an earlier request.
        sent = request.messages
        done = sent.longest_prefix(self._restored)
        restored = self._restored.pop(sent.digest(done), None) or RestoredCalls(
            History(), {}, set()
        )
        new = sent[done:]
        used, replaced = restored.used, restored.replaced
        used.update(call.id for message in new for call in message.calls if call.id in known)
        messages: list[Message] = []
        for message in new:
            blocks: list[AnyBlock] = []
            for block in message.blocks:
                if isinstance(block, ToolCall) and block.id not in known:
                    call_id = None
                    if block.id not in self._other_calls:
                        call_id = self.find_call_id(block.name, block.arguments, used)
                        call_id = call_id or self._find_by_name(block.name, used)
                    if call_id is None:  # an example in the prompt, or an earlier session
                        self._other_calls.add(block.id)
                    else:
                        used.add(call_id)
                        # a client may use one id for all its calls: the latest counts
                        replaced[block.id] = call_id
                        block = msgspec.structs.replace(block, id=call_id)  # noqa: PLW2901
                elif isinstance(block, ToolResult) and block.call_id in replaced:
                    call_id = replaced[block.call_id]
                    block = msgspec.structs.replace(block, call_id=call_id)  # noqa: PLW2901
                blocks.append(block)
            messages.append(Message(message.role, tuple(blocks)))
        whole = restored.messages.plus(*messages)
        self._restored[sent.digest()] = RestoredCalls(whole, replaced, used)
        if len(self._restored) > MAX_PREFIXES:
            del self._restored[next(iter(self._restored))]
        if not replaced:
            return request
        metadata = {**request.metadata, "call_ids": {ours: id_ for id_, ours in replaced.items()}}
        return msgspec.structs.replace(request, messages=whole, metadata=metadata)

    def _find_by_name(self, name: str, used: Container[str]) -> str | None:
        for call_id, reply in self._replies_by_call.items():
            if call_id not in used and any((c.id, c.name) == (call_id, name) for c in reply.calls):
                return call_id
        return None


# ------------------------------------------------------------------------ prefix cache

MIN_BODY_SIZE = 4_096
"""Smaller bodies are decoded faster than they are looked up."""

MAX_PREFIXES = 128  # conversations side by side
MAX_PREFIX_BYTES = 8_000_000
BLOCK_SIZE = 1_024
_PROBE_SIZE = 48
_SPACE = b" \t\r\n"


class CachedPrefix(msgspec.Struct, Generic[StateT], frozen=True):
    """A body up to the last element of its growing array, and the state decoded from it.

    `head` is the body up to the opening bracket of the array, `prefix` up to the end of its last
    element.
    """

    head: bytes
    prefix: bytes
    state: StateT


class PrefixCache(Generic[StateT]):
    """The states decoded from the prefixes of recent bodies, one for each conversation.

    `find_array` returns the JSON of the growing array (the messages) in a body.

    A prefix is found by the number of its whole blocks, its first block and the bytes before its
    last whole block ends, so that a search costs the same with many conversations as with one.
    """

    def __init__(self, find_array: Callable[[bytes], bytes]) -> None:
        self._find_array = find_array
        self._entries: OrderedDict[tuple[int, bytes, bytes], CachedPrefix[StateT]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def decode(
        self,
        body: bytes,
        decode: Callable[[bytes, CachedPrefix[StateT] | None, *ArgumentsT], ResultT],
        *args: *ArgumentsT,
    ) -> ResultT:
        """Decode a body: only its new elements if its beginning is cached, else all of it."""
        if len(body) >= MIN_BODY_SIZE and (found := self.find(body)) is not None:
            prefix, rest = found
            try:
                return decode(rest, prefix, *args)
            except ModelError:  # decode the whole body, so that the error has the right index
                pass
        return decode(body, None, *args)

    def find(self, body: bytes) -> tuple[CachedPrefix[StateT], bytes] | None:
        """Return the longest cached prefix of this body, and the body without those elements."""
        if len(body) < MIN_BODY_SIZE:
            return None
        best: CachedPrefix[StateT] | None = None
        for blocks in range(len(body) // BLOCK_SIZE, -1, -1):
            best = self._entries.get(_prefix_key(body, blocks))
            if best is not None and body.startswith(best.prefix):
                break
        else:
            return None
        rest = body[len(best.prefix) :].lstrip(_SPACE)
        if rest.startswith(b","):
            return best, best.head + rest[1:]
        return (best, best.head + rest) if rest.startswith(b"]") else None

    def add(
        self,
        body: bytes,
        decoded: bytes,
        state: StateT,
        before: CachedPrefix[StateT] | None = None,
    ) -> None:
        """Cache the state of a body; `decoded` is the body itself, or what `find` returned."""
        if len(body) < MIN_BODY_SIZE:
            return
        array = self._find_array(decoded)
        if not array.startswith(b"[") or not array[1:-1].strip(_SPACE):
            return
        # The array of a shortened body starts where that of the cached one does.
        start = len(before.head) - 1 if before else self._locate(decoded, array)
        if start is None:
            return
        after = len(decoded) - (start + len(array) - 1)  # the size from the closing bracket on
        prefix = body[: len(body) - after].rstrip(_SPACE)
        entry = CachedPrefix(decoded[: start + 1], prefix, state)
        with self._lock:
            if before is not None:
                self._remove(_prefix_key(before.prefix))
            key = _prefix_key(prefix)
            self._remove(key)
            self._entries[key] = entry
            self._size += len(prefix)
            while len(self._entries) > MAX_PREFIXES or self._size > MAX_PREFIX_BYTES:
                self._remove(next(iter(self._entries)))

    def _remove(self, key: tuple[int, bytes, bytes]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._size -= len(entry.prefix)

    def _locate(self, body: bytes, array: bytes) -> int | None:
        """Return the offset of the array in the body, or None if it is ambiguous.

        The same bytes can occur before the array, for example in a string. Emptying the right
        occurrence empties the array.
        """
        start = body.find(array[:_PROBE_SIZE])
        if not body.startswith(array, start):
            return None
        emptied = body[:start] + b"[]" + body[start + len(array) :]
        return start if self._find_array(emptied) == b"[]" else None


def _prefix_key(body: bytes, blocks: int | None = None) -> tuple[int, bytes, bytes]:
    """Return the key of the prefix with this number of whole blocks; by default, all of them."""
    if blocks is None:
        blocks = len(body) // BLOCK_SIZE
    end = blocks * BLOCK_SIZE
    return blocks, body[: min(end, BLOCK_SIZE)], body[max(0, end - _PROBE_SIZE) : end]
