"""Results of tools that a fault changes: lost, empty, huge, odd, or with an instruction in them.

The form of a result stays: an object keeps its keys, a model its class, a text of JSON is JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from offbook.errors import InjectedFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from offbook.determinism.faults import Fault, FaultInjector

T = TypeVar("T")
HUGE_TEXT, HUGE_LIST = 200_000, 500
ODD_TEXT = 'é\u202e😀 \ud7ff\u0000 "}]\n<b>&amp;'
# The fields that hold the text of a result, and those that identify it.
TEXT_FIELDS = ("content", "text", "body", "result", "output", "message")
OTHER_FIELDS = frozenset(
    "type id role name status tool_call_id details artifact is_error isError".split()  # noqa: SIM905
)


def finish_call(fault: Fault | None, value: T, faults: FaultInjector) -> T:
    """Return the result of a call with its fault; raise `InjectedFault` if it is lost."""
    match None if fault is None else fault.kind:
        case "tool_lost":
            raise InjectedFault(cast("Fault", fault).message)
        case "tool_empty":
            return _change(value, lambda leaf: type(leaf)(), lambda _: [])
        case "tool_huge":
            return _change(value, _enlarge, lambda items: [*items] * HUGE_LIST)
        case "tool_odd":
            return _change(value, _make_odd, list)
        case "tool_injected":
            return value if faults.is_in(value) else _inject(value, faults.instruction)[0]
        case _:
            return value


def _enlarge(leaf: Any) -> Any:
    if isinstance(leaf, str):
        return (leaf or "a") * (HUGE_TEXT // max(len(leaf), 1) + 1)
    return leaf if isinstance(leaf, bool) else type(leaf)(2**53)


def _make_odd(leaf: Any) -> Any:
    if isinstance(leaf, str):
        return leaf + ODD_TEXT
    # A success stays one: to say what the tool said is no fault of an agent.
    return leaf if isinstance(leaf, bool) else -leaf - 1


def _change(
    value: Any, leaf: Callable[[Any], Any], items: Callable[[Iterable[Any]], list[Any]]
) -> Any:
    """Return a value with its texts and numbers changed by `leaf`, and its lists by `items`."""
    match value:
        case str():
            decoded = _decode(value)
            return leaf(value) if decoded is None else _encode(_change(decoded, leaf, items))
        case bool() | int() | float():
            return leaf(value)
        case list() | tuple():
            changed = [_change(item, leaf, items) for item in cast("list[Any]", value)]
            # The content of a result is a tuple of blocks: without one it is no result.
            return items(changed) if isinstance(value, list) else tuple(changed)
        case dict():
            fields = cast("dict[Any, Any]", value).items()
            return {key: _change(item, leaf, items) for key, item in fields}
        case _:
            names = _list_fields(value)
            changes = {name: _change(getattr(value, name), leaf, items) for name in names}
            return _replace(value, changes)


def _inject(value: Any, instruction: str) -> tuple[Any, bool]:
    """Return a value with the instruction before one of its texts, and whether it has one."""
    match value:
        case str():
            decoded = _decode(value)
            changed, done = (None, False) if decoded is None else _inject(decoded, instruction)
            return (_encode(changed) if done else f"{instruction}\n\n{value}"), True
        case list() | tuple():
            items = list(cast("list[Any]", value))
            for index, item in enumerate(items):
                items[index], done = _inject(item, instruction)
                if done:
                    return (items if isinstance(value, list) else tuple(items)), True
        case dict():
            fields = cast("dict[str, Any]", value)
            for key in _sort_fields([*fields], fields.get):
                changed, done = _inject(fields[key], instruction)
                if done:
                    return {**fields, key: changed}, True
        case _:
            for name in _sort_fields(_list_fields(value), lambda name: getattr(value, name)):
                changed, done = _inject(getattr(value, name), instruction)
                if done:
                    return _replace(value, {name: changed}), True
    return cast("Any", value), False


def _sort_fields(names: list[str], get: Callable[[str], Any]) -> list[str]:
    """Return the fields that may hold text, the likeliest first."""
    own = [name for name in names if name not in OTHER_FIELDS] or names
    return sorted(own, key=lambda name: (name not in TEXT_FIELDS, -len(str(get(name)))))


def _list_fields(value: Any) -> list[str]:
    """Return the fields of a model, a struct or a dataclass; none of any other object."""
    names: list[str]
    if isinstance(value, msgspec.Struct):
        names = [*value.__struct_fields__]
    elif hasattr(value, "model_copy"):
        names = [*cast("Any", type(value)).model_fields]
    elif hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        names = [name for name, field in value.__dataclass_fields__.items() if field.init]
    else:
        return []
    if "media_type" in names or "mimeType" in names:  # an image
        return []
    texts = [name for name in names if name in TEXT_FIELDS]
    return texts or [name for name in names if name not in OTHER_FIELDS]


def _replace(value: Any, changes: dict[str, Any]) -> Any:
    if not changes:
        return value
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changes)
    if hasattr(value, "model_copy"):
        return value.model_copy(update=changes)
    from dataclasses import replace  # loaded: the class is one

    return replace(value, **changes)


def _decode(text: str) -> Any:
    """Return the object or list that a text is in JSON, or None."""
    if text[:1] not in {"{", "["}:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return None


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()
