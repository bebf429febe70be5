"""The protocol of a dialect, which translates between a provider's wire format and `exchange`.

A dialect is one folder. Its `__init__.py` defines `PROVIDER`: hosts, variables, prices and all else
about the provider that is data. The class that `PROVIDER.dialect` names has the wire format.

The server side decodes the request of an agent (`decode`) and encodes the provider's response
(`encode`, `encode_error`, `side_response`). The client side does the reverse against a real
provider (`build_request`, `parse_response`). A dialect does no I/O.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    Protocol,
    TypeVar,
    TypeVarTuple,
    cast,
    runtime_checkable,
)

import msgspec

from offbook.determinism.run_context import stable_id
from offbook.errors import ModelError
from offbook.exchange.messages import (
    JSON,
    MAX_CONVERSATIONS,
    History,
    Message,
    ToolCall,
    ToolResult,
    find_calls,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Container, Iterable

    from offbook.exchange.dialects.stored import ObjectStore
    from offbook.exchange.messages import AnyBlock
    from offbook.exchange.model import Reply, Request, Tool


class ModelPrice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The price of a model in dollars for a million tokens."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None


class HostClient:
    """The variables of the clients of one host: its keys, and its base URLs with their paths."""

    def __init__(self, *keys: str, **urls: str) -> None:
        self.keys = keys
        self.urls = urls


TO_HOST = "/to/"  # before the host in the path of a request that was sent to that host


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """A provider without its wire format: data, so that a run can look up a host or a price.

    - `name`: the dialect's name in traces, cassettes and options.
    - `dialect`: its class as "module:name", imported for the first request.
    - `url`: the base URL of the real provider. `url_variables` override it, and `key_variables`
      have the key.
    - `hosts`, `host_patterns`, `local_ports`: the addresses that are answered by a script, and
      `region_patterns` those of the provider's own hosts in other regions, which take its key;
      `gateway_variables` further variables that name one. `host_clients` are the variables of
      other hosts than that of `url`.
    - `client_env`, `client_arguments` (by command) and `opencode` (by its name of the provider):
      the settings that point clients at `{url}`; `replaced_env` those that replace a variable
      of the user, and are not set otherwise.
    - `call_id`: the prefix of the ids of tool calls, and the length of the rest; None for the
      form of OpenAI.
    - `arguments`: what the arguments of a call are: a `text`, which can be malformed JSON, an
      `object`, or an object that a stream sends as pieces of text (`streamed`).
    - `otel_name`: its name in OpenTelemetry's conventions.
    - `sdks`: its Python packages, and their titles.
    - `prices`: the list prices of its models.
    - `sampling`: where its requests have the temperature and the seed, if they do.
    - `unscripted`: the options that change the response in a way that a script has no value for,
      each with its other values; of a list, one of them is enough.
    """

    name: str
    dialect: str
    url: str
    url_variables: tuple[str, ...]
    key_variables: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    host_patterns: tuple[str, ...] = ()
    region_patterns: tuple[str, ...] = ()
    local_ports: tuple[int, ...] = ()
    gateway_variables: tuple[str, ...] = ()
    host_clients: Mapping[str, HostClient] = {}
    client_env: Mapping[str, str] = {}
    replaced_env: Mapping[str, str] = {}
    client_arguments: Mapping[str, tuple[str, ...]] = {}
    opencode: Mapping[str, str] = {}
    call_id: tuple[str, int] | None = None
    arguments: Literal["text", "object", "streamed"] = "text"
    otel_name: str
    sdks: Mapping[str, str] = {}
    prices: Mapping[str, ModelPrice] = {}
    sampling: Mapping[str, str] = {}
    unscripted: Mapping[str, tuple[Any, ...]] = {}


API_KEY = "offbook"  # of clients that are pointed at Offbook


class HttpRequest(msgspec.Struct, frozen=True):
    """An HTTP request, received or to be sent. Header names are lower case."""

    method: str
    path: str
    headers: dict[str, str] = {}
    body: bytes = b""
    query: str = ""

    @property
    def host(self) -> str:
        """The host to which the client sent it: that in the path, or in the header."""
        if self.path.startswith(TO_HOST):
            return self.path.removeprefix(TO_HOST).partition("/")[0]
        return self.headers.get("host", "")


class HttpResponse(msgspec.Struct, frozen=True):
    """An HTTP response. A stream has its events in `chunks`, each complete, and no `body`.

    A stream that is still in progress has `live_chunks` instead, which can be iterated once and
    raises `ConnectionError` if the stream breaks. `chunk_delays` are the seconds before each
    chunk, if the timing of a recording is to be kept.

    `ending` is what follows in place of the end: the connection is closed (`reset`), or nothing
    comes until the client gives up, for at most `hold` seconds (`timeout`). Without a chunk, the
    head is not sent either.
    """

    status: int = 200
    headers: dict[str, str] = {}
    body: bytes = b""
    chunks: Sequence[bytes] = ()
    live_chunks: AsyncIterator[bytes] | None = None
    chunk_delays: tuple[float, ...] = ()
    ending: Literal["", "reset", "timeout"] = ""
    hold: float = 0


HAT_HEADER = "x-offbook-hat"  # set by an orchestrator that knows which hat sends the request
# Headers by which clients identify a session, an agent or a retry.
SESSION_HEADERS = (
    "session-id",
    "thread-id",
    "x-session-id",
    "x-irid",
    "x-codex-turn-metadata",
    "x-codex-window-id",
    "x-client-request-id",
    "x-claude-code-session-id",
    "x-claude-code-agent-id",
    "x-claude-code-parent-agent-id",
    "x-stainless-helper-method",
    "x-stainless-retry-count",
    "user-agent",
    "traceparent",  # of a client that sends spans
)
_SESSION_HEADERS = frozenset(SESSION_HEADERS)
_RETRIED_STATUSES = frozenset({408, 409, 429})


def request_metadata(http_request: HttpRequest, dialect: str) -> JSON:
    """Return the metadata of a request: its dialect, its path and its session headers."""
    metadata: JSON = {"dialect": dialect, "endpoint": http_request.path}
    headers = http_request.headers
    if HAT_HEADER in headers:
        metadata["hat"] = headers[HAT_HEADER]
    if not _SESSION_HEADERS.isdisjoint(headers):
        metadata.update([(name, headers[name]) for name in SESSION_HEADERS if name in headers])
    return metadata


def error_headers(error: ModelError) -> dict[str, str]:
    """Return the headers of an error response that have the same form for all providers."""
    headers: dict[str, str] = {}
    if error.retry_after is not None:
        headers["retry-after"] = f"{error.retry_after:g}"
    if error.status < 500 and error.status not in _RETRIED_STATUSES:  # noqa: PLR2004 - HTTP's
        # The clients retry some of these statuses, which only makes a failing test slow.
        headers["x-should-retry"] = "false"
    if rule := error.details.get("rule"):
        headers["x-offbook-rule"] = str(rule)
    return headers


def make_reply_id(prefix: str, reply: Reply, request: Request, *, length: int = 24) -> str:
    """Return the id of the reply, or a stable id computed from the exchange."""
    return reply.id or stable_id(
        prefix,
        request.messages.digest(),
        request.model,
        f"{reply.role}{reply.step}",
        reply.text,
        *(call.id for call in reply.calls),
        length=length,
    )


class Dialect(Protocol):
    """The wire format of one provider.

    In some formats a request can continue an earlier reply by its id (`continues_by_id`): then the
    server keeps the exchanges.
    """

    name: str
    continues_by_id: bool

    def claims(self, http_request: HttpRequest) -> bool:
        """Return whether this request is in the dialect: a model call or a side request."""
        ...

    def side_response(
        self, http_request: HttpRequest, conversations: ConversationStore
    ) -> HttpResponse | None:
        """Return the response to a request that needs no model; None for a model call.

        Such requests are lists of models, token counts, embeddings and earlier replies.
        """
        ...

    def decode(self, http_request: HttpRequest, conversations: ConversationStore) -> Request:
        """Decode a request; raise `ModelError` where the provider would reject it.

        `conversations` has the earlier replies of this run, for requests that continue one.
        """
        ...

    def reply_id(self, reply: Reply, request: Request) -> str:
        """Return the id with which the reply is sent, always the same for the same exchange.

        The server stores the exchange under this id, for requests that continue it.
        """
        ...

    def encode(self, reply: Reply, request: Request) -> HttpResponse:
        """Encode a reply: JSON, or the whole stream if the request asked for one."""
        ...

    def encode_error(self, error: ModelError, request: Request | None = None) -> HttpResponse:
        """Encode an error with the status, body and headers of the provider."""
        ...

    def build_request(self, request: Request, base_url: str, key: str) -> HttpRequest:
        """Build a request to the real provider; its `path` is the whole URL."""
        ...

    def parse_response(self, response: HttpResponse, request: Request) -> Reply:
        """Parse a response of the real provider, streamed or not; raise its errors."""
        ...


class LiveSession(Protocol):
    """A conversation over a WebSocket in which the provider keeps the messages."""

    def open(self) -> list[JSON]:
        """Return the events with which it begins."""
        ...

    def receive(self, raw: bytes, /) -> tuple[list[JSON], HttpRequest | None]:
        """Return the events that answer a message, and the request that it makes to the model."""
        ...

    def translate(self, event: JSON, /) -> Iterable[JSON]:
        """Return the events of the conversation for an event of the model's response."""
        ...


