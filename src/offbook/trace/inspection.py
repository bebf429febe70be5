"""Views of a trace: selected events, a summary in numbers, or a timeline of iterations."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import UsageError
from offbook.trace.agent_output import payload_text, text_field, truncate_texts
from offbook.trace.events import ITERATION, PUBLISH, TERMINATION, VERDICT, topic_matches
from offbook.trace.matching import compile_pattern
from offbook.trace.reader import Trace, elapsed_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from offbook.trace.events import Event

MAX_TEXT = 100_000
LOOP_EVENTS = (PUBLISH, ITERATION, TERMINATION)


class EventFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Conditions that an event must meet; None means any."""

    event_types: tuple[str, ...] | None = None
    topics: tuple[str, ...] | None = None
    after_iteration: int | None = None
    before_iteration: int | None = None
    payload_pattern: str | None = None

    def select(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the matching events. Those before the first iteration belong to number 0."""
        matches = self.matcher()
        if isinstance(events, Trace) and (self.event_types, self.topics) != (None, None):
            # a trace decodes only the events that can match, and those that the matcher counts
            counted = (self.after_iteration, self.before_iteration) != (None, None)
            names = {*(self.event_types or ()), *([ITERATION] if counted else [])}
            events = events.select(names, fields=() if self.event_types is not None else ("topic",))
        return (event for event in events if matches(event))

    def matcher(self) -> Callable[[Event], bool]:
        """Return a predicate that must be called with all events in order: it counts iterations."""
        source = self.payload_pattern
        pattern = None if source is None else compile_pattern(source, "filter.payload_pattern")
        types = None if self.event_types is None else set(self.event_types)
        after = -math.inf if self.after_iteration is None else self.after_iteration
        before = math.inf if self.before_iteration is None else self.before_iteration
        iteration = 0

        def matches(event: Event) -> bool:
            nonlocal iteration
            if event.event == ITERATION:
                iteration = _iteration_number(event, iteration + 1)
            if types is not None and event.event not in types:
                return False
            if not after < iteration < before:
                return False
            if self.topics is not None:
                topic = event.data.get("topic")
                if not isinstance(topic, str) or not any(
                    topic_matches(wanted, topic) for wanted in self.topics
                ):
                    return False
            if pattern is None:
                return True
            payload = payload_text(event.data.get("payload", event.data))
            return pattern.search(payload) is not None

        return matches


def _iteration_number(event: Event, default: int) -> int:
    """Return the number that an iteration's event has, or the counted one."""
    number = event.data.get("n")
    return number if isinstance(number, int) else default


class RecordPage(msgspec.Struct, frozen=True):
    """The first events of a selection, and whether there are more."""

    records: list[Any]
    total_matched: int
    truncated: bool
    truncated_tail: bool = False


def list_records(events: Iterable[Event], event_filter: EventFilter, limit: int) -> RecordPage:
    """Return the first `limit` matching events."""
    if limit < 1:
        raise UsageError(f"limit must be at least 1, got {limit}")
    records: list[Any] = []
    total = 0
    for event in event_filter.select(events):
        total += 1
        if total <= limit:
            data = truncate_texts(event.data, MAX_TEXT)
            records.append({"ts": event.ts, "event": event.event, "data": data})
    return RecordPage(records, total, total > limit)


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
    """Return the numbers of all events."""
    types: Counter[str] = Counter()
    topics: Counter[str] = Counter()
    hats: list[str] = []
    terminations: list[dict[str, Any]] = []
    first = last = None
    # a trace that counts needs to decode only the events of the loop
    counted = events if isinstance(events, Trace) and events.counts is not None else None
    for event in events if counted is None else counted.select(LOOP_EVENTS):
        types[event.event] += 1
        first = event.ts if first is None else first
        last = last if event.event == VERDICT else event.ts
        if event.event == PUBLISH:
            topics[text_field(event, "topic")] += 1
        elif event.event == ITERATION:
            hats.append(text_field(event, "hat"))
        elif event.event == TERMINATION:
            terminations.append(event.data)
    if counted is not None:
        types, first, last = counted.counts or types, counted.first, counted.last
    seconds = 0.0 if first is None or last is None else elapsed_seconds(first, last) or 0.0
    return TraceSummary(
        total_events=types.total(),
        by_type=dict(types),
        by_topic=dict(topics),
        iterations=len(hats),
        hats_used=list(dict.fromkeys(hats)),
        hat_sequence=hats,
        duration_secs=seconds,
        termination=terminations,
    )


class TimelineEntry(msgspec.Struct, frozen=True):
    """One iteration: its hat, the topics published in it, and its duration.

    `events` has each topic with the one published last before the iteration: `build → done`.
    """

    iteration: int
    hat: str
    events: list[str]
    duration_ms: int
    topics: list[str] = []


def build_timeline(events: Iterable[Event], event_filter: EventFilter) -> list[TimelineEntry]:
    """Return the matching iterations, also those in which nothing matching was published."""
    entries: list[TimelineEntry] = []
    matches = event_filter.matcher()
    # types, topics and patterns select the published events; only the numbers the iterations
    in_range = msgspec.structs.replace(
        event_filter, event_types=None, topics=None, payload_pattern=None
    ).matcher()
    current: tuple[int, str, int] | None = None  # number, hat and start of the open iteration
    topics: list[str] = []
    number = last = 0
    latest = cause = ""
    ended = False

    def close_iteration(ts: int) -> None:
        if current is not None:
            shown = [f"{cause} → {topic}" if cause else topic for topic in topics]
            entries.append(TimelineEntry(*current[:2], shown, ts - current[2], topics))

    for event in events.select(LOOP_EVENTS) if isinstance(events, Trace) else events:
        is_match, is_in_range = matches(event), in_range(event)
        if ended or event.event == VERDICT:
            continue  # later events do not count for the duration of an iteration
        if event.event == ITERATION:
            close_iteration(event.ts)
            number = _iteration_number(event, number + 1)
            current = (number, text_field(event, "hat"), event.ts) if is_in_range else None
            topics = []
            cause = latest
        elif event.event == PUBLISH:
            latest = text_field(event, "topic")
            if current is not None and is_match:
                topics.append(latest)
        last = event.ts
        ended = event.event == TERMINATION
    if isinstance(events, Trace) and not ended:
        last = events.last or last  # of an event that was not decoded
    close_iteration(last)
    return entries
