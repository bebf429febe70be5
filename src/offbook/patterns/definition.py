"""Patterns: functions that connect cells, computed values and handlers.

    @handler
    def increment(event, value):
        value.set(value.get() + 1)

    @pattern
    def counter(value: Cell[int] = default(0)):
        return {
            "value": value,
            "double": computed(lambda: value.get() * 2),
            "increment": increment(value=value),
        }

The parameters of a pattern are its inputs, their defaults its initial state, and the dict that it
returns its outputs. A test can trigger the handlers that are among the outputs.
`default(0)` is a cell for type checkers; a plain `0` does the same without one.

`expect_cell` and `expect_handler` check them, with messages that show the pattern:

    expect_cell(counter.cells.value).to_be(1)
    expect_handler(counter.result.increment).to_mutate(counter.cells.value, 0, 1)
"""

from __future__ import annotations

import inspect
import sys
import typing
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from offbook.capability import load
from offbook.errors import CheckFailed, PatternError, UsageError, require_known
from offbook.files import locate_error, require_file
from offbook.options import decode, require_function, require_some
from offbook.patterns.graph import Computed, PatternScope, Store, current_scope
from offbook.patterns.runtime import Cell, Runtime, Stream
from offbook.patterns.values import ReadOnly, freeze, locate_function, matches, thaw

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping, Sized


__tracebackhide__ = True  # pytest shows the line of the test or the pattern
T = TypeVar("T")
HARNESS = "offbook.patterns.harness:create_harness"  # by name, because it imports this module
AGENT_TIMEOUT = 300.0  # seconds for one prompt; a model may be slow


def get_scope(what: str) -> PatternScope:
    """Return the scope of the pattern that is being built, or whose handler is running."""
    scope = current_scope.get()
    if scope is None:
        raise UsageError(
            f"{what} was called outside of a pattern",
            hint="call it in the body of a function with @pattern, and load that in a harness",
        )
    return scope


def cell(*value: Any, name: str = "cell") -> Cell[Any]:
    """Return a new cell of the pattern that is being built."""
    if len(value) > 1:
        raise UsageError(f"a cell has one value, got {len(value)}")
    return Cell(cast("Runtime", get_scope("cell()").runtime), Store(name, *value))


class InitialValue:
    """The default of an input: each instance of the pattern has its own cell with this value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __getattr__(self, name: str) -> Any:
        raise UsageError(
            f"default({self.value!r}) is not a cell: it is the default of an input of a pattern",
            hint="def counter(value: Cell[int] = default(0)): …",
        )


def default(value: T) -> Cell[T]:
    """Return the default of an input, for the signature of a pattern.

    The cells are created when the pattern is loaded, so a list is not shared between instances.
    """
    # A cell for type checkers, because the function of the pattern always gets one.
    return cast("Cell[T]", InitialValue(value))


def computed(function: Callable[[], Any]) -> Computed:
    """Return a value that is computed from cells: `computed(lambda: price.get() * 2)`."""
    require_function(function, "computed()", hint="computed(lambda: …)")
    return get_scope("computed()").runtime.computed(function)


def effect(function: Callable[[], Any]) -> Callable[[], None]:
    """Run a function now and after each change of what it reads; return a function to stop it."""
    scope = get_scope("effect()")
    stop = scope.runtime.effect(function)
    scope.stops[stop] = None
    return stop


class EventHandler:
    """A function that handles events. Called with its cells, it gives a stream of events."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = function.__name__
        self.__doc__ = function.__doc__
        parameters = list(inspect.signature(function).parameters.values())
        if not parameters:
            raise UsageError(
                f"the handler {self.name} has no parameter for the event",
                where=locate_function(function),
                hint=f"def {self.name}(event, …):",
            )
        self.bound_names = [parameter.name for parameter in parameters[1:]]
        self._required = [p.name for p in parameters[1:] if p.default is p.empty]

    def __call__(self, **bound: Any) -> Stream:
        for name in bound:
            require_known(
                f"the handler {self.name} has no parameter",
                name,
                self.bound_names,
                where=locate_function(self.function),
            )
        for name in self._required:
            if name not in bound:
                raise UsageError(
                    f"the handler {self.name} needs {name!r}",
                    where=locate_function(self.function),
                    hint=f"{self.name}({name}=…)",
                )
        runtime = cast("Runtime", get_scope(f"the handler {self.name}").runtime)
        return runtime.stream(self.function, bound, name=self.name)


