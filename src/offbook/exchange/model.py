"""What an agent asks of a model."""

from __future__ import annotations

import asyncio
import re
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import msgspec

from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    History,
    Message,
    ToolCall,
    find_calls,
    join_text,
)

# --- What an agent asks of a model.


class Tool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool that the agent offers to the model; `schema` is that of its parameters.

    What is no function keeps its own options in `schema`: the grammar of a custom tool, say. What
    else a provider lets be said of a function is `more`: examples of its use, who may call it.
    """

    name: str
    description: str = ""
    schema: JSON = {}
    namespace: str = ""
    kind: str = "function"
    strict: bool = False
    more: JSON = {}


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """One question to the model: the whole conversation, and under which conditions.

    `parameters` are the provider's sampling and format options as they came; `metadata` is what
    is known about the asker (endpoint, dialect, session headers), which no model ever sees.
    """

    messages: History = msgspec.field(default_factory=History)
    system: str = ""
    tools: tuple[Tool, ...] = ()
    model: str = ""
    parameters: JSON = {}
    metadata: JSON = {}
    stream: bool = False

    @property
    def prompt(self) -> str:
        """The text of the latest user message."""
        latest = self.messages.latest("user")
        return "" if latest is None else latest.text

    @property
    def first(self) -> str:
        """The text of the first user message."""
        return next((m.text for m in self.messages if m.role == "user"), "")

    @property
    def offered(self) -> tuple[str, ...]:
        """The names of the tools offered."""
        return tuple(tool.name for tool in self.tools)

    @property
    def fresh(self) -> tuple[Message, ...]:
        """What came after the model last spoke: tool results, or a new prompt."""
        messages = self.messages
        at = len(messages)
        while at and messages[at - 1].role != "assistant":
            at -= 1
        return messages[at:]


# --- What a model answers.

StopReason = Literal["stop", "tool_use", "length", "stop_sequence", "refusal", "error"]


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Tokens, as the provider counts them; `input` holds the cached ones too."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of the model, and why it stopped there.

    `step` is the place in the script that gave it (a playbook action, a mock line, an
    interaction of a cassette), counted from 1; 0 where there is no script. `chunks` are the
    pieces in which the text came, when they are known, and `delays` the milliseconds before
    each.
    """

    blocks: tuple[AnyBlock, ...] = ()
    stop: StopReason = "stop"
    usage: Usage = Usage()
    model: str = ""
    id: str = ""
    step: int = 0
    role: str = ""
    chunks: tuple[str, ...] = ()
    delays: tuple[float, ...] = ()

    @property
    def text(self) -> str:
        """What the model said, without its thoughts."""
        return join_text(self.blocks)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tools it asks for."""
        return find_calls(self.blocks)

    @property
    def message(self) -> Message:
        """The reply as the next message of the conversation."""
        return Message("assistant", self.blocks)


# --- Where replies come from: the one protocol that every model, real or scripted, speaks.


@runtime_checkable
class ModelSource(Protocol):
    """Answers requests.

    A source raises `ModelError` for what a provider would answer with an error status, and any
    other exception only when the run itself must fail (a script that does not fit, say).
    """

    async def reply(self, request: Request, /) -> Reply:
        """The model's answer to this request."""
        ...


# --- A reply on its way: its events may be heard while its source still gets them.

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    pass

    Listener = Callable[[bytes], object]

_listener: ContextVar[Listener | None] = ContextVar("offbook-listener", default=None)
_LAST_EVENT = re.compile(
    rb'\[DONE\]|"type": ?"(?:message_stop|response\.(?:completed|incomplete|failed))"'
)


def current_listener() -> Listener | None:
    """Who wants to hear the events of the reply that is being given in this context."""
    return _listener.get()


def can_relay(source: object) -> bool:
    """Whether this source may tell events before its reply is whole."""
    return bool(getattr(source, "relays", False))


class Relay:
    """A reply that is being given, in a task of its own, and the events of it that came so far."""

    def __init__(self, work: Coroutine[None, None, Reply]) -> None:
        self._events: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._next: bytes | None = None
        context = copy_context()
        context.run(_listener.set, self._events.put_nowait)
        self.reply = asyncio.get_running_loop().create_task(work, context=context)
        self.reply.add_done_callback(lambda _: self._events.put_nowait(None))

    async def begins(self) -> bool:
        """Whether something of it comes before it is whole."""
        try:
            self._next = await self._events.get()
        except asyncio.CancelledError:
            self.reply.cancel()
            raise
        return self._next is not None

    async def follow(self) -> AsyncIterator[bytes]:
        """The events as they come; the last one when the reply is whole, and so is kept.

        Whoever has heard the last one may be gone at once, and everything with it.
        """
        try:
            while self._next is not None and _LAST_EVENT.search(self._next) is None:
                yield self._next
                self._next = await self._events.get()
            await self.reply
            while self._next is not None:
                yield self._next
                self._next = await self._events.get()
        finally:
            self.reply.cancel()