@runtime_checkable
class OpensSessions(Protocol):
    """A dialect of a provider with such conversations."""

    def open_session(self, http_request: HttpRequest) -> LiveSession | None:
        """Return a new conversation for an upgrade to WebSocket; None if it is another one."""
        ...


@runtime_checkable
class RunsTools(Protocol):
    """A dialect of a provider that runs tools itself, such as a web search."""

    def run_tool(self, call: ToolCall, tool: Tool, request: Request) -> tuple[AnyBlock, ...]:
        """Return the blocks of a call that the provider runs; none if the agent runs it.

        Raise `UsageError` for a tool, or a field of a call, that is not supported.
        """
        ...


# ------------------------------------------------------------------------ conversations
# Memory of earlier requests: stored conversations, and a cache of decoded body prefixes.
#
# `ConversationStore` keeps the exchanges of a run for requests that continue one by its id, as a
# provider does, and recognises the calls of a client that gives them other ids. `PrefixCache` saves
# time: an agent sends the whole conversation with every request, and the part that was decoded for
# the last request is not decoded again.

StateT = TypeVar("StateT")
ResultT = TypeVar("ResultT")
ArgumentsT = TypeVarTuple("ArgumentsT")
KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT", bound=Sized)

MAX_EXCHANGES = 1024  # bounds the memory of a server that runs for days


