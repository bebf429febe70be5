"""The values of cells: read-only dicts and lists that keep their identity.

What is written to a cell is copied into read-only containers, so neither a later change of the
original nor a change of what `get` returned reaches the cell. Each container has an identity.
A write to a part of it makes a new container with the same identity, and unchanged parts are
shared: whether something changed is decided by `is`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Never

from offbook.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false
# The values of cells have any type.


Path = tuple[str | int, ...]
MAX_DEPTH = 200
ATOMS = frozenset({int, str, bool, type(None)})
_identities = count(1)


def refuse(*_: object, **__: object) -> Never:
    """Raise an error: a method that would change a value."""
    raise TypeError(
        "the value of a cell is read-only: write with cell.set(…), cell.update(…) "
        "or cell.key(…).set(…)"
    )


class ReadOnly:
    """A container in a cell."""

    __slots__ = ()
    identity: int


class ReadOnlyDict(dict[Any, Any], ReadOnly):
    """A dict in a cell."""

    __slots__ = ("identity",)

    def __init__(self, items: Any, identity: int = 0) -> None:
        super().__init__(items)
        self.identity = identity or next(_identities)

    __setitem__ = __delitem__ = __ior__ = refuse  # type: ignore[assignment]
    clear = pop = popitem = setdefault = update = refuse  # type: ignore[assignment]

    def __copy__(self) -> dict[Any, Any]:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[Any, Any]:
        return thaw(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (thaw(self),)


class ReadOnlyList(list[Any], ReadOnly):
    """A list in a cell."""

    __slots__ = ("identity",)

    def __init__(self, items: Any, identity: int = 0) -> None:
        super().__init__(items)
        self.identity = identity or next(_identities)

    __setitem__ = __delitem__ = __iadd__ = __imul__ = refuse  # type: ignore[assignment]
    append = extend = insert = remove = pop = refuse  # type: ignore[assignment]
    clear = sort = reverse = refuse  # type: ignore[assignment]

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return thaw(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (thaw(self),)


def freeze(value: Any, old: Any = None, depth: int = 0) -> Any:  # noqa: PLR0911 - one a type
    """Return the read-only form of a value; `old` itself, or parts of it, where they are equal.

    Values of different types are never equal: 1, True and 1.0 are three values.
    """
    kind = type(value)
    if kind in ATOMS:  # most values, so they come first
        return old if type(old) is kind and old == value else value
    if kind is ReadOnlyDict or kind is ReadOnlyList:
        if type(old) is kind and old.identity == value.identity and _equal(value, old):
            return old
        return value
    if depth > MAX_DEPTH:
        raise UsageError(f"the value is nested deeper than {MAX_DEPTH} levels")
    if kind is dict:
        olds = old if type(old) is ReadOnlyDict else {}
        new = {key: freeze(item, olds.get(key), depth + 1) for key, item in value.items()}
        if (
            type(old) is ReadOnlyDict
            and new.keys() == old.keys()
            and all(item is old[key] for key, item in new.items())
        ):
            return old
        return ReadOnlyDict(new)
    if kind is list:
        olds_list: Sequence[Any] = old if type(old) is ReadOnlyList else ()
        new_list = [
            freeze(item, olds_list[at] if at < len(olds_list) else None, depth + 1)
            for at, item in enumerate(value)
        ]
        if (
            type(old) is ReadOnlyList
            and len(new_list) == len(old)
            and all(item is before for item, before in zip(new_list, old, strict=True))
        ):
            return old
        return ReadOnlyList(new_list)
    if kind is tuple:
        parts = tuple(freeze(item, None, depth + 1) for item in value)
        return old if type(old) is tuple and _equal(parts, old) else parts
    if kind is set:
        value = frozenset(value)
        kind = frozenset
    if value is old:
        return old
    if type(old) is kind:
        try:
            return old if value == old or _are_nan(value, old) else value
        except Exception:  # noqa: BLE001 - values compare as they like: numpy, pandas
            return value
    return value


def _are_nan(first: Any, second: Any) -> bool:
    return first != first and second != second  # noqa: PLR0124 - only NaN differs from itself


def _equal(first: Any, second: Any) -> bool:
    """Return whether two values have the same types and contents."""
    stack = [(first, second)]
    while stack:
        a, b = stack.pop()
        if a is b:
            continue
        if type(a) is not type(b):
            return False
        if isinstance(a, dict):
            if a.keys() != b.keys():
                return False
            stack.extend((a[key], b[key]) for key in a)
        elif isinstance(a, (list, tuple)):
            if len(a) != len(b):
                return False
            stack.extend(zip(a, b, strict=True))
        elif a != b and not _are_nan(a, b):
            return False
    return True


def thaw(value: Any) -> Any:
    """Return a copy of plain dicts and lists."""
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, list):
        return [thaw(item) for item in value]
    return value


def child(value: Any, key: str | int) -> Any:
    """Return one item of a container, or None if there is none."""
    if isinstance(value, dict):
        return value.get(key)
    if isinstance(value, list) and isinstance(key, int) and -len(value) <= key < len(value):
        return value[key]
    return None


def read_path(value: Any, path: Path) -> Any:
    """Return the value at a path, or None if it does not exist."""
    for key in path:
        value = child(value, key)
    return value


def write_path(value: Any, path: Path, new: Any, name: str) -> Any:
    """Return a value with `new` at the path; containers on the way keep their identity.

    Missing dicts and lists on the way are created.
    """
    before = [value]
    for key in path[:-1]:
        before.append(child(before[-1], key))
    for container, key in zip(reversed(before), reversed(path), strict=True):
        new = _replace_item(container, key, new, name)
    return new


def _replace_item(container: Any, key: str | int, item: Any, name: str) -> Any:
    if container is None:
        if isinstance(key, str):
            return ReadOnlyDict({key: item})
        container = ReadOnlyList(())
    if isinstance(container, ReadOnlyDict):
        return ReadOnlyDict({**container, key: item}, container.identity)
    if isinstance(container, ReadOnlyList) and isinstance(key, int):
        if not -len(container) <= key <= len(container):
            raise UsageError(f"{name}: index {key} of a list of {len(container)}")
        items = list(container)
        items[key : key + 1 or None] = [item]
        return ReadOnlyList(items, container.identity)
    raise UsageError(f"{name}: {type(container).__name__} has no key {key!r}")


def describe_path(path: Path) -> str:
    """Return a path as Python writes it: `.title` or `[0]`."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)


# ---------------------------------------------------------------------------- locations
# Places in the code that messages of patterns name: a caller, a handler, a raised error.

HERE = __file__.rpartition("/")[0]


def caller() -> tuple[str, int]:
    """Return the file and line of the code outside of this package that called it."""
    frame = sys._getframe(2)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - as in warnings
    while frame.f_back is not None and frame.f_code.co_filename.startswith(HERE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def raised_at(error: BaseException) -> str:
    """Return the innermost line outside of this package in which an error was raised."""
    place = ""
    traceback = error.__traceback__
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not file.startswith(HERE):
            place = f" at {file}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place


def format_place(place: str | tuple[str, int]) -> str:
    """Return a handler as it is, and a file and line as `file:line`."""
    return place if isinstance(place, str) else f"{place[0]}:{place[1]}"


def locate_function(function: Callable[..., Any]) -> str:
    """Return the file and the line of a function."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else describe_function(function)


def describe_function(function: Callable[..., Any]) -> str:
    """Return the name of a function, or the place of a lambda."""
    name = getattr(function, "__name__", type(function).__name__)
    code = getattr(function, "__code__", None)
    if name == "<lambda>" and code is not None:
        return f"lambda at {code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}"
    return name
