"""Emits every exchange with a model as events.

Each request repeats the whole conversation. The trace does not, or it would grow with the square
of its length. A `model.request` has

- `before`, the digest of the messages that the trace already has, and `new`, the others;
- `after`, the digest of all of them; a reply has one, too, and a later `before` refers to either;
- `head`, the digest of the system prompt, tools and parameters; the first event with a digest
  has these fields as well.

`rebuilt_requests.py` needs only these digests.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import ModelError
from offbook.exchange.messages import (
    MAX_CONVERSATIONS,
    AnyBlock,
    History,
    Message,
    ToolCall,
    ToolResult,
    extend_digest,
    find_calls,
    to_sorted_json,
)
from offbook.exchange.model import REFUSED_CALLS, Conversation, Reply, Request, Tool, Usage
from offbook.trace.events import (
    REPLY,
    REQUEST,
    UNSET,
    EventData,
    ModelErrorData,
    Optional,
    ToolCallData,
    ToolResultData,
)

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from offbook.errors import ScriptMismatch
    from offbook.exchange.model import ModelSource
    from offbook.trace.events import ConversationChange
    from offbook.trace.hub import Hub

MAX_CALLS = 10_000  # whose ids are known to be those of the model
MAX_DIGESTS = 8_192  # beginnings that a later request can continue without repeating them
MAX_KEPT = 1024  # compared replies and results
MAX_UNREAD = 512  # digests, and first requests, that are added before they are read


class RequestData(EventData, frozen=True):
    """A request: the new messages, and the head if no earlier event has it."""

    event_name = REQUEST
    exchange: str = ""
    before: str = ""
    after: str = ""
    new: tuple[Message, ...] = ()
    count: int = 0
    metadata: dict[str, Any] | Optional = UNSET
    head: str = ""
    system: str | Optional = UNSET
    tools: tuple[Tool, ...] | Optional = UNSET
    model: str | Optional = UNSET
    parameters: dict[str, Any] | Optional = UNSET
    stream: bool | Optional = UNSET


class ReplyData(EventData, frozen=True):
    """A reply. A side request has its `role`, a reply with an injected fault its kind."""

    event_name = REPLY
    exchange: str = ""
    after: str = ""
    blocks: tuple[AnyBlock, ...] = ()
    stop: str = "stop"
    step: int = 0
    role: str | Optional = UNSET
    usage: Usage | Optional = UNSET
    model: str | Optional = UNSET
    id: str | Optional = UNSET
    fault: str | Optional = UNSET


class SeenTool(msgspec.Struct, frozen=True):
    """A tool call as the subject saw it, with details that the next request does not have."""

    details: Any = None
    mocked: bool = False
    executed: bool = True


class KnownRequest(msgspec.Struct, frozen=True):
    """What is known of a request; `results` are those after its `known` messages."""

    head: str
    known: int
    before: str  # the digest of the conversation that it continues
    results: list[AnyBlock]


class Beginnings:
    """The digests of all beginnings of the open conversations, and the ids of their last calls.

    Those of closed conversations stay for a while. Few conversations are ever looked up: what was
    added is read then.
    """

    def __init__(self, conversations: Mapping[str, Conversation]) -> None:
        self._open = conversations
        self._known: set[str] = set()
        self._limit = MAX_DIGESTS
        self._added: list[tuple[History, int, Reply]] = []
        self._unread = 0  # digests

    def __contains__(self, digest_or_call: str) -> bool:
        if self._added:
            self._read()
        return digest_or_call in self._known

    def add(self, messages: History, known: int, reply: Reply) -> None:
        """Add a conversation of which the beginnings up to `known` were added before."""
        self._added.append((messages, known, reply))
        self._unread += 1 + len(messages) - known
        if self._unread >= MAX_UNREAD:
            self._read()

    def _read(self) -> None:
        for messages, known, reply in self._added:
            self._known.update(messages.digests(known))
            for call in reply.calls:
                self._known.add(call.id)
        self._added.clear()
        self._unread = 0
        if len(self._known) > self._limit:
            self._known.clear()
            for other in self._open.values():
                self._known.update(other.request.messages.digests(0), other.calls)
            self._limit = max(MAX_DIGESTS, 2 * len(self._known))


class TracedSource:
    """A source whose exchanges are emitted as events.

    Each request is compared with its conversation so far (`integrity.py`). What differs is emitted;
    `history_error` is the first difference that fails the run. With `lenient`, none does.

    With `tools=True` it also emits the tool calls and results in the messages: for agents in
    another process or framework, which emit none. `mocked` are the names of mocked tools, `seen`
    is what the subject saw of its calls, by their ids, `observed` are the names of the tools whose
    executions it emits.
    """

    def __init__(
        self,
        source: ModelSource,
        hub: Hub,
        *,
        tools: bool = False,
        mocked: Container[str] = (),
        lenient: bool = False,
    ) -> None:
        self._source = source
        # A playbook does so itself, for the few steps that call a function of the test.
        self._releases = getattr(source, "releases_held", False)
        self._hub = hub
        self._tools = tools
        self._mocked = mocked
        self.seen: Mapping[str, SeenTool] = {}
        self.observed: Container[str] = ()
        self._digests: dict[str, None] = {}  # the most recently used last
        # By digest: those that no other continues yet.
        self._open: OrderedDict[str, Conversation] = OrderedDict()
        self._beginnings = Beginnings(self._open)
        # What `_note_opened` notes; of conversations that are no longer open only the digest.
        self._opened: dict[tuple[str, int], tuple[Request, Reply]] = {}
        self._closed: deque[tuple[str, Reply]] = deque(maxlen=MAX_DIGESTS // 2)
        self._replies: deque[Reply] = deque(maxlen=MAX_KEPT)
        # Of each call of the model by its id: its result, None before it came.
        self._results: dict[str, ToolResult | None] = {}
        self._unread: set[str] = set()  # of calls whose results only failed requests have
        self._lenient = lenient
        self.history_error: ScriptMismatch | None = None
        self._emitted_heads: set[str] = set()
        self._last_head: tuple[tuple[Any, ...], str] = ((), "")
        self._calls: dict[str, tuple[ToolCall, int]] = {}  # without a result so far
        self._made: OrderedDict[str, None] = OrderedDict()  # the ids of all calls of the model
        self._others: set[str] = set()  # of calls in requests that the model did not make
        self._count = 0
        self.last_exchange = 0  # the number of the one that ended last

    async def reply(self, request: Request, /) -> Reply:
        """Return the reply of the source; emit the request and the reply."""
        self._count = number = self._count + 1
        exchange = exchange_id(number)
        # In a request without a word of the model nothing can have changed. What later ones are
        # compared with is noted when one comes (`_note_opened`), unless events are heard.
        opens = not self._hub.is_heard and request.messages.has_only("user")
        found = None if opens else self._compare(request, exchange)
        if not self._releases:
            self._hub.release()
        try:
            reply = await self._source.reply(request)
        except ModelError as error:
            if found is not None:
                self._note_results(found.results, self._unread)
                if found.before in self._open:  # which the next attempt continues
                    self._open[request.messages.digest()] = self._open[found.before]
            self._hub.emit_data(error_data(error, exchange))
            raise
        finally:
            self.last_exchange = number
        if found is None:
            self._add_opened(request, reply)
        else:
            after = self._note_exchange(request, reply, found)
            if self._hub.is_heard:
                self._hub.emit_data(reply_data(reply, exchange, after))
        if self._tools and (calls := find_calls(reply.blocks)):
            self._emit_calls(calls, reply.step)
        return reply

    def _compare(self, request: Request, exchange: str) -> KnownRequest:
        """Emit a request and what it changes; return what is known of it."""
        if self._opened:
            self._note_opened()
        messages = request.messages
        known = messages.longest_prefix(self._digests)
        digest = messages.digest()
        beginning = messages.digest(known)
        new = messages.after(known)
        # Where the known messages contain all that the model said, nothing can have changed but
        # the head and the results; so it is with almost every request.
        spoken = False
        results: list[AnyBlock] = []
        for message in new:
            role = message.role
            if role == "tool":
                results += message.blocks
            elif role == "assistant" or (role == "system" and self._open):
                spoken = True
        if self._tools and self._count > 1:
            self._emit_results(request, known, new)
        head, shown = self._find_head(request)
        if self._hub.is_heard:  # a server without a trace has no listener
            metadata = request.metadata or UNSET
            count = len(messages)
            self._hub.emit_data(
                RequestData(exchange, beginning, digest, new, count, metadata, head, *shown)
            )
        before = beginning
        earlier = self._open.get(before)
        # After a change that fails the run, no other is looked for.
        if self.history_error is None:
            repeated = bool(results) and self._has_result(results)
            if spoken or repeated or (earlier is not None and earlier.head != head):
                before = self._find_changes(
                    request, known, exchange, spoken=spoken, repeated=repeated
                )
        self._remember(digest)
        return KnownRequest(head, known, before, results)

    def _note_exchange(self, request: Request, reply: Reply, found: KnownRequest) -> str:
        """Note an exchange as the latest of its conversation; return the digest with its reply."""
        messages, known, before = request.messages, found.known, found.before
        after = messages.digest_with(reply.blocks)
        earlier = self._open.pop(before, None)
        start = len(messages) if earlier is None else earlier.start
        self._open[after] = Conversation(request, reply, found.head, start)
        if known and earlier is None and messages.digest(known) not in self._beginnings:
            known = 0
        self._beginnings.add(messages, known, reply)
        if len(self._open) > MAX_CONVERSATIONS:  # the one that waits longest
            self._open.popitem(last=False)
        self._remember(after)
        self._note_said(reply, found.results)
        return after

    def _add_opened(self, request: Request, reply: Reply) -> None:
        """Keep the exchange of a request without a word of the model."""
        opened = self._opened
        # The same reply to the same prompt makes the same conversation, as in `_open`.
        opened[request.messages.digest(), id(reply.blocks)] = (request, reply)
        if len(opened) > MAX_CONVERSATIONS + MAX_UNREAD:  # many at once: that is quicker
            for key in list(islice(opened, MAX_UNREAD)):
                self._closed.append((key[0], opened.pop(key)[1]))

    def _note_opened(self) -> None:
        """Note the exchanges that were only kept: this request may continue one."""
        for digest, reply in self._closed:
            self._remember(digest)
            self._remember(extend_digest(digest, reply.message))
            self._note_said(reply, [])
        self._closed.clear()
        for (digest, _), (request, reply) in self._opened.items():
            messages = request.messages
            known = messages.longest_prefix(self._digests)
            self._remember(digest)
            head, _ = self._find_head(request)
            self._note_exchange(
                request, reply, KnownRequest(head, known, messages.digest(known), [])
            )
        self._opened.clear()

    def _emit_calls(self, calls: tuple[ToolCall, ...], step: int) -> None:
        """Emit the tool calls of a reply."""
        for call in calls:
            self._calls[call.id] = (call, step)
            self._made[call.id] = None
            observed = call.name in self.observed
            self._hub.emit_data(ToolCallData(call.id, call.name, call.arguments, step, observed))
        while len(self._made) > MAX_CALLS:
            self._made.popitem(last=False)

    def _find_head(self, request: Request) -> tuple[str, tuple[Any, ...]]:
        """Return the digest of the head of a request, and the head if no event has it yet."""
        head = (request.system, request.tools, request.model, request.parameters, request.stream)
        last, digest = self._last_head
        # equal, not identical: a head that came over a wire is decoded for each request
        if head != last:
            digest = blake2b(to_sorted_json(head), digest_size=8).hexdigest()
            self._last_head = (head, digest)
        if digest in self._emitted_heads:
            return digest, ()
        self._emitted_heads.add(digest)
        return digest, head

    def _remember(self, digest: str) -> None:
        digests = self._digests
        digests.pop(digest, None)  # to the end
        digests[digest] = None
        if len(digests) > MAX_DIGESTS:  # forgets a quarter at once: one at a time takes longer
            self._digests = dict.fromkeys(islice(digests, MAX_DIGESTS // 4, None))

    # --- Conversation integrity

    def _has_result(self, results: list[AnyBlock]) -> bool:
        """Return whether the model already got one of these results."""
        known = self._results
        for result in results:
            if isinstance(result, ToolResult) and known.get(result.call_id) is not None:
                return True
        return False

    def _find_changes(
        self, request: Request, known: int, exchange: str, *, spoken: bool, repeated: bool
    ) -> str:
        """Emit what a request changes; return the digest of the conversation that it continues.

        `known` is the number of its first messages whose digest is known; with `spoken`, the others
        contain messages of the model, with `repeated`, results that it already got.
        """
        from offbook.trace.integrity import compare_heads, compare_known_results, find_changes

        messages = request.messages
        before = messages.digest(known)
        changes: list[ConversationChange] = []
        if spoken:
            changes, before = find_changes(request, self._open, self._replies, self._beginnings)
        elif before in self._open:
            changes = compare_heads(self._open[before].request, request)
        if repeated:
            changes += compare_known_results(messages, known, self._results, self._unread)
        self._emit_changes(changes, exchange)
        return before

    def _emit_changes(self, changes: list[ConversationChange], exchange: str) -> None:
        failing: list[ConversationChange] = []
        for change in dict.fromkeys(changes):
            fails = change.level == "fails"
            level = "shown" if fails and self._lenient else change.level
            self._hub.emit_data(msgspec.structs.replace(change, exchange=exchange, level=level))
            if level == "fails":
                failing.append(change)
        if failing and self.history_error is None:
            from offbook.trace.integrity import history_error

            self.history_error = history_error(failing, exchange)

    def _note_said(self, reply: Reply, results: list[AnyBlock]) -> None:
        """Note a reply, and the results to which it is the answer."""
        self._replies.append(reply)
        if results:
            self._note_results(results, set())
        if self._unread:
            self._unread.clear()
        known = self._results
        for block in reply.blocks:
            if type(block) is ToolCall:  # quicker than `isinstance`, see `find_calls`
                known[block.id] = None  # a source may use an id again
        while len(known) > MAX_KEPT:
            del known[next(iter(known))]

    def _note_results(self, results: list[AnyBlock], noted: set[str]) -> None:
        """Note results that the model has not read before; add their call ids to `noted`."""
        known = self._results
        for result in results:
            # A call may also be of an earlier run, or an example.
            if isinstance(result, ToolResult) and (
                known.get(result.call_id, result) is None or result.call_id in self._unread
            ):
                known[result.call_id] = result
                noted.add(result.call_id)

    def _emit_results(self, request: Request, known: int, new: tuple[Message, ...]) -> None:
        """Emit the results of the request that no earlier one had; `new` follows on the `known`.

        The input of a call is the one in the request. A call that the model never made is one of
        the agent, unless it is before all words of the model: an example in the prompt, or an
        earlier conversation.
        """
        messages = request.messages
        sent: dict[str, ToolCall] = {}
        invented: set[str] = set()
        in_run = known > 0
        earlier: list[ToolResult] = []
        for message in new:
            for block in message.blocks:
                if type(block) is ToolResult:  # quicker than `isinstance`, see `find_calls`
                    earlier.append(block)
                elif type(block) is ToolCall:
                    sent[block.id] = block
                    if block.id in self._made:
                        in_run = True
                    elif block.id not in self._others:
                        self._others.add(block.id)
                        if in_run:
                            invented.add(block.id)
        if not self._calls and not invented:
            return
        latest = request.results  # they say whether their tools failed
        ids = {result.call_id for result in latest}
        refused: Container[str] = request.metadata.get(REFUSED_CALLS, ())
        for result in (*(r for r in earlier if r.call_id not in ids), *latest):
            call_id = result.call_id
            call, step = self._calls.pop(call_id, (None, 0))
            given: Any = UNSET
            if call is not None:
                if (own := sent.get(call_id) or _find_call(messages, known, call_id)) is None:
                    own = request.text_calls.get(call_id)
                if own is None:
                    given = None
                elif own.arguments != call.arguments:
                    given = own.arguments
            elif call_id in invented:
                invented.discard(call_id)
                call = sent[call_id]
                given = call.arguments
            else:  # an earlier result, or one of an earlier conversation
                continue
            seen = self.seen.get(call_id)
            if seen is None:
                seen = SeenTool(result.details, call.name in self._mocked)
            executed = seen.executed and call_id not in refused
            self._hub.emit_data(
                ToolResultData(
                    call_id,
                    call.name,
                    result.content,
                    result.failed,
                    seen.details,
                    seen.mocked,
                    step,
                    UNSET if executed else False,
                    given,
                )
            )


def exchange_id(number: int) -> str:
    """Return the id of the n-th exchange of a run."""
    return f"x{number}"


def _find_call(messages: History, length: int, call_id: str) -> ToolCall | None:
    """Return this call in the first messages, from the last one on."""
    for index in range(length - 1, -1, -1):
        for call in messages[index].calls:
            if call.id == call_id:
                return call
    return None


def reply_data(reply: Reply, exchange: str, after: str) -> ReplyData:
    """Return the data of the event for a reply."""
    usage = reply.usage
    return ReplyData(
        exchange,
        after,
        reply.blocks,
        reply.stop,
        reply.step,
        reply.role or UNSET,
        usage if usage.input or usage.output else UNSET,
        reply.model or UNSET,
        reply.id or UNSET,
        UNSET if reply.fault is None else reply.fault.kind,
    )


def error_data(error: ModelError, exchange: str = "") -> ModelErrorData:
    """Return the data of the event for a provider's error."""
    return ModelErrorData(
        error.message,
        error.status,
        error.category,
        exchange or UNSET,
        UNSET if error.retry_after is None else error.retry_after,
    )
