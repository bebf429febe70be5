"""Decoding and validation of bodies, shared by all dialects.

Providers add fields and block types all the time. A body is decoded into the structs of its
dialect; unknown fields are kept as options (`RequestDecoder`), and a block that has no neutral
form is kept as raw JSON and sent again unchanged (`RawBody`, `RawBlock`).

What a provider rejects is rejected here, too. Each rule has a name and can be switched off
(`lenient`). The checks return a `Violation`; each dialect turns it into an error with the
provider's own message by `rejection`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, overload

import msgspec
from msgspec import UNSET

from offbook.errors import ModelError, UsageError, require_known
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    Message,
    RawBlock,
    ToolCall,
    ToolResult,
)
from offbook.exchange.model import Tool

if TYPE_CHECKING:
    from offbook.exchange.model import Reply

BodyT = TypeVar("BodyT", bound=msgspec.Struct)
DecodedT_co = TypeVar("DecodedT_co", covariant=True)

JsonPath = tuple[str | int, ...]
"""The keys and indexes that lead to a value in a JSON body."""


class BodyDecoder(Protocol[DecodedT_co]):
    """A decoder of JSON bodies."""

    def decode(self, buf: bytes | msgspec.Raw, /) -> DecodedT_co:
        """Decode a body."""
        ...


class RequestDecoder(Generic[BodyT]):
    """A decoder of request bodies that separates the options from the other fields.

    Options are the fields called `options`, which can have any value or the type they have in the
    struct, and all fields that the struct does not have.
    """

    def __init__(self, struct: type[BodyT], options: str) -> None:
        names = [name for name in options.split() if name not in struct.__struct_fields__]
        with_options = msgspec.defstruct(
            struct.__name__, [(name, Any, UNSET) for name in names], bases=(struct,), gc=False
        )
        # Most bodies have no unknown field. A decoder that forbids them detects that without a
        # second pass over the body.
        strict = msgspec.defstruct(
            struct.__name__, [], bases=(with_options,), forbid_unknown_fields=True, gc=False
        )
        self._decode_strict = msgspec.json.Decoder(strict).decode
        self._with_options = with_options
        self._known = frozenset(with_options.__struct_fields__)
        # The options are the last fields of the struct.
        fields = with_options.__struct_fields__
        self._start = min(fields.index(name) for name in options.split())
        self._options = fields[self._start :]

    @cached_property
    def _decode_known(self) -> Callable[[bytes | msgspec.Raw], Any]:
        return msgspec.json.Decoder(self._with_options).decode

    def decode(self, body: bytes | msgspec.Raw, /) -> tuple[BodyT, JSON]:
        """Return the decoded body and its options."""
        unknown: JSON = {}
        decoded: Any
        try:
            decoded = self._decode_strict(body)
        except msgspec.ValidationError:
            decoded, fields = self._decode_known(body), _decode_fields(body)
            for name in fields.keys() - self._known:
                unknown[name] = msgspec.json.decode(fields[name])
        values = msgspec.structs.astuple(decoded)[self._start :]
        if values.count(UNSET) != len(values):
            options = zip(self._options, values, strict=True)
            unknown.update([(name, value) for name, value in options if value is not UNSET])
        return decoded, unknown


_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class RawBody(msgspec.Struct):
    """A JSON body that is decoded a second time, as plain JSON, for blocks without a struct.

    `messages` is the path of the messages, where the text may be these alone.
    """

    body: bytes | str
    dialect: str
    messages: JsonPath = ()
    decoded: Any = None

    def block(self, kind: str, path: JsonPath) -> RawBlock:
        """Return the JSON object at this path as a raw block."""
        if self.decoded is None:  # only a body with such a block pays for the second pass
            try:
                self.decoded = msgspec.json.decode(self.body)
            except RecursionError as error:
                raise ModelError(f"The body is nested too deeply: {error}", status=400) from error
        value = self.decoded
        for key in path:
            if isinstance(key, str):
                value = cast("JSON", value)[key]
            elif isinstance(value, list):  # some providers accept one object in place of a list
                value = cast("list[Any]", value)[key]
        return RawBlock(kind, cast("JSON", value), self.dialect)


def raw_block_data(block: RawBlock, dialect: str) -> JSON:
    """Return the JSON of a raw block of this dialect."""
    # Another provider would reject it or ignore it silently.
    if block.dialect != dialect:
        raise unsupported_block(block, dialect)
    return block.data


def unsupported_block(block: AnyBlock, dialect: str) -> UsageError:
    """Return the error for a block that this dialect cannot represent."""
    kind = (
        f"{block.dialect}'s {block.kind}" if isinstance(block, RawBlock) else type(block).__name__
    )
    return UsageError(
        f"{dialect} cannot represent {'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind} here",
        hint="it supports text, images from the user, thinking, tool calls and tool results",
    )


def certain_words(text: str) -> list[JSON]:
    """Return the words of a text as OpenAI's tokens: a script is certain of each."""
    return [
        {"token": word, "logprob": 0.0, "bytes": list(word.encode())} for word in split_words(text)
    ]