class RestoredCalls(msgspec.Struct, frozen=True):
    """A conversation with the call ids of this run in place of those that the client made.

    `replaced` has our id by the client's; `used` are all ids of this run that it contains.
    """

    messages: History
    replaced: dict[str, str]
    used: set[str]


def _join_reply(one: Message, other: Message, reply: Reply) -> Message:
    """Return two messages that are parts of one reply as one, its calls in their order."""
    order = [call.id for call in reply.calls]
    calls = [*one.calls, *other.calls]
    calls.sort(key=lambda call: order.index(call.id) if call.id in order else len(order))
    texts = [block for block in one.blocks if not isinstance(block, ToolCall)]
    # A client may repeat the text with each call.
    texts += [b for b in other.blocks if not isinstance(b, ToolCall) and b not in texts]
    return Message("assistant", (*texts, *calls))


class BatchRequest(msgspec.Struct, frozen=True):
    """A request of a batch, and what takes its response."""

    request: HttpRequest
    finish: Callable[[HttpResponse], None]


class ConversationStore:
    """The latest exchanges of one run, by the id of their reply.

    `url` is the base URL of the endpoint, empty where clients are answered in their process.
    `batch_requests` are those of new batches: the endpoint answers them like any others.
    """

    def __init__(self, url: str = "") -> None:
        self.url = url
        self.batch_requests: deque[BatchRequest] = deque()
        self._stored: ObjectStore | None = None
        self._exchanges: OrderedDict[str, tuple[Request, Reply]] = OrderedDict()
        self._replies_by_call: OrderedDict[str, Reply] = OrderedDict()
        self._other_calls: set[str] = set()  # calls in requests that this run did not make
        # By the digest of a conversation.
        self._restored: OrderedDict[str, RestoredCalls] = OrderedDict()
        self._splits_calls = False  # the client sends parallel calls as several messages

    @property
    def stored(self) -> ObjectStore:
        """The files, vector stores and batches of the clients of this run."""
        if self._stored is None:
            from offbook.exchange.dialects.stored import ObjectStore  # few agents store something

            self._stored = ObjectStore()
        return self._stored

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
        if calls := find_calls(reply.blocks):  # a property takes three times as long
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
        known, results = self._replies_by_call, request.results
        if not results or all(result.call_id in known for result in results):
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
        whole = restored.messages.plus(*messages) if replaced else sent
        self._restored[sent.digest()] = RestoredCalls(whole, replaced, used)
        if len(self._restored) > MAX_CONVERSATIONS:
            self._restored.popitem(last=False)
        if not replaced:
            return request
        metadata = {**request.metadata, "call_ids": {ours: id_ for id_, ours in replaced.items()}}
        return msgspec.structs.replace(request, messages=whole, metadata=metadata)

    def join_calls(self, request: Request) -> Request:
        """Return a request in which the parallel calls of a reply are one message.

        Some clients send a message for each call, followed by its result.
        """
        if not self._replies_by_call:
            return request
        if not self._splits_calls:
            last = request.messages.latest("assistant")
            calls = () if last is None else last.calls
            reply = self._replies_by_call.get(calls[0].id) if calls else None
            if reply is None or len(reply.calls) <= len(calls):
                return request
            self._splits_calls = True
        messages: list[Message] = []
        opened, start = None, 0  # the reply whose calls are not followed by another message yet
        for message in request.messages:
            calls = message.calls
            reply = self._replies_by_call.get(calls[0].id) if calls else None
            if message.role == "assistant" and reply is not None and reply is opened:
                ids = {call.id for call in messages[start].calls}
                if ids.isdisjoint(call.id for call in calls):  # else it is a repetition
                    messages[start] = _join_reply(messages[start], message, reply)
                    continue
            if message.role != "tool":
                opened, start = reply, len(messages)
            messages.append(message)
        if len(messages) == len(request.messages):
            return request
        return msgspec.structs.replace(request, messages=History(messages))

    def _find_by_name(self, name: str, used: Container[str]) -> str | None:
        for call_id, reply in self._replies_by_call.items():
            if call_id not in used and any((c.id, c.name) == (call_id, name) for c in reply.calls):
                return call_id
        return None


