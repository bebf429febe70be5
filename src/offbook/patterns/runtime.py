"""The runtime of patterns: a graph of cells, computed values and effects, and a queue of events.

    runtime = Runtime()
    price = Cell(runtime, Store("price", 2))
    total = runtime.computed(lambda: price.get() * 3)
    total.sink(print)             # prints 6
    price.set(5)                  # visible at once to `get`
    runtime.flush()               # effects and handlers run: prints 15

An event is handled in one transaction. If the handler raises, its writes are undone.

A cell is a value that can be read, written and watched, as a whole or by a path:

    items = cell([{"title": "Tea", "done": False}])
    items.key(0, "done").set(True)
    items.push({"title": "Cake", "done": False})
    items.get()[1]["title"]                                     # "Cake"
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter, deque
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Never, Self, TypeVar, cast

from offbook.errors import LoopError, UsageError
from offbook.patterns.graph import Computed, Effect, Graph, Observer, Store
from offbook.patterns.values import (
    Path,
    ReadOnly,
    ReadOnlyList,
    caller,
    describe_function,
    describe_path,
    format_place,
    freeze,
    locate_function,
    raised_at,
    read_path,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Mapping


__tracebackhide__ = True  # pytest shows the line of the test or the pattern
MAX_RUNS = 100  # runs of one effect in one flush before it is a loop
EMPTY: Mapping[str, Any] = MappingProxyType({})


class Stream:
    """Events for a handler. `send` queues an event; the handler runs in the next flush."""

    __slots__ = ("bound", "function", "is_named", "name", "runtime")

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        function: Callable[..., Any] | None,
        bound: dict[str, Any],
    ) -> None:
        self.runtime = runtime
        self.name = name
        self.is_named = False  # after its pattern and output
        self.function = function
        self.bound = bound

    def send(self, event: Any = None) -> None:
        """Queue an event."""
        if self.function is None:
            raise UsageError(f"the stream {self.name} has no handler, so the event is lost")
        self.runtime.require_open()
        where = self.runtime.actor or format_place(caller())
        self.runtime.events.append((self, freeze(event), where))
        self.runtime.report("cell.send", {"stream": self.name, "event": event, "by": where})

    @property
    def location(self) -> str:
        """The file and the line of the handler."""
        return locate_function(self.function) if self.function is not None else self.name


class Runtime(Graph):
    """A graph with events: handlers and effects run in a flush, each handler in a transaction."""

    def __init__(self, observer: Observer | None = None, *, check_idempotent: bool = False) -> None:
        super().__init__(observer, check_idempotent=check_idempotent)
        self.events: deque[tuple[Stream, Any, str]] = deque()
        self._pending_handler: asyncio.Task[None] | None = None
        self._flushing = False

    def stream(
        self,
        function: Callable[..., Any] | None,
        bound: Mapping[str, Any] = EMPTY,
        *,
        name: str = "",
    ) -> Stream:
        """Return a stream whose events a handler gets, together with what is bound to it."""
        label = name or (describe_function(function) if function is not None else "stream")
        return Stream(self, label, function, dict(bound))

    @contextmanager
    def batch(self) -> Generator[None]:
        """Make all writes inside one transaction: an exception undoes them."""
        if self.undo is not None:  # part of the outer transaction
            yield
            return
        undo = self.undo = []
        try:
            yield
        except BaseException:
            self.undo = None
            self._roll_back(undo)
            raise
        finally:
            self.undo = None

    def _roll_back(self, undo: list[tuple[Store, Any]]) -> None:
        for store, value in reversed(undo):
            # The whole value: other paths of the cell may have been written as well.
            self._replace(store, (), value)
            self.report("cell.undo", {"cell": store.name})

    def flush(self) -> None:
        """Run effects and handle events until nothing is scheduled: one event, then its effects."""
        if self._flushing:
            raise UsageError("flush was called by a handler or an effect of the same runtime")
        self._flushing = True
        runs: Counter[Effect] = Counter()
        try:
            while True:
                if self._queue:
                    effect = self._queue.popleft()
                    if not self._is_changed(effect):
                        effect.stale = False
                        continue
                    runs[effect] += 1
                    if runs[effect] > MAX_RUNS:
                        self._queue.clear()
                        names = {other.name for other, n in runs.items() if n >= MAX_RUNS - 1}
                        raise LoopError(
                            f"effects wake each other without end: {', '.join(sorted(names))}",
                            hint="an effect that writes a cell must stop writing at some value",
                        )
                    self._run_effect(effect)
                elif self.events and self._pending_handler is None:
                    self._handle(*self.events.popleft())
                else:
                    return
        finally:
            self._flushing = False

    def _handle(self, stream: Stream, event: Any, where: str) -> None:
        """Run a handler in one transaction."""
        undo: list[tuple[Store, Any]] = []
        actor, self.actor = self.actor, f"handler {stream.name}"
        self.undo = undo
        self.report("cell.handle", {"stream": stream.name, "event": event})
        try:
            result = stream.function(event, **stream.bound)  # type: ignore[misc] # checked by send
        except Exception as error:  # noqa: BLE001 - the next event is handled all the same
            self.undo = None
            self._roll_back(undo)
            place = f"in the handler {stream.name}{raised_at(error)}"
            self._keep_error(error, f"{place}, for the event sent at {where}")
            return
        finally:
            self.undo = None
            self.actor = actor
        if inspect.iscoroutine(result):
            task = self._track(
                self._finish_handler(stream, result, undo, where),
                f"the handler {stream.name} ({stream.location})",
            )
            # A task that is cancelled before its first step never reaches the coroutine.
            task.add_done_callback(lambda _: result.close())
            self._pending_handler = task

    async def _finish_handler(
        self,
        stream: Stream,
        work: Coroutine[Any, Any, Any],
        undo: list[tuple[Store, Any]],
        where: str,
    ) -> None:
        """Finish an asynchronous handler. The next event waits for it."""
        driver = _Segments(self, work, undo, f"handler {stream.name}")
        try:
            await driver
        except Exception as error:  # noqa: BLE001 - the next event is handled all the same
            # A cell that someone else wrote meanwhile keeps that value.
            self._roll_back(
                [entry for entry in undo if entry[0].writer == f"handler {stream.name}"]
            )
            place = f"in the handler {stream.name}{raised_at(error)}"
            self._keep_error(error, f"{place}, for the event sent at {where}")
        finally:
            self._pending_handler = None

    @property
    def pending_events(self) -> list[str]:
        """The events that are not handled yet, with the cells that their handlers may write."""
        return [_describe_event(stream, where) for stream, _, where in self.events]

    def close(self) -> None:
        """End all tasks and forget what is queued."""
        self.closed = True
        for task in list(self.tasks):
            task.cancel()
        self._queue.clear()
        self.events.clear()


class _Segments:
    """Drives a coroutine so that each part between two awaits runs in its transaction."""

    def __init__(
        self,
        runtime: Runtime,
        work: Coroutine[Any, Any, Any],
        undo: list[tuple[Store, Any]],
        actor: str,
    ) -> None:
        self._runtime = runtime
        self._work = work
        self._undo = undo
        self._actor = actor

    def __await__(self) -> Generator[Any, Any, Any]:
        sent: Any = None
        failure: BaseException | None = None
        runtime = self._runtime
        while True:
            # Between two awaits other code runs, whose writes belong to it.
            outer = runtime.undo, runtime.actor
            runtime.undo, runtime.actor = self._undo, self._actor
            try:
                awaited = self._work.send(sent) if failure is None else self._work.throw(failure)
            except StopIteration as done:
                return done.value
            finally:
                runtime.undo, runtime.actor = outer
            failure = None
            try:
                sent = yield awaited
            except BaseException as raised:  # noqa: BLE001 - it belongs to the handler
                failure = raised


def _describe_event(stream: Stream, where: str) -> str:
    cells = [bound.name for bound in stream.bound.values() if hasattr(bound, "last_writer")]
    binding = f" for {', '.join(cells)}" if cells else ""
    return f"{stream.name}{binding} (sent at {where})"


# -------------------------------------------------------------------------------- cells

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