def handler(function: Callable[..., Any]) -> EventHandler:
    """Mark a function as a handler: its first parameter is the event, the others are bound."""
    return EventHandler(function)


class Pattern:
    """A pattern: inputs, and a function that makes its outputs from them."""

    def __init__(self, function: Callable[..., Mapping[str, Any]]) -> None:
        self.function = function
        self.name = function.__name__
        self.__doc__ = function.__doc__
        self.path = inspect.getsourcefile(function) or ""
        self.parameters = inspect.signature(function).parameters

    @property
    def location(self) -> str:
        """File and line, for messages."""
        return locate_function(self.function)

    def input_types(self) -> dict[str, Any]:
        """Return the types of the inputs: T for a parameter with the annotation `Cell[T]`."""
        try:
            hints = typing.get_type_hints(self.function)
        except NameError as error:
            raise UsageError(
                f"the pattern {self.name} has an annotation that cannot be resolved: {error}",
                where=self.location,
            ) from error
        types: dict[str, Any] = {}
        for name in self.parameters:
            kind = hints.get(name, Any)
            if typing.get_origin(kind) is Cell:
                (kind,) = typing.get_args(kind)
            types[name] = Any if kind is Cell else kind
        return types

    def __call__(self, **inputs: Any) -> Outputs:
        """Use the pattern inside another one: cells are shared, other values are copied."""
        runtime = cast("Runtime", get_scope(f"the pattern {self.name}").runtime)
        return self.build(runtime, inputs).result

    def as_agent(
        self, stream: str, output: str, *, prompt: str = ""
    ) -> Callable[[str], Coroutine[Any, Any, Any]]:
        """Return a function of a prompt, for `drive()`, eval packs and explore.

        The prompt is the value of the input `prompt`, or the event that the stream gets. The output
        is the answer. Each prompt has a new instance of the pattern.
        """

        async def agent(text: str) -> Any:
            async with load(HARNESS)() as h:
                loaded = h.load(self, {prompt: text} if prompt else {})
                target = loaded.result[stream]
                if not isinstance(target, Stream):
                    raise UsageError(
                        f"the output {stream!r} of the pattern {self.name} is not a stream",
                        where=self.location,
                        hint="name a handler of the pattern",
                    )
                target.send(None if prompt else text)
                await h.settled(timeout=AGENT_TIMEOUT)
                return thaw(loaded.result[output])

        agent.__name__ = agent.__qualname__ = self.name
        return agent

    def build(
        self, runtime: Runtime, state: Mapping[str, Any], *, validate: bool = False
    ) -> LoadedPattern:
        """Make the cells of the inputs, and the outputs from them."""
        hint = f"its inputs are {', '.join(self.parameters) or 'none'}"
        what = f"the initial state of {self.name}"
        decode(state, dict, what, where=self.location, hint=hint)
        for name in state:
            require_known(
                f"the pattern {self.name} has no input", name, self.parameters, where=self.location
            )
        types = self.input_types() if validate else {}
        cells: dict[str, Cell[Any]] = {}
        for name, parameter in self.parameters.items():
            given = state.get(name, parameter.default)
            if isinstance(given, InitialValue):
                given = given.value
            if isinstance(given, (Cell, Computed)):
                cells[name] = given  # type: ignore[assignment] # a computed value is read like a cell
                continue
            label = f"{self.name}.{name}"
            store = Store(label) if given is parameter.empty else Store(label, given)
            if validate:
                store.check = _type_check(label, types[name], self.location)
                if store.defined:
                    store.check(store.value)
            cells[name] = Cell(runtime, store)
        with (current_scope.get() or PatternScope(runtime)).entered():
            try:
                outputs = self.function(**cells)
            except UsageError:
                raise
            except Exception as error:
                error.add_note(f"in the body of the pattern {self.name} ({self.location})")
                raise
        hint = 'return {"value": value, "increment": increment(value=value)}'
        decode(outputs, dict, f"the outputs of {self.name}", where=self.location, hint=hint)
        for name, output in outputs.items():
            if isinstance(output, (Computed, Stream)) and not output.is_named:
                output.name, output.is_named = f"{self.name}.{name}", True
        return LoadedPattern(self, cells, outputs)