# ------------------------------------------------------------------------ prefix cache

MIN_BODY_SIZE = 4_096
"""Smaller bodies are decoded faster than they are looked up."""

MIN_CACHED = 8  # conversations of any size
MAX_CACHED_BYTES = 16_000_000  # of more of them together
MAX_ROOTS = 8  # bodies that began in no known way
MAX_ROOT_BYTES = 1_000_000
BLOCK_SIZE = 1_024
_PROBE_SIZE = 48
_SPACE = b" \t\r\n"
_BETWEEN = b"," + _SPACE
_decode_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode


class RecentCache(OrderedDict[KeyT, ValueT]):
    """Values of the latest conversations: a few of any size, or many small ones."""

    _size = 0

    def add(self, key: KeyT, value: ValueT) -> None:
        """Add the latest value."""
        if key in self:
            self.remove(key)
        self[key] = value
        self._size += len(value)
        while len(self) > (MIN_CACHED if self._size > MAX_CACHED_BYTES else MAX_CONVERSATIONS):
            _, oldest = self.popitem(last=False)
            self._size -= len(oldest)

    def remove(self, key: KeyT) -> ValueT | None:
        """Remove a value, and return it."""
        value = self.pop(key, None)
        if value is not None:
            self._size -= len(value)
        return value


class CachedPrefix(msgspec.Struct, Generic[StateT], frozen=True):
    """A body up to the last element of its growing array, and the state decoded from it.

    `head` is the body up to the opening bracket of the array, `prefix` up to the end of its last
    element, `tail` the rest. Both are views of the body: a copy of a long conversation with each
    request would cost more than to compare it. `request` is the decoded body, for those that
    differ in new elements only; None where a dialect decodes all other fields again.
    """

    head: bytes
    prefix: memoryview
    tail: memoryview
    state: StateT
    request: Request | None = None

    def __len__(self) -> int:
        return len(cast("bytes", self.prefix.obj))  # the whole body is kept


