"""Looks into a trace: some of its events, a summary of all, or what each iteration brought."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import UsageError
from offbook.trace.patterns import Pattern, compile_pattern
from offbook.trace.topics import matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from offbook.trace.events import Event

BUS = "bus.publish"
ITERATION = "_meta.iteration"
TERMINATION = "_meta.termination"


class Filter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which events are wanted; what is not said does not matter."""

    event_types: tuple[str, ...] | None = None
    topics: tuple[str, ...] | None = None
    after_iteration: int | None = None
    before_iteration: int | None = None
    payload_pattern: str | None = None

    def select(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events that are wanted. Those before the first iteration belong to number 0."""
        pattern = self._pattern()
        types = None if self.event_types is None else set(self.event_types)
        iteration = 0
        for event in events:
            if event.event == ITERATION:
                iteration = event.data.get("n", iteration + 1)
            if types is not None and event.event not in types:
                continue
            if self.after_iteration is not None and iteration <= self.after_iteration:
                continue
            if self.before_iteration is not None and iteration >= self.before_iteration:
                continue
            if self.topics is not None and not self._is_about(event):
                continue
            if pattern is not None and not _mentions(pattern, event):
                continue
            yield event

    def _pattern(self) -> Pattern | None:
        source = self.payload_pattern
        return None if source is None else compile_pattern(source, "filter.payload_pattern")

    def _is_about(self, event: Event) -> bool:
        topic = event.data.get("topic")
        return isinstance(topic, str) and any(matches(one, topic) for one in self.topics or ())


def _mentions(pattern: Pattern, event: Event) -> bool:
    payload = event.data.get("payload", event.data)
    text = payload if isinstance(payload, str) else msgspec.json.encode(payload).decode()
    return pattern.search(text) is not None


class Records(msgspec.Struct, frozen=True):
    """Some events, and whether there were more."""

    records: list[Any]
    total_matched: int
    truncated: bool
    truncated_tail: bool = False


def list_records(events: Iterable[Event], wanted: Filter, limit: int) -> Records:
    """The first events that are wanted, at most so many."""
    if limit < 1:
        raise UsageError(f"limit is {limit}", hint="ask for at least one record")
    found: list[Any] = []
    total = 0
    for event in wanted.select(events):
        total += 1
        if total <= limit:
            found.append({"ts": event.ts, "event": event.event, "data": event.data})
    return Records(found, total, total > limit)


class Summary(msgspec.Struct, frozen=True):
    """A trace in numbers."""

    total_events: int
    by_type: dict[str, int]
    by_topic: dict[str, int]
    iterations: int
    hats_used: list[str]
    hat_sequence: list[str]
    duration_secs: float
    termination: list[dict[str, Any]]


def summarize(events: Iterable[Event]) -> Summary:
    """All events, counted."""
    types: dict[str, int] = {}
    topics: dict[str, int] = {}
    hats: list[str] = []
    ends: list[dict[str, Any]] = []
    first = last = None
    total = 0
    for event in events:
        total += 1
        types[event.event] = types.get(event.event, 0) + 1
        first = event.ts if first is None else first
        last = event.ts
        if event.event == BUS:
            topic = str(event.data.get("topic", ""))
            topics[topic] = topics.get(topic, 0) + 1
        elif event.event == ITERATION:
            hats.append(str(event.data.get("hat", "")))
        elif event.event == TERMINATION:
            ends.append(event.data)
    seconds = 0.0 if first is None or last is None else (last - first) / 1000
    return Summary(total, types, topics, len(hats), list(dict.fromkeys(hats)), hats, seconds, ends)


class Moment(msgspec.Struct, frozen=True):
    """One iteration: who acted, what was published, how long it took."""

    iteration: int
    hat: str
    events: list[str]
    duration_ms: int


def tell_timeline(events: Iterable[Event], wanted: Filter) -> list[Moment]:
    """What each iteration brought; one without events is told, too."""
    moments: list[Moment] = []
    current: tuple[int, str, int] | None = None
    heard: list[str] = []
    last = 0
    for event in events:
        if event.event == ITERATION:
            if current is not None:
                moments.append(Moment(*current[:2], heard, event.ts - current[2]))
            number = int(event.data.get("n", len(moments) + 1))
            current = (number, str(event.data.get("hat", "")), event.ts)
            heard = []
        elif event.event == BUS and current is not None and any(wanted.select([event])):
            heard.append(str(event.data.get("topic", "")))
        last = event.ts
        if (
            event.event == TERMINATION
        ):  # what comes later, such as verdicts, took no iteration's time
            break
    if current is not None:
        moments.append(Moment(*current[:2], heard, last - current[2]))
    return moments
