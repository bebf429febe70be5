"""Benchmarks: what a run uses, measured several times, with intervals, and compared with another.

    samples = measure(run_once, repeat=10)
    summarize(samples)                       # the mean of each figure, with its interval of 95 %
    compare(baseline, samples)               # which figures are worse

A figure is worse if two things hold: the exact sign-flip permutation test of the paired differences
has a p-value below 0.005 (the chance of a mean this high if the signs of the differences were
random), and the mean has grown by at least the minimum effect. So noise fails a gate in about one
of a hundred comparisons, and a difference below the minimum effect never does.
"""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from offbook.checks.budgets import Spending, SpendingReader
from offbook.checks.trial_statistics import bootstrap, sign_flip_test
from offbook.errors import FormatError, UsageError
from offbook.files import read_text, write_atomic
from offbook.trace.reader import Trace
from offbook.trace.recorder import observe_traces

FORMAT = "offbook.benchmark"
VERSION = 1
METRICS = ("requests", "tokens", "cost_usd", "wall_seconds", "cpu_seconds")
TIMES = ("wall_seconds", "cpu_seconds")
SIGNIFICANCE = 0.005  # of two noisy figures, so about 1 % for a comparison of equal targets
MIN_PAIRS = 8  # the smallest number of pairs whose p-value can be this low: 1 of 256
MIN_EFFECT = 0.05
UNITS = {"cost_usd": "USD", "wall_seconds": "s", "cpu_seconds": "s"}


class Sample(msgspec.Struct, frozen=True):
    """The usage of one run; None if no event of its traces has it, or not every reply."""

    requests: int | None
    tokens: int | None
    cost_usd: float | None
    wall_seconds: float
    cpu_seconds: float


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """Stored samples, with the machine on which the times were measured."""

    format: str = FORMAT
    version: int = VERSION
    target: str
    machine: str
    python: str
    samples: list[Sample]


class MetricSummary(msgspec.Struct, frozen=True):
    """The mean of a figure with its interval of 95 %; None without data."""

    metric: str
    runs: int
    mean: float | None = None
    low: float | None = None
    high: float | None = None


class MetricComparison(msgspec.Struct, frozen=True):
    """A figure before and after: the change of its mean, the p-value, and whether it is worse."""

    metric: str
    before: float
    after: float
    change: float
    p_value: float
    worse: bool
    note: str = ""


def measure(
    *runs: Callable[[Path], None],
    repeat: int,
    own_cpu: bool = True,
    folder: Path,
    progress: Callable[[int], None] | None = None,
) -> list[list[Sample]]:
    """Call each function `repeat` times, in turns, and return the samples of each.

    A first round is not counted. A function receives a new folder for traces that other processes
    write. CPU is that of all processes that ended in the run; with `own_cpu`, also of this one.
    """
    samples: list[list[Sample]] = [[] for _ in runs]
    for number in range(repeat + 1):
        for index, run in enumerate(runs):
            place = folder / f"{index}-{number}"
            place.mkdir()
            sample = _measure_once(run, place, own_cpu=own_cpu)
            if number:
                samples[index].append(sample)
        if progress is not None:
            progress(number)
    return samples


def _measure_once(run: Callable[[Path], None], folder: Path, *, own_cpu: bool) -> Sample:
    spent = Spending()
    with observe_traces(lambda: SpendingReader(spent.add)):
        watch = RunStopwatch(own_cpu=own_cpu)
        run(folder)
        wall, cpu = watch.read()
    for path in sorted(folder.glob("*.jsonl")):
        read_spending(path, spent)
    requests = spent.requests or None
    return Sample(requests, spent.known("tokens"), spent.known("cost_usd"), wall, cpu)


def read_spending(path: Path, spent: Spending) -> None:
    """Add what a stored trace has used."""
    reader = SpendingReader(spent.add)
    for event in Trace(path):
        reader.on_event(event)


class RunStopwatch:
    """Measures wall time, and the CPU time of all processes that ended meanwhile.

    With `own_cpu`, the CPU time of this process is added.
    """

    def __init__(self, *, own_cpu: bool = True) -> None:
        self._own = own_cpu
        self._cpu = _cpu_seconds(own=own_cpu)
        self._wall = time.perf_counter()

    def read(self) -> tuple[float, float]:
        """Return the wall seconds and the CPU seconds since the start."""
        wall = time.perf_counter() - self._wall
        return wall, _cpu_seconds(own=self._own) - self._cpu


def _cpu_seconds(*, own: bool) -> float:
    """Return the CPU time of the ended children with all their descendants, and of this process."""
    who = [resource.RUSAGE_CHILDREN, *([resource.RUSAGE_SELF] if own else [])]
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, who))


