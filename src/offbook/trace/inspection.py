"""Looks into a trace: some of its events, a summary of all, or what each iteration brought."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import UsageError
from offbook.trace.agent_output import payload_text, text_field, truncate_texts
from offbook.trace.events import ITERATION, PUBLISH, TERMINATION, VERDICT, topic_matches
from offbook.trace.reader import Trace, elapsed_seconds
from offbook.trace.text_patterns import LiteralPattern, UserPattern, compile_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from offbook.trace.events import Event

LONGEST = 100_000
TOLD = (PUBLISH, ITERATION, TERMINATION)


class EventFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which events are wanted; what is not said does not matter."""

    event_types: tuple[str, ...] | None = None
    topics: tuple[str, ...] | None = None
    after_iteration: int | None = None
    before_iteration: int | None = None
    payload_pattern: str | None = None

    def select(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events that are wanted. Those before the first iteration belong to number 0."""
        wants = self.begin()
        return (event for event in self._candidates(events) if wants(event))

    def begin(self) -> Callable[[Event], bool]:
        """A judge of events, who is shown them in their order."""
        pattern = self._pattern()
        types = None if self.event_types is None else set(self.event_types)
        after = -math.inf if self.after_iteration is None else self.after_iteration
        before = math.inf if self.before_iteration is None else self.before_iteration
        iteration = 0

        def wants(event: Event) -> bool:
            nonlocal iteration
            if event.event == ITERATION:
                iteration = _number(event, iteration + 1)
            return (
                (types is None or event.event in types)
                and after < iteration < before
                and (self.topics is None or self._is_about(event))
                and (pattern is None or _mentions(pattern, event))
            )

        return wants

    def _candidates(self, events: Iterable[Event]) -> Iterable[Event]:
        """Of a trace, only the events that can be wanted, and those that the judge needs."""
        if not isinstance(events, Trace) or (self.event_types is None and self.topics is None):
            return events
        counted = (self.after_iteration, self.before_iteration) != (None, None)
        names = {*(self.event_types or ()), *([ITERATION] if counted else [])}
        return events.pick(names, marks=() if self.event_types is not None else ("topic",))

    def _pattern(self) -> UserPattern | LiteralPattern | None:
        source = self.payload_pattern
        return None if source is None else compile_pattern(source, "filter.payload_pattern")

    def _is_about(self, event: Event) -> bool:
        topic = event.data.get("topic")
        return isinstance(topic, str) and any(
            topic_matches(one, topic) for one in self.topics or ()
        )


def _number(event: Event, otherwise: int) -> int:
    """Which iteration this is, as it says itself, or by count."""
    told = event.data.get("n")
    return told if isinstance(told, int) else otherwise


def _mentions(pattern: UserPattern | LiteralPattern, event: Event) -> bool:
    return pattern.search(payload_text(event.data.get("payload", event.data))) is not None


class RecordPage(msgspec.Struct, frozen=True):
    """Some events, and whether there were more."""

    records: list[Any]
    total_matched: int
    truncated: bool
    truncated_tail: bool = False


def list_records(events: Iterable[Event], wanted: EventFilter, limit: int) -> RecordPage:
    """The first events that are wanted, at most so many."""
    if limit < 1:
        raise UsageError(f"limit is {limit}", hint="ask for at least one record")
    found: list[Any] = []
    total = 0
    for event in wanted.select(events):
        total += 1
        if total <= limit:
            data = truncate_texts(event.data, LONGEST)
            found.append({"ts": event.ts, "event": event.event, "data": data})
    return RecordPage(found, total, total > limit)


class TraceSummary(msgspec.Struct, frozen=True):
    """A trace in numbers."""

    total_events: int
    by_type: dict[str, int]
    by_topic: dict[str, int]
    iterations: int
    hats_used: list[str]
    hat_sequence: list[str]
    duration_secs: float
    termination: list[dict[str, Any]]


def summarize(events: Iterable[Event]) -> TraceSummary:
    """All events, counted."""
    types: Counter[str] = Counter()
    topics: Counter[str] = Counter()
    hats: list[str] = []
    ends: list[dict[str, Any]] = []
    first = last = None
    counted = events if isinstance(events, Trace) and events.tally is not None else None
    for event in events if counted is None else counted.pick(TOLD):
        types[event.event] += 1
        first = event.ts if first is None else first
        last = last if event.event == VERDICT else event.ts
        if event.event == PUBLISH:
            topics[text_field(event, "topic")] += 1
        elif event.event == ITERATION:
            hats.append(text_field(event, "hat"))
        elif event.event == TERMINATION:
            ends.append(event.data)
    if counted is not None:
        types, first, last = counted.tally or types, counted.first, counted.last
    seconds = 0.0 if first is None or last is None else elapsed_seconds(first, last) or 0.0
    worn = list(dict.fromkeys(hats))
    return TraceSummary(
        types.total(), dict(types), dict(topics), len(hats), worn, hats, seconds, ends
    )


class TimelineEntry(msgspec.Struct, frozen=True):
    """One iteration: who acted, what was published, how long it took.

    `events` tells each topic with the one that had come before the iteration.
    """

    iteration: int
    hat: str
    events: list[str]
    duration_ms: int
    topics: list[str] = []


def build_timeline(events: Iterable[Event], wanted: EventFilter) -> list[TimelineEntry]:
    """What each wanted iteration brought; one without events is told, too."""
    moments: list[TimelineEntry] = []
    wants = wanted.begin()
    places = msgspec.structs.replace(wanted, event_types=None, topics=None, payload_pattern=None)
    lies_within = places.begin()
    begun: tuple[int, str, int] | None = None
    heard: list[str] = []
    number = last = 0
    latest = cause = ""
    ended = False

    def close(ts: int) -> None:
        if begun is not None:
            told = [f"{cause} → {topic}" if cause else topic for topic in heard]
            moments.append(TimelineEntry(*begun[:2], told, ts - begun[2], heard))

    for event in events.pick(TOLD) if isinstance(events, Trace) else events:
        fits, inside = wants(event), lies_within(event)
        if ended or event.event == VERDICT:
            continue  # what comes later took no iteration's time
        if event.event == ITERATION:
            close(event.ts)
            number = _number(event, number + 1)
            begun = (number, text_field(event, "hat"), event.ts) if inside else None
            heard = []
            cause = latest
        elif event.event == PUBLISH:
            latest = text_field(event, "topic")
            if begun is not None and fits:
                heard.append(latest)
        last = event.ts
        ended = event.event == TERMINATION
    if isinstance(events, Trace) and not ended:
        last = events.last or last
    close(last)
    return moments
