"""The runtime of patterns: a graph of cells, computed values and effects, and a queue of events.

    runtime = Runtime()
    price = Cell(runtime, Store("price", 2))
    total = runtime.computed(lambda: price.get() * 3)
    total.sink(print)             # prints 6
    price.set(5)                  # visible at once to `get`
    runtime.flush()               # effects and handlers run: prints 15

An event is handled in one transaction. If the handler raises or is cancelled, its writes are
undone. The events of one stream are handled one after another; streams do not wait for each other.

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
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Never, Self, TypeVar, cast

from offbook.errors import PatternError, UsageError
from offbook.options import Seconds, decode
from offbook.patterns.clock import Delay, Timer, VirtualClock, Work
from offbook.patterns.graph import (
    CellChange,
    Computed,
    Effect,
    Graph,
    Observer,
    PatternScope,
    Store,
    current_scope,
)
from offbook.patterns.values import (
    Key,
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
    revert,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping


__tracebackhide__ = True  # pytest shows the line of the test or the pattern
MAX_RUNS = 100  # runs of one effect in one flush before it is a loop
MAX_CHAIN = 1_000  # events of handlers, each sent because of the one before, before it is a loop
MAX_CHAINED = (
    10_000  # in one flush; those that one handler sends, for each item of a list, are none
)
MAX_NAMED = 10  # the last streams of a chain, in a message
EMPTY: Mapping[str, Any] = MappingProxyType({})


class Stream:
    """Events for a handler. `send` queues an event; the handler runs in the next flush."""

    __slots__ = ("bound", "function", "is_named", "name", "runtime", "scope")

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
        self.scope = current_scope.get() or PatternScope(runtime)
        self.scope.stops[self.cancel] = None

    def send(self, event: Any = None) -> None:
        """Queue an event."""
        if self.function is None:
            raise UsageError(f"the stream {self.name} has no handler, so the event is lost")
        self.runtime.require_open()
        runtime = self.runtime
        where = runtime.actor or format_place(caller())
        runtime.events.append(SentEvent(self, freeze(event), where, runtime.depth + 1))
        runtime.report("cell.send", {"stream": self.name, "event": event, "by": where})

    def cancel(self) -> None:
        """Cancel the handler that is running, undo its writes, and drop the events that wait.

        A handler may catch `asyncio.CancelledError` to end in its own way.
        """
        runtime = self.runtime
        if not runtime.is_flushing:  # in a handler, these were sent after the event of that handler
            runtime.events = deque(sent for sent in runtime.events if sent.stream is not self)
        running = runtime.running.get(self)
        if running is None:
            return
        running.cancelled_by = runtime.actor or format_place(caller())
        runtime.waiting.pop(self, None)
        running.task.cancel()

    def send_after(self, seconds: float, event: Any = None) -> Callable[[], None]:
        """Queue an event after so many seconds of the harness; return a function that stops it."""
        due = self.runtime.clock.now + decode(seconds, Delay, "send_after")
        return self._start_timer(due, seconds, event)

    def send_every(self, seconds: float, event: Any = None) -> Callable[[], None]:
        """Queue an event every so many seconds of the harness; return a function that stops it."""
        due = self.runtime.clock.now + decode(seconds, Seconds, "send_every")
        return self._start_timer(due, seconds, event, repeats=True)

    def _start_timer(
        self, due: float, seconds: float, event: Any, *, repeats: bool = False
    ) -> Callable[[], None]:
        clock, scope = self.runtime.clock, current_scope.get() or self.scope

        def start() -> None:
            nonlocal timer
            timer = clock.call_at(due, fire)
            timer.name = self.name

        def fire() -> None:
            nonlocal due
            if repeats:
                due += seconds
                start()
            else:
                scope.stops.pop(stop, None)
            with self.runtime.acting(f"timer of {seconds:g} s"):
                self.send(event)

        def stop() -> None:
            scope.stops.pop(stop, None)
            timer.cancel()

        timer: Timer
        start()
        scope.stops[stop] = None
        return stop

    @property
    def location(self) -> str:
        """The file and the line of the handler."""
        return locate_function(self.function) if self.function is not None else self.name


class SentEvent(NamedTuple):
    """An event of a stream, and the place or handler that sent it.

    `depth` is 1 for an event of a test, one more than that of its event for one of a handler.
    """

    stream: Stream
    event: Any
    where: str
    depth: int


class RunningHandler:
    """An asynchronous handler that has not ended."""

    def __init__(
        self, sent: SentEvent, work: Work, task: asyncio.Task[Any], undo: list[CellChange]
    ) -> None:
        self.sent = sent
        self.work = work
        self.task = task
        self.undo = undo
        self.cancelled_by = ""


class Runtime(Graph):
    """A graph with events: handlers and effects run in a flush, each handler in a transaction."""

    def __init__(self, observer: Observer | None = None, *, check_idempotent: bool = False) -> None:
        super().__init__(observer, check_idempotent=check_idempotent)
        self.events: deque[SentEvent] = deque()
        self.running: dict[Stream, RunningHandler] = {}
        self.waiting: dict[Stream, deque[SentEvent]] = {}  # for the end of these handlers
        self._free: deque[Stream] = deque()  # streams that wait no longer
        self.clock = VirtualClock()
        self.depth = 0  # of the event whose handler is running
        self._chained = 0
        self._last_streams: deque[str] = deque(maxlen=MAX_NAMED)
        self._effect_runs: Counter[Effect] = Counter()
        self.is_flushing = False

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

    def _roll_back(self, undo: list[CellChange]) -> str:
        """Undo writes. Return a text about those that others have overwritten."""
        kept: dict[str, None] = {}
        for store, before, after, was_defined in reversed(undo):
            value = revert(before, after, store.value)
            if value is store.value:
                kept[f"{store.name}, which {store.last_writer} wrote meanwhile"] = None
                continue
            # The whole value: other paths of the cell may have been written as well.
            self._replace(store, (), value)
            store.defined = was_defined
            self.report("cell.undo", {"cell": store.name})
        return f"; not undone: {', '.join(kept)}" if kept else ""

    def flush(self, *, goes_on: bool = False) -> None:
        """Run effects and handle events until nothing is scheduled: one event, then its effects.

        A flush that goes on after another counts the runs of effects and handlers with it, to find
        loops through asynchronous work.
        """
        if self.is_flushing:
            raise UsageError("flush was called by a handler or an effect of the same runtime")
        self.is_flushing = True
        if not goes_on:
            self._effect_runs.clear()
            self._chained = 0
        try:
            while True:
                if self._queue:
                    effect = self._queue.popleft()
                    if not self._is_changed(effect):
                        effect.stale = False
                        continue
                    self._count_effect(effect)
                    self._run_effect(effect)
                elif (sent := self._next_event()) is not None:
                    self._count_event(sent)
                    self._handle(sent)
                    self._free_stream(sent.stream)
                elif not self.events:
                    return
        finally:
            self.is_flushing = False

    def _next_event(self) -> SentEvent | None:
        """Return the next event whose stream is free. The others wait for their handlers."""
        if self._free:
            stream = self._free.popleft()
            sent = self.waiting[stream].popleft()
            if not self.waiting[stream]:
                del self.waiting[stream]
            return sent
        while self.events:
            sent = self.events.popleft()
            if sent.stream not in self.running and sent.stream not in self.waiting:
                return sent
            self.waiting.setdefault(sent.stream, deque()).append(sent)
        return None

    @contextmanager
    def acting(self, actor: str) -> Generator[None]:
        """Name the author of what is written and sent inside."""
        before, self.actor = self.actor, actor
        try:
            yield
        finally:
            self.actor = before

    def _free_stream(self, stream: Stream) -> None:
        if stream in self.waiting and stream not in self.running:
            self._free.append(stream)

    def _count_effect(self, effect: Effect) -> None:
        runs = self._effect_runs
        runs[effect] += 1
        if runs[effect] > MAX_RUNS:
            self._queue.clear()
            names = {other.name for other, n in runs.items() if n >= MAX_RUNS - 1}
            raise PatternError(
                f"effects wake each other without end: {', '.join(sorted(names))}",
                hint="an effect that writes a cell must stop writing at some value",
            )

    def _count_event(self, sent: SentEvent) -> None:
        if sent.depth <= 2:  # noqa: PLR2004 - see MAX_CHAINED
            return
        self._chained += 1
        self._last_streams.append(sent.stream.name)
        if sent.depth > MAX_CHAIN or self._chained > MAX_CHAINED:
            self._drop_events()
            raise PatternError(
                "handlers send events to each other without end: "
                f"{', '.join(sorted({*self._last_streams}))}",
                hint="a handler that sends an event must stop at some value",
            )

    def _handle(self, sent: SentEvent) -> None:
        """Run a handler in one transaction."""
        stream, event, _, depth = sent
        undo: list[CellChange] = []
        outer = self.undo, self.actor, self.depth
        inner = undo, f"handler {stream.name}", depth

        def enter(state: tuple[list[CellChange] | None, str, int] = inner) -> Any:
            before = self.undo, self.actor, self.depth
            self.undo, self.actor, self.depth = state
            return before

        enter()
        self.report("cell.handle", {"stream": stream.name, "event": event})
        try:
            with stream.scope.entered():
                result = stream.function(event, **stream.bound)  # type: ignore[misc] # checked by send
        except BaseException as error:
            enter(outer)
            self._fail(sent, undo, error)
            if not isinstance(error, (Exception, asyncio.CancelledError)):
                raise
            return
        enter(outer)
        if inspect.iscoroutine(result):
            # Between two awaits other code runs, whose writes belong to it.
            work = Work(result, lambda error: self._fail(sent, undo, error), enter, enter)
            with stream.scope.entered():
                task = self._track(work, f"the handler {stream.name} ({stream.location})")
            self.running[stream] = RunningHandler(sent, work, task, undo)
            task.add_done_callback(lambda _: self._end_handler(stream))

    def _end_handler(self, stream: Stream) -> None:
        """Undo what a cancelled handler wrote; go on with the next event of its stream."""
        handler = self.running.pop(stream)
        handler.work.coroutine.close()  # if it was cancelled before its first step
        self._free_stream(stream)
        if self.closed or not handler.task.cancelled():
            return
        if handler.cancelled_by:
            kept = self._roll_back(handler.undo)
            by = f"{handler.cancelled_by}{kept}"
            self.report("cell.cancel", {"stream": stream.name, "by": by})
        else:
            self._fail(handler.sent, handler.undo, asyncio.CancelledError())

    def _fail(self, sent: SentEvent, undo: list[CellChange], error: BaseException) -> None:
        """Undo the writes of a handler and keep its error. The next event is handled as usual."""
        kept = self._roll_back(undo)
        place = f"in the handler {sent.stream.name}{raised_at(error)}"
        if not isinstance(error, Exception):
            cause = error
            ended = "was cancelled" if isinstance(cause, asyncio.CancelledError) else repr(cause)
            error = PatternError(f"the handler {sent.stream.name} {ended}")
            error.__cause__ = cause
        self._keep_error(error, f"{place}, for the event sent at {sent.where}{kept}")

    @property
    def pending_events(self) -> list[str]:
        """The events that are not handled yet, with the cells that their handlers may write."""
        waiting = [sent for events in self.waiting.values() for sent in events]
        return [_describe_event(sent.stream, sent.where) for sent in (*waiting, *self.events)]

    def close(self) -> None:
        """End all effects and tasks, and forget what is queued."""
        for effect in self._effects:
            self._clean_up(effect)
        self.closed = True
        for task in list(self.tasks):
            task.cancel()
        self._queue.clear()
        self._effects.clear()
        self._drop_events()

    def _drop_events(self) -> None:
        self.events.clear()
        self.waiting.clear()
        self._free.clear()


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
        return f"{self._store.name}{describe_path(self._path, self._store.value)}"

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
        if runtime.closed:
            runtime.require_open()
        path = self._path
        if not path:  # most reads
            store = self._store
            if runtime.reader is not None:  # as in `depend`, which is called less
                if store not in runtime.reads:
                    runtime.reads[store] = store.version
            elif runtime.has_async:
                runtime.depend(store)
            return store.value  # type: ignore[no-any-return] # that of the type of the cell
        if runtime.is_tracking:
            # An index from the end means another item when the list changes.
            end = next((at for at, key in enumerate(path) if type(key) is int and key < 0), None)
            runtime.depend(self._store.node(path[:end]))
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
        current: Any = self.sample()
        dicts: list[Any] = [values, {} if current is None else current]
        for value in dicts:
            if not isinstance(value, dict):
                kind = type(value).__name__
                raise UsageError(f"{self.name}: update needs a dict, got {kind}")
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
        if isinstance(current, ReadOnlyList) and len(items) == 1:
            # A write to one place, so that the other items are not looked at.
            self.runtime.write(self._store, (*self._path, len(current)), items[0])
            return self
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
        return self.part(*keys)

    def part(self, *keys: Key) -> Cell[Any]:
        """Return a part of the cell by keys that may be identities of items."""
        return Cell(self.runtime, self._store, (*self._path, *keys))

    def map(self, build: Callable[[Cell[Any]], Any]) -> Computed:
        """Return a list with one instance of a pattern per item of this list.

            "rows": items.map(lambda item: row(item=item))

        What a row writes to its item is in the list. A dict or list keeps its instance when it
        moves; the instance of a removed item ends with its timers and handlers. Other values have
        one instance per position.
        """
        return self.runtime.map(self, self.part, build)

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
        return self.set(ReadOnlyList(kept, current.identity)) if removed else self  # type: ignore[arg-type]

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