def pattern(function: Callable[..., Mapping[str, Any]]) -> Pattern:
    """Mark a function as a pattern."""
    return Pattern(function)


class Names:
    """Names with values, read as attributes or as items; an unknown one is an error."""

    def __init__(self, values: Mapping[str, Any], kind: str, owner: Pattern) -> None:
        self._values = values
        self._kind = kind
        self._owner = owner

    def __getitem__(self, name: str) -> Any:
        what = f"the pattern {self._owner.name} has no {self._kind}"
        require_known(what, name, self._values, where=self._owner.location)
        value = self._values[name]
        # The outputs of a pattern inside, as cells and computed values too.
        return value.nodes() if isinstance(value, Outputs) else value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __dir__(self) -> list[str]:
        return list(self._values)

    def __repr__(self) -> str:
        return f"<{self._kind}s of {self._owner.name}>"


class Outputs(Names):
    """The outputs of a pattern as values: cells and computed values are read, streams are not."""

    def __getitem__(self, name: str) -> Any:
        output: Any = self._values[name] if name in self._values else super().__getitem__(name)
        return cast("Computed", output).get() if isinstance(output, (Cell, Computed)) else output

    def nodes(self) -> Names:
        """Return the cells and computed values themselves."""
        return Names(self._values, self._kind, self._owner)

    def plain(self) -> dict[str, Any]:
        """Return the values as plain dicts and lists, without the streams."""
        values = {name: self[name] for name in self}
        return {
            name: to_plain(value) for name, value in values.items() if not isinstance(value, Stream)
        }


def to_plain(value: Any) -> Any:
    """Return a value of an output as plain dicts and lists, with those of patterns inside."""
    if isinstance(value, Outputs):
        return value.plain()
    if isinstance(value, list):
        return [to_plain(item) for item in cast("list[Any]", value)]
    return thaw(value)


class LoadedPattern:
    """A pattern in a runtime.

    `cells` are its inputs. `result` are the values of its outputs, with the streams to send events
    to. `outputs` are the cells and computed values themselves, to watch them.
    """

    def __init__(
        self, pattern: Pattern, cells: dict[str, Cell[Any]], outputs: Mapping[str, Any]
    ) -> None:
        self.pattern = pattern
        self.name = pattern.name
        self.cells = Names(cells, "cell", pattern)
        self.outputs = Names(outputs, "output", pattern)
        self.result = Outputs(outputs, "output", pattern)

    def __repr__(self) -> str:
        return f"<pattern {self.name}>"


def load_pattern(path: str | Path) -> Pattern:
    """Import the pattern of a file; `FILE.py:NAME` selects one of several."""
    text, _, name = str(path).partition(".py:")
    file = require_file(Path(f"{text}.py" if name else text), "pattern file").resolve()
    # A separate name: two patterns called main.py do not replace each other.
    module_name = f"offbook_pattern_{abs(hash(str(file)))}_{file.stem}"
    loader = SourceFileLoader(module_name, str(file))
    module = ModuleType(module_name)
    module.__file__, module.__package__ = str(file), ""
    sys.modules[module_name] = module
    # A pattern imports its neighbours by their names.
    sys.path.insert(0, str(file.parent))
    try:
        loader.exec_module(module)
    except Exception as error:
        del sys.modules[module_name]
        raise UsageError(
            f"the pattern cannot be imported: {type(error).__name__}: {error}",
            where=locate_error(error, file),
        ) from error
    finally:
        sys.path.remove(str(file.parent))
    found = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, Pattern) and Path(value.path).resolve() == file
    }
    if name:
        require_known("the file has no pattern", name, found, where=str(file))
        return found[name]
    hint = "mark its function with @pattern (from offbook.patterns import pattern)"
    require_some(found, "the file has no pattern", where=file, hint=hint)
    if len(found) > 1:
        raise UsageError(
            f"the file has {len(found)} patterns: {', '.join(found)}",
            where=str(file),
            hint=f"select one: {file.name}:{next(iter(found))}",
        )
    return next(iter(found.values()))


def _type_check(label: str, kind: Any, location: str) -> Callable[[Any], None]:
    """Return a function that checks a value against a type."""

    def check(value: Any) -> None:
        try:
            msgspec.convert(value, kind, strict=True)
        except msgspec.ValidationError as error:
            raise PatternError(
                f"{label}: {error}", where=location, hint=f"its type is {kind}"
            ) from None

    return check


