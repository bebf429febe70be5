"""The reports of a run, as a table, JSON, markdown and suites, and the comparison of two runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from offbook.checks.trial_statistics import (
    PairedDifference,
    compare_metrics,
    compare_paired,
    needed_trials,
)
from offbook.errors import counted, name_some, require_known
from offbook.evals.pack_run import FinishedRun
from offbook.evals.run_directory import (
    SLICED_METRICS,
    CaseResult,
    CaseSummary,
    RunSummary,
    SliceSummary,
    read_results,
    slice_value,
)
from offbook.evals.run_directory import render_rows as render_lines
from offbook.options import require_some
from offbook.reports.github import AnnotationLevel, annotation, escape_markdown
from offbook.reports.report import Attempt, Case, CaseStatus, Suite, portable_name
from offbook.trace.matching import AlignedRow, render_rows

MAX_ROWS = 200  # passing cases in a table; failing ones are always shown
MAX_MARKDOWN_ROWS = 100
MAX_WIDTH = 60
FAILED_STATUS: dict[str, CaseStatus] = {
    "pass": "passed",
    "fail": "failed",
    "no_data": "failed",
    "error": "error",
    "not_run": "failed",
}
MARKS = {
    "pass": "PASS",
    "fail": "FAIL",
    "no_data": "NO DATA",
    "error": "ERROR",
    "not_run": "NOT RUN",
}
GATED = {"warning": "WARN", "informational": "INFO"}


def mark_of(case: CaseSummary) -> str:
    """Return the word for a case: a failure that does not block is WARN or INFO."""
    if case.status != "pass" and case.severity in GATED:
        return GATED[case.severity]
    return MARKS[case.status]


# --- Terminal


def render_table(run: FinishedRun) -> Iterator[str]:
    """Yield the lines for a terminal: a row for each case, then the failures, then the counts."""
    shown = [case for case in run.cases if case.status != "pass"]
    passing = [case for case in run.cases if case.status == "pass"]
    shown = run.cases if len(run.cases) <= MAX_ROWS else shown
    width = min(MAX_WIDTH, max((len(case.label or case.id) for case in shown), default=0))
    for case in shown:
        yield f"{mark_of(case):<8} {(case.label or case.id):<{width}}  {_trials(case)}".rstrip()
        prefix = "warning: " if case.gated and case.severity == "warning" else ""
        prefix = "info: " if case.gated and case.severity == "informational" else prefix
        for failure in case.failures:
            first, *rest = failure.splitlines() or [""]
            yield f"         {prefix}{first}"
            yield from (f"         {line}" for line in rest)
    if len(run.cases) > MAX_ROWS:
        yield f"         … and {counted(len(passing), 'passing case')}"
    yield from render_slices(run.summary.slices)
    yield from render_counts(run.summary)


def render_slices(slices: Sequence[SliceSummary]) -> Iterator[str]:
    """Yield a table for each key of metadata: a row for each of its values."""
    for by in dict.fromkeys(item.by for item in slices):
        yield from render_lines(*slice_table([item for item in slices if item.by == by]))


def slice_table(slices: Sequence[SliceSummary]) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns and the rows of the slices by one key."""
    metrics = [name for name in SLICED_METRICS if any(name in item.metrics for item in slices)]
    rows: list[list[str]] = []
    for item in slices:
        low, high = item.interval
        rate = f"{item.pass_rate:.0%} ({low:.0%} to {high:.0%})"
        values = [f"{item.metrics[n]:.4g}" if n in item.metrics else "" for n in metrics]
        rows.append([item.value, f"{item.passed}/{item.cases}", rate, *values])
    return [slices[0].by, "passed", "pass rate", *metrics], rows


def _trials(case: CaseSummary) -> str:
    if case.trials == 1:
        parts = [case.severity] if case.severity != "blocking" else []
        return ", ".join([*parts, "cached"] if case.cached else parts)
    low, high = case.interval
    flaky = ", flaky" if case.flaky else ""
    cached = f", {case.cached} cached" if case.cached else ""
    chances = render_chances(case.pass_at_k, case.pass_hat_k)
    rate = f"{case.passes}/{case.trials} passed ({low:.0%} to {high:.0%})"
    return f"{rate}, {chances}{flaky}{cached}"


