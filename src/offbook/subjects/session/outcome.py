"""What a tool gives back, in every shape that people write it in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from offbook.errors import UsageError
from offbook.exchange.messages import Content, Foreign, Image, Text, join_text


class Outcome(msgspec.Struct, frozen=True):
    """What a tool gave back: its content for the model, details for everybody else."""

    content: tuple[Content, ...] = ()
    details: Any = None
    is_error: bool = False

    @property
    def text(self) -> str:
        """The text of it."""
        return join_text(self.content)


KEYS = {"content", "details", "is_error", "isError"}
SHAPES = 'give a string, an Outcome, or {"content": [{"type": "text", "text": …}], "details": …}'


def outcome(value: object, where: str) -> Outcome:
    """Read a tool's answer: a string, an `Outcome`, or a dict in the shape of one."""
    if isinstance(value, str):
        return Outcome((Text(value),), {})
    if isinstance(value, Outcome):
        return value
    if value is None:
        return Outcome((), {})
    if isinstance(value, Mapping):
        return _from_dict(cast("Mapping[str, Any]", value), where)
    raise UsageError(f"a {type(value).__name__} is no tool result", where=where, hint=SHAPES)


def _from_dict(value: Mapping[str, Any], where: str) -> Outcome:
    unknown = set(value) - KEYS
    if unknown or "content" not in value:
        wrong = f"unknown key {min(map(str, unknown))!r} in" if unknown else "no 'content' in"
        raise UsageError(f"{wrong} a tool result", where=where, hint=SHAPES)
    content = value["content"]
    blocks: Sequence[object] = [content] if isinstance(content, str) else content
    if not isinstance(blocks, (list, tuple)):
        raise UsageError(
            f"the 'content' of a tool result is a {type(blocks).__name__}", where=where, hint=SHAPES
        )
    failed = bool(value.get("is_error", value.get("isError", False)))
    return Outcome(tuple(_block(b, where) for b in blocks), value.get("details", {}), failed)


def _block(value: object, where: str) -> Content:
    if isinstance(value, (Text, Image, Foreign)):
        return value
    if isinstance(value, str):
        return Text(value)
    try:
        return msgspec.convert(value, Content)  # pyright: ignore[reportArgumentType, reportReturnType] - msgspec takes unions
    except msgspec.ValidationError as error:
        raise UsageError(f"a content block is wrong: {error}", where=where, hint=SHAPES) from error
