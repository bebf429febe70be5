"""Assertions about what was published on the event bus."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import ClassVar

from offbook.checks.alignment import AlignedRow, align, align_names
from offbook.checks.assertion import Assertion, AssertionResult, Range, require_items
from offbook.checks.collectors import HatHistory, PublishedTopics, TopicMatch
from offbook.checks.context import CheckContext, NoData, Requirement
from offbook.errors import did_you_mean
from offbook.trace.agent_output import payload_text
from offbook.trace.events import topic_matches
from offbook.trace.text_patterns import compile_pattern

# --- Assertions about what was published on the event bus.

MAX_TOPICS = 200


class EventOccurred(Assertion, frozen=True, forbid_unknown_fields=True, tag="event_occurred"):
    """An event of this topic was published, with a payload like this."""

    topic: str
    payload_pattern: str | None = None
    subject: ClassVar[tuple[str, ...]] = ("topic", "payload_pattern")

    def asks(self) -> list[Requirement]:
        return [(PublishedTopics, ()), (TopicMatch, (self.topic, self.payload_pattern))]

    def look(self, evidence: CheckContext) -> AssertionResult:
        wanted = self.payload_pattern
        if wanted:
            compile_pattern(wanted, "event_occurred.payload_pattern")
        topics = _published(evidence)
        found = evidence.know(TopicMatch, self.topic, wanted)
        if not found.count:
            missing = f"{self.topic!r} was never published; {did_you_mean(self.topic, set(topics))}"
            return AssertionResult(holds=False, expected=self.topic, message=missing)
        if wanted is None:
            return AssertionResult(holds=True, expected=self.topic, actual=found.count)
        payloads = [payload_text(data.get("payload")) for data in found.shown]
        return AssertionResult(found.fits, wanted, payloads, context={"topic": self.topic})


class EventSequence(Assertion, frozen=True, forbid_unknown_fields=True, tag="event_sequence"):
    """These topics were published in this order; others may stand between them."""

    topics: list[str]
    subject: ClassVar[tuple[str, ...]] = ("topics",)

    def asks(self) -> list[Requirement]:
        return [(PublishedTopics, ())]

    def look(self, evidence: CheckContext) -> AssertionResult:
        wanted = require_items(self.topics, "event_sequence.topics")
        topics = _published(evidence)
        shown = topics if len(topics) <= MAX_TOPICS else [*topics[:MAX_TOPICS], "…"]
        actual = enumerate(topics)
        pairs: list[tuple[int, int]] = []
        for at, topic in enumerate(wanted):
            found = next((place for place, one in actual if topic_matches(topic, one)), None)
            if found is None:
                after = f" after {wanted[at - 1]!r}" if at else ""
                message = f"{topic!r} did not come{after}"
                rows = _compare(wanted, topics, pairs)
                return AssertionResult(False, wanted, shown, message, rows=rows)
            pairs.append((found, at))
        return AssertionResult(holds=True, expected=wanted, actual=shown)


class EventCount(Range, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="event_count"):
    """So many events of this topic were published."""

    topic: str
    subject: ClassVar[tuple[str, ...]] = ("topic",)

    def asks(self) -> list[Requirement]:
        return [(PublishedTopics, ())]

    def look(self, evidence: CheckContext) -> AssertionResult:
        published = Counter(_published(evidence))
        count = sum(n for topic, n in published.items() if topic_matches(self.topic, topic))
        return self.compare(count, {"topic": self.topic, "published": dict(published)})


class NoEvent(Assertion, frozen=True, forbid_unknown_fields=True, tag="no_event"):
    """No event of this topic was published, though others were."""

    topic: str
    subject: ClassVar[tuple[str, ...]] = ("topic",)

    def asks(self) -> list[Requirement]:
        return [(PublishedTopics, ()), (TopicMatch, (self.topic,))]

    def look(self, evidence: CheckContext) -> AssertionResult:
        _published(evidence)
        found = evidence.know(TopicMatch, self.topic)
        return AssertionResult(not found.count, f"no {self.topic}", found.shown)


def _compare(
    wanted: list[str], topics: list[str], pairs: list[tuple[int, int]]
) -> list[AlignedRow]:
    """What should have come beside what came; others are free to come between."""
    upto = (pairs[-1][0] if pairs else 0) + MAX_TOPICS
    rows = align_names(wanted, topics[:upto], pairs)
    return [row if row.expected else row._replace(fits=True) for row in rows]


def _published(evidence: CheckContext) -> list[str]:
    topics = evidence.know(PublishedTopics).topics
    if not topics:
        raise NoData("nothing was published on the bus")
    return topics


# --- Assertions about which hat was worn when.

MAX_HATS = 200


class HatSequence(Assertion, frozen=True, forbid_unknown_fields=True, tag="hat_sequence"):
    """Exactly these hats were worn, in this order."""

    hats: list[str]
    subject: ClassVar[tuple[str, ...]] = ("hats",)

    def asks(self) -> list[Requirement]:
        return [(HatHistory, ())]

    def look(self, evidence: CheckContext) -> AssertionResult:
        wanted = require_items(self.hats, "hat_sequence.hats")
        worn = _worn(evidence)
        shown = worn[: len(wanted) + MAX_HATS]
        pairs = align(len(shown), len(wanted), lambda a, w: shown[a] == wanted[w])
        rows = () if worn == wanted else align_names(wanted, shown, pairs)
        return AssertionResult(worn == wanted, wanted, worn, "the hats differ", rows=rows)


class HatTransition(
    Assertion,
    frozen=True,
    forbid_unknown_fields=True,
    tag="hat_transition",
    rename={"source": "from"},
):
    """One hat was taken off and the other put on right after."""

    source: str
    to: str
    subject: ClassVar[tuple[str, ...]] = ("source", "to")

    def asks(self) -> list[Requirement]:
        return [(HatHistory, ())]

    def look(self, evidence: CheckContext) -> AssertionResult:
        seen = [f"{a} -> {b}" for a, b in pairwise(_worn(evidence)) if a != b]
        wanted = f"{self.source} -> {self.to}"
        context = {"transitions": list(dict.fromkeys(seen))}
        return AssertionResult(wanted in seen, wanted, seen, context=context)


class IterationCount(
    Range, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="iteration_count"
):
    """A hat was worn so many times."""

    hat: str
    subject: ClassVar[tuple[str, ...]] = ("hat",)

    def asks(self) -> list[Requirement]:
        return [(HatHistory, ())]

    def look(self, evidence: CheckContext) -> AssertionResult:
        worn = _worn(evidence)
        return self.compare(worn.count(self.hat), {"hats": dict(Counter(worn))})


def _worn(evidence: CheckContext) -> list[str]:
    if not evidence.hats:
        raise NoData("the trace has no iteration records")
    return evidence.hats
