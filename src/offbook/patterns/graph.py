"""The dependency graph of a pattern: paths of cells, computed values and effects.

- A computed value runs when it is read and something that it read has changed. It is woken only if
  a dependency has another value, so a diamond is computed once and consistently.
- A dependency is a path of a cell: `items.key(0, "done")` does not depend on `items[1]`.
- An effect runs in the flush after a change; `Runtime` has the flush, the events and transactions.
- A node refers to its dependents weakly: a computed value that nothing reads any more is released.

Each graph is separate: nothing here is global except which asynchronous computed value is running.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, Never, Protocol
from weakref import ref

from offbook.errors import PatternError, UsageError
from offbook.patterns.clock import Work
from offbook.patterns.values import (
    ATOMS,
    MISSING,
    ItemKey,
    Key,
    Path,
    Place,
    ReadOnly,
    alias_keys,
    caller,
    child,
    describe_function,
    describe_path,
    format_place,
    freeze,
    locate_function,
    raised_at,
    read_path,
    write_path,
)
from offbook.secrets import excerpt

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterator

__tracebackhide__ = True  # pytest shows the line of the test or the pattern
FEW = 4  # dependencies of a computed value
MAX_NESTED = 60  # computed values that may be evaluated inside each other before the stack unwinds
MAX_SHOWN = 80  # characters of a value in a message

# The asynchronous computed value whose code is running in this task, and what this run has read.
_async_reader: ContextVar[tuple[Computed, dict[GraphNode, int]] | None] = ContextVar(
    "offbook-async-reader", default=None
)


class PatternScope:
    """The owner of the effects, timers and streams that are created in it: they end with it."""

    def __init__(self, runtime: Graph) -> None:
        self.runtime = runtime
        self.stops: dict[Callable[[], None], None] = {}

    @contextmanager
    def entered(self) -> Generator[None]:
        """Make it the owner of what is created inside."""
        token = current_scope.set(self)
        try:
            yield
        finally:
            current_scope.reset(token)

    def close(self) -> None:
        """End what is in it."""
        for stop in list(self.stops):
            stop()
        self.stops.clear()


# The scope of the pattern that is being built, or whose handler is running.
current_scope: ContextVar[PatternScope | None] = ContextVar("offbook-pattern-scope", default=None)


class Observer(Protocol):
    """Receives the runs, writes and events of a runtime."""

    def __call__(self, event: str, data: dict[str, Any], /) -> object: ...


class _TooDeep(BaseException):
    """Unwinds nested computed values, so that a deep chain needs no deep Python stack."""

    def __init__(self, node: Computed) -> None:
        self.node = node


class GraphNode:
    """Something that can be read: a path of a cell, or a computed value."""

    __slots__ = ("dependents", "name", "version")
    stale = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = 0
        self.dependents: dict[ref[Computed | Effect], None] = {}  # a set that keeps its order


NO_CHILDREN: dict[Key, PathNode] = {}  # of every path that has none; it stays empty


class PathNode(GraphNode):
    """A path of a cell that something depends on. The root of the tree is the cell itself."""

    __slots__ = ("children", "key", "parent")

    def __init__(self, name: str, parent: PathNode | None = None, key: Key = "") -> None:
        super().__init__(name)
        self.parent = parent
        self.key = key
        self.children = NO_CHILDREN

    def add_child(self, key: Key) -> PathNode:
        """Add the node of a key."""
        if self.children is NO_CHILDREN:
            self.children = {}
        child = self.children[key] = PathNode(self.name, self, key)
        return child

    def prune(self) -> None:
        """Forget a path that nothing depends on any more."""
        node = self
        while node.parent is not None and not node.dependents and not node.children:
            node.parent.children.pop(node.key, None)
            node = node.parent


class Store(PathNode):
    """The storage of one cell: its value, and who wrote it last."""

    __slots__ = ("check", "defined", "value", "writer")
    parent: PathNode | None = None
    key: Key = ""

    def __init__(self, name: str, value: Any = MISSING) -> None:
        # Without `super`: a pattern may create thousands of cells at once.
        self.name = name
        self.version = 0
        self.dependents = {}
        self.children = NO_CHILDREN
        self.defined = value is not MISSING  # a cell without a value reads as None
        self.value = (value if type(value) in ATOMS else freeze(value)) if self.defined else None
        self.writer: str | Place = ""
        self.check: Callable[[Any], None] | None = None

    @property
    def last_writer(self) -> str:
        """The last writer of the cell, for messages."""
        return format_place(self.writer) or "nothing, it has its initial value"

    def node(self, path: Path) -> PathNode:
        """Return the node of a path, so that a reader can depend on it."""
        node: PathNode = self
        for key in path:
            found = node.children.get(key)
            node = node.add_child(key) if found is None else found
        return node


class Computed(GraphNode):
    """A value that is computed from cells and other computed values when it is read."""

    __slots__ = (
        "__weakref__",
        "dependencies",
        "error",
        "function",
        "is_async",
        "is_named",
        "is_pure",
        "link",
        "runtime",
        "stale",
        "task",
        "value",
    )

    def __init__(self, runtime: Graph, function: Callable[[], Any], name: str) -> None:
        super().__init__(name or describe_function(function))
        self.is_named = bool(name)  # otherwise a pattern names it after its output
        self.is_pure = False  # known to be a function of its cells, so it is not computed twice
        self.runtime = runtime
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        runtime.has_async = runtime.has_async or self.is_async
        self.value: Any = None
        self.error: Exception | None = None
        self.stale = True
        # Nodes and the versions that were read, in the order of reading; None before the first run.
        self.dependencies: dict[GraphNode, int] | None = None
        self.task: asyncio.Task[Any] | None = None
        self.link: ref[Computed | Effect] = ref(self)

    def __del__(self) -> None:
        for node in self.dependencies or ():
            _unlink(node, self)

    def get(self) -> Any:
        """Return the current value; a computed value or effect that reads it depends on it."""
        # The first lines of `require_open` and `depend` are repeated here: it is called most.
        runtime = self.runtime
        if runtime.closed:
            runtime.require_open()
        if self.stale:
            runtime.refresh(self)
        if runtime.reader is not None:
            if self not in runtime.reads:
                runtime.reads[self] = self.version  # the one that is read now
        elif runtime.has_async:
            runtime.depend(self)
        if self.error is not None:
            raise self.error
        return self.value

    def sample(self) -> Any:
        """Return the current value without a dependency."""
        if self.stale:
            self.runtime.refresh(self)
        if self.error is not None:
            raise self.error
        return self.value

    def sink(self, callback: Callable[[Any], Any]) -> Callable[[], None]:
        """Call back with the value now, and after each change; return a function that stops it."""
        return self.runtime.sink(self.get, callback, self.name)

    def set(self, _value: object) -> Never:
        """Raise an error: only a cell can be written."""
        raise UsageError(
            f"{self.name} is computed, so it cannot be written",
            hint="write to a cell that it reads",
        )

    def map(self, build: Callable[[Computed], Any]) -> Computed:
        """Return a list with one instance of a pattern per item of this list; see `Cell.map`."""
        return self.runtime.map(
            self, lambda key: self.runtime.computed(lambda: child(self.get(), key)), build
        )

    @property
    def sources(self) -> list[Store]:
        """The cells that the value was computed from, directly or not."""
        seen: dict[GraphNode, None] = {self: None}
        stack: list[GraphNode] = [self]
        while stack:
            node = stack.pop()
            read = node.dependencies or () if isinstance(node, Computed) else ()
            above = (node.parent,) if isinstance(node, PathNode) and node.parent else ()
            fresh = [other for other in (*read, *above) if other not in seen]
            seen.update(dict.fromkeys(fresh))
            stack += fresh
        return [node for node in seen if isinstance(node, Store)]

    def __bool__(self) -> bool:
        raise TypeError(f"the computed value {self.name} is not its value: read it with .get()")


def _refuse_async(function: Callable[..., Any], role: str) -> None:
    if inspect.iscoroutinefunction(function):
        raise UsageError(
            f"the {role} {describe_function(function)} would never run: it is async",
            hint="use a plain function",
        )


class CellChange(NamedTuple):
    """One write of a transaction."""

    store: Store
    before: Any
    after: Any
    was_defined: bool


class Effect:
    """A function that runs again when something that it read has changed."""

    __slots__ = ("__weakref__", "cleanup", "dependencies", "function", "link", "name", "stale")

    def __init__(self, function: Callable[[], Any], name: str) -> None:
        self.function = function
        self.name = name
        self.stale = True
        self.dependencies: dict[GraphNode, int] = {}
        self.cleanup: Callable[[], Any] | None = None
        self.link: ref[Computed | Effect] = ref(self)


class Graph:
    """Cells, computed values and effects that depend on each other."""

    def __init__(self, observer: Observer | None = None, *, check_idempotent: bool = False) -> None:
        self._observer = observer
        self._check_idempotent = check_idempotent
        self.reader: Computed | Effect | None = None  # what is running and reads
        self.reads: dict[GraphNode, int] = {}
        self._nested = 0
        self.has_async = False  # without asynchronous computed values, a read is twice as fast
        self._computing: list[Computed] = []
        self._queue: deque[Effect] = deque()  # the effects that run in the next flush
        self._effects: dict[Effect, None] = {}  # those that are not stopped
        self.undo: list[CellChange] | None = None  # of the current transaction
        self.actor = ""  # the handler or effect that is running
        self.tasks: dict[asyncio.Task[Any], Work] = {}
        self.start_task: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]] = _start_task
        # Runs the functions of computed values in the context of a model, if there is one.
        self.run_code: Callable[[Callable[[], Any]], Any] | None = None
        self.errors: list[Exception] = []
        self.unchecked: dict[int, str] = {}  # expectations of which no matcher was called
        self.unstable: list[str] = []  # computed values that give two results for the same inputs
        self.closed = False

    def computed(self, function: Callable[[], Any], *, name: str = "") -> Computed:
        """Return a computed value."""
        return Computed(self, function, name)

    def effect(self, function: Callable[[], Any], *, name: str = "") -> Callable[[], None]:
        """Run a function now, and in the flush after a change; return a function that stops it.

        A function that the effect returns is called before the next run and at the end.
        """
        self.require_open()
        _refuse_async(function, "effect")
        effect = Effect(function, name or describe_function(function))
        self._effects[effect] = None
        self._run_effect(effect)

        def stop() -> None:
            self._effects.pop(effect, None)
            for node in effect.dependencies:
                _unlink(node, effect)
            effect.dependencies = {}
            effect.stale = True  # it is never queued again
            self._clean_up(effect)

        return stop

    def sink(
        self, read: Callable[[], Any], callback: Callable[[Any], Any], name: str
    ) -> Callable[[], None]:
        """Call back with a value now and after each change."""
        _refuse_async(callback, "subscriber")
        last: Any = self  # no value of a cell
        cleanup: Callable[[], Any] | None = None

        def deliver() -> None:
            nonlocal last, cleanup
            value = read()
            if value is last:  # changed and changed back since the last flush
                return
            last = value
            with self.untracked():  # the callback may read other cells
                if cleanup is not None:
                    cleanup()
                result = callback(value)
                cleanup = result if callable(result) else None

        stop_effect = self.effect(deliver, name=f"sink of {name}")

        def stop() -> None:
            nonlocal cleanup
            stop_effect()
            if cleanup is not None:
                cleanup()
                cleanup = None

        return stop

    def map(
        self, items: Any, get_item: Callable[[Key], Any], build: Callable[[Any], Any]
    ) -> Computed:
        """Return a list with one instance per item of a list, each in its own scope."""
        instances: dict[int, tuple[Any, PatternScope]] = {}
        shown: list[int] = []  # the keys of the last run
        rows: list[Any] = []

        def update() -> list[Any]:
            nonlocal shown, rows
            values: list[Any] = items.get() or []
            try:
                keys: list[int] = [value.identity for value in values]
            except AttributeError:  # an identity is above 0, a position is not
                keys = [getattr(value, "identity", -at) for at, value in enumerate(values)]
            if keys == shown:  # only an item has changed
                return rows
            with self.untracked():
                for at, key in enumerate(keys):
                    if key not in instances:
                        scope = PatternScope(self)
                        with scope.entered():
                            item = get_item(ItemKey(key, at) if key > 0 else at)
                            instances[key] = build(item), scope
                for key in instances.keys() - set(keys):
                    instances.pop(key)[1].close()
            shown, rows = keys, [instances[key][0] for key in keys]
            return rows

        def close() -> None:
            for _, scope in instances.values():
                scope.close()

        outer = current_scope.get() or PatternScope(self)
        node = self.computed(update)
        node.is_pure = True
        node.name = f"rows of {items.name}"  # until a pattern names it after its output
        # Instances exist whether anything reads them or not: they may have effects and timers.
        outer.stops[self.effect(lambda: node.get() and None, name=node.name)] = None
        outer.stops[close] = None
        return node

    # --- reading

    def depend(self, node: GraphNode) -> None:
        """Add a node to the dependencies of what is running."""
        if self.reader is not None:
            # The version at the first read: a later write must wake the reader.
            self.reads.setdefault(node, node.version)
        elif self.has_async and (running := _async_reader.get()) is not None:
            reader, reads = running
            # What an older run reads does not matter any more.
            if reader.runtime is self and reader.dependencies is reads and node not in reads:
                reads[node] = node.version
                node.dependents[reader.link] = None

    @property
    def is_tracking(self) -> bool:
        """Return whether a reader is running that may depend on what is read."""
        return self.reader is not None or (self.has_async and _async_reader.get() is not None)

    @contextmanager
    def untracked(self) -> Generator[None]:
        """Read inside without depending on what is read."""
        reader, self.reader = self.reader, None
        try:
            yield
        finally:
            self.reader = reader

    def refresh(self, target: Computed) -> None:
        """Bring a computed value up to date, its dependencies first, without recursion."""
        if self._nested >= MAX_NESTED:
            raise _TooDeep(target)
        self._nested += 1
        stack = [target]
        # Of the nodes below the last: the dependencies to compare, and the stale one they wait for.
        # A few of them are compared again from the first: that is faster than to keep them.
        waits: dict[Computed, tuple[Iterator[tuple[GraphNode, int]], GraphNode, int] | None] = {}
        try:
            while stack:
                node = stack[-1]
                if not node.stale:
                    waits.pop(stack.pop(), None)
                    continue
                if node in self._computing:
                    names = [member.name for member in self._computing]
                    loop = [*names[names.index(node.name) :], node.name]
                    raise PatternError(
                        f"the computed value {node.name} depends on itself: {' → '.join(loop)}",
                        hint="remove one of these reads, or read with .sample()",
                    )
                waiting = None
                changed = node.dependencies is None
                unread = iter(node.dependencies.items()) if node.dependencies else iter(())
                if (wait := waits.get(node)) is not None:
                    unread, dependency, version = wait
                    changed = dependency.stale or dependency.version != version  # stale: a circle
                if not changed:
                    # In the order of reading: after one that changed, others may not be read again.
                    for dependency, version in unread:
                        if dependency.stale:
                            waiting = dependency
                            break
                        if dependency.version != version:
                            changed = True
                            break
                if waiting is not None and waiting not in waits:
                    many = len(node.dependencies or ()) > FEW
                    waits[node] = (unread, waiting, version) if many else None  # type: ignore[possibly-undefined]
                    stack.append(waiting)  # type: ignore[arg-type] # only computed values are stale
                elif changed or waiting is not None:
                    try:
                        self._compute(node)
                    except _TooDeep as deep:
                        if self._nested > 1:
                            raise
                        # Later it is computed again, whatever the other one gives.
                        waits[node] = unread, deep.node, -1
                        stack.append(deep.node)
                else:
                    node.stale = False
        finally:
            self._nested -= 1

    def _compute(self, node: Computed) -> None:
        """Run the function of a computed value, and find out whether its value changed."""
        if node.is_async:
            self._start_computing(node)
            return
        outer = self.reader, self.reads
        self.reader, self.reads = node, {}
        self._computing.append(node)
        error: Exception | None = None
        value: Any = None
        function = node.function
        run_code = self.run_code
        try:
            value = function() if run_code is None else run_code(function)
            if self._check_idempotent and not node.is_pure:
                reads = self.reads
                again = function() if run_code is None else run_code(function)
                # Most values are atoms; this function is called most, so it compares them itself.
                if type(value) not in ATOMS or type(again) is not type(value) or again != value:
                    self._compare(node, value, again)
                self.reads = reads
        except Exception as raised:  # noqa: BLE001 - it is raised to the readers
            error = raised
            _add_note(raised, f"in the computed value {node.name}{raised_at(raised)}")
        finally:
            reads = self.reads
            self._computing.pop()
            self.reader, self.reads = outer
        self._set_dependencies(node, reads)
        node.stale = False
        self._store_value(node, value, error)

    def _store_value(self, node: Computed, value: Any, error: Exception | None) -> None:
        before = node.value
        value = freeze(value, before)
        # An equal value is the same object after `freeze`, so dependents are not woken.
        if value is not before or error is not None or node.error is not None:
            node.version += 1
        node.value, node.error = value, error
        if self._observer is not None:
            data: dict[str, Any] = {"computed": node.name, "value": value}
            if error is not None:
                data = {"computed": node.name, "error": repr(error)}
            self._observer("cell.compute", data)

    def _compare(self, node: Computed, value: Any, again: Any) -> None:
        """Compare two values for the same inputs; a pure function gives the same."""
        first = freeze(value)
        second = freeze(again, first)
        # Objects that do not define a comparison are new each time.
        if second is not first and type(second).__eq__ is not object.__eq__:
            self.unstable.append(
                f"the computed value {node.name} is not a function of cells: "
                f"it gave {_shorten(first)} and then {_shorten(second)}"
            )

    def _start_computing(self, node: Computed) -> None:
        """Start the task of an asynchronous computed value; it has its last value until then."""
        if node.task is not None:
            node.task.cancel()
        for dependency in node.dependencies or ():
            _unlink(dependency, node)
        reads: dict[GraphNode, int] = {}
        node.dependencies = reads
        node.stale = False

        def finish(value: Any, error: Exception | None = None) -> None:
            if node.dependencies is not reads:
                return  # it was started again: the newest value is the one that counts
            if error is not None:
                self._keep_error(error, f"in the computed value {node.name}{raised_at(error)}")
            before = node.version
            self._store_value(node, value, error)
            if node.version != before:
                self._mark_dependents(node)

        async def compute() -> None:
            _async_reader.set((node, reads))  # in the context of this task
            try:
                value = await node.function()
            except asyncio.CancelledError:
                if self.closed or node.dependencies is not reads:
                    raise
                raise PatternError(f"the computed value {node.name} was cancelled") from None
            _async_reader.set(None)
            finish(value)

        place = locate_function(node.function)
        work = Work(compute(), lambda error: finish(None, error))
        node.task = self._track(work, f"the computed value {node.name} ({place})")

    def _set_dependencies(self, node: Computed | Effect, reads: dict[GraphNode, int]) -> None:
        before = node.dependencies or {}
        node.dependencies = reads
        if before.keys() == reads.keys():
            return
        # A branch that was not taken this time is not a dependency any more.
        for dependency in before:
            if dependency not in reads:
                _unlink(dependency, node)
        link = node.link
        for dependency in reads:
            dependency.dependents[link] = None

    # --- writing

    def write(self, store: Store, path: Path, value: Any) -> None:
        """Write a value to a path of a cell, and wake what depends on it."""
        if self.closed:
            self.require_open()
        if (self.reader is not None and isinstance(self.reader, Computed)) or (
            self.has_async and _async_reader.get() is not None
        ):
            name = self.reader.name if self.reader is not None else "an asynchronous computed value"
            raise PatternError(
                f"{name} writes to {store.name}{describe_path(path)}: a computed value only reads",
                hint="write in a handler or in an effect",
            )
        old = read_path(store.value, path) if path else store.value
        if type(value) in ATOMS:  # as in `freeze`; most writes
            if type(old) is type(value) and old == value:
                return
            new = value
        else:
            new = freeze(value, old)  # the old object, if the values are equal
            if new is old:
                return
        whole = write_path(store.value, path, new, store.name) if path else new
        if store.check is not None:
            store.check(whole)
        if self.undo is not None:
            self.undo.append(CellChange(store, store.value, whole, store.defined))
        if path or store.children:
            self._replace(store, path, whole)
        else:
            store.value = whole
            store.version += 1
            if store.dependents:
                self._mark_dependents(store)
        store.defined = True
        store.writer = self.actor or caller()
        if self._observer is not None:
            label = f"{store.name}{describe_path(path, whole)}"
            self.report(
                "cell.write", {"cell": label, "value": new, "by": format_place(store.writer)}
            )

    def _replace(self, store: Store, path: Path, whole: Any) -> None:
        """Store a value and mark what depends on a path whose value changed."""
        stack: list[tuple[PathNode, Any, Any]] = [(store, store.value, whole)]
        store.value = whole
        for key in path:  # only the written path has changed
            parts: list[tuple[PathNode, Any, Any]] = []
            for node, old, new in stack:
                self._touch(node)
                if node.children:
                    parts += [
                        (part, child(old, alias), child(new, alias))
                        for alias in alias_keys(old, new, key)
                        if (part := node.children.get(alias)) is not None
                    ]
            stack = parts
        while stack:
            node, old, new = stack.pop()
            if old is new or (not isinstance(new, ReadOnly) and freeze(new, old) is old):
                continue
            self._touch(node)
            for key, part in node.children.items():
                stack.append((part, child(old, key), child(new, key)))

    def _touch(self, node: PathNode) -> None:
        node.version += 1
        if node.dependents:
            self._mark_dependents(node)

    def _mark_dependents(self, node: GraphNode) -> None:
        """Mark everything that depends on a node as stale, and queue the effects."""
        stack: list[GraphNode] = [node]
        restarted: list[Computed] = []
        while stack:
            # A copy: the end of a computed value, at any time, removes it from its dependencies.
            for link in tuple(stack.pop().dependents):
                dependent = link()
                if dependent is None or dependent.stale:
                    continue
                dependent.stale = True
                if type(dependent) is not Computed:
                    self._queue.append(dependent)  # type: ignore[arg-type] # it is an effect
                elif dependent.is_async:
                    restarted.append(dependent)
                elif dependent.dependents:
                    stack.append(dependent)
        for computed in restarted:  # without a reader, too
            self._start_computing(computed)

    # --- effects

    def _is_changed(self, effect: Effect) -> bool:
        """Return whether a dependency of an effect has another value than it read."""
        for node, version in effect.dependencies.items():
            if node.stale:
                self.refresh(node)  # type: ignore[arg-type] # only computed values are stale
            if node.version != version:
                return True
        return False

    def _run_effect(self, effect: Effect) -> None:
        self._clean_up(effect)
        outer = self.reader, self.reads, self.actor
        self.reader, self.reads, self.actor = effect, {}, effect.name
        self.report("cell.effect", {"effect": effect.name})
        try:
            result = effect.function()
            effect.cleanup = result if callable(result) else None
        except Exception as error:  # noqa: BLE001 - an effect must not stop the others
            self._keep_error(error, f"in the {effect.name}{raised_at(error)}")
        finally:
            reads = self.reads
            self.reader, self.reads, self.actor = outer
        effect.stale = False
        self._set_dependencies(effect, reads)
        # What the effect itself changed after reading it wakes it again.
        if any(node.version != version for node, version in reads.items()) and not effect.stale:
            effect.stale = True
            self._queue.append(effect)

    def _clean_up(self, effect: Effect) -> None:
        cleanup, effect.cleanup = effect.cleanup, None
        if cleanup is not None:
            try:
                cleanup()
            except Exception as error:  # noqa: BLE001 - as above
                self._keep_error(error, f"in the cleanup of the {effect.name}")

    # --- reporting

    def _keep_error(self, error: Exception, where: str) -> None:
        _add_note(error, where)
        if not any(kept is error for kept in self.errors):
            self.errors.append(error)
            self.report("cell.error", {"error": repr(error), "where": where})

    @property
    def pending_events(self) -> list[str]:
        """The events that are not handled yet; a graph without a queue of events has none."""
        return []

    def stale_names(self, node: GraphNode) -> list[str]:
        """Return the names of what depends on a node and has not seen its value yet."""
        names: dict[str, None] = {}
        stack = [node]
        while stack:
            node = stack.pop()
            stack += node.children.values() if isinstance(node, PathNode) else ()
            for link in tuple(node.dependents):
                dependent = link()
                if dependent is not None and dependent.stale and dependent.name not in names:
                    names[dependent.name] = None
                    stack += [dependent] if isinstance(dependent, Computed) else []
        return sorted(names)

    def report(self, event: str, data: dict[str, Any]) -> None:
        """Pass an event to the observer."""
        if self._observer is not None:
            self._observer(event, data)

    def require_open(self) -> None:
        """Raise an error if the runtime is closed."""
        if self.closed:
            raise UsageError(
                "the harness is disposed", hint="use cells and streams inside its `with` block"
            )

    def _track(self, work: Work, name: str) -> asyncio.Task[Any]:
        try:
            task = self.start_task(work.run())
        except UsageError:
            work.coroutine.close()
            raise
        work.on_child = lambda task, child: self._watch(task, child, f"a task of {name}")
        self._watch(task, work, name)
        return task

    def _watch(self, task: asyncio.Task[Any], work: Work, name: str) -> None:
        work.name = name
        self.tasks[task] = work
        task.add_done_callback(lambda task: self.tasks.pop(task, None))


def _unlink(node: GraphNode, dependent: Computed | Effect) -> None:
    node.dependents.pop(dependent.link, None)
    if isinstance(node, PathNode) and not node.dependents:
        node.prune()


def _start_task(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    try:
        return asyncio.get_running_loop().create_task(work)
    except RuntimeError:
        work.close()
        raise UsageError(
            "an asynchronous handler or computed value needs a harness or an event loop",
            hint="with create_harness() as h: …",
        ) from None


def _add_note(error: BaseException, note: str) -> None:
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def _shorten(value: Any) -> str:
    return excerpt(repr(value), MAX_SHOWN)
