"""The summary of a run: the counts, the gate, and the statistics of its trials."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from offbook.checks.trial_statistics import Interval, pass_at_k, pass_hat_k, wilson
from offbook.evals.case_results import CaseResult

MAX_LISTED = 1000  # cases that a summary names; all of them are in the results


class CaseSummary(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One case over all its trials.

    `pass_at_k` is the chance that one of `trials` passes, `pass_hat_k` that all of them do.
    """

    id: str
    label: str
    severity: str
    status: str
    trials: int = 1
    passes: int = 0
    errors: int = 0
    pass_rate: float = 0
    interval: Interval = Interval(0, 1)
    pass_at_k: float = 0
    pass_hat_k: float = 0
    flaky: bool = False
    gated: bool = False
    failures: tuple[str, ...] = ()
    pack: int = 0


class RunSummary(msgspec.Struct, frozen=True):
    """The counts of a run. It passes if cases were run and no blocking one failed."""

    id: str
    packs: list[str]
    passed_gate: bool = msgspec.field(name="pass", default=False)
    total: int = 0
    passed: int = 0
    failed: int = 0
    blocking_failed: int = 0
    warning_failed: int = 0
    informational_failed: int = 0
    no_data: int = 0
    errors: int = 0
    not_run: int = 0
    flaky: int = 0
    trials: int = 0
    cost_usd: float = 0
    tokens: int = 0
    seconds: float = 0
    pass_rate: float = 0
    interval: Interval = Interval(0, 1)
    stopped: str = ""
    failing: tuple[CaseSummary, ...] = ()


class _Tally:
    """The trials of one case so far: small, because a run may have 100,000 cases."""

    __slots__ = (
        "errors", "failures", "id", "label", "number", "pack", "passes", "severity",
        "statuses", "trials",
    )  # fmt: skip

    def __init__(self, result: CaseResult, pack: int) -> None:
        self.id, self.label = result.id, result.label
        self.severity, self.number, self.pack = result.severity, result.number, pack
        self.trials = self.passes = self.errors = 0
        self.statuses: set[str] = set()
        self.failures: tuple[str, ...] = ()

    def add(self, result: CaseResult) -> None:
        self.trials += 1
        self.passes += result.status == "pass"
        self.errors += result.status == "error"
        self.statuses.add(result.status)
        if not self.failures:
            self.failures = tuple(result.problems)

    @property
    def status(self) -> str:
        # A blocking case passes only if all its trials do.
        for status in ("error", "fail", "no_data", "not_run"):
            if status in self.statuses:
                return status
        return "pass"


def summarize_cases(results: Iterable[CaseResult]) -> list[CaseSummary]:
    """Return the cases in the order of the plan, each over all its trials."""
    tallies: dict[tuple[int, str], _Tally] = {}
    for result in results:
        pack = result.number >> PACK_SHIFT
        tally = tallies.get((pack, result.id))
        if tally is None:
            tally = tallies[pack, result.id] = _Tally(result, pack)
        tally.add(result)
    ordered = sorted(tallies.values(), key=lambda tally: tally.number)
    return [_summary(tally) for tally in ordered]


PACK_SHIFT = 32  # the number of a result is that of its pack and that of its case


def _summary(tally: _Tally) -> CaseSummary:
    trials, passes, status = tally.trials, tally.passes, tally.status
    return CaseSummary(
        tally.id,
        tally.label,
        tally.severity,
        status,
        trials,
        passes,
        tally.errors,
        passes / trials,
        wilson(passes, trials),
        pass_at_k(trials, passes, trials),
        pass_hat_k(trials, passes, trials),
        0 < passes < trials,
        status != "pass" and tally.severity != "blocking",
        tally.failures,
        tally.pack,
    )


def summarize_run(
    run_id: str,
    packs: list[str],
    cases: list[CaseSummary],
    *,
    cost: float = 0,
    tokens: int = 0,
    seconds: float = 0,
    not_run: int = 0,
    stopped: str = "",
) -> RunSummary:
    """Return the summary of a run. Cases that were not run fail the gate: nothing is known."""
    failing = [case for case in cases if case.status != "pass"]
    blocking = sum(case.severity == "blocking" for case in failing)
    passed = len(cases) - len(failing)
    return RunSummary(
        run_id,
        packs,
        bool(cases) and not blocking and not not_run and not stopped,
        len(cases) + not_run,
        passed,
        len(failing),
        blocking,
        sum(case.severity == "warning" for case in failing),
        sum(case.severity == "informational" for case in failing),
        sum(case.status == "no_data" for case in cases),
        sum(case.status == "error" for case in cases),
        not_run,
        sum(case.flaky for case in cases),
        sum(case.trials for case in cases),
        round(cost, 6),
        tokens,
        round(seconds, 3),
        passed / len(cases) if cases else 0,
        wilson(passed, len(cases)),
        stopped,
        tuple(failing[:MAX_LISTED]),
    )
