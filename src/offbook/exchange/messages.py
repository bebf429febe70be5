"""Messages between an agent and a model, independent of any provider.

A conversation is a sequence of messages; a message is a role and its blocks. A tool result is a
block of a separate message with the role `tool`:

    Message("user", (Text("Read a.txt"),))
    Message("assistant", (ToolCall("c1", "read", {"path": "a.txt"}),))
    Message("tool", (ToolResult("c1", (Text("hello"),), name="read"),))

`written_text` is what the person wrote in a message, without the texts that a client adds.
`History` is the immutable sequence of messages that a request carries. The last part of the file
converts tool arguments between JSON objects and the text form that some providers use.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from threading import Lock
from typing import Any, Literal, cast, overload

import msgspec

from offbook.errors import UnknownOutcome

JSON = dict[str, Any]

_encode = msgspec.json.Encoder(enc_hook=repr).encode
_encode_sorted = msgspec.json.Encoder(order="sorted", enc_hook=repr).encode


def to_json(value: Any) -> bytes:
    """Return a value as JSON; a type that JSON cannot represent is written as its `repr`."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _escape(value)


def to_sorted_json(value: Any) -> bytes:
    """Return a value as JSON with sorted keys."""
    try:
        return _encode_sorted(value)
    except UnicodeEncodeError:
        return _escape(value)


def _escape(value: Any) -> bytes:
    """Return JSON with half a character escaped; msgspec refuses it."""
    import json

    return json.dumps(msgspec.to_builtins(value, enc_hook=repr), sort_keys=True).encode()


# ------------------------------------------------------------------------------ blocks


