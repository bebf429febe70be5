"""Assertions about the run as a whole."""

from __future__ import annotations

from typing import ClassVar

from offbook.checks.assertion import Assertion, AssertionResult, Range, require
from offbook.checks.collectors import (
    HatHistory,
    OutputMatch,
    PublishedTopics,
    Termination,
    TotalCost,
)
from offbook.checks.context import CheckContext, NoData, Requirement
from offbook.errors import UsageError, did_you_mean
from offbook.trace.events import EXIT_CODES, TERMINATION_ALIASES, canonical_termination
from offbook.trace.text_patterns import compile_pattern

# --- Assertions about the run as a whole.


class ExitCode(Assertion, frozen=True, forbid_unknown_fields=True, tag="exit_code"):
    """The process ended with this code; one that a signal ended has the signal's, negative."""

    expected: int

    def asks(self) -> list[Requirement]:
        return [(Termination, ()), (PublishedTopics, ())]

    def look(self, evidence: CheckContext) -> AssertionResult:
        actual = require(evidence.exit_code, "the trace has no exit code")
        return AssertionResult(actual == self.expected, self.expected, actual)


class TerminationReason(
    Assertion, frozen=True, forbid_unknown_fields=True, tag="termination_reason"
):
    """The loop ended for this reason, in any of its spellings."""

    expected: str

    def asks(self) -> list[Requirement]:
        return [(Termination, ()), (PublishedTopics, ())]

    def look(self, evidence: CheckContext) -> AssertionResult:
        wanted = canonical_termination(self.expected)
        if wanted is None:
            known = {*EXIT_CODES, *TERMINATION_ALIASES}
            raise UsageError(
                f"there is no termination reason {self.expected!r}",
                hint=did_you_mean(self.expected, known),
            )
        actual = require(evidence.reason, "the trace does not tell why the loop ended")
        return AssertionResult(actual == wanted, wanted, actual)


class Iterations(Range, frozen=True, forbid_unknown_fields=True, tag="iterations"):
    """The loop went round this often."""

    def asks(self) -> list[Requirement]:
        return [(HatHistory, ()), (Termination, ()), (PublishedTopics, ())]

    def look(self, evidence: CheckContext) -> AssertionResult:
        return self.compare(require(evidence.iterations, "the trace has no iteration records"))


class Duration(Assertion, frozen=True, forbid_unknown_fields=True, tag="duration"):
    """The run took no longer than this."""

    max_secs: float

    def asks(self) -> list[Requirement]:
        return [(Termination, ())]

    def look(self, evidence: CheckContext) -> AssertionResult:
        actual = require(evidence.seconds, "the trace is too short to tell how long it took")
        return AssertionResult(actual <= self.max_secs, {"max_secs": self.max_secs}, actual)


class CostWithin(Assertion, frozen=True, forbid_unknown_fields=True, tag="cost_within"):
    """The run cost no more than this."""

    max_dollars: float

    def asks(self) -> list[Requirement]:
        return [(TotalCost, ())]

    def look(self, evidence: CheckContext) -> AssertionResult:
        actual = require(evidence.cost, "no cost was recorded")
        return AssertionResult(
            actual <= self.max_dollars, {"max_dollars": self.max_dollars}, actual
        )


# --- Assertions about what the run printed.


class StdoutContains(Assertion, frozen=True, forbid_unknown_fields=True, tag="stdout_contains"):
    """The pattern is found in what was written to standard output."""

    pattern: str
    subject: ClassVar[tuple[str, ...]] = ("pattern",)

    def asks(self) -> list[Requirement]:
        return [(OutputMatch, ("stdout", self.pattern))]

    def look(self, evidence: CheckContext) -> AssertionResult:
        return _search(evidence, "stdout", self.pattern)


class StderrContains(Assertion, frozen=True, forbid_unknown_fields=True, tag="stderr_contains"):
    """The pattern is found in what was written to standard error."""

    pattern: str
    subject: ClassVar[tuple[str, ...]] = ("pattern",)

    def asks(self) -> list[Requirement]:
        return [(OutputMatch, ("stderr", self.pattern))]

    def look(self, evidence: CheckContext) -> AssertionResult:
        return _search(evidence, "stderr", self.pattern)


def _search(evidence: CheckContext, stream: str, source: str) -> AssertionResult:
    compile_pattern(source, f"{stream}_contains.pattern")
    written = evidence.know(OutputMatch, stream, source)
    fits = written.fits
    if not written.tail:
        raise NoData(f"nothing was written to {stream}")
    return AssertionResult(fits, source, written.tail)
