"""Cells: values that can be read, written and watched, as a whole or by a path.

items = cell([{"title": "Tea", "done": False}])
items.key(0, "done").set(True)
items.push({"title": "Cake", "done": False})
items.get()[1]["title"]                                     # "Cake"
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Never, Self, TypeVar, cast

from offbook.errors import UsageError
from offbook.patterns.graph import Computed, Store
from offbook.patterns.runtime import Runtime
from offbook.patterns.values import Path, ReadOnly, ReadOnlyList, describe_path, read_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__tracebackhide__ = True  # pytest shows the line of the test or the pattern
T = TypeVar("T")


class Cell(Generic[T]):
    """A value of a runtime, or a part of it."""

    __slots__ = ("_path", "_store", "runtime")

    def __init__(self, runtime: Runtime, store: Store, path: Path = ()) -> None:
        self.runtime = runtime
        self._store = store
        self._path = path

    @property
    def name(self) -> str:
        """The name of the cell with its path, for messages."""
        return f"{self._store.name}{describe_path(self._path)}"

    @property
    def stale_readers(self) -> list[str]:
        """The dependents that have not seen the value yet: they run in the next `idle`."""
        return self.runtime.stale_names(self._store)

    @property
    def last_writer(self) -> str:
        """The last writer of the cell: a handler, an effect, or a line of a test."""
        return self._store.last_writer

    def get(self) -> T:
        """Return the value, read-only; a computed value or effect that reads it depends on it."""
        runtime = self.runtime
        runtime.require_open()
        if runtime.is_tracking:
            runtime.depend(self._store.node(self._path) if self._path else self._store)
        return self.sample()

    def sample(self) -> T:
        """Return the value without a dependency."""
        value: Any = self._store.value
        return read_path(value, self._path) if self._path else value

    def set(self, value: T) -> Self:
        """Write a value. It is visible at once; what depends on it runs in the next flush."""
        self.runtime.write(self._store, self._path, value)
        return self

    def update(self, values: Mapping[str, Any]) -> Self:
        """Write some keys of a dict; without a value yet, create the dict."""
        current = self._container(dict, values, "update")
        with self.runtime.batch():
            if current is None:
                self.set(dict(values))  # type: ignore[arg-type]
            for key, value in values.items():
                self.key(key).set(value)
        return self

    def push(self, *items: Any) -> Self:
        """Append to a list; without a value yet, create the list."""
        current = self.sample()
        if current is None and self._exists():
            raise UsageError(f"{self.name}: push needs a list, the value is None")
        if current is not None and not isinstance(current, list):
            kind = type(current).__name__
            raise UsageError(f"{self.name}: push needs a list, got {kind}")
        return self.set([*(current or ()), *items])  # type: ignore[arg-type]

    def remove(self, item: Any) -> Self:
        """Remove the first occurrence from a list: objects by identity, other values by value."""
        return self._filter(item, first_only=True)

    def remove_all(self, item: Any) -> Self:
        """Remove all occurrences from a list."""
        return self._filter(item, first_only=False)

    def key(self, *keys: str | int) -> Cell[Any]:
        """Return a part of the cell, which does not have to exist yet."""
        for key in keys:
            if not isinstance(key, (str, int)) or isinstance(key, bool):
                raise UsageError(f"{self.name}: a key is a string or an index, not {key!r}")
        return Cell(self.runtime, self._store, (*self._path, *keys))

    def sink(self, callback: Callable[[T], Any]) -> Callable[[], None]:
        """Call back with the value now, and after each change; return a function that stops it."""
        return self.runtime.sink(self.get, callback, self.name)

    def send(self, event: object = None) -> Never:
        """Raise an error: only a stream takes events."""
        raise UsageError(
            f"{self.name} is a cell, so the event {event!r} has no handler",
            hint="send to a handler that the pattern returns, or write with .set(…)",
        )

    def equals(self: Any, other: object) -> bool:
        """Return whether both are the same object: `Cell.equals(a, b)`, for cells and values.

        The contents do not matter. Values without identity, such as None, are never the same.
        """
        mine, others = _referent(self), _referent(other)
        return mine is not None and mine == others

    def _filter(self, item: Any, *, first_only: bool) -> Self:
        current: Any = self.sample()
        if not isinstance(current, ReadOnlyList):
            raise UsageError(f"{self.name}: remove needs a list, the value is {current!r}")
        wanted = _referent(item)
        kept: list[Any] = []
        removed = False
        for entry in current:
            if wanted is not None:
                same = _referent(entry) == wanted
            else:
                same = type(entry) is type(item) and entry == item
            if same and not (first_only and removed):
                removed = True
            else:
                kept.append(entry)
        return self.set(kept) if removed else self  # type: ignore[arg-type]

    def _container(self, kind: type, values: object, verb: str) -> Any:
        if not isinstance(values, dict):
            raise UsageError(f"{self.name}: {verb} needs a dict, got {type(values).__name__}")
        current = self.sample()
        if current is not None and not isinstance(current, kind):
            found = type(current).__name__
            raise UsageError(f"{self.name}: {verb} needs a {kind.__name__}, got {found}")
        return current

    def _exists(self) -> bool:
        """Return whether the value was given as None, rather than not at all."""
        if not self._path:
            return self._store.defined
        parent = read_path(self._store.value, self._path[:-1])
        return isinstance(parent, dict) and self._path[-1] in parent

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cell):
            return NotImplemented
        return (self._store, self._path) == (other._store, other._path)

    def __hash__(self) -> int:
        return hash((self._store, self._path))

    def __bool__(self) -> bool:
        raise TypeError(f"the cell {self.name} is not its value: read it with .get()")

    def __repr__(self) -> str:
        return f"<cell {self.name} = {self.sample()!r}>"


def _referent(value: Any) -> object:
    """Return what a value refers to: an identity, a place for cells, or None."""
    while isinstance(value, (Cell, Computed)):
        place = cast("Any", value)
        value = place.sample()
        if not isinstance(value, (ReadOnly, Cell, Computed)):
            return place  # cells compare by their place
    return value.identity if isinstance(value, ReadOnly) else None
