"""Assertions about the run as a whole."""

from __future__ import annotations

from offbook.checks.assertions.assertion import Assertion, Finding, Range, need
from offbook.checks.evidence import Asked, Evidence
from offbook.checks.facts import Cost, Ending, Published, Worn
from offbook.errors import UsageError, nearest
from offbook.trace.terminations import ALIASES, EXIT_CODES, canonical


class ExitCode(Assertion, frozen=True, forbid_unknown_fields=True, tag="exit_code"):
    """The process ended with this code; one that a signal ended has the signal's, negative."""

    expected: int

    def asks(self) -> list[Asked]:
        return [(Ending, ()), (Published, ())]

    def look(self, evidence: Evidence) -> Finding:
        actual = need(evidence.exit_code, "the trace has no exit code")
        return Finding(actual == self.expected, self.expected, actual)


class TerminationReason(
    Assertion, frozen=True, forbid_unknown_fields=True, tag="termination_reason"
):
    """The loop ended for this reason, in any of its spellings."""

    expected: str

    def asks(self) -> list[Asked]:
        return [(Ending, ()), (Published, ())]

    def look(self, evidence: Evidence) -> Finding:
        wanted = canonical(self.expected)
        if wanted is None:
            known = {*EXIT_CODES, *ALIASES}
            raise UsageError(
                f"there is no termination reason {self.expected!r}",
                hint=nearest(self.expected, known),
            )
        actual = need(evidence.reason, "the trace does not tell why the loop ended")
        return Finding(actual == wanted, wanted, actual)


class Iterations(Range, frozen=True, forbid_unknown_fields=True, tag="iterations"):
    """The loop went round this often."""

    def asks(self) -> list[Asked]:
        return [(Worn, ()), (Ending, ()), (Published, ())]

    def look(self, evidence: Evidence) -> Finding:
        return self.compare(need(evidence.iterations, "the trace has no iteration records"))


class Duration(Assertion, frozen=True, forbid_unknown_fields=True, tag="duration"):
    """The run took no longer than this."""

    max_secs: float

    def asks(self) -> list[Asked]:
        return [(Ending, ())]

    def look(self, evidence: Evidence) -> Finding:
        actual = need(evidence.seconds, "the trace is too short to tell how long it took")
        return Finding(actual <= self.max_secs, {"max_secs": self.max_secs}, actual)


class CostWithin(Assertion, frozen=True, forbid_unknown_fields=True, tag="cost_within"):
    """The run cost no more than this."""

    max_dollars: float

    def asks(self) -> list[Asked]:
        return [(Cost, ())]

    def look(self, evidence: Evidence) -> Finding:
        actual = need(evidence.cost, "no cost was recorded")
        return Finding(actual <= self.max_dollars, {"max_dollars": self.max_dollars}, actual)
