"""Compares two runs of the same cases: which differences are significant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import msgspec

from offbook.checks.trial_statistics import PairedDifference, compare_paired
from offbook.errors import UsageError, counted
from offbook.evals.run_directory import PACK_SHIFT, read_results

METRICS = ("pass_rate", "latency_ms", "cost_usd", "tokens", "score")
PLOT_WIDTH = 40


class ComparedCase(msgspec.Struct, frozen=True):
    """A case whose pass rate differs."""

    id: str
    before: float
    after: float


class RunComparison(msgspec.Struct, frozen=True):
    """The differences between two runs, by metric, over the cases that both have."""

    cases: int
    only_before: list[str]
    only_after: list[str]
    metrics: dict[str, PairedDifference]
    changed: list[ComparedCase]

    @property
    def regressed(self) -> bool:
        """True if the pass rate fell significantly."""
        rate = self.metrics["pass_rate"]
        return rate.significant and rate.mean < 0


def compare_runs(before: Path, after: Path) -> RunComparison:
    """Compare the cases that both runs have; the pairs are the cases."""
    left, right = _by_case(before), _by_case(after)
    common = [name for name in left if name in right]
    if not common:
        raise UsageError("the runs have no case in common", where=f"{before}, {after}")
    metrics: dict[str, PairedDifference] = {}
    for metric in METRICS:
        pairs = [
            (left[name][metric], right[name][metric])
            for name in common
            if metric in left[name] and metric in right[name]
        ]
        if pairs:
            metrics[metric] = compare_paired([a for a, _ in pairs], [b for _, b in pairs])
    changed = [
        ComparedCase(name, left[name]["pass_rate"], right[name]["pass_rate"])
        for name in common
        if left[name]["pass_rate"] != right[name]["pass_rate"]
    ]
    return RunComparison(
        len(common),
        [name for name in left if name not in right],
        [name for name in right if name not in left],
        metrics,
        sorted(changed, key=lambda case: case.after - case.before),
    )


def _by_case(folder: Path) -> dict[str, dict[str, float]]:
    """Return the mean of each metric over the trials of each case.

    An id that several packs of the run have is shown with its pack: `shop/refund`.
    """
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for result in read_results(folder):
        pack = result.pack or str(result.number >> PACK_SHIFT)
        case = values.setdefault((pack, result.id), {})
        case.setdefault("pass_rate", []).append(float(result.status == "pass"))
        for metric in METRICS[1:]:
            value = getattr(result.metrics, metric)
            if value is not None:
                case.setdefault(metric, []).append(float(value))
    packs = Counter(name for _, name in values)
    return {
        name if packs[name] == 1 else f"{pack}/{name}": {
            metric: fmean(numbers) for metric, numbers in metrics.items()
        }
        for (pack, name), metrics in values.items()
    }


def render_comparison(comparison: RunComparison) -> Iterator[str]:
    """Yield a table of the metrics, a plot of their intervals, and the cases that changed."""
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
    for case in comparison.changed:
        yield f"{case.id}: {case.before:.0%} to {case.after:.0%} passed"
    for label, names in (("first", comparison.only_before), ("second", comparison.only_after)):
        if names:
            yield f"only in the {label} run: {', '.join(names[:10])}"


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
