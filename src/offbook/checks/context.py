"""The evidence that checks look at: the trace of a run, and the folder that it worked in.

A check that has nothing to look at says so (`no_data`): that is never a pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from offbook.checks.collectors import Collector, HatHistory, PublishedTopics, Termination, TotalCost
from offbook.files import resolve_within
from offbook.trace.events import EXIT_CODES, VERDICT, canonical_termination
from offbook.trace.reader import LineFault, Trace, elapsed_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from offbook.trace.events import Event

F = TypeVar("F", bound=Collector)
Requirement = tuple[type[Collector], tuple[Any, ...]]


class NoData(Exception):
    """There is nothing that a check could look at."""


class CheckContext:
    """What is known about a run: its events, and the folder it worked in.

    A trace is read when something is asked that is not known yet; `learn` tells in advance what
    will be asked, so that one reading is enough. Of the events nothing is kept but the facts.
    """

    def __init__(self, events: Iterable[Event], root: Path | None = None) -> None:
        self._trace = events.path if isinstance(events, Trace) else None
        self._events: list[Event] = [] if isinstance(events, Trace) else list(events)
        self._facts: dict[Requirement, Collector] = {}
        self._span: tuple[int, int] | None = None
        self.faults: list[LineFault] = []
        self.root = root

    def learn(self, asked: Iterable[Requirement]) -> None:
        """Read the trace once, for all of this that is not known yet."""
        new = {one: one[0](*one[1]) for one in asked if one not in self._facts}
        if new:
            self._read(new.values())
            self._facts |= new

    def know(self, kind: type[F], *about: Any) -> F:
        """A fact."""
        self.learn([(kind, about)])
        return cast("F", self._facts[kind, about])

    def _read(self, facts: Iterable[Collector]) -> None:
        heard: dict[str, list[Callable[[Event], None]]] = {}
        marked: list[Collector] = []
        for fact in facts:
            marked += [fact] if fact.marks else []
            for name in fact.names:
                heard.setdefault(name, []).append(fact.hear)
        if self._trace is None:
            trace, events = None, self._events
            happened = [event.ts for event in events if event.event != VERDICT]
            self._span = (happened[0], happened[-1]) if len(happened) > 1 else None
        else:
            trace = Trace(self._trace)
            events = trace.pick(heard, marks=[mark for fact in marked for mark in fact.marks])
        for event in events:
            for hear in heard.get(event.event, ()):
                hear(event)
            if marked:
                for fact in marked:
                    fact.hear(event)
        if trace is not None:
            self.faults = trace.faults
            if trace.total > 1 and trace.first is not None and trace.last is not None:
                self._span = (trace.first, trace.last)

    @property
    def topics(self) -> list[str]:
        """The topics published, in order."""
        return self.know(PublishedTopics).topics

    @property
    def hats(self) -> list[str]:
        """The hat of each iteration."""
        return self.know(HatHistory).hats

    @property
    def reason(self) -> str | None:
        """Why the loop ended."""
        told = self.know(PublishedTopics).find(r"## Reason\s+(\S+)")
        return self.know(Termination).reason or (canonical_termination(told) if told else None)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the run."""
        code = self.know(Termination).code
        if code is not None:
            return code
        told = self.know(PublishedTopics).find(r"Exit code: (-?\d+)")
        return int(told) if told else EXIT_CODES.get(self.reason or "")

    @property
    def iterations(self) -> int | None:
        """How many iterations there were."""
        told = self.know(PublishedTopics).find(r"Iterations: (\d+)")
        summary = int(told) if told else None
        counted = self.know(Termination).iterations
        return len(self.hats) or (summary if counted is None else counted)

    @property
    def seconds(self) -> float | None:
        """How long it took."""
        told = self.know(Termination).seconds
        return told if told is not None or self._span is None else elapsed_seconds(*self._span)

    @property
    def cost(self) -> float | None:
        """What it cost, in dollars, when anybody said so."""
        return self.know(TotalCost).dollars

    def place(self, path: str) -> Path:
        """A file in the run's folder; nothing leads out of it."""
        if self.root is None:
            raise NoData("the run has no folder")
        return resolve_within(self.root, path)
