"""Compares two runs of the same cases: which differences are significant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from statistics import fmean

import msgspec

from offbook.checks.trial_statistics import PairedDifference, compare_paired
from offbook.errors import UsageError, counted
from offbook.evals.run_directory import CaseResult, read_results
from offbook.runs.result_identity import REAL_MODEL
from offbook.trace.matching import AlignedRow, align, render_rows

METRICS = ("pass_rate", "latency_ms", "cost_usd", "tokens", "score")
PLOT_WIDTH = 40


class ComparedCase(msgspec.Struct, frozen=True):
    """A case whose pass rate differs; None in a run that does not have it.

    `same` is true if its identity is known and did not change: then neither the agent nor its
    inputs are the cause, and the case is flaky.
    """

    id: str
    before: float | None
    after: float | None
    same: bool = False

    @property
    def regressed(self) -> bool:
        """True if fewer trials passed, or if the second run does not have the case."""
        return self.before is not None and self.before > (self.after or 0)


class RunComparison(msgspec.Struct, frozen=True):
    """The differences between two runs: of metrics over the cases that both have, and of cases."""

    cases: int
    metrics: dict[str, PairedDifference]
    changed: list[ComparedCase]

    @property
    def fell(self) -> bool:
        """True if the pass rate fell significantly."""
        rate = self.metrics["pass_rate"]
        return rate.significant and rate.mean < 0

    @property
    def regressed(self) -> bool:
        """True if a single case regressed."""
        return any(case.regressed for case in self.changed)


class _Case:
    """The trials of one case in a run."""

    def __init__(self, result: CaseResult) -> None:
        # Of several packs, two may have a case of the same name.
        self.id = f"{result.pack}/{result.id}" if result.pack else result.id
        self.identities: set[str] = set()
        self._values: dict[str, list[float]] = {}

    def add(self, result: CaseResult) -> None:
        self.identities.add("" if result.unidentified else result.identity)
        self._values.setdefault("pass_rate", []).append(float(result.status == "pass"))
        for metric in METRICS[1:]:
            value = getattr(result.metrics, metric)
            # The time of a scripted run is that of the machine.
            scripted = result.kind == "subject" and result.unidentified != REAL_MODEL
            if value is not None and not (metric == "latency_ms" and scripted):
                self._values.setdefault(metric, []).append(float(value))

    def mean(self, metric: str) -> float | None:
        return fmean(self._values[metric]) if metric in self._values else None


def compare_runs(before: Path, after: Path) -> RunComparison:
    """Compare two runs; the pairs are the cases with the same id in the same pack."""
    first, second = _read_cases(before), _read_cases(after)
    aligned = [
        (None if a is None else first[a], None if b is None else second[b])
        for a, b in align(first, second, _id_of, _id_of)
    ]
    common = [(a, b) for a, b in aligned if a is not None and b is not None]
    if not common:
        raise UsageError("the runs have no case in common", where=f"{before}, {after}")
    metrics: dict[str, PairedDifference] = {}
    for metric in METRICS:
        pairs = [(a.mean(metric), b.mean(metric)) for a, b in common]
        known = [(one, two) for one, two in pairs if one is not None and two is not None]
        if known:
            metrics[metric] = compare_paired([one for one, _ in known], [two for _, two in known])
    return RunComparison(len(common), metrics, [*_changes(aligned)])


_id_of: Callable[[_Case], str] = attrgetter("id")


def _read_cases(folder: Path) -> list[_Case]:
    cases: dict[tuple[str, str], _Case] = {}
    for result in read_results(folder):
        key = result.pack, result.id
        if key not in cases:
            cases[key] = _Case(result)
        cases[key].add(result)
    return sorted(cases.values(), key=_id_of)


def _changes(aligned: list[tuple[_Case | None, _Case | None]]) -> Iterator[ComparedCase]:
    for a, b in aligned:
        before = None if a is None else a.mean("pass_rate")
        after = None if b is None else b.mean("pass_rate")
        if before != after:
            same = a is not None and b is not None and a.identities == b.identities != {""}
            name = a.id if a is not None else b.id if b is not None else ""
            yield ComparedCase(name, before, after, same)


def render_comparison(comparison: RunComparison) -> Iterator[str]:
    """Yield a table of the metrics, a plot of their intervals, and one of the cases that differ."""
    yield f"{counted(comparison.cases, 'case')} in both runs"
    yield f"{'metric':<12} {'difference':>12} {'95 % interval':>24} {'p':>7}"
    for name, difference in comparison.metrics.items():
        low, high = difference.interval
        mark = " significant" if difference.significant else ""
        interval = f"{low:+.4g} to {high:+.4g}"
        yield (
            f"{name:<12} {difference.mean:>+12.4g} {interval:>24} {difference.p_value:>7.3f}{mark}"
        )
    for name, difference in comparison.metrics.items():
        yield f"{name:<12} {plot_interval(difference)}"
    rows = [
        AlignedRow(
            "" if case.before is None else f"{case.id} {case.before:.0%}",
            "" if case.after is None else f"{case.id} {case.after:.0%}",
            notes=("neither the agent nor its inputs changed: the case is flaky",) * case.same,
        )
        for case in comparison.changed
    ]
    if rows:
        yield from render_rows(rows, ("first run", "second run"), "equal")


def plot_interval(difference: PairedDifference, width: int = PLOT_WIDTH) -> str:
    """Return the interval on a line around zero: `----[==o==]--|----`."""
    low, high = difference.interval
    reach = max(abs(low), abs(high), abs(difference.mean)) or 1.0

    def column(value: float) -> int:
        return round((value / reach + 1) / 2 * (width - 1))

    line = ["-"] * width
    line[column(low) : column(high) + 1] = ["="] * (column(high) - column(low) + 1)
    line[column(0)] = "|"
    line[column(difference.mean)] = "o"
    return "".join(line)