def render_chances(at: Sequence[float], hat: Sequence[float]) -> str:
    """Return pass@k and pass^k for the powers of two, and for all trials."""
    count = len(at)
    shown = [k for k in (2, 4, 8, 16, 32, 64) if k < count] + [count]
    parts = [f"pass@{k} {at[k - 1]:.2f}" for k in shown]
    return ", ".join([*parts, *(f"pass^{k} {hat[k - 1]:.2f}" for k in shown)])


def render_counts(summary: RunSummary) -> Iterator[str]:
    """Yield the last lines: the gate and the counts."""
    parts = [
        f"{summary.passed} passed",
        f"{summary.blocking_failed} blocking failed",
        f"{summary.warning_failed} warning",
        f"{summary.informational_failed} informational",
    ]
    for count, text in (
        (summary.no_data, f"{summary.no_data} without data"),
        (summary.errors, counted(summary.errors, "error")),
        (summary.flaky, f"{summary.flaky} flaky"),
        (summary.not_run, f"{summary.not_run} not run"),
        (summary.cached, f"{summary.cached} cached"),
    ):
        if count:
            parts.append(text)
    if len(summary.pass_at_k) > 1:
        yield f"all cases: {render_chances(summary.pass_at_k, summary.pass_hat_k)}"
    yield from summary.below
    gate = "PASS" if summary.passed_gate else "FAIL"
    yield f"{gate} {', '.join(parts)}, {summary.total} total"
    if summary.changed:
        what = summary.changed_file or "a setting, a package or the environment"
        yield f"run again, because {what} has changed: {', '.join(summary.changed)}"
    if summary.unverified:
        named = name_some(summary.unverified)
        yield f"kept, not known to be unchanged ({summary.unverified_reason}): {named}"
    if summary.stopped:
        yield f"stopped: {summary.stopped}"
    if summary.cost_usd:
        yield f"cost of this run: {summary.cost_usd:.4f} USD"


# --- JSON


def report_json(run: FinishedRun) -> dict[str, Any]:
    """Return the whole report: the summary, and each trial with its failures."""
    summary: dict[str, Any] = msgspec.to_builtins(run.summary)
    summary.pop("failing", None)
    results = sorted(read_results(run.folder), key=lambda result: (result.number, result.trial))
    by_case = {(case.pack, case.id): case for case in run.cases}
    return {
        **summary,
        "pass": run.summary.passed_gate,
        "pack_id": run.summary.packs[0] if len(run.summary.packs) == 1 else None,
        "directory": str(run.folder),
        "cases": [_case_json(result) for result in results if not is_ladder(result)],
        "ladders": [result.report for result in results if is_ladder(result)],
        "statistics": [msgspec.to_builtins(case) for case in by_case.values() if case.trials > 1],
    }


def is_ladder(result: CaseResult) -> bool:
    """Return whether a result has the report of a ladder."""
    return result.kind == "ladder" and result.report is not None


def _case_json(result: CaseResult) -> dict[str, Any]:
    gated = {"warning": "warnings", "informational": "informational"}.get(result.severity)
    fields: dict[str, Any] = {
        "id": result.id,
        "label": result.label,
        "trial": result.trial,
        "severity": result.severity,
        "status": result.status,
        # A failing case of a lower severity does not fail the gate; its failures stay.
        "pass": not result.blocks,
        "gated": result.gated,
        "blocking": result.severity == "blocking",
        "run_id": result.run_id,
        "workflow_id": result.workflow_id,
        "source_path": result.source,
        "stage_count": result.stage_count,
        "failures": result.problems,
        "warnings": result.warnings,
        "informational": [],
        "metrics": msgspec.to_builtins(result.metrics),
        "millis": result.millis,
    }
    if gated and result.gated:
        fields[gated] = [*fields[gated], *result.problems]
    if result.comparison is not None:
        fields["comparison"] = msgspec.to_builtins(result.comparison)
    reasons = {
        verdict.check.removesuffix(": judge"): verdict.context["reasoning"]
        for verdict in result.verdicts
        if "reasoning" in verdict.context
    }
    if reasons:
        fields["reasons"] = reasons
    for name in ("trace", "error", "cached", "output", "scores", "metadata", "report"):
        if value := getattr(result, name):
            fields[name] = value
    return fields