# ------------------------------------------------------------------------- expectations


class CellExpectation:
    """Assertions on the value of a cell or a computed value."""

    def __init__(self, target: Cell[Any] | Computed) -> None:
        self._target = target
        target.runtime.unchecked[id(self)] = f"expect_cell({target.name})"

    def _read(self) -> Any:
        self._target.runtime.unchecked.pop(id(self), None)
        return self._target.get()

    def to_be(self, expected: Any) -> None:
        """The value is this one: the same object, or an equal value of the same type."""
        actual = self._read()
        same = (
            Cell[Any].equals(actual, expected)
            if isinstance(expected, ReadOnly)
            else (freeze(expected, actual) is actual)
        )
        if not same:
            self._fail(f"expected {expected!r}", actual)

    def to_equal(self, expected: Any) -> None:
        """The value has these contents, of the same types: 1, True and 1.0 are three values."""
        actual = self._read()
        if not matches(actual, expected):
            self._fail(f"expected {expected!r}", actual)

    def to_have_length(self, length: int) -> None:
        """The value has this number of items."""
        actual: Sized = self._read()
        if not hasattr(actual, "__len__"):
            self._fail("expected a value with a length", actual)
        if len(actual) != length:
            self._fail(f"expected {length} items, got {len(actual)}", actual)

    def _fail(self, message: str, actual: Any) -> None:
        target = self._target
        lines = [f"{target.name}: {message}", f"  actual: {actual!r}"]
        if isinstance(target, Cell):
            lines.append(f"  last written by: {target.last_writer}")
        sources = target.sources if isinstance(target, Computed) else ()
        lines += [
            f"  computed from: {each.name}, last written by {each.last_writer}" for each in sources
        ]
        runtime = target.runtime
        stale = target.stale_readers if isinstance(target, Cell) else runtime.stale_names(target)
        if stale:
            lines.append(f"  stale until it is read or h.idle() runs it: {', '.join(stale)}")
        lines += [
            f"  not handled yet: {event}; call h.idle() first" for event in runtime.pending_events
        ]
        raise CheckFailed("\n".join(lines))


class HandlerExpectation:
    """Assertions on what a handler does."""

    def __init__(self, stream: Stream, event: Any) -> None:
        self._stream = stream
        self._event = event
        stream.runtime.unchecked[id(self)] = f"expect_handler({stream.name})"

    def to_mutate(self, cell: Cell[Any], before: Any, after: Any) -> None:
        """The handler changes a cell from one value to another."""
        runtime = self._stream.runtime
        runtime.unchecked.pop(id(self), None)
        if matches(before, after):
            raise UsageError(
                f"{cell.name}: both values are {after!r}, so the handler need not do anything",
                hint="send the event, and use expect_cell(…).to_equal(…)",
            )
        self._check(cell, before, "before")
        failed = len(runtime.errors)
        self._stream.send(self._event)
        runtime.flush()
        if len(runtime.errors) > failed:
            error = runtime.errors[-1]
            raise CheckFailed(f"the handler {self._stream.name} raised {error!r}") from error
        self._check(cell, after, "after")

    def _check(self, cell: Cell[Any], expected: Any, when: str) -> None:
        actual = cell.sample()
        if not matches(actual, expected):
            raise CheckFailed(
                f"{cell.name}: expected {expected!r} {when} the handler {self._stream.name}\n"
                f"  actual: {actual!r}\n  last written by: {cell.last_writer}"
            )


def expect_cell(target: Cell[Any] | Computed) -> CellExpectation:
    """Return the assertions on a cell or a computed value."""
    if not isinstance(target, (Cell, Computed)):
        raise UsageError(
            f"expect_cell needs a cell or a computed value, got {target!r}",
            hint="use pattern.cells.NAME or pattern.outputs.NAME, not pattern.result.NAME",
        )
    return CellExpectation(target)


def expect_handler(stream: Stream, event: Any = None) -> HandlerExpectation:
    """Return the assertions on a handler, which gets this event."""
    if not isinstance(stream, Stream):
        raise UsageError(
            f"expect_handler needs a stream, got {stream!r}",
            hint="return the handler from the pattern, and use pattern.result.NAME",
        )
    return HandlerExpectation(stream, event)
