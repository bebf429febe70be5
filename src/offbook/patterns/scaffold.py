"""A first test for a pattern, generated from its inputs, computed values and handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offbook.patterns.cells import Cell
from offbook.patterns.harness import create_harness
from offbook.patterns.runtime import Computed, Stream

if TYPE_CHECKING:
    from offbook.patterns.definition import Pattern

SAMPLES: dict[Any, Any] = {int: 1, float: 1.5, str: "text", bool: True, list: [], dict: {}}


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
    outputs = _observe(pattern, state)
    lines = [
        f'"""Tests of the pattern {name}. Generated: check each expected value."""',
        "",
        "from offbook.patterns import create_harness",
        "",
        f"STATE = {state!r}",
        "",
        "",
        f"def test_{name}_starts_with_its_initial_state():",
        "    with create_harness() as h:",
        f'        {name} = h.load("{file_name}", STATE)',
        "        h.idle()",
    ]
    values = {key: value for key, value in outputs.items() if value is not Stream}
    lines += [f"        assert {name}.result.{key} == {value!r}" for key, value in values.items()]
    if not values:
        lines += [f"        assert list({name}.outputs) == {list(outputs)!r}"]
    for key, value in outputs.items():
        if value is not Stream:
            continue
        changes, works = _try_handler(pattern, state, key)
        lines += [
            "",
            "",
            f"def test_{name}_{key}():",
            f"    with create_harness({'' if works else 'expect_errors=1'}) as h:",
            f'        {name} = h.load("{file_name}", STATE)',
            f"        {name}.result.{key}.send({'' if works else '{}'})",
            "        h.idle()",
        ]
        if works:
            for cell, after in changes.items():
                lines.append(f"        assert {name}.cells.{cell}.get() == {after!r}")
        else:
            lines.append("        # TODO: send an event that the handler understands")
            lines.append("        assert len(h.errors) == 1")
    return "\n".join([*lines, ""])


def _observe(pattern: Pattern, state: dict[str, Any]) -> dict[str, Any]:
    """Return the value of each output, or `Stream`."""
    harness = create_harness()
    try:
        loaded = harness.load(pattern, state)
        harness.idle()
        found: dict[str, Any] = {}
        for name in loaded.outputs:
            output = loaded.outputs[name]
            if isinstance(output, Stream):
                found[name] = Stream
            elif isinstance(output, (Cell, Computed)):
                try:
                    found[name] = output.get()
                except Exception:  # noqa: BLE001, S112 - a value that needs another state is left out
                    continue
        return found
    finally:
        harness.dispose(check=False)


def _try_handler(pattern: Pattern, state: dict[str, Any], name: str) -> tuple[dict[str, Any], bool]:
    """Send an empty event; return all cells afterwards, and whether the handler accepted it."""
    harness = create_harness()
    try:
        loaded = harness.load(pattern, state)
        loaded.outputs[name].send(None)
        harness.settled()
        cells = {key: loaded.cells[key].get() for key in loaded.cells}
        return cells, not harness.errors
    finally:
        harness.dispose(check=False)