# --- JUnit, TAP, CTRF


def to_suites(run: FinishedRun) -> list[Suite]:
    """Return one suite for each pack, with one case for each case.

    A last suite has the reasons why the run fails that are no failure of a case.
    """
    last: dict[tuple[int, str], float] = {}
    for result in read_results(run.folder):
        key = (result.number >> 32, result.id)
        last[key] = last.get(key, 0) + result.millis
    suites: list[Suite] = []
    for number, name in enumerate(run.summary.packs):
        cases = tuple(
            _to_case(case, last.get((number, case.id), 0))
            for case in (*run.cases, *run.not_run)
            if case.pack == number
        )
        stop = int(sum(case.millis for case in cases))
        suites.append(Suite(portable_name(name), cases, 0, stop))
    gate = tuple(
        Case(portable_name(text.partition(":")[0]), "failed", message=text, kind="gate")
        for text in _gate_failures(run.summary)
    )
    return [*suites, Suite("gate", gate)] if gate else suites


def _gate_failures(summary: RunSummary) -> Iterator[str]:
    """Yield why a run fails, besides its cases: slices below their limit, and an early end."""
    yield from summary.below
    if summary.stopped:
        yield f"stopped: {summary.stopped}"


def _to_case(case: CaseSummary, millis: float) -> Case:
    status = FAILED_STATUS[case.status]
    message = "\n".join(case.failures)
    # A gated failure passes in formats that have no severity, and keeps its message.
    if case.gated:
        status, message = "skipped", f"{case.severity}: {message}"
    history: tuple[Attempt, ...] = ()
    if case.flaky:
        failed = case.trials - case.passes
        history = (Attempt(1, f"{failed} of {case.trials} trials failed: {message}"),)
    name = portable_name(case.id if case.label in {"", case.id} else f"{case.id}: {case.label}")
    return Case(
        name,
        status,
        int(millis),
        message if case.status != "pass" else "",
        kind="" if case.status == "pass" else case.status,
        history=history,
    )


# --- Markdown and GitHub


def render_markdown(run: FinishedRun) -> str:
    """Return a summary for a pull request."""
    summary = run.summary
    gate = "passed" if summary.passed_gate else "failed"
    title = f"## Evals {gate}: {escape_markdown(', '.join(summary.packs))}"
    lines = [title, "", *map(escape_markdown, render_counts(summary)), ""]
    for by in dict.fromkeys(item.by for item in summary.slices):
        names, values = slice_table([item for item in summary.slices if item.by == by])
        lines += [f"| {' | '.join(map(escape_markdown, names))} |", "|---" * len(names) + "|"]
        lines += [f"| {' | '.join(map(escape_markdown, row))} |" for row in values]
        lines.append("")
    failing = [case for case in run.cases if case.status != "pass"]
    rows = (failing + [case for case in run.cases if case.status == "pass"])[:MAX_MARKDOWN_ROWS]
    lines += ["| result | case | severity | trials | reason |", "|---|---|---|---|---|"]
    for case in rows:
        reason = escape_markdown("; ".join(case.failures))
        label = escape_markdown(case.label or case.id)
        trials = f"{case.passes}/{case.trials}"
        # A cell after one with PASS has a password, for the gate of texts.
        mark = mark_of(case).replace("PASS", "passed").lower()
        lines.append(f"| {mark} | {label} | {case.severity} | {trials} | {reason} |")
    if len(run.cases) > len(rows):
        lines.append(f"\n… and {counted(len(run.cases) - len(rows), 'more case')}")
    return "\n".join(lines) + "\n"


def github_annotations(run: FinishedRun, packs: Iterable[Path]) -> Iterator[str]:
    """Yield a workflow command of GitHub for each failing case, and why the gate failed."""
    files = list(packs)
    levels: dict[str, AnnotationLevel] = {
        "blocking": "error",
        "warning": "warning",
        "informational": "notice",
    }
    for case in run.cases:
        if case.status != "pass":
            file = str(files[case.pack]) if case.pack < len(files) else ""
            yield annotation(
                levels[case.severity],
                "; ".join(case.failures) or case.status,
                title=case.label or case.id,
                file=file,
                line=_find_case(file, case.id),
            )
    for text in _gate_failures(run.summary):
        yield annotation("error", text, title="gate")