class Block(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """One part of a message."""


# `gc=False` on structs of plain strings: they cannot be part of a reference cycle, and a long
# conversation keeps the garbage collector from scanning thousands of them.


class Text(Block, frozen=True, omit_defaults=True, tag_field="type", tag="text", gc=False):
    """Plain text."""

    text: str


class Thinking(Block, frozen=True, omit_defaults=True, tag_field="type", tag="thinking", gc=False):
    """The model's reasoning; `signature` is the provider's signature of it."""

    text: str
    signature: str = ""
    redacted: bool = False


class Image(Block, frozen=True, omit_defaults=True, tag_field="type", tag="image", gc=False):
    """An image: base64 `data` of a `media_type`, or a `url`."""

    data: str = ""
    media_type: str = ""
    url: str = ""


class ToolCall(Block, frozen=True, omit_defaults=True, tag_field="type", tag="tool_call"):
    """A tool call by the model.

    `namespace` is for providers that group tools by server. A `custom` tool takes free text
    instead of a JSON object.
    """

    id: str
    name: str
    arguments: JSON = {}
    namespace: str = ""
    custom: bool = False


# The tag `foreign` is part of recorded traces and cassettes.
class RawBlock(Block, frozen=True, omit_defaults=True, tag_field="type", tag="foreign"):
    """A block that only one dialect can represent (a document, a web search), as sent."""

    kind: str
    data: JSON = {}
    dialect: str = ""


Content = Text | Image | RawBlock


class ToolResult(Block, frozen=True, omit_defaults=True, tag_field="type", tag="tool_result"):
    """The result of the tool call with this id.

    `failed` is None if it is unknown: the formats of OpenAI have no field for it.
    """

    call_id: str
    content: tuple[Content, ...] = ()
    failed: bool | None = msgspec.field(default=False, name="is_error")
    name: str = ""
    details: Any = None

    @property
    def text(self) -> str:
        """The text blocks of the result, joined by newlines."""
        return join_text(self.content)

    @property
    def is_error(self) -> bool:
        """True if the tool failed; raises `UnknownOutcome` if that is unknown."""
        return require_outcome(self.failed, self.name)


def require_outcome(failed: bool | None, tool: str) -> bool:  # noqa: FBT001 - a value, not an option
    """Return whether a tool failed, or raise if it is unknown."""
    if failed is None:
        raise UnknownOutcome(
            f"it is unknown whether {tool or 'the tool'} failed: the agent sent the result in a"
            " format of OpenAI, which does not say it, and nothing saw the tool run",
            hint="assert on the text of the result, or drive an agent of a framework whose tools"
            " Offbook sees",
        )
    return failed


AnyBlock = Text | Thinking | Image | ToolCall | ToolResult | RawBlock
Role = Literal["system", "user", "assistant", "tool"]


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message: a role and its blocks."""

    role: Role
    blocks: tuple[AnyBlock, ...] = ()

    @property
    def text(self) -> str:
        """The text blocks of the message, joined by newlines."""
        return join_text(self.blocks)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls in the message."""
        return find_calls(self.blocks)

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The tool results in the message."""
        return tuple([block for block in self.blocks if isinstance(block, ToolResult)])


def join_text(blocks: tuple[AnyBlock, ...]) -> str:
    """Join the text blocks by newlines."""
    if len(blocks) == 1:  # the usual case, without a generator
        (block,) = blocks
        return block.text if isinstance(block, Text) else ""
    return "\n".join(block.text for block in blocks if isinstance(block, Text))


def find_calls(blocks: tuple[AnyBlock, ...]) -> tuple[ToolCall, ...]:
    """Return the tool calls among the blocks."""
    # Not `isinstance`: it takes five times as long for a struct of another class.
    if len(blocks) == 1:  # the usual case, without a list
        return cast("tuple[ToolCall, ...]", blocks) if type(blocks[0]) is ToolCall else ()
    for block in blocks:  # most messages have none, and then no list is built
        if type(block) is ToolCall:
            return tuple([block for block in blocks if type(block) is ToolCall])
    return ()


def user(text: str) -> Message:
    """Return a user message with this text."""
    return Message("user", (Text(text),))


# ----------------------------------------------------------------------- injected texts

# Coding agents put reminders, a description of the environment and instruction files into messages
# with the role `user`. Each of these texts has tags or a first line that no prompt of a person has.
# To support another client, add them here.
TAGS = (
    "system-reminder",  # Claude Code, and clients that follow it
    "environment_context",  # Codex
    "user_instructions",
    "permissions instructions",
    "skills_instructions",
    "collaboration_mode",
    "session_context",  # Gemini CLI
)
FIRST_LINES = (
    "# AGENTS.md instructions for ",  # Codex: an instruction file
    "This is the Gemini CLI. We are setting up the context",
    "This is the Qwen Code. We are setting up the context",
)
_TAGGED = rf"(?s)<({'|'.join(TAGS)})>.*?</\1>\s*"  # compiled when a text has one


def written_text(message: Message) -> str:
    """Return the text of a user message without what the client injected."""
    texts = [strip_injected(block.text) for block in message.blocks if isinstance(block, Text)]
    return "\n".join(filter(None, texts))


def find_prompt(messages: Iterable[Message]) -> str:
    """Return the first text that a person wrote in these messages, or an empty string."""
    texts = (written_text(message) for message in messages if message.role == "user")
    return next(filter(None, texts), "")


def strip_injected(text: str) -> str:
    """Return one text block of a user message without what the client injected."""
    stripped = text.strip()
    if stripped.startswith(FIRST_LINES):
        return ""
    # Almost every text has no tag, and most injected ones are a separate block.
    if "</" not in stripped:
        return text
    for tag in TAGS:
        opening, closing = f"<{tag}>", f"</{tag}>"
        # An instruction file may itself contain the closing tag, so the block counts as a whole.
        if stripped.startswith(opening) and stripped.endswith(closing):
            if stripped.count(opening) == 1:
                return ""
            break
    return re.sub(_TAGGED, "", text)


# ----------------------------------------------------------------------------- history

EMPTY_DIGEST = ""
MAX_CONVERSATIONS = 1024  # side by side

# Histories in several threads may share one log; only appending to it needs the lock.
_APPEND_LOCK = Lock()
_NEW = object.__new__


def extend_digest(digest: str, message: Message) -> str:
    """Return the digest of a conversation with this digest after one more message."""
    try:
        encoded = _encode_sorted(message)
    except (TypeError, ValueError, RecursionError):  # `details` of a result can be any object
        encoded = repr(message).encode()
    # Twelve bytes: short enough to be part of a reply id, and long enough to be unique.
    return blake2b(digest.encode() + encoded, digest_size=12).hexdigest()


class _Log(msgspec.Struct):
    """An append-only list of messages shared by several histories, and the digest after each.

    `foreseen` is the index, blocks and digest of a reply that is likely to be appended.
    """

    messages: list[Message]
    digests: list[str]
    foreseen: tuple[int, tuple[AnyBlock, ...], str] = (0, (), "")

    def digest(self, length: int) -> str:
        digests = self.digests
        at, blocks, foreseen = self.foreseen
        index = len(digests)
        digest = digests[index - 1]
        # Two threads may compute the same digests.
        for message in self.messages[index - 1 : length]:
            if at == index and message.blocks is blocks and message.role == "assistant":
                digest = foreseen
            else:
                digest = extend_digest(digest, message)
            # Slice assignment instead of append: both write it to the same index.
            digests[index : index + 1] = (digest,)
            index += 1
        return digests[length]


class History(Sequence[Message]):
    """The messages of a conversation, as an immutable sequence.

    An agent sends the whole conversation with every request. A history is a view of the first
    messages of a shared append-only log, so extending it copies nothing and the digest of each
    prefix is computed once: the thousandth turn costs as much as the first.
    """

    __slots__ = ("_length", "_log")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        kept = list(messages)
        self._log = _Log(kept, [EMPTY_DIGEST])
        self._length = len(kept)

    @staticmethod
    def of(messages: list[Message]) -> History:
        """Return the history of a list without a copy of it."""
        history = _NEW(History)
        history._log = _Log(messages, [EMPTY_DIGEST])  # noqa: SLF001 - the same class
        history._length = len(messages)  # noqa: SLF001 - as above
        return history

    def plus(self, *messages: Message) -> History:
        """Return the history with these messages at its end; this one does not change."""
        # Without `__init__`, which would copy the messages into another log.
        longer = _NEW(History)
        log, length = self._log, self._length
        _APPEND_LOCK.acquire()  # `with` takes twice as long, for each message
        try:
            if len(log.messages) == length:
                log.messages.extend(messages)
            else:  # another history was extended beyond this one
                log = _Log([*log.messages[:length], *messages], log.digests[: length + 1])
        finally:
            _APPEND_LOCK.release()
        longer._log = log  # noqa: SLF001 - the same class
        longer._length = length + len(messages)  # noqa: SLF001 - as above
        return longer

    def first(self, length: int) -> History:
        """Return the first `length` messages; nothing is copied."""
        shorter = _NEW(History)
        shorter._log, shorter._length = self._log, length  # noqa: SLF001 - the same class
        return shorter

    def digest(self, length: int | None = None) -> str:
        """Return the digest of the first `length` messages (default: all)."""
        index = self._length if length is None else length
        known = self._log.digests
        return known[index] if index < len(known) else self._log.digest(index)

    def digests(self, length: int) -> list[str]:
        """Return the digests of all beginnings that are longer than `length`."""
        self.digest()
        return self._log.digests[length + 1 : self._length + 1]

    def continues(self, earlier: History) -> bool:
        """Return whether this begins with all messages of an earlier history."""
        length = earlier._length
        if self._log is earlier._log:
            return length <= self._length
        return self.has_prefix(length, earlier.digest())

    def has_prefix(self, length: int, digest: str) -> bool:
        """Return whether this is the digest of the first `length` messages."""
        return length <= self._length and self.digest(length) == digest

    def digest_with(self, blocks: tuple[AnyBlock, ...]) -> str:
        """Return the digest after a reply with these blocks, which is likely to be appended."""
        digest = extend_digest(self.digest(), Message("assistant", blocks))
        self._log.foreseen = (self._length + 1, blocks, digest)
        return digest

    def longest_prefix(self, digests: Container[str]) -> int:
        """Return the length of the longest beginning whose digest is among these, or 0."""
        length = self._length
        known = self._log.digests
        if length >= len(known):
            self._log.digest(length)
        while length and known[length] not in digests:
            length -= 1
        return length

    def has_only(self, role: Role) -> bool:
        """Return whether all messages have this role."""
        messages, index = self._log.messages, 0
        while index < self._length and messages[index].role == role:
            index += 1
        return index == self._length

    def to_list(self) -> list[Message]:
        """Return the messages as a list."""
        return self._log.messages[: self._length]

    def after(self, length: int) -> tuple[Message, ...]:
        """Return the messages after the first `length`."""
        return tuple(self._log.messages[length : self._length])

    def since(self, role: Role) -> tuple[Message, ...]:
        """Return the messages after the latest one with this role."""
        messages, length = self._log.messages, self._length
        start = length
        while start and messages[start - 1].role != role:
            start -= 1
        return tuple(messages[start:length])

    def latest(self, role: Role) -> Message | None:
        """Return the latest message with this role."""
        messages = self._log.messages
        for index in range(self._length - 1, -1, -1):
            if messages[index].role == role:
                return messages[index]
        return None

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            return tuple(self._log.messages[start:stop:step])
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._log.messages[index + self._length if index < 0 else index]

    def __iter__(self) -> Iterator[Message]:
        return islice(self._log.messages, self._length)

    def __eq__(self, other: object) -> bool:
        # The digests are cached, so that comparing long histories does not compare messages.
        return self.digest() == other.digest() if isinstance(other, History) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest())

    def __repr__(self) -> str:
        return f"History({list(self)!r})"


# ---------------------------------------------------------------------- tool arguments

RAW_ARGUMENTS = "$raw"
"""The key of arguments that are not a JSON object.

A model can write invalid JSON. The text is kept under this key and sent again unchanged, so such a
call can be recorded and scripted.
"""

_decode_object = msgspec.json.Decoder(dict).decode


def parse_arguments(text: str) -> JSON:
    """Parse the arguments of a tool call from their JSON text."""
    if not text:
        return {}
    try:
        return _decode_object(text)
    except (msgspec.DecodeError, RecursionError):
        return _parse_escaped(text) if "\\ud" in text.lower() else {RAW_ARGUMENTS: text}


def _parse_escaped(text: str) -> JSON:
    """Return arguments with an escape of half a character, which msgspec refuses."""
    import json

    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    return cast("JSON", found) if isinstance(found, dict) else {RAW_ARGUMENTS: text}


def render_arguments(arguments: JSON) -> str:
    """Render the arguments of a tool call as JSON text."""
    raw = arguments.get(RAW_ARGUMENTS)
    if isinstance(raw, str) and len(arguments) == 1:
        return raw
    return to_json(arguments).decode()


def parse_custom_input(text: str) -> JSON:
    """Return the arguments of a call to a custom tool, which takes text instead of JSON."""
    return {"input": text}


def render_custom_input(arguments: JSON) -> str:
    """Render the text for a custom tool: its only argument, or all of them as JSON."""
    if len(arguments) == 1:
        (value,) = arguments.values()
        if isinstance(value, str):
            return value
    return render_arguments(arguments)
