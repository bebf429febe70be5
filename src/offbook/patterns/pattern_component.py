"""A pattern as a component of golden fixtures: the steps of a file of steps, recorded and replayed.

    # scripts/live/counter_live.py
    class Counter(PatternComponent):
        pattern = counter

    @scenario()
    async def counts(component):
        component.load({"value": 5})
        await component.run_steps([{"send": "increment"}, {"assert": "value == 6"}])

The fixture has the steps as they are, every write, run and event, and the state at the end.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from offbook.errors import CheckFailed, UsageError
from offbook.patterns.definition import Pattern, load_pattern
from offbook.patterns.harness import create_harness
from offbook.patterns.steps import StepPlayer, validate_steps
from offbook.patterns.values import thaw
from offbook.trace.components import BaseComponent, step

if TYPE_CHECKING:
    from offbook.patterns.definition import LoadedPattern
    from offbook.trace.hub import Hub


class PatternComponent(BaseComponent):
    """Steps of golden fixtures for a pattern. A subclass sets the attribute `pattern`.

    It is a pattern, or the path of its file, relative to the file of the subclass. `options` are
    those of `create_harness`.
    """

    pattern: ClassVar[Pattern | str]
    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, hub: Hub, scenario: str) -> None:
        super().__init__(hub, scenario)
        self._harness = create_harness(hub=hub, **self.options)
        self._loaded: LoadedPattern | None = None

    async def close(self) -> None:
        """Dispose the harness."""
        self._harness.dispose(check=False)

    def observe(self) -> dict[str, Any]:
        """Return the inputs and the outputs; raise what went wrong unnoticed."""
        loaded = self._require_loaded()
        state = {
            "cells": {name: thaw(loaded.cells[name].get()) for name in loaded.cells},
            "outputs": dict(sorted(loaded.result.plain().items())),
        }
        self._harness.dispose()
        return state

    @step
    def load(self, state: dict[str, Any] | None = None) -> None:
        """Make the instance of the pattern."""
        source = getattr(type(self), "pattern", None)
        if source is None:
            raise UsageError(
                f"{type(self).__name__} has no pattern", hint='pattern = "counter.py", or an object'
            )
        if not isinstance(source, Pattern):
            source = load_pattern(Path(inspect.getfile(type(self))).parent / source)
        self._loaded = self._harness.load(source, state or {})
        self._harness.idle()

    @step
    async def run_steps(self, steps: list[dict[str, Any]]) -> None:
        """Run steps as in a file of steps; an assertion that is false raises."""
        loaded = self._require_loaded()
        validate_steps(steps, loaded)
        player = StepPlayer(loaded, self._harness)
        for each in steps:
            if player.settles(each):
                await self._harness.settled()
            result = player.perform(each)
            if result.status == "failed":
                raise CheckFailed(f"{result.name}: {result.message}")

    def _require_loaded(self) -> LoadedPattern:
        if self._loaded is None:
            raise UsageError("no pattern is loaded", hint="add the step load before it")
        return self._loaded
