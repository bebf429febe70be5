"""A check looks at the evidence of a run and says what it found.

The evidence is the trace, and the folder that the run worked in. A check that has nothing to look
at says so (`no_data`): that is never a pass.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from offbook.errors import UsageError
from offbook.trace.outputs import join_output
from offbook.trace.terminations import EXIT_CODES, canonical

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from offbook.trace.events import Event
    from offbook.trace.verdicts import Verdict

BUS = "bus.publish"
ITERATION = "_meta.iteration"
TERMINATION = "_meta.termination"
EXIT = "process.exit"


class NoData(Exception):
    """There is nothing that a check could look at."""


class Check(Protocol):
    """Something that must be true of a run."""

    def judge(self, evidence: Evidence) -> Verdict:
        """What the evidence says about it."""
        ...


class Evidence:
    """What is known about a run: its events, and the folder it worked in."""

    def __init__(self, events: Iterable[Event], root: Path | None = None) -> None:
        self.events = list(events)
        self.root = root

    def named(self, name: str) -> list[Event]:
        """The events of this name."""
        return [event for event in self.events if event.event == name]

    @cached_property
    def published(self) -> list[Event]:
        """What was published on the bus."""
        return self.named(BUS)

    @cached_property
    def topics(self) -> list[str]:
        """The topics published, in order."""
        return [event.data["topic"] for event in self.published]

    @cached_property
    def hats(self) -> list[str]:
        """The hat of each iteration."""
        return [event.data.get("hat", "") for event in self.named(ITERATION)]

    @cached_property
    def reason(self) -> str | None:
        """Why the loop ended."""
        for event in reversed(self.named(TERMINATION)):
            return canonical(event.data.get("reason", "")) or event.data.get("reason")
        summary = self._last_summary()
        found = re.search(r"## Reason\s+(\S+)", summary)
        return canonical(found[1]) if found else None

    @cached_property
    def exit_code(self) -> int | None:
        """The exit code of the run."""
        for event in reversed(self.events):
            if event.event in {TERMINATION, EXIT}:
                code = event.data.get("exit_code", event.data.get("code"))
                if code is not None:
                    return int(code)
        found = re.search(r"Exit code: (-?\d+)", self._last_summary())
        if found:
            return int(found[1])
        return EXIT_CODES.get(self.reason or "")

    @cached_property
    def iterations(self) -> int | None:
        """How many iterations there were."""
        counted = len(self.hats)
        if counted:
            return counted
        for event in self.named(TERMINATION):
            return event.data.get("iterations")
        found = re.search(r"Iterations: (\d+)", self._last_summary())
        return int(found[1]) if found else None

    @cached_property
    def seconds(self) -> float | None:
        """How long it took."""
        for event in reversed(self.named(TERMINATION)):
            if "elapsed_secs" in event.data:
                return float(event.data["elapsed_secs"])
        if len(self.events) < 2:  # noqa: PLR2004 - a span has two ends
            return None
        return (self.events[-1].ts - self.events[0].ts) / 1000

    @cached_property
    def cost(self) -> float | None:
        """What it cost, in dollars, when anybody said so."""
        keys = ("cost_dollars", "cost_usd", "total_cost_usd")
        told = [float(e.data[k]) for e in self.events for k in keys if k in e.data]
        return sum(told) if told else None

    def output(self, stream: str) -> str:
        """What was written to `stdout` or `stderr`."""
        return join_output(self.events, stream)

    def place(self, path: str) -> Path:
        """A file in the run's folder; nothing leads out of it."""
        if self.root is None:
            raise NoData("the run has no folder")
        root = self.root.resolve()
        place = (root / path).resolve()
        if not place.is_relative_to(root) or path.startswith(("/", "\\")) or "\0" in path:
            raise UsageError(f"the path {path!r} leads out of the workspace")
        return place

    def _last_summary(self) -> str:
        for event in reversed(self.published):
            if event.data["topic"] == "loop.terminate":
                payload: Any = event.data.get("payload")
                return payload if isinstance(payload, str) else ""
        return ""
