"""Assertions about what was published on the event bus."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from offbook.checks.alignment import Row, compare_names
from offbook.checks.assertions.assertion import Assertion, Finding, Range, listed
from offbook.checks.evidence import Asked, Evidence, NoData
from offbook.checks.facts import Matching, Published
from offbook.errors import nearest
from offbook.trace.outputs import payload_text
from offbook.trace.patterns import compile_pattern
from offbook.trace.topics import matches

LONGEST = 200


class EventOccurred(Assertion, frozen=True, forbid_unknown_fields=True, tag="event_occurred"):
    """An event of this topic was published, with a payload like this."""

    topic: str
    payload_pattern: str | None = None
    subject: ClassVar[tuple[str, ...]] = ("topic", "payload_pattern")

    def asks(self) -> list[Asked]:
        return [(Published, ()), (Matching, (self.topic, self.payload_pattern))]

    def look(self, evidence: Evidence) -> Finding:
        wanted = self.payload_pattern
        if wanted:
            compile_pattern(wanted, "event_occurred.payload_pattern")
        topics = _published(evidence)
        found = evidence.know(Matching, self.topic, wanted)
        if not found.count:
            missing = f"{self.topic!r} was never published; {nearest(self.topic, set(topics))}"
            return Finding(holds=False, expected=self.topic, message=missing)
        if wanted is None:
            return Finding(holds=True, expected=self.topic, actual=found.count)
        payloads = [payload_text(data.get("payload")) for data in found.shown]
        return Finding(found.fits, wanted, payloads, context={"topic": self.topic})


class EventSequence(Assertion, frozen=True, forbid_unknown_fields=True, tag="event_sequence"):
    """These topics were published in this order; others may stand between them."""

    topics: list[str]
    subject: ClassVar[tuple[str, ...]] = ("topics",)

    def asks(self) -> list[Asked]:
        return [(Published, ())]

    def look(self, evidence: Evidence) -> Finding:
        wanted = listed(self.topics, "event_sequence.topics")
        topics = _published(evidence)
        shown = topics if len(topics) <= LONGEST else [*topics[:LONGEST], "…"]
        actual = enumerate(topics)
        pairs: list[tuple[int, int]] = []
        for at, topic in enumerate(wanted):
            found = next((place for place, one in actual if matches(topic, one)), None)
            if found is None:
                after = f" after {wanted[at - 1]!r}" if at else ""
                message = f"{topic!r} did not come{after}"
                rows = _compare(wanted, topics, pairs)
                return Finding(False, wanted, shown, message, rows=rows)
            pairs.append((found, at))
        return Finding(holds=True, expected=wanted, actual=shown)


class EventCount(Range, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="event_count"):
    """So many events of this topic were published."""

    topic: str
    subject: ClassVar[tuple[str, ...]] = ("topic",)

    def asks(self) -> list[Asked]:
        return [(Published, ())]

    def look(self, evidence: Evidence) -> Finding:
        published = Counter(_published(evidence))
        count = sum(n for topic, n in published.items() if matches(self.topic, topic))
        return self.compare(count, {"topic": self.topic, "published": dict(published)})


class NoEvent(Assertion, frozen=True, forbid_unknown_fields=True, tag="no_event"):
    """No event of this topic was published, though others were."""

    topic: str
    subject: ClassVar[tuple[str, ...]] = ("topic",)

    def asks(self) -> list[Asked]:
        return [(Published, ()), (Matching, (self.topic,))]

    def look(self, evidence: Evidence) -> Finding:
        _published(evidence)
        found = evidence.know(Matching, self.topic)
        return Finding(not found.count, f"no {self.topic}", found.shown)


def _compare(wanted: list[str], topics: list[str], pairs: list[tuple[int, int]]) -> list[Row]:
    """What should have come beside what came; others are free to come between."""
    upto = (pairs[-1][0] if pairs else 0) + LONGEST
    rows = compare_names(wanted, topics[:upto], pairs)
    return [row if row.expected else row._replace(fits=True) for row in rows]


def _published(evidence: Evidence) -> list[str]:
    topics = evidence.know(Published).topics
    if not topics:
        raise NoData("nothing was published on the bus")
    return topics
