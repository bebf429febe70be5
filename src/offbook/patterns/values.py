"""The values of cells: read-only dicts and lists that keep their identity.

What is written to a cell is copied into read-only containers, so neither a later change of the
original nor a change of what `get` returned reaches the cell. Each container has an identity.
A write to a part of it makes a new container with the same identity, and unchanged parts are
shared: whether something changed is decided by `is`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from itertools import chain, count, repeat
from types import CodeType
from typing import TYPE_CHECKING, Any, Never

from offbook.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false
# The values of cells have any type.


MAX_DEPTH = 200
ATOMS = frozenset({int, str, bool, type(None)})
DATA = (int, float, complex, str, bytes, list, dict, tuple, frozenset, type(None))
MISSING: Any = object()  # no value at a key
_identities = count(1)


class ItemKey:
    """The key of one item of a list, wherever it moves to: its identity."""

    __slots__ = ("_index", "identity")

    def __init__(self, identity: int, index: int = 0) -> None:
        self.identity = identity
        self._index = index  # where it was seen last

    def find(self, items: list[Any]) -> int:
        """Return the index of the item, or -1. What was inserted or removed decides the time."""
        low = min(self._index, len(items) - 1)
        high = low + 1
        while low >= 0 or high < len(items):
            for index in (low, high):
                if (
                    0 <= index < len(items)
                    and getattr(items[index], "identity", 0) == self.identity
                ):
                    self._index = index
                    return index
            low, high = low - 1, high + 1
        return -1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ItemKey) and other.identity == self.identity

    def __hash__(self) -> int:
        return hash((ItemKey, self.identity))


Key = str | int | ItemKey
Path = tuple[Key, ...]


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
            # An item that came from the cell itself is not looked into.
            item if item is before else freeze(item, before, depth + 1)
            for item, before in zip(value, chain(olds_list, repeat(None)))  # noqa: B905 - endless
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


def matches(actual: Any, expected: Any) -> bool:
    """Return whether the value of a cell has the types and the contents that a test expects.

    A part that is no data, such as `pytest.approx(0.3)`, compares itself.
    """
    return _equal(actual, freeze(expected), matchers=True)


def _equal(first: Any, second: Any, *, matchers: bool = False) -> bool:
    """Return whether two values have the same types and contents."""
    stack = [(first, second)]
    while stack:
        a, b = stack.pop()
        if a is b:
            continue
        if type(a) is not type(b):
            if matchers and not isinstance(b, DATA) and a == b:
                continue
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


def child(value: Any, key: Key) -> Any:
    """Return one item of a container, or None if there is none."""
    if isinstance(value, dict):
        return value.get(key)
    if isinstance(value, list):
        if isinstance(key, ItemKey):
            index = key.find(value)
            return value[index] if index >= 0 else None
        if isinstance(key, int) and -len(value) <= key < len(value):
            return value[key]
    return None


def alias_keys(old: Any, new: Any, key: Key) -> list[Key]:
    """Return all keys under which an item of a container was or is: its index, its identity."""
    if not isinstance(new, list):
        return [key]
    index = key.find(new) if isinstance(key, ItemKey) else int(key)
    if index < 0:
        index += len(new)
    items = (child(old, index), child(new, index))
    return [index, *{ItemKey(item.identity, index) for item in items if isinstance(item, ReadOnly)}]


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


def _replace_item(container: Any, key: Key, item: Any, name: str) -> Any:
    if isinstance(key, ItemKey):
        key = key.find(container) if isinstance(container, list) else -1
        if key < 0:
            raise UsageError(f"{name}: the item was removed from its list")
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


def revert(before: Any, after: Any, now: Any) -> Any:
    """Return a value without one change of it; what changed since then is kept.

    If the change cannot be told from later ones, as in a number, the value stays as it is now.
    """
    if now is after:
        return before
    if before is after:
        return now
    kinds = {type(before), type(after), type(now)}
    if kinds == {ReadOnlyDict}:
        items = dict(now)
        for key in {**before, **after}:
            part = revert(*(value.get(key, MISSING) for value in (before, after, now)))
            if part is MISSING:
                items.pop(key, None)
            else:
                items[key] = part
        return ReadOnlyDict(items, now.identity)
    if kinds == {ReadOnlyList} and len(before) == len(after) == len(now):
        parts = [revert(*items) for items in zip(before, after, now, strict=True)]
        return ReadOnlyList(parts, now.identity)
    if kinds == {ReadOnlyList} and all(a is b for a, b in zip(before, after, strict=False)):
        kept = list(now)
        for added in after[len(before) :]:  # what was appended
            at = next((i for i in range(len(kept) - 1, -1, -1) if kept[i] is added), None)
            if at is not None:
                del kept[at]
        return ReadOnlyList(kept, now.identity)
    return now


def describe_path(path: Path, value: Any = None) -> str:
    """Return a path as Python writes it: `.title` or `[0]`. `value` is what it leads into."""
    text = ""
    for key in path:
        if isinstance(key, ItemKey):
            index = key.find(value) if isinstance(value, list) else -1
            text += f"[{index}]" if index >= 0 else "[removed]"
        else:
            text += f"[{key}]" if isinstance(key, int) else f".{key}"
        value = child(value, key)
    return text


# ---------------------------------------------------------------------------- locations
# Places in the code that messages of patterns name: a caller, a handler, a raised error.

# The code and the index of the instruction: every write notes it, and few places are shown.
Place = tuple[CodeType, int]
HERE = __file__.rpartition("/")[0]


def caller() -> Place:
    """Return the place of the code outside of this package that called it."""
    frame = sys._getframe(2)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - as in warnings
    while frame.f_back is not None and frame.f_code.co_filename.startswith(HERE):
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


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


def format_place(place: str | Place) -> str:
    """Return a handler as it is, and a place in the code as `file:line`."""
    if isinstance(place, str):
        return place
    code, at = place
    lines = (line for start, end, line in code.co_lines() if start <= at < end and line)
    return f"{code.co_filename}:{next(lines, code.co_firstlineno)}"


def locate_function(function: Callable[..., Any]) -> str:
    """Return the file and the line of a function."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else describe_function(function)


def describe_function(function: Callable[..., Any]) -> str:
    """Return the name of a function, the place of a lambda, or a partial call."""
    if isinstance(function, partial):
        # Only what is the same in every run: the text of another object may have its address.
        shown = [repr(each) if type(each) in ATOMS else "…" for each in function.args]
        return f"{describe_function(function.func)}({', '.join(shown)})"
    name = getattr(function, "__name__", type(function).__name__)
    code = getattr(function, "__code__", None)
    if name == "<lambda>" and code is not None:
        return f"lambda at {code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}"
    return name
