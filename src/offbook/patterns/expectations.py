"""Assertions on cells and handlers, with messages that show the pattern.

expect_cell(counter.cells.value).to_be(1)
expect_handler(counter.result.increment).to_mutate(counter.cells.value, 0, 1)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offbook.errors import CheckFailed, UsageError
from offbook.patterns.cells import Cell
from offbook.patterns.graph import Computed
from offbook.patterns.runtime import Stream
from offbook.patterns.values import ReadOnly, freeze

if TYPE_CHECKING:
    from collections.abc import Sized

__tracebackhide__ = True  # pytest shows the line of the test or the pattern


class CellExpectation:
    """Assertions on the value of a cell or a computed value."""

    def __init__(self, target: Cell[Any] | Computed) -> None:
        self._target = target

    def to_be(self, expected: Any) -> None:
        """The value is this one: the same object, or an equal value of the same type."""
        actual = self._target.get()
        same = (
            Cell[Any].equals(actual, expected)
            if isinstance(expected, ReadOnly)
            else (freeze(expected, actual) is actual)
        )
        if not same:
            self._fail(f"expected {expected!r}", actual)

    def to_equal(self, expected: Any) -> None:
        """The value has these contents."""
        actual = self._target.get()
        if actual != expected:
            self._fail(f"expected {expected!r}", actual)

    def to_have_length(self, length: int) -> None:
        """The value has this number of items."""
        actual: Sized = self._target.get()
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

    def to_mutate(self, cell: Cell[Any], before: Any, after: Any) -> None:
        """The handler changes a cell from one value to another."""
        runtime = self._stream.runtime
        actual = cell.sample()
        if actual != before:
            raise CheckFailed(
                f"{cell.name}: expected {before!r} before the handler {self._stream.name}\n"
                f"  actual: {actual!r}\n  last written by: {cell.last_writer}"
            )
        failed = len(runtime.errors)
        self._stream.send(self._event)
        runtime.flush()
        if len(runtime.errors) > failed:
            error = runtime.errors[-1]
            raise CheckFailed(f"the handler {self._stream.name} raised {error!r}") from error
        actual = cell.sample()
        if actual != after:
            raise CheckFailed(
                f"{cell.name}: expected {after!r} after the handler {self._stream.name}\n"
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