def _find_case(file: str, case: str) -> int:
    """Return the line with the id of a case, or 0."""
    pattern = re.compile(rf"""\bid["']?\s*[:=]\s*["']?{re.escape(case)}["']?\s*(?:[,}}#]|$)""")
    try:
        lines = Path(file).read_text("utf-8", "replace").splitlines()
    except OSError:  # a folder, or removed since
        return 0
    return next((number for number, line in enumerate(lines, 1) if pattern.search(line)), 0)


# --- The comparison of two runs


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
    """The differences between two runs: of metrics over the cases that both have, and of cases.

    `needed` is the number of trials of each run that would show the difference of the pass rates,
    if this one is not significant. `slices` are the pass rates before and after, by the value of a
    key of metadata.
    """

    cases: int
    metrics: dict[str, PairedDifference]
    changed: list[ComparedCase]
    needed: int | None = None
    slices: dict[str, PairedDifference] = {}

    @property
    def fell(self) -> bool:
        """True if the pass rate fell significantly."""
        rate = self.metrics["pass_rate"]
        return rate.significant and rate.mean < 0

    @property
    def regressed(self) -> bool:
        """True if a single case regressed."""
        return any(case.regressed for case in self.changed)

    @property
    def fallen_slices(self) -> list[str]:
        """The slices whose pass rate fell: each is `key=value`."""
        return [name for name, difference in self.slices.items() if difference.mean < 0]


class _Case:
    """The trials of one case in a run."""

    def __init__(self, result: CaseResult) -> None:
        # Of several packs, two may have a case of the same name.
        self.id = f"{result.pack}/{result.id}" if result.pack else result.id
        self.identities: set[str] = set()
        self.metadata = result.metadata
        self._values: dict[str, list[float]] = {}

    def add(self, result: CaseResult) -> None:
        self.identities.add("" if result.unidentified else result.identity)
        self._values.setdefault("pass_rate", []).append(float(result.status == "pass"))
        for metric in METRICS[1:]:
            if (value := result.measured(metric)) is not None:
                self._values.setdefault(metric, []).append(float(value))

    @property
    def means(self) -> dict[str, float]:
        """The means of its metrics."""
        return {metric: fmean(values) for metric, values in self._values.items()}

    @property
    def pass_rate(self) -> float:
        """The part of its trials that passed."""
        return fmean(self._values["pass_rate"])


def compare_runs(before: Path, after: Path, by: Sequence[str] = ()) -> RunComparison:
    """Compare two runs; the pairs are the cases with the same id in the same pack.

    `by` are keys of metadata, by which the pass rates are compared as well.

    Results of version 0.1 have no pack: they are compared with those of any pack.
    """
    named = all(result.pack for folder in (before, after) for result in read_results(folder))
    first, second = (_read_cases(folder, named=named) for folder in (before, after))
    common = [(first[name], second[name]) for name in first if name in second]
    require_some(common, "the runs have no case in common", where=f"{before}, {after}")
    left, right = ({name: case.means for name, case in side.items()} for side in (first, second))
    metrics = compare_metrics(left, right, METRICS)
    sides = zip(*common, strict=True)
    rates = [fmean(case.pass_rate for case in side) for side in sides]
    needed = None
    if rates[0] != rates[1] and not metrics["pass_rate"].significant:
        needed = needed_trials(*rates)
    return RunComparison(
        len(common), metrics, [*_changes(first, second)], needed, _compare_slices(common, by)
    )


