"""Tells every exchange with a model to the hub, and puts whole requests together again.

Each request repeats the conversation so far. The trace does not: a `model.request` has the
digest of what was there before (`before`), and only what is new (`new`); the same goes for the
head (system prompt, tools, parameters), which is told once and then named. `after` names what
the conversation is then, in a request and in its reply: a later `before` refers to it. `rebuild`
reverses it by these names alone, so it works on redacted traces, too.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from offbook.errors import FormatError, ModelError
from offbook.exchange.messages import EMPTY_DIGEST, AnyBlock, History, Message, extend_digest
from offbook.exchange.model import Reply, Request, Tool
from offbook.trace.events import ERROR, REPLY, REQUEST, TOOL_CALL, TOOL_RESULT, Event

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from offbook.exchange.messages import ToolCall, ToolResult
    from offbook.exchange.model import ModelSource
    from offbook.trace.hub import Hub

T = TypeVar("T")
REMEMBERED = 1024
_encode = msgspec.json.Encoder(order="sorted", enc_hook=repr).encode
_HEAD = ("system", "tools", "model", "parameters", "stream")


class TracedSource:
    """A source whose exchanges are told to the hub.

    With `tools=True` it also tells the tool calls and results that pass by: for agents that
    cannot tell themselves because they live in another process or framework; `mocked` are those
    of their tools that somebody stands in for.
    """

    def __init__(
        self,
        source: ModelSource,
        hub: Hub,
        *,
        tools: bool = False,
        mocked: Container[str] = (),
    ) -> None:
        self._source = source
        self._hub = hub
        self._tools = tools
        self._mocked = mocked
        self._tips: OrderedDict[str, None] = OrderedDict()
        self._told: set[str] = set()
        self._head: tuple[tuple[Any, ...], str] = ((), "")
        self._calls: OrderedDict[str, tuple[str, int]] = OrderedDict()
        self._count = 0

    async def reply(self, request: Request, /) -> Reply:
        """The source's reply, told on its way in and out."""
        self._count += 1
        exchange = f"x{self._count}"
        if self._calls:
            self._tell_results(request)
        digest = request.messages.digest()
        self._hub.emit(REQUEST, self._describe(request, exchange, digest))
        try:
            reply = await self._source.reply(request)
        except ModelError as error:
            self._hub.emit(ERROR, {"exchange": exchange, **error_data(error)})
            raise
        after = extend_digest(digest, reply.message)
        self._remember(after)
        self._hub.emit(REPLY, reply_data(reply, exchange, after))
        if self._tools and (calls := reply.calls):
            self._tell_calls(calls, reply.step)
        return reply

    def _describe(self, request: Request, exchange: str, after: str) -> dict[str, Any]:
        messages = request.messages
        known = count = len(messages)
        before = after
        while known and before not in self._tips:
            known -= 1
            before = messages.digest(known)
        self._remember(after)
        data: dict[str, Any] = {
            "exchange": exchange,
            "before": before,
            "after": after,
            "new": messages[known:] if known < count else (),
            "count": count,
        }
        if request.metadata:
            data["metadata"] = request.metadata
        self._add_head(data, request)
        return data

    def _add_head(self, data: dict[str, Any], request: Request) -> None:
        """The head by its name; at its first time, with what it names."""
        parts = (request.system, request.tools, request.model, request.parameters, request.stream)
        last, digest = self._head
        if parts != last:  # what came over a wire is equal, never the same
            digest = blake2b(_encode(parts), digest_size=8).hexdigest()
            self._head = (parts, digest)
        data["head"] = digest
        if digest not in self._told:
            self._told.add(digest)
            data.update(zip(_HEAD, parts, strict=True))

    def _remember(self, digest: str) -> None:
        tips = self._tips
        if digest in tips:
            tips.move_to_end(digest)
        else:
            tips[digest] = None
            if len(tips) > REMEMBERED:
                tips.popitem(last=False)

    def _tell_calls(self, calls: tuple[ToolCall, ...], step: int) -> None:
        for call in calls:
            self._calls[call.id] = (call.name, step)
            self._hub.emit(
                TOOL_CALL,
                {
                    "call_id": call.id,
                    "tool": call.name,
                    "input": call.arguments,
                    "step": step,
                },
            )

    def _tell_results(self, request: Request) -> None:
        for result in (r for message in request.new_messages for r in message.results):
            name, step = self._calls.pop(result.call_id, (None, 0))
            if name is not None:
                mocked = name in self._mocked
                told = tool_result_data(result, tool=name, step=step, mocked=mocked)
                self._hub.emit(TOOL_RESULT, told)