class PrefixCache(Generic[StateT]):
    """The states decoded from the prefixes of recent bodies, one for each conversation.

    `array` is the name of the growing array (the messages) in a body.

    A prefix is found by the number of its whole blocks, its first block and the bytes before its
    last whole block ends, so that a search costs the same with many conversations as with one.

    Conversations may have a long beginning in common, such as a history with several questions
    after it. With `shorten`, the elements that a body has in common with an earlier one are not
    decoded again. It returns the state of at most the first elements, and their number.
    """

    def __init__(
        self, array: str, shorten: Callable[[StateT, int], tuple[StateT, int]] | None = None
    ) -> None:
        self._shorten = shorten
        # By the first block: a body that began in no known way, and the ends of its elements.
        self._roots: dict[bytes, tuple[CachedPrefix[StateT], list[int]]] = {}
        body = msgspec.defstruct("Body", [(array, msgspec.Raw, msgspec.Raw(b"[]"))], gc=False)
        decode = msgspec.json.Decoder(body).decode
        self._find_array: Callable[[bytes], bytes] = lambda raw: bytes(getattr(decode(raw), array))
        self._entries: RecentCache[tuple[int, bytes, bytes], CachedPrefix[StateT]] = RecentCache()
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
        """Return the longest cached prefix of this body, and the body without those elements.

        With the request, only elements are new: these, as an array.
        """
        if len(body) < MIN_BODY_SIZE:
            return None
        first, find = body[:BLOCK_SIZE], self._entries.get
        best: CachedPrefix[StateT] | None = None
        for end in range(len(body) - len(body) % BLOCK_SIZE, -1, -BLOCK_SIZE):
            best = find((end, first if end else b"", body[max(0, end - _PROBE_SIZE) : end]))
            if best is not None and body.startswith(best.prefix):
                break
        else:
            best = self._find_common(body, first)
        if best is None:
            return None
        if best.request is not None:
            end = len(body) - len(best.tail)
            if end >= len(best.prefix) and body.endswith(best.tail):
                new = body[len(best.prefix) : end].strip(_SPACE)
                # If this is JSON, then it is the array: it could not end earlier.
                if not new or new.startswith(b","):
                    return best, b"[%b]" % new[1:]
            best = msgspec.structs.replace(best, request=None)
        rest = body[len(best.prefix) :].lstrip(_SPACE)
        if rest.startswith(b","):
            return best, best.head + rest[1:]
        return (best, best.head + rest) if rest.startswith(b"]") else None

    def _find_common(self, body: bytes, first: bytes) -> CachedPrefix[StateT] | None:
        """Return the elements that this body has in common with an earlier one."""
        found = self._roots.get(first)
        if self._shorten is None or found is None:
            return None
        root, ends = found
        low, high = 0, min(len(body), len(root.prefix))
        known = root.prefix
        while low < high:
            middle = (low + high + 1) // 2
            if body.startswith(known[low:middle], low):
                low = middle
            else:
                high = middle - 1
        state, count = self._shorten(root.state, bisect_right(ends, low))
        if not count:
            return None
        prefix = memoryview(body)[: ends[count - 1]]
        return CachedPrefix(root.head, prefix, root.tail, state, root.request)

    def _add_root(self, entry: CachedPrefix[StateT], array: bytes) -> None:
        """Keep a whole body for others that begin as it does; `array` are its elements."""
        start, ends = len(entry.head), list[int]()
        for element in _decode_elements(array):
            while entry.prefix[start] in _BETWEEN:
                start += 1
            start += len(element)
            ends.append(start)
        self._roots[bytes(entry.prefix[:BLOCK_SIZE])] = (entry, ends)
        if len(self._roots) > MAX_ROOTS:
            del self._roots[next(iter(self._roots))]

    def add(
        self,
        body: bytes,
        decoded: bytes,
        state: StateT,
        before: CachedPrefix[StateT] | None = None,
        request: Request | None = None,
    ) -> None:
        """Cache the state of a body; `decoded` is the body itself, or what `find` returned."""
        if len(body) < MIN_BODY_SIZE:
            return
        if before is not None and before.request is not None:
            end = len(body) - len(before.tail)
            prefix, tail = memoryview(body)[:end], memoryview(body)[end:]
            entry = CachedPrefix(before.head, prefix, tail, state, request)
            with self._lock:
                self._entries.remove(_prefix_key(before.prefix))
                self._entries.add(_prefix_key(prefix), entry)
            return
        array = self._find_array(decoded)
        if not array.startswith(b"[") or not array[1:-1].strip(_SPACE):
            return
        # The array of a shortened body starts where that of the cached one does.
        start = len(before.head) - 1 if before else self._locate(decoded, array)
        if start is None:
            return
        after = len(decoded) - (start + len(array) - 1)  # the size from the closing bracket on
        end = len(body) - after
        while body[end - 1] in _SPACE:
            end -= 1
        prefix, tail = memoryview(body)[:end], memoryview(body)[end:]
        head = before.head if before else decoded[: start + 1]
        entry = CachedPrefix(head, prefix, tail, state, request)
        with self._lock:
            if before is not None:
                self._entries.remove(_prefix_key(before.prefix))
            elif self._shorten is not None and len(entry) <= MAX_ROOT_BYTES:
                self._add_root(entry, array)
            self._entries.add(_prefix_key(prefix), entry)

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


def _prefix_key(prefix: memoryview) -> tuple[int, bytes, bytes]:
    """Return the key of a prefix: where its last whole block ends, its first block and its end."""
    end = len(prefix) - len(prefix) % BLOCK_SIZE
    return (
        end,
        bytes(prefix[: min(end, BLOCK_SIZE)]),
        bytes(prefix[max(0, end - _PROBE_SIZE) : end]),
    )