def _compare_slices(
    common: Sequence[tuple[_Case, _Case]], by: Sequence[str]
) -> dict[str, PairedDifference]:
    """Return the difference of the pass rates of each slice."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    for key in by:
        for one, two in common:
            if key in two.metadata:
                name = f"{key}={slice_value(two.metadata[key])}"
                pairs.setdefault(name, []).append((one.pass_rate, two.pass_rate))
        if not any(name.startswith(f"{key}=") for name in pairs):
            known = {name for _, case in common for name in case.metadata} - {key}
            require_known("no case has the metadata", key, known)
    return {name: compare_paired(*zip(*values, strict=True)) for name, values in pairs.items()}


def _read_cases(folder: Path, *, named: bool) -> dict[str, _Case]:
    """Return the cases of a run by their names, in the order of these."""
    cases: dict[tuple[str, str], _Case] = {}
    for stored in read_results(folder):
        result = stored if named else msgspec.structs.replace(stored, pack="")
        key = result.pack, result.id
        if key not in cases:
            cases[key] = _Case(result)
        cases[key].add(result)
    return {case.id: case for case in sorted(cases.values(), key=attrgetter("id"))}


def _changes(first: dict[str, _Case], second: dict[str, _Case]) -> Iterator[ComparedCase]:
    for name in sorted({*first, *second}):
        a, b = first.get(name), second.get(name)
        before, after = a and a.pass_rate, b and b.pass_rate
        if before != after:
            same = a is not None and b is not None and a.identities == b.identities != {""}
            yield ComparedCase(name, before, after, same)


def render_comparison(comparison: RunComparison) -> Iterator[str]:
    """Yield a table of the metrics, a plot of their intervals, and one of the cases that differ."""
    yield f"{counted(comparison.cases, 'case')} in both runs"
    yield f"{'metric':<12} {'difference':>12} {'95 % interval':>24} {'p':>7}"
    for name, mean, interval, p_value, significant in _metric_rows(comparison):
        mark = " significant" if significant else ""
        yield f"{name:<12} {mean:>12} {interval:>24} {p_value:>7}{mark}"
    if comparison.needed is not None:
        yield f"to see this difference of pass rates: {comparison.needed} trials of each run"
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


def _metric_rows(comparison: RunComparison) -> Iterator[tuple[str, str, str, str, bool]]:
    """Yield the name of a metric or a slice, its mean, its interval, p, and if that is low."""
    for name, each in {**comparison.metrics, **comparison.slices}.items():
        interval = f"{each.interval.low:+.4g} to {each.interval.high:+.4g}"
        yield name, f"{each.mean:+.4g}", interval, f"{each.p_value:.3f}", each.significant


def render_comparison_markdown(comparison: RunComparison) -> str:
    """Return a comment for a pull request: what regressed first, then the differences."""
    regressed = [case for case in comparison.changed if case.regressed]
    others = [case for case in comparison.changed if not case.regressed]
    fallen = comparison.fallen_slices
    counts = [counted(len(regressed), "regression"), f"{len(others)} improved or new"]
    counts += [f"{counted(len(fallen), 'slice')} fell"] if comparison.slices else []
    lines = [f"## Evals: {', '.join(counts)}", "", f"{counted(comparison.cases, 'case')} in both."]
    lines += ["", "| metric | difference | 95 % interval | p |", "|---|---|---|---|"]
    for name, mean, interval, p_value, significant in _metric_rows(comparison):
        mark = " **significant**" if significant else ""
        lines.append(f"| {escape_markdown(name)} | {mean}{mark} | {interval} | {p_value} |")
    if comparison.changed:
        lines += ["", "| case | before | after | |", "|---|---|---|---|"]
    for case in [*regressed, *others][:MAX_MARKDOWN_ROWS]:
        rates = [f"{rate:.0%}" if rate is not None else "" for rate in (case.before, case.after)]
        note = "flaky" if case.same else "regressed" if case.regressed else ""
        lines.append(f"| {escape_markdown(case.id)} | {' | '.join(rates)} | {note} |")
    if len(comparison.changed) > MAX_MARKDOWN_ROWS:
        lines.append(f"\n… and {counted(len(comparison.changed) - MAX_MARKDOWN_ROWS, 'more case')}")
    return "\n".join(lines) + "\n"


def plot_interval(difference: PairedDifference) -> str:
    """Return the interval on a line around zero: `----[==o==]--|----`."""
    low, high = difference.interval
    reach = max(abs(low), abs(high), abs(difference.mean)) or 1.0

    def column(value: float) -> int:
        return round((value / reach + 1) / 2 * (PLOT_WIDTH - 1))

    line = ["-"] * PLOT_WIDTH
    line[column(low) : column(high) + 1] = ["="] * (column(high) - column(low) + 1)
    line[column(0)] = "|"
    line[column(difference.mean)] = "o"
    return "".join(line)