def split_validation_error(error: msgspec.ValidationError) -> tuple[str, str]:
    """Split a decoding error into its message and the path of the field: `messages[0].role`."""
    message, _, path = str(error).partition(" - at `$")
    return message, path.rstrip("`").lstrip(".")


# -------------------------------------------------------------------------- validation

RULES = {
    "orphan_result": "a tool result without the call that it answers",
    "missing_result": "a tool call without its result",
    "duplicate_id": "two calls, or two results, with one id",
    "bad_call_id": "a call id in a form that the provider does not accept",
    "unknown_role": "a message with a role that the provider does not know",
    "bad_tool_schema": "a tool whose parameters are not an object",
    "missing_field": "a missing field that the provider requires",
    "missing_max_tokens": "a missing token limit where the provider requires one",
    "altered_thinking": "a thinking block that differs from the one the model sent",
    "unknown_previous": "a continuation of an unknown reply",
    "history": "a conversation that differs from what was said before",
}
ALL_RULES = frozenset(RULES)


def rules_except(lenient: Iterable[str]) -> frozenset[str]:
    """Return all rules except these."""
    if isinstance(lenient, str):
        raise UsageError(
            f"lenient: expected a list of rules, got {lenient!r}", hint="write lenient=[…]"
        )
    disabled = list(lenient)
    for name in disabled:
        require_known("unknown rule", name, RULES)
    return ALL_RULES.difference(disabled)


class Violation(msgspec.Struct, frozen=True):
    """A violated rule, the index of the message or tool, and the ids or names concerned."""

    rule: str
    index: int
    ids: tuple[str, ...] = ()


def rejection(rule: str, message: str, *, status: int = 400, **details: str) -> ModelError:
    """Return the provider's error for a request that violates this rule."""
    return ModelError(message, status=status, details={"rule": rule, **details})


class CallPairing:
    """Matches tool calls with their results, in the order of a conversation.

    `names` has the tool name of every call by its id, and `pending` the index of the message with
    each call that has no result yet.
    """

    __slots__ = ("_rules", "answered", "names", "pending")

    def __init__(self, rules: frozenset[str], names: Mapping[str, str] = {}) -> None:
        self._rules = rules
        self.names = dict(names)
        self.pending: dict[str, int] = {}
        self.answered: set[str] = set()

    def add_call(self, call_id: str, name: str, index: int) -> Violation | None:
        """Add a call. An id may be used again after its result."""
        if call_id in self.pending and "duplicate_id" in self._rules:
            return Violation("duplicate_id", index, (call_id,))
        self.names[call_id] = name
        self.pending[call_id] = index
        return None

    def add_result(self, call_id: str, index: int) -> Violation | None:
        """Match a result with its call."""
        if self.pending.pop(call_id, None) is not None:
            self.answered.add(call_id)
            return None
        rule = "duplicate_id" if call_id in self.answered else "orphan_result"
        return Violation(rule, index, (call_id,)) if rule in self._rules else None

    def close(self) -> Violation | None:
        """End a step of the conversation: every call must have its result by now."""
        if self.pending and "missing_result" in self._rules:
            index = next(iter(self.pending.values()))
            return Violation("missing_result", index, tuple(self.pending))
        self.pending.clear()
        self.answered.clear()
        return None


def find_unpaired_call(
    messages: Sequence[Message], rules: frozenset[str], *, adjacent: bool = True
) -> Violation | None:
    """Return the first call without result, result without call, or duplicate id.

    `adjacent` results must follow directly after the message with their calls; otherwise they may
    be anywhere after it.
    """
    pairing = CallPairing(rules)
    violation = None
    for index, message in enumerate(messages):
        if message.role == "tool":
            for block in message.blocks:
                if isinstance(block, ToolResult) and violation is None:
                    violation = pairing.add_result(block.call_id, index)
        else:
            # Any other message ends the step in which results are allowed.
            if adjacent and (pairing.pending or pairing.answered):
                violation = pairing.close()
            if message.role == "assistant":
                for block in message.blocks:
                    if isinstance(block, ToolCall) and violation is None:
                        violation = pairing.add_call(block.id, block.name, index)
        if violation is not None:
            return violation
    return pairing.close()


def find_bad_schema(tools: Sequence[Tool], rules: frozenset[str]) -> Violation | None:
    """Return the first function whose parameters are not an object."""
    if "bad_tool_schema" not in rules:
        return None
    for index, tool in enumerate(tools):
        # Only functions have a schema of parameters; other tools keep options there.
        if tool.kind == "function" and tool.schema and tool.schema.get("type") != "object":
            return Violation("bad_tool_schema", index, (tool.name,))
    return None


# ---------------------------------------------------------------------------- streaming
# Encoding of streams, shared by all dialects.
#
# Three parts: server-sent events; splitting a text into the chunks of a stream; and byte templates,
# which hold an encoded response with placeholders for its id, so that a response which is sent
# again is encoded once.

EVENT_STREAM = "text/event-stream; charset=utf-8"


def encode_sse(data: bytes, name: str = "") -> bytes:
    """Encode an event; its data must not contain line breaks."""
    if name:
        return b"event: %b\ndata: %b\n\n" % (name.encode(), data)
    return b"data: %b\n\n" % data


# ------------------------------------------------------------------------------- tools


class FunctionSpec(msgspec.Struct):
    """The name and parameters of a function."""

    name: str = ""
    description: str | None = None
    parameters: JSON | None = None


class FunctionTool(msgspec.Struct):
    """A tool that a request offers, in the form that several providers have from OpenAI."""

    function: FunctionSpec = msgspec.field(default_factory=FunctionSpec)
    type: str | None = "function"

    def decode(self) -> Tool:
        """Return it as a tool."""
        spec = self.function
        return Tool(spec.name, spec.description or "", spec.parameters or {})


def encode_function(tool: Tool) -> JSON:
    """Return a tool in this form."""
    parameters: JSON = tool.schema or {"type": "object"}
    spec: JSON = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": spec}


# ---------------------------------------------------------------------------- chunking

_WORD = r"\s*\S{1,24}|\s+"  # compiled for the first stream
_CHUNK_SIZE = 24


def split_words(text: str) -> list[str]:
    """Split a text into words with the space before them; long words become several chunks."""
    return re.findall(_WORD, text)


def split_fixed(text: str) -> list[str]:
    """Split a text into chunks of one size, for text without words such as JSON arguments."""
    return [text[start : start + _CHUNK_SIZE] for start in range(0, len(text), _CHUNK_SIZE)]


def split_reply_text(reply: Reply, text: str) -> Sequence[str]:
    """Split a text of the reply into its recorded chunks if they are known, else into words."""
    if reply.chunks and "".join(reply.chunks) == text:
        return reply.chunks
    return split_words(text)


# ---------------------------------------------------------------------- byte templates

PLACEHOLDER = b"\0"  # JSON escapes NUL bytes, so encoded JSON never contains one


class ByteTemplate:
    """The chunks of a response, with placeholders for its id."""

    __slots__ = ("chunks", "joined")

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.chunks = tuple(chunks)
        # By the joining function and the length of the id: the joined bytes, split at the id.
        self.joined: dict[tuple[object, int], list[bytes]] = {}


class FilledTemplate(Sequence[bytes]):
    """The chunks of a template with an id (of at least one byte) in every placeholder."""

    __slots__ = ("_id", "_template")

    def __init__(self, template: ByteTemplate, id_: bytes) -> None:
        self._template = template
        self._id = id_

    def join(self, join: Callable[[Sequence[bytes]], bytes]) -> bytes:
        """Return `join(chunks)`; it is computed once for all ids of one length.

        The server frames a whole stream this way: joining the cached parts by the id takes the
        place of encoding every chunk.
        """
        id_, joined = self._id, self._template.joined
        parts = joined.get((join, len(id_)))
        if parts is None:
            blank = PLACEHOLDER * len(id_)
            parts = join(FilledTemplate(self._template, blank)).split(blank)
            joined[join, len(id_)] = parts
        return id_.join(parts)

    def __len__(self) -> int:
        return len(self._template.chunks)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[bytes, ...]: ...
    def __getitem__(self, index: int | slice) -> bytes | tuple[bytes, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        return self._template.chunks[index].replace(PLACEHOLDER, self._id)

    def __iter__(self) -> Iterator[bytes]:
        id_ = self._id
        return iter([chunk.replace(PLACEHOLDER, id_) for chunk in self._template.chunks])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - a sequence of any type

    def __hash__(self) -> int:
        return hash(tuple(self))
