"""Assertions about what was published on the event bus."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from offbook.checks.assertions.assertion import Assertion, Finding, Range, listed
from offbook.checks.check import Evidence, NoData
from offbook.errors import nearest
from offbook.trace.patterns import compile_pattern
from offbook.trace.topics import matches


class EventOccurred(Assertion, frozen=True, forbid_unknown_fields=True, tag="event_occurred"):
    """An event of this topic was published, with a payload like this."""

    topic: str
    payload_pattern: str | None = None
    subject: ClassVar[tuple[str, ...]] = ("topic", "payload_pattern")

    def look(self, evidence: Evidence) -> Finding:
        wanted = self.payload_pattern
        pattern = compile_pattern(wanted, "event_occurred.payload_pattern") if wanted else None
        payloads = [
            payload_text(event.data.get("payload"))
            for event in _published(evidence)
            if matches(self.topic, event.data["topic"])
        ]
        if not payloads:
            return Finding(holds=False, expected=self.topic, message=_missing(self.topic, evidence))
        if pattern is None:
            return Finding(holds=True, expected=self.topic, actual=len(payloads))
        holds = any(pattern.search(payload) is not None for payload in payloads)
        return Finding(holds, wanted, payloads[:5], context={"topic": self.topic})


class EventSequence(Assertion, frozen=True, forbid_unknown_fields=True, tag="event_sequence"):
    """These topics were published in this order; others may stand between them."""

    topics: list[str]
    subject: ClassVar[tuple[str, ...]] = ("topics",)

    def look(self, evidence: Evidence) -> Finding:
        wanted = listed(self.topics, "event_sequence.topics")
        _published(evidence)
        actual = iter(evidence.topics)
        for at, topic in enumerate(wanted):
            if not any(matches(topic, found) for found in actual):
                after = f" after {wanted[at - 1]!r}" if at else ""
                message = f"{topic!r} did not come{after}"
                return Finding(
                    holds=False, expected=wanted, actual=evidence.topics, message=message
                )
        return Finding(holds=True, expected=wanted, actual=evidence.topics)


class EventCount(Range, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="event_count"):
    """So many events of this topic were published."""

    topic: str
    subject: ClassVar[tuple[str, ...]] = ("topic",)

    def look(self, evidence: Evidence) -> Finding:
        _published(evidence)
        count = sum(matches(self.topic, topic) for topic in evidence.topics)
        return self.compare(count, {"topic": self.topic, "published": tally(evidence.topics)})


class NoEvent(Assertion, frozen=True, forbid_unknown_fields=True, tag="no_event"):
    """No event of this topic was published, though others were."""

    topic: str
    subject: ClassVar[tuple[str, ...]] = ("topic",)

    def look(self, evidence: Evidence) -> Finding:
        found = [e.data for e in _published(evidence) if matches(self.topic, e.data["topic"])]
        return Finding(not found, f"no {self.topic}", found[:5])


def _published(evidence: Evidence) -> list[Any]:
    if not evidence.published:
        raise NoData("nothing was published on the bus")
    return evidence.published


def _missing(topic: str, evidence: Evidence) -> str:
    return f"{topic!r} was never published; {nearest(topic, evidence.topics)}"


def payload_text(payload: Any) -> str:
    """A payload as text: as it is, or as JSON."""
    return payload if isinstance(payload, str) else msgspec.json.encode(payload).decode()


def tally(names: list[str]) -> dict[str, int]:
    """How often each name is there."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts
