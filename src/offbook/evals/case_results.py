"""The result of one trial of a case: its verdicts, metrics and the gate."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from offbook.evals.replay_checks import BaselineDiff
from offbook.evals.rubrics import RunMetrics
from offbook.trace.events import Verdict

ResultStatus = Literal["pass", "fail", "no_data", "error", "not_run"]


# `id` is the first field: a case is found in a results file by its beginning. All fields are
# written, so that queries find each column.
class CaseResult(msgspec.Struct, frozen=True):
    """The result of one trial of a case.

    `status` is what was found, whatever the severity: a failure of a `warning` case stays visible.
    """

    id: str
    trial: int = msgspec.field(default=1)
    number: int = 0
    label: str = ""
    status: ResultStatus = "pass"
    severity: str = "blocking"
    verdicts: tuple[Verdict, ...] = ()
    error: str = ""
    run_id: str = ""
    workflow_id: str = ""
    source: str = ""
    stage_count: int = 0
    metrics: RunMetrics = RunMetrics()
    comparison: BaselineDiff | None = None
    ladder: dict[str, Any] | None = None
    fingerprint: str = ""
    millis: float = 0
    cached: bool = False
    spent_usd: float = 0  # by this run; the cost of a stored run was spent earlier
    trace: str = ""
    output: str = ""

    @property
    def gated(self) -> bool:
        """True if the case did not pass and its severity keeps that from failing the run."""
        return self.status != "pass" and self.severity != "blocking"

    @property
    def blocks(self) -> bool:
        """True if the case fails the run."""
        return self.status != "pass" and self.severity == "blocking"

    @property
    def problems(self) -> list[str]:
        """The messages of all checks that do not hold, and the error."""
        found = [
            verdict.message or f"{verdict.check} did not hold"
            for verdict in self.verdicts
            if not verdict.holds
        ]
        return [*found, self.error] if self.error else found

    @property
    def warnings(self) -> list[str]:
        """The messages of checks that passed with a warning."""
        return [verdict.message for verdict in self.verdicts if verdict.status == "warn"]


def status_of(verdicts: tuple[Verdict, ...]) -> ResultStatus:
    """Return the status of a case from its verdicts: an error, a failure, no data, or a pass."""
    statuses = {verdict.status for verdict in verdicts}
    for status in ("error", "fail", "no_data"):
        if status in statuses:
            return status
    # A case that has only warnings, such as a judge that was not run, has checked nothing.
    return "pass" if "pass" in statuses else "no_data"
