"""What only one dialect has a word for: kept as it stands on the wire, and written so again."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

from offbook.errors import ModelError, UsageError
from offbook.exchange.messages import JSON, AnyBlock, RawBlock

B = TypeVar("B", bound=msgspec.Struct)
T_co = TypeVar("T_co", covariant=True)


class RawBody:
    """A body as it stands on the wire, read again where something in it has no block here."""

    def __init__(self, text: bytes | str, dialect: str) -> None:
        self._text = text
        self._dialect = dialect
        self._whole: Any = None

    def keep(self, kind: str, *place: str | int) -> RawBlock:
        """What stands at this place."""
        if self._whole is None:
            self._whole = self._read()
        found = self._whole
        for step in place:
            if isinstance(step, str):
                found = cast("JSON", found)[step]
            elif isinstance(found, list):  # one may stand where many can
                found = cast("list[Any]", found)[step]
        return RawBlock(kind, cast("JSON", found), self._dialect)

    def _read(self) -> Any:
        try:
            return msgspec.json.decode(self._text)
        except RecursionError as error:
            raise ModelError(f"The body is nested too deeply: {error}", status=400) from error


class BodyDecoder(Protocol[T_co]):
    """What reads a body."""

    def decode(self, buf: bytes | msgspec.Raw, /) -> T_co:
        """The body."""
        ...


class LenientDecoder(Generic[B]):
    """Reads bodies of this form, and what is in them beside it: options that came up since."""

    def __init__(self, form: type[B]) -> None:
        # most have nothing beside it, and a reader that forbids it finds that out for nothing
        closed = msgspec.defstruct(
            form.__name__, [], bases=(form,), forbid_unknown_fields=True, gc=False
        )
        self._closed = msgspec.json.Decoder(closed).decode
        self._open = msgspec.json.Decoder(form).decode
        self._known = frozenset(form.__struct_fields__)

    def decode(self, text: bytes | msgspec.Raw, /) -> tuple[B, JSON]:
        """The body, and the rest by its names."""
        try:
            return cast("B", self._closed(text)), {}
        except msgspec.ValidationError:
            body, fields = self._open(text), _fields(text)
        rest = (name for name in fields if name not in self._known)
        return body, {name: msgspec.json.decode(fields[name]) for name in rest}


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def raw_block_data(block: RawBlock, dialect: str) -> JSON:
    """A block as it stood on the wire of this dialect."""
    if block.dialect != dialect:
        raise unsupported_block(block, dialect)
    return block.data


def unsupported_block(block: AnyBlock, dialect: str) -> UsageError:
    """The error for a block that has no place in this dialect."""
    what = (
        f"{block.dialect}'s {block.kind}" if isinstance(block, RawBlock) else type(block).__name__
    )
    return UsageError(
        f"{dialect} has no words for a {what} here",
        hint="it carries texts, images from the user, thoughts, tool calls and their results",
    )
