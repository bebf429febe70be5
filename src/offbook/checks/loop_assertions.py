"""Assertions about a loop of hats: its end, its iterations, its hats and the published events."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import ClassVar

from offbook.checks.assertion import (
    Assertion,
    AssertionResult,
    CountAssertion,
    require,
    require_items,
)
from offbook.checks.collectors import HatHistory, PublishedTopics, Termination, TopicMatch
from offbook.checks.context import CheckContext, NoData, Requirement
from offbook.errors import UsageError, did_you_mean
from offbook.trace.agent_output import payload_text
from offbook.trace.events import (
    EXIT_CODES,
    TERMINATION_ALIASES,
    canonical_termination,
    topic_matches,
)
from offbook.trace.text_patterns import compile_pattern

# Topics and hats shown of a long loop.
MAX_SHOWN = 200


class TerminationReason(Assertion, frozen=True, tag="termination_reason"):
    """The loop ended for this reason, in any of its spellings."""

    expected: str

    def requires(self) -> list[Requirement]:
        return [(Termination, ()), (PublishedTopics, ())]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        expected = canonical_termination(self.expected)
        if expected is None:
            raise UsageError(
                f"unknown termination reason {self.expected!r}",
                hint=did_you_mean(self.expected, {*EXIT_CODES, *TERMINATION_ALIASES}),
            )
        actual = require(context.reason, "the trace has no termination reason")
        return AssertionResult(actual == expected, expected, actual)


class Iterations(CountAssertion, frozen=True, tag="iterations"):
    """The loop had this number of iterations."""

    def requires(self) -> list[Requirement]:
        return [(HatHistory, ()), (Termination, ()), (PublishedTopics, ())]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        return self.compare(require(context.iterations, "the trace has no iteration records"))


class EventOccurred(Assertion, frozen=True, tag="event_occurred"):
    """An event of this topic was published, with a payload that matches the pattern."""

    topic: str
    payload_pattern: str | None = None
    title_fields: ClassVar[tuple[str, ...]] = ("topic", "payload_pattern")

    def requires(self) -> list[Requirement]:
        return [(PublishedTopics, ()), (TopicMatch, (self.topic, self.payload_pattern))]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        pattern = self.payload_pattern
        # An invalid pattern is an error of the check, also when no event was published.
        if pattern:
            compile_pattern(pattern, "event_occurred.payload_pattern")
        topics = _published_topics(context)
        match = context.get(TopicMatch, self.topic, pattern)
        if not match.count:
            message = f"{self.topic!r} was never published; {did_you_mean(self.topic, set(topics))}"
            return AssertionResult(ok=False, expected=self.topic, message=message)
        if pattern is None:
            return AssertionResult(ok=True, expected=self.topic, actual=match.count)
        payloads = [payload_text(data.get("payload")) for data in match.samples]
        return AssertionResult(match.matched, pattern, payloads, context={"topic": self.topic})


class EventSequence(Assertion, frozen=True, tag="event_sequence"):
    """These topics were published in this order, possibly with others in between."""

    topics: list[str]
    title_fields: ClassVar[tuple[str, ...]] = ("topics",)

    def requires(self) -> list[Requirement]:
        return [(PublishedTopics, ())]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        expected = require_items(self.topics, "event_sequence.topics")
        topics = _published_topics(context)
        shown = topics if len(topics) <= MAX_SHOWN else [*topics[:MAX_SHOWN], "…"]
        # Taking the first match of each topic is optimal for a subsequence, and linear.
        published = enumerate(topics)
        pairs: list[tuple[int, int]] = []
        for number, pattern in enumerate(expected):
            match = next((at for at, topic in published if topic_matches(pattern, topic)), None)
            if match is None:
                from offbook.checks.alignment import align_names  # for failures only

                after = f" after {expected[number - 1]!r}" if number else ""
                message = f"{pattern!r} was not published{after}"
                limit = (pairs[-1][0] if pairs else 0) + MAX_SHOWN
                rows = align_names(expected, topics[:limit], pairs)
                rows = [row if row.expected else row._replace(ok=True) for row in rows]
                return AssertionResult(False, expected, shown, message, rows=rows)
            pairs.append((match, number))
        return AssertionResult(ok=True, expected=expected, actual=shown)


class EventCount(CountAssertion, frozen=True, kw_only=True, tag="event_count"):
    """This number of events of this topic was published."""

    topic: str
    title_fields: ClassVar[tuple[str, ...]] = ("topic",)

    def requires(self) -> list[Requirement]:
        return [(PublishedTopics, ())]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        # Counted before matching: a glob is matched once per topic, not once per event.
        published = Counter(_published_topics(context))
        count = sum(n for topic, n in published.items() if topic_matches(self.topic, topic))
        return self.compare(count, {"topic": self.topic, "published": dict(published)})


class NoEvent(Assertion, frozen=True, tag="no_event"):
    """No event of this topic was published, while other events were."""

    topic: str
    title_fields: ClassVar[tuple[str, ...]] = ("topic",)

    def requires(self) -> list[Requirement]:
        return [(PublishedTopics, ()), (TopicMatch, (self.topic,))]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        # Without any event the bus was not recorded, and the absence of one means nothing.
        _published_topics(context)
        match = context.get(TopicMatch, self.topic)
        return AssertionResult(not match.count, f"no {self.topic}", match.samples)


class HatSequence(Assertion, frozen=True, tag="hat_sequence"):
    """The iterations had exactly these hats, in this order."""

    hats: list[str]
    title_fields: ClassVar[tuple[str, ...]] = ("hats",)

    def requires(self) -> list[Requirement]:
        return [(HatHistory, ())]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        expected = require_items(self.hats, "hat_sequence.hats")
        hats = _hat_history(context)
        if hats == expected:
            return AssertionResult(True, expected, hats)
        from offbook.checks.alignment import align_in_order, align_names  # for failures only

        # The alignment takes time and memory of actual x expected.
        shown = hats[: len(expected) + MAX_SHOWN]
        pairs = align_in_order(len(shown), len(expected), lambda a, e: shown[a] == expected[e])
        rows = align_names(expected, shown, pairs)
        return AssertionResult(False, expected, hats, "the hats differ", rows=rows)


class HatTransition(Assertion, frozen=True, tag="hat_transition", rename={"source": "from"}):
    """An iteration of one hat was followed directly by an iteration of the other."""

    source: str
    to: str
    title_fields: ClassVar[tuple[str, ...]] = ("source", "to")

    def requires(self) -> list[Requirement]:
        return [(HatHistory, ())]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        # Two iterations with the same hat are not a transition.
        transitions = [f"{a} -> {b}" for a, b in pairwise(_hat_history(context)) if a != b]
        expected = f"{self.source} -> {self.to}"
        distinct = {"transitions": list(dict.fromkeys(transitions))}
        return AssertionResult(expected in transitions, expected, transitions, context=distinct)


class IterationCount(CountAssertion, frozen=True, kw_only=True, tag="iteration_count"):
    """This number of iterations had this hat."""

    hat: str
    title_fields: ClassVar[tuple[str, ...]] = ("hat",)

    def requires(self) -> list[Requirement]:
        return [(HatHistory, ())]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        hats = _hat_history(context)
        return self.compare(hats.count(self.hat), {"hats": dict(Counter(hats))})


def _published_topics(context: CheckContext) -> list[str]:
    if not context.topics:
        raise NoData("no event was published")
    return context.topics


def _hat_history(context: CheckContext) -> list[str]:
    if not context.hats:
        raise NoData("the trace has no iteration records")
    return context.hats
