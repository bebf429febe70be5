"""Decoding of request and response bodies, shared by all dialects.

Providers add fields and block types all the time. A body is decoded into the structs of its
dialect; unknown fields are kept as options (`RequestDecoder`), and a block that has no neutral
form is kept as raw JSON and sent again unchanged (`RawBody`, `RawBlock`).
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec
from msgspec import UNSET

from offbook.errors import ModelError, UsageError
from offbook.exchange.messages import JSON, AnyBlock, RawBlock

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
        self._decode_known = msgspec.json.Decoder(with_options).decode
        self._known = frozenset(with_options.__struct_fields__)
        # The options are the last fields of the struct.
        fields = with_options.__struct_fields__
        self._start = min(fields.index(name) for name in options.split())
        self._options = fields[self._start :]

    def decode(self, body: bytes | msgspec.Raw, /) -> tuple[BodyT, JSON]:
        """Return the decoded body and its options."""
        unknown: JSON = {}
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
        return cast("BodyT", decoded), unknown


_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class RawBody:
    """A JSON body that is decoded a second time, as plain JSON, for blocks without a struct."""

    def __init__(self, body: bytes | str, dialect: str) -> None:
        self._body = body
        self._dialect = dialect
        self._decoded: Any = None

    def block(self, kind: str, path: JsonPath) -> RawBlock:
        """Return the JSON object at this path as a raw block."""
        if self._decoded is None:  # only a body with such a block pays for the second pass
            try:
                self._decoded = msgspec.json.decode(self._body)
            except RecursionError as error:
                raise ModelError(f"The body is nested too deeply: {error}", status=400) from error
        value = self._decoded
        for key in path:
            if isinstance(key, str):
                value = cast("JSON", value)[key]
            elif isinstance(value, list):  # some providers accept one object in place of a list
                value = cast("list[Any]", value)[key]
        return RawBlock(kind, cast("JSON", value), self._dialect)


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


def split_validation_error(error: msgspec.ValidationError) -> tuple[str, str]:
    """Split a decoding error into its message and the path of the field: `messages[0].role`."""
    message, _, path = str(error).partition(" - at `$")
    return message, path.rstrip("`").lstrip(".")
