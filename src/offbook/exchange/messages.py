"""What is said between an agent and a model, in no provider's words.

A conversation is a sequence of messages; a message is a role and its blocks.
Tool results stand in messages of their own, with the role `tool`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from threading import Lock
from typing import Any, Literal, overload

import msgspec

# --- What is said between an agent and a model, in no provider's words.

JSON = dict[str, Any]

to_json = msgspec.json.Encoder(enc_hook=repr).encode
"""The bytes of a value as JSON; what that has no words for goes by its `repr`."""


class Block(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """One piece of a message."""


# What holds nothing but texts can be in no cycle: the collector need not look at it.


class Text(Block, frozen=True, omit_defaults=True, tag_field="type", tag="text", gc=False):
    """Words."""

    text: str


class Thinking(Block, frozen=True, omit_defaults=True, tag_field="type", tag="thinking", gc=False):
    """What the model thought before it spoke; `signature` is the provider's seal on it."""

    text: str
    signature: str = ""
    redacted: bool = False


class Image(Block, frozen=True, omit_defaults=True, tag_field="type", tag="image", gc=False):
    """A picture: base64 `data` of a `media_type`, or a `url`."""

    data: str = ""
    media_type: str = ""
    url: str = ""


class ToolCall(Block, frozen=True, omit_defaults=True, tag_field="type", tag="tool_call"):
    """The model asks for a tool. `namespace` is for dialects that group tools by server."""

    id: str
    name: str
    arguments: JSON = {}
    namespace: str = ""
    custom: bool = False


class RawBlock(Block, frozen=True, omit_defaults=True, tag_field="type", tag="foreign"):
    """What only one dialect has a word for, as it stood on the wire: a document, a web search."""

    kind: str
    data: JSON = {}
    dialect: str = ""


Content = Text | Image | RawBlock


class ToolResult(Block, frozen=True, omit_defaults=True, tag_field="type", tag="tool_result"):
    """What a tool answered to the call with this id."""

    call_id: str
    content: tuple[Content, ...] = ()
    is_error: bool = False
    name: str = ""
    details: Any = None

    @property
    def text(self) -> str:
        """The text of the answer, blocks joined by line ends."""
        return join_text(self.content)


AnyBlock = Text | Thinking | Image | ToolCall | ToolResult | RawBlock
Role = Literal["system", "user", "assistant", "tool"]


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message: who speaks, and what."""

    role: Role
    blocks: tuple[AnyBlock, ...] = ()

    @property
    def text(self) -> str:
        """The text of the message, blocks joined by line ends."""
        return join_text(self.blocks)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls in it."""
        return find_calls(self.blocks)

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The tool results in it."""
        return tuple([block for block in self.blocks if isinstance(block, ToolResult)])


def join_text(blocks: tuple[AnyBlock, ...]) -> str:
    """The text blocks, joined by line ends."""
    if len(blocks) == 1:  # nearly always
        (only,) = blocks
        return only.text if isinstance(only, Text) else ""
    return "\n".join(block.text for block in blocks if isinstance(block, Text))


def find_calls(blocks: tuple[AnyBlock, ...]) -> tuple[ToolCall, ...]:
    """The tool calls among the blocks."""
    for block in blocks:
        if isinstance(block, ToolCall):
            return tuple([block for block in blocks if isinstance(block, ToolCall)])
    return ()


def user(text: str) -> Message:
    """A user's message of one text."""
    return Message("user", (Text(text),))


# --- A conversation that only grows, shared without copying.

_encode_sorted = msgspec.json.Encoder(order="sorted", enc_hook=repr).encode
EMPTY_DIGEST = ""

# conversations of several threads may share a log
_APPEND_LOCK = Lock()


def extend_digest(before: str, message: Message) -> str:
    """The digest of a conversation after one more message."""
    try:
        spelled = _encode_sorted(message)
    except (TypeError, ValueError, RecursionError):  # the details of a result may be anything
        spelled = repr(message).encode()
    return blake2b(before.encode() + spelled, digest_size=12).hexdigest()


class _Log:
    """The messages that several histories share, with the digest after each."""

    __slots__ = ("digests", "messages")

    def __init__(self, messages: Iterable[Message]) -> None:
        self.messages = list(messages)
        self.digests: list[str] = [EMPTY_DIGEST]

    def grow(self, length: int, messages: Sequence[Message]) -> _Log:
        """The log with these after the first `length`: another one if somebody has gone on."""
        with _APPEND_LOCK:
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


# --- The arguments of a tool call, where a provider writes them as a text.

RAW_ARGUMENTS = "$raw"

_decode_object = msgspec.json.Decoder(dict).decode


def parse_arguments(text: str) -> JSON:
    """The arguments in this text."""
    if not text:
        return {}
    try:
        return _decode_object(text)
    except msgspec.DecodeError:
        return {RAW_ARGUMENTS: text}


def render_arguments(arguments: JSON) -> str:
    """The text of these arguments."""
    raw = arguments.get(RAW_ARGUMENTS)
    if isinstance(raw, str) and len(arguments) == 1:
        return raw
    return to_json(arguments).decode()


def parse_custom_input(text: str) -> JSON:
    """The arguments of a call of a custom tool, which takes a text and no JSON."""
    return {"input": text}


def render_custom_input(arguments: JSON) -> str:
    """The text for a custom tool: its only argument, or all of them as JSON."""
    if len(arguments) == 1:
        (only,) = arguments.values()
        if isinstance(only, str):
            return only
    return render_arguments(arguments)