def reply_data(reply: Reply, exchange: str, after: str) -> dict[str, Any]:
    """A reply as the trace tells it."""
    data: dict[str, Any] = {
        "exchange": exchange,
        "after": after,
        "blocks": reply.blocks,
        "stop": reply.stop,
        "step": reply.step,
    }
    usage = reply.usage
    if reply.role:
        data["role"] = reply.role
    if usage.input or usage.output:
        data["usage"] = usage
    if reply.model:
        data["model"] = reply.model
    if reply.id:
        data["id"] = reply.id
    return data


def error_data(error: ModelError) -> dict[str, Any]:
    """A provider's error as the trace tells it."""
    data: dict[str, Any] = {
        "message": error.message,
        "status": error.status,
        "category": error.category,
    }
    return data if error.retry_after is None else {**data, "retry_after": error.retry_after}


def tool_result_data(
    result: ToolResult, *, tool: str, step: int, mocked: bool = False
) -> dict[str, Any]:
    """A tool's result as the trace tells it."""
    return {
        "call_id": result.call_id,
        "tool": tool,
        "content": result.content,
        "is_error": result.is_error,
        "details": result.details,
        "mocked": mocked,
        "step": step,
    }


class _Head(msgspec.Struct, frozen=True):
    system: str = ""
    tools: tuple[Tool, ...] = ()
    model: str = ""
    parameters: dict[str, Any] = {}
    stream: bool = False


class _Asked(msgspec.Struct, frozen=True):
    exchange: str
    before: str
    after: str
    head: str
    new: tuple[Message, ...] = ()
    metadata: dict[str, Any] = {}


class _Replied(msgspec.Struct, frozen=True):
    exchange: str
    after: str
    blocks: tuple[AnyBlock, ...] = ()


def rebuild_requests(events: Iterable[Event]) -> Iterator[Request]:
    """The requests of a trace, each whole again."""
    histories = {EMPTY_DIGEST: History()}
    heads: dict[str, _Head] = {}
    waiting: dict[str, History] = {}
    for event in events:
        if event.event == REQUEST:
            asked = _read(event, _Asked)
            if "system" in event.data:
                heads[asked.head] = _read(event, _Head)
            head = heads.get(asked.head)
            before = histories.get(asked.before)
            if head is None or before is None:
                raise FormatError(
                    f"request {asked.exchange} goes on from something that is not in the trace",
                    hint="lines before it are missing or damaged",
                )
            messages = before.plus(*asked.new)
            histories[asked.after] = waiting[asked.exchange] = messages
            yield Request(
                messages,
                head.system,
                head.tools,
                head.model,
                head.parameters,
                asked.metadata,
                head.stream,
            )
        elif event.event == REPLY:
            replied = _read(event, _Replied)
            if replied.exchange in waiting:
                messages = waiting.pop(replied.exchange)
                histories[replied.after] = messages.plus(Message("assistant", replied.blocks))


def _read(event: Event, kind: type[T]) -> T:
    try:
        return msgspec.convert(event.data, kind)
    except msgspec.ValidationError as error:
        raise FormatError(f"event {event.seq}, {event.event}, cannot be read: {error}") from error
