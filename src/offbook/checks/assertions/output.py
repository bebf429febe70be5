"""Assertions about what the run printed."""

from __future__ import annotations

from typing import ClassVar

from offbook.checks.assertions.assertion import Assertion, Finding
from offbook.checks.evidence import Asked, Evidence, NoData
from offbook.checks.facts import Written
from offbook.trace.patterns import compile_pattern


class StdoutContains(Assertion, frozen=True, forbid_unknown_fields=True, tag="stdout_contains"):
    """The pattern is found in what was written to standard output."""

    pattern: str
    subject: ClassVar[tuple[str, ...]] = ("pattern",)

    def asks(self) -> list[Asked]:
        return [(Written, ("stdout", self.pattern))]

    def look(self, evidence: Evidence) -> Finding:
        return _search(evidence, "stdout", self.pattern)


class StderrContains(Assertion, frozen=True, forbid_unknown_fields=True, tag="stderr_contains"):
    """The pattern is found in what was written to standard error."""

    pattern: str
    subject: ClassVar[tuple[str, ...]] = ("pattern",)

    def asks(self) -> list[Asked]:
        return [(Written, ("stderr", self.pattern))]

    def look(self, evidence: Evidence) -> Finding:
        return _search(evidence, "stderr", self.pattern)


def _search(evidence: Evidence, stream: str, source: str) -> Finding:
    compile_pattern(source, f"{stream}_contains.pattern")
    written = evidence.know(Written, stream, source)
    fits = written.fits
    if not written.tail:
        raise NoData(f"nothing was written to {stream}")
    return Finding(fits, source, written.tail)
