"""Events and their values as JSON, whatever the values are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

if TYPE_CHECKING:
    from offbook.trace.events import Event


def encode_unknown(value: object) -> Any:
    """Return a value that JSON does not have as one that it has: a sorted list, or its repr."""
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - any set
    return repr(value)


_encoder = msgspec.json.Encoder(enc_hook=encode_unknown)


def encode_event(event: Event) -> bytes:
    """Return an event as JSON, whatever its values are."""
    try:
        return _encoder.encode(event)
    except (TypeError, ValueError, RecursionError):
        # An odd key, half a surrogate pair, a cycle. To convert every event first would make
        # encoding 17 times as slow.
        data, context = to_json_value(event.data), to_json_value(event.context)
        return _encoder.encode(msgspec.structs.replace(event, data=data, context=context))


def to_json_value(value: object, depth: int = 40) -> Any:
    """Return any value as JSON values. Slow: for values that the encoder rejects."""
    match value:
        case None | bool() | int() | float():
            converted = value
        case str():
            converted = value.encode(errors="backslashreplace").decode()  # half a surrogate pair
        case _ if depth == 0:  # a cycle, or nesting that deep
            converted = to_json_value(repr(value))
        case Mapping():
            pairs = cast("Mapping[object, object]", value).items()
            converted = {
                to_json_value(str(key)): to_json_value(item, depth - 1) for key, item in pairs
            }
        case list() | tuple():
            converted = [to_json_value(item, depth - 1) for item in cast("list[object]", value)]
        case msgspec.Struct():
            config = value.__struct_config__
            names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
            fields = {encoded: getattr(value, name) for encoded, name in names}
            tag = {config.tag_field: config.tag} if config.tag_field else {}
            converted = to_json_value({**fields, **tag}, depth)
        case _:
            converted = to_json_value(encode_unknown(value), depth - 1)
    return converted
