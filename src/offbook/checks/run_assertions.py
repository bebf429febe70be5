"""Assertions about a run as a whole: exit code, duration, cost and output."""

from __future__ import annotations

from typing import ClassVar

from offbook.checks.assertion import Assertion, AssertionResult, require
from offbook.checks.collectors import OutputMatch, PublishedTopics, Termination, TotalCost
from offbook.checks.context import CheckContext, NoData, Requirement


class ExitCode(Assertion, frozen=True, tag="exit_code"):
    """The process exited with this code; after a signal, the code is the negated signal number."""

    expected: int

    def requires(self) -> list[Requirement]:
        return [(Termination, ()), (PublishedTopics, ())]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        actual = require(context.exit_code, "the trace has no exit code")
        return AssertionResult(actual == self.expected, self.expected, actual)


class Duration(Assertion, frozen=True, tag="duration"):
    """The run took at most this long."""

    max_secs: float

    def requires(self) -> list[Requirement]:
        return [(Termination, ())]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        actual = require(context.seconds, "the trace has fewer than two events, so no duration")
        return AssertionResult(actual <= self.max_secs, {"max_secs": self.max_secs}, actual)


class CostWithin(Assertion, frozen=True, tag="cost_within"):
    """The run cost at most this much."""

    max_dollars: float

    def requires(self) -> list[Requirement]:
        return [(TotalCost, ())]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        actual = require(context.cost, "no cost was recorded")
        return AssertionResult(
            actual <= self.max_dollars, {"max_dollars": self.max_dollars}, actual
        )


class StdoutContains(Assertion, frozen=True, tag="stdout_contains"):
    """The pattern matches the standard output."""

    pattern: str
    title_fields: ClassVar[tuple[str, ...]] = ("pattern",)

    def requires(self) -> list[Requirement]:
        return [(OutputMatch, ("stdout", self.pattern))]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        return _search_output(context, "stdout", self.pattern)


class StderrContains(Assertion, frozen=True, tag="stderr_contains"):
    """The pattern matches the standard error."""

    pattern: str
    title_fields: ClassVar[tuple[str, ...]] = ("pattern",)

    def requires(self) -> list[Requirement]:
        return [(OutputMatch, ("stderr", self.pattern))]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        return _search_output(context, "stderr", self.pattern)


def _search_output(context: CheckContext, stream: str, pattern: str) -> AssertionResult:
    output = context.get(OutputMatch, stream, pattern)
    matched = output.matched  # an error for an invalid pattern, also without output
    if not output.tail:
        raise NoData(f"nothing was written to {stream}")
    if output.truncated and not matched:
        raise NoData("the output was too large to be kept: the pattern may match the rest of it")
    return AssertionResult(matched, pattern, output.tail)
