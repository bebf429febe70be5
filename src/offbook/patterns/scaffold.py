"""A first test for a pattern, generated from its inputs, computed values and handlers."""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

from offbook.patterns.graph import Computed
from offbook.patterns.harness import create_harness
from offbook.patterns.runtime import Cell, Stream
from offbook.patterns.values import thaw

if TYPE_CHECKING:
    from offbook.patterns.definition import Pattern

SAMPLES: dict[Any, Any] = {int: 1, float: 1.5, str: "text", bool: True, list: [], dict: {}}
MAX_EVENTS = 10  # events that are tried until a handler accepts one


class EventTrial(NamedTuple):
    """One event for a handler: the cells afterwards, and the error if there was one."""

    event: Any
    cells: dict[str, Any]
    error: Exception | None
    waits: bool


def scaffold_test(pattern: Pattern, file_name: str) -> str:
    """Return the text of a test file that passes as it is.

    The expected values are those that the pattern has now. They have to be read and corrected by
    someone who knows what the pattern should do.
    """
    name = pattern.name
    state = {
        key: SAMPLES.get(kind, SAMPLES.get(getattr(kind, "__origin__", None)))
        for key, kind in pattern.input_types().items()
        if pattern.parameters[key].default is pattern.parameters[key].empty
    }
    load = f'h.load("{file_name}", {state!r})' if state else f'h.load("{file_name}")'
    values, streams, problems = _observe(pattern, state)
    if problems:
        first = str(problems[0]).splitlines()[0]
        return _refuse(pattern, f"loading the pattern fails: {first}")
    lines = [
        f'"""Tests of the pattern {name}. Generated: check each expected value."""',
        "",
        "from offbook.patterns import create_harness",
        "",
        "",
        f"def test_{name}_starts_with_its_initial_state():",
        "    with create_harness() as h:",
        f"        {name} = {load}",
        "        h.settled()",
    ]
    lines += [f"        assert {name}.result.{key} == {value}" for key, value in values.items()]
    if not values:
        lines += [f"        assert list({name}.outputs) == {streams!r}"]
    for key in streams:
        trial = _try_events(pattern, state, key, list(values))
        event = "" if trial.event is None else repr(trial.event)
        lines += [
            "",
            "",
            f"def test_{name}_{key}():",
            f"    with create_harness({'' if trial.error is None else 'expect_errors=1'}) as h:",
            f"        {name} = {load}",
            f"        {name}.result.{key}.send({event})",
            f"        h.{'settled' if trial.waits else 'idle'}()",
        ]
        if trial.error is not None:
            lines.append("        # TODO: send an event that the handler accepts")
            lines.append(f"        assert isinstance(h.errors[0], {_base(trial.error)})")
            continue
        shown = {cell: text for cell, after in trial.cells.items() if (text := _literal(after))}
        lines += [
            f"        assert {name}.cells.{cell}.get() == {text}" for cell, text in shown.items()
        ]
        if not shown:
            lines.append("        assert h.errors == []")
    return "\n".join([*lines, ""])


def _refuse(pattern: Pattern, reason: str) -> str:
    from offbook.errors import UsageError

    raise UsageError(
        f"no test for the pattern {pattern.name}: {reason}",
        where=pattern.location,
        hint="give its inputs defaults with which it works",
    )


def _observe(
    pattern: Pattern, state: dict[str, Any]
) -> tuple[dict[str, str], list[str], list[Exception]]:
    """Return the values of the outputs as Python text, the names of the handlers, and errors."""
    values: dict[str, str] = {}
    streams: list[str] = []
    harness = create_harness()
    try:
        loaded = harness.load(pattern, state)
        harness.settled()
        for name in loaded.outputs:
            output = loaded.outputs[name]
            if isinstance(output, Stream):
                streams.append(name)
            elif isinstance(output, (Cell, Computed)):
                try:
                    text = _literal(output.get())
                except Exception:  # noqa: BLE001, S112 - a value that needs another state is left out
                    continue
                # A value that differs on the second look cannot be asserted.
                if text and not any(output.name in line for line in harness.runtime.unstable):
                    values[name] = text
        return values, streams, list(harness.errors)
    finally:
        harness.dispose(check=False)


def _try_events(
    pattern: Pattern, state: dict[str, Any], name: str, values: list[str]
) -> EventTrial:
    """Send events until the handler accepts one: none, an empty one, one with the missing keys."""
    trial = first = _send(pattern, state, name, values, None)
    sample: Any = "text"
    for _ in range(MAX_EVENTS):
        error = trial.error
        if error is None:
            return trial
        event: dict[str, Any] = {} if trial.event is None else trial.event
        if isinstance(error, KeyError) and trial.event is not None and error.args[0] not in event:
            event = {**event, error.args[0]: sample}
        elif trial.event is not None and sample == "text":
            sample = 1  # the handler needs a number
            event = dict.fromkeys(event, sample)
        elif trial.event is not None:
            break
        trial = _send(pattern, state, name, values, event)
    return first


def _send(
    pattern: Pattern, state: dict[str, Any], name: str, values: list[str], event: Any
) -> EventTrial:
    harness = create_harness()
    try:
        loaded = harness.load(pattern, state)
        stream = loaded.outputs[name]
        stream.send(event)
        harness.settled()
        cells = {key: loaded.cells[key].get() for key in loaded.cells}
        error = harness.errors[0] if harness.errors else None
        if error is None and event is not None:
            try:
                _ = [loaded.result[key] for key in values]
            except Exception as raised:  # noqa: BLE001 - accepted, but the next reader fails
                error = raised
        return EventTrial(event, cells, error, inspect.iscoroutinefunction(stream.function))
    finally:
        harness.dispose(check=False)


def _literal(value: Any) -> str:
    """Return a value as Python text, or nothing if it cannot be written so."""
    text = repr(thaw(value))
    try:
        return text if ast.literal_eval(text) == value else ""
    except (SyntaxError, ValueError):
        return ""  # an object, or NaN


def _base(error: Exception) -> str:
    """Return the name of the nearest built-in class of an error, which needs no import."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")
