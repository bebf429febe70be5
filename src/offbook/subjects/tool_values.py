"""The values and exceptions of tools as JSON for a tape, and back.

A value of JSON is stored as it is. An object of a class (a pydantic model, a dataclass, a struct)
is stored with the name of its class, and made again from the class of that name, if its module is
loaded: a tape imports nothing.
"""

from __future__ import annotations

import sys
from typing import Any, cast

import msgspec

from offbook.exchange.tool_track import RecordedException, ToolEnd
from offbook.trace.recorder import to_json_value

JSON_TYPES = (str, int, float, bool, type(None), list, dict)


def record_value(value: Any) -> ToolEnd:
    """Return the end of an execution that returned this value."""
    plain = _to_plain(value)
    kind = cast("type[object]", type(value))
    name = "" if kind in JSON_TYPES else class_name(kind)
    end = ToolEnd(plain, type=name)
    return end if _is_same(restore_value(end), value) else msgspec.structs.replace(end, exact=False)


def restore_value(end: ToolEnd) -> Any:
    """Return the value of a recorded end; its JSON if the class is not known."""
    kind = find_class(end.type)
    if kind is None:
        return end.result
    try:
        if hasattr(kind, "model_validate"):
            return cast("Any", kind).model_validate(end.result)
        return msgspec.convert(end.result, kind, strict=False)
    except Exception:  # noqa: BLE001 - the class has changed: its JSON is the best there is
        return end.result


def record_exception(error: Exception) -> ToolEnd:
    """Return the end of an execution that raised this exception."""
    args = tuple(_to_plain(argument) for argument in error.args)
    plain = all(type(argument) in JSON_TYPES for argument in error.args)
    recorded = RecordedException(class_name(type(error)), str(error), args if plain else ())
    if recorded.args == (recorded.message,):
        recorded = msgspec.structs.replace(recorded, args=())
    restored = restore_exception(recorded)
    exact = plain and type(restored) is type(error) and str(restored) == str(error)
    return ToolEnd(error=recorded, exact=exact)


def restore_exception(recorded: RecordedException) -> Exception:
    """Return an exception of the recorded class, or of one with its name."""
    kind = find_class(recorded.type)
    args = recorded.args or (recorded.message,)
    if kind is not None and issubclass(kind, Exception):
        try:
            error = kind(*args)
            if str(error) == recorded.message:
                return error
        except Exception:  # noqa: BLE001, S110 - it takes other arguments
            pass
    name = recorded.type.rpartition(":")[2].rpartition(".")[2]
    return type(name, (Exception,), {"__module__": recorded.type.partition(":")[0]})(
        recorded.message
    )


def class_name(kind: type[object]) -> str:
    """Return the name of a class as a tape has it: `shop.orders:Order`."""
    return f"{kind.__module__}:{kind.__qualname__}"


def find_class(name: str) -> type[Any] | None:
    """Return the class of this name in a module that is loaded, or None."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return cast("type[Any]", found) if isinstance(found, type) else None


def _to_plain(value: Any) -> Any:
    """Return a value as JSON."""
    dump = getattr(value, "model_dump", None)
    try:
        if dump is not None and not isinstance(value, type):
            return dump(mode="json", by_alias=True)
        return msgspec.json.decode(msgspec.json.encode(value))
    except Exception:  # noqa: BLE001 - any class may fail to write itself
        return to_json_value(value)


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, and of the same classes all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        mine, others = cast("dict[Any, Any]", one), cast("dict[Any, Any]", other)
        return [*mine] == [*others] and all(_is_same(mine[k], others[k]) for k in mine)
    if isinstance(one, (list, tuple)):
        items, more = cast("list[Any]", one), cast("list[Any]", other)
        return len(items) == len(more) and all(map(_is_same, items, more))
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - arrays, for example, have no single answer
        return False
