"""Decoding of request and response bodies, shared by all dialects.

Providers add fields and block types all the time. A body is decoded into the structs of its
dialect; unknown fields are kept as options (`LenientDecoder`), and a block that has no neutral
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


class LenientDecoder(Generic[BodyT]):
    """A decoder for one struct that also returns the fields which the struct does not have."""

    def __init__(self, struct: type[BodyT]) -> None:
        # Most bodies have no unknown field. A decoder that forbids them detects that without a
        # second pass over the body.
        strict = msgspec.defstruct(
            struct.__name__, [], bases=(struct,), forbid_unknown_fields=True, gc=False
        )
        self._decode_strict = msgspec.json.Decoder(strict).decode
        self._decode_known = msgspec.json.Decoder(struct).decode
        self._known = frozenset(struct.__struct_fields__)

    def decode(self, body: bytes | msgspec.Raw, /) -> tuple[BodyT, JSON]:
        """Return the decoded body and its unknown fields."""
        try:
            return cast("BodyT", self._decode_strict(body)), {}
        except msgspec.ValidationError:
            decoded, fields = self._decode_known(body), _decode_fields(body)
        unknown = (name for name in fields if name not in self._known)
        return decoded, {name: msgspec.json.decode(fields[name]) for name in unknown}


_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class OptionPicker:
    """Collects the options that are set in a decoded body; the others are UNSET.

    The options are the struct fields from the one called `first` to the last.
    """

    def __init__(self, struct: type[msgspec.Struct], first: str) -> None:
        self._start = struct.__struct_fields__.index(first)
        self._names = struct.__struct_fields__[self._start :]

    def pick(self, body: msgspec.Struct) -> JSON:
        """Return the options by name."""
        values = msgspec.structs.astuple(body)[self._start :]
        if values.count(UNSET) == len(values):  # the usual case
            return {}
        return {
            name: value
            for name, value in zip(self._names, values, strict=True)
            if value is not UNSET
        }


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
