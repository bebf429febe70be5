"""The context of a check: the trace of a run and the folder that the run worked in.

A check that finds nothing to examine raises `NoData`. That becomes a `no_data` verdict, which
is never a pass.
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

C = TypeVar("C", bound=Collector)
# The class of a collector and its arguments.
Requirement = tuple[type[Collector], tuple[Any, ...]]


NOT_ENDED = "no data: the run did not end, so its trace is incomplete"


class NoData(Exception):
    """The run has no data for this check."""


class CheckContext:
    """The facts about one run, read from its trace on demand.

    `collect` reads the trace once for several collectors; `get` reads it for a collector that is
    not known yet. Events are not kept, only the collectors are.

        context = CheckContext(Trace(path), root=workspace)
        context.collect([(HatHistory, ()), (OutputMatch, ("stdout", "done"))])
        context.get(HatHistory).hats
    """

    def __init__(
        self, events: Iterable[Event], root: Path | None = None, snapshots: Path | None = None
    ) -> None:
        # A stored trace is read again from its file; other events may be an iterator.
        self._trace = events.path if isinstance(events, Trace) else None
        self._events: list[Event] = [] if isinstance(events, Trace) else list(events)
        self._collectors: dict[Requirement, Collector] = {}
        self._span: tuple[int, int] | None = None
        self.faults: list[LineFault] = []
        self.root = root
        self.snapshots = snapshots

    def collect(self, requirements: Iterable[Requirement]) -> None:
        """Read the trace once for all required collectors that are not known yet."""
        # Two assertions with the same requirement share one collector.
        new = {
            (kind, args): kind(*args)
            for kind, args in requirements
            if (kind, args) not in self._collectors
        }
        if new:
            self._read(new.values())
            self._collectors |= new

    def get(self, kind: type[C], *args: Any) -> C:
        """Return the collector of this class and these arguments, filled from the trace."""
        self.collect([(kind, args)])
        return cast("C", self._collectors[kind, args])

    def _read(self, collectors: Iterable[Collector]) -> None:
        # Callbacks by event name: most events interest no collector and cost one lookup.
        callbacks: dict[str, list[Callable[[Event], None]]] = {}
        keyed: list[Collector] = []
        for collector in collectors:
            if collector.data_keys:
                keyed.append(collector)
            for name in collector.event_names:
                callbacks.setdefault(name, []).append(collector.on_event)
        if self._trace is None:
            trace, events = None, self._events
            # Verdicts are recorded after the run and do not count towards its duration.
            stamps = [event.ts for event in events if event.event != VERDICT]
            self._span = (stamps[0], stamps[-1]) if len(stamps) > 1 else None
        else:
            trace = Trace(self._trace)
            keys = [key for collector in keyed for key in collector.data_keys]
            events = trace.select(callbacks, fields=keys)
        for event in events:
            for callback in callbacks.get(event.event, ()):
                callback(event)
            for collector in keyed:
                collector.on_event(event)
        if trace is not None:
            self.faults = trace.faults
            if trace.total > 1 and trace.first is not None and trace.last is not None:
                self._span = (trace.first, trace.last)

    @property
    def unfinished(self) -> bool:
        """True if the run has a beginning and no end: its process was killed."""
        return self.get(Termination).unfinished and not self.get(PublishedTopics).summary

    @property
    def topics(self) -> list[str]:
        """The published topics, in order."""
        return self.get(PublishedTopics).topics

    @property
    def hats(self) -> list[str]:
        """The hat of each iteration."""
        return self.get(HatHistory).hats

    # A trace of Ralph has no termination event: the same facts are in the summary it publishes.

    @property
    def reason(self) -> str | None:
        """The reason why the loop ended."""
        published = self.get(PublishedTopics).find(r"## Reason\s+(\S+)")
        recorded = self.get(Termination).reason
        return recorded or (canonical_termination(published) if published else None)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the run."""
        recorded = self.get(Termination).exit_code
        if recorded is not None:
            return recorded
        published = self.get(PublishedTopics).find(r"Exit code: (-?\d+)")
        return int(published) if published else EXIT_CODES.get(self.reason or "")

    @property
    def iterations(self) -> int | None:
        """The number of iterations."""
        published = self.get(PublishedTopics).find(r"Iterations: (\d+)")
        recorded = self.get(Termination).iterations
        if recorded is None and published:
            recorded = int(published)
        # Iterations that were recorded one by one count more than a summary of another tool.
        return len(self.hats) or recorded

    @property
    def seconds(self) -> float | None:
        """The duration of the run."""
        recorded = self.get(Termination).seconds
        if recorded is not None or self._span is None:
            return recorded
        return elapsed_seconds(*self._span)

    @property
    def cost(self) -> float | None:
        """The cost of the run in dollars, if one was recorded."""
        return self.get(TotalCost).dollars

    def resolve(self, path: str) -> Path:
        """Return the path of a file in the folder of the run; a path that leaves it is refused."""
        if self.root is None:
            raise NoData("the run has no folder")
        return resolve_within(self.root, path)