def summarize(samples: Sequence[Sample]) -> list[MetricSummary]:
    """Return the mean and the interval of each figure."""
    summaries: list[MetricSummary] = []
    for metric in METRICS:
        values = _values(samples, metric)
        if values is None:
            summaries.append(MetricSummary(metric, len(samples)))
        else:
            low, high = bootstrap(values, fmean)
            summaries.append(MetricSummary(metric, len(samples), fmean(values), low, high))
    return summaries


def compare(
    before: Sequence[Sample],
    after: Sequence[Sample],
    *,
    min_effect: float = MIN_EFFECT,
    same_machine: bool = True,
) -> list[MetricComparison]:
    """Compare figures, paired by the number of the run; times only on the same machine."""
    pairs = min(len(before), len(after))
    if pairs < MIN_PAIRS:
        raise UsageError(
            f"{pairs} runs cannot show a difference: at least {MIN_PAIRS} are needed",
            hint=f"--repeat {MIN_PAIRS}",
        )
    compared: list[MetricComparison] = []
    for metric in METRICS:
        old, new = _values(before[:pairs], metric), _values(after[:pairs], metric)
        if old is None or new is None:
            continue
        p_value = sign_flip_test([b - a for a, b in zip(old, new, strict=True)])
        mean, change = fmean(old), fmean(new) - fmean(old)
        # Where there was nothing, anything is more.
        relative = change / mean if mean else float(change > 0)
        worse = p_value < SIGNIFICANCE and relative >= min_effect
        comparable = same_machine or metric not in TIMES
        note = "" if comparable else "another machine: not compared"
        compared.append(
            MetricComparison(
                metric, mean, fmean(new), relative, p_value, worse and comparable, note
            )
        )
    return compared


def _values(samples: Sequence[Sample], metric: str) -> list[float] | None:
    """Return the values of a figure, or None if a run has none."""
    values = [getattr(sample, metric) for sample in samples]
    return None if not values or None in values else values


# --- Baselines


def machine_name() -> str:
    """Return a name of this machine that says nothing about it."""
    fields = (platform.node(), platform.machine(), str(os.cpu_count()))
    return blake2b("|".join(fields).encode(), digest_size=8).hexdigest()


def save_baseline(path: Path, target: str, samples: list[Sample]) -> None:
    """Write samples as a baseline, atomically."""
    baseline = Baseline(
        target=target,
        machine=machine_name(),
        python=platform.python_version(),
        samples=samples,
    )
    write_atomic(path, msgspec.json.format(msgspec.json.encode(baseline), indent=2).decode() + "\n")


def read_baseline(path: Path) -> Baseline:
    """Return a stored baseline."""
    try:
        baseline = msgspec.json.decode(read_text(path), type=Baseline)
    except msgspec.MsgspecError as error:
        raise FormatError(
            f"not a baseline: {error}", path=path, hint="write one with: offbook bench … --save"
        ) from error
    if baseline.format != FORMAT or baseline.version > VERSION:
        kind = f"{baseline.format} {baseline.version}"
        raise FormatError(f"expected {FORMAT} {VERSION}, got {kind}", path=path)
    return baseline


# --- Text


def render(summaries: Sequence[MetricSummary], compared: Sequence[MetricComparison]) -> list[str]:
    """Return the lines of the table: each figure with its interval, and its change."""
    changes = {comparison.metric: comparison for comparison in compared}
    lines: list[str] = []
    for summary in summaries:
        name = summary.metric.replace("_", " ")
        if summary.mean is None or summary.low is None or summary.high is None:
            lines.append(f"{name:13}  no data")
            continue
        unit = UNITS.get(summary.metric, "")
        line = f"{name:13}  {summary.mean:.4g} {unit}".rstrip()
        line += f"  ({summary.low:.4g} to {summary.high:.4g})"
        if (change := changes.get(summary.metric)) is not None:
            line += (
                f"  was {change.before:.4g}, {change.change * 100:+.1f} %, p = {change.p_value:.3f}"
            )
            line += "  WORSE" if change.worse else ""
            line += f"  {change.note}" if change.note else ""
        lines.append(line)
    return lines


def as_json(
    target: str, samples: list[Sample], compared: Sequence[MetricComparison]
) -> dict[str, Any]:
    """Return the result for programs."""
    return {
        "target": target,
        "runs": len(samples),
        "metrics": summarize(samples),
        "compared": list(compared),
        "passed": not any(comparison.worse for comparison in compared),
        "samples": samples,
    }
