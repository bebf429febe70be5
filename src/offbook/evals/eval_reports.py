"""The reports of a run: a table for the terminal, JSON, markdown, and suites for other formats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from offbook.errors import counted
from offbook.evals.pack_run import FinishedRun
from offbook.evals.run_directory import CaseResult, CaseSummary, RunSummary, read_results
from offbook.reports.github import AnnotationLevel, annotation, escape_markdown
from offbook.reports.report import Attempt, Case, CaseStatus, Suite, portable_name

MAX_ROWS = 200  # passing cases in a table; failing ones are always shown
MAX_MARKDOWN_ROWS = 100
MAX_WIDTH = 60
FAILED_STATUS: dict[str, CaseStatus] = {
    "pass": "passed",
    "fail": "failed",
    "no_data": "failed",
    "error": "error",
    "not_run": "skipped",
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
    yield from render_counts(run.summary)


def _trials(case: CaseSummary) -> str:
    if case.trials == 1:
        parts = [case.severity] if case.severity != "blocking" else []
        return ", ".join([*parts, "cached"] if case.cached else parts)
    low, high = case.interval
    flaky = ", flaky" if case.flaky else ""
    cached = f", {case.cached} cached" if case.cached else ""
    return (
        f"{case.passes}/{case.trials} passed ({low:.0%} to {high:.0%}), pass@{case.trials} "
        f"{case.pass_at_k:.2f}, pass^{case.trials} {case.pass_hat_k:.2f}{flaky}{cached}"
    )


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
    gate = "PASS" if summary.passed_gate else "FAIL"
    yield f"{gate} {', '.join(parts)}, {summary.total} total"
    if summary.changed:
        yield f"run again, because the agent has changed: {', '.join(summary.changed)}"
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
    for name in ("trace", "error", "cached", "output", "scores", "report"):
        if value := getattr(result, name):
            fields[name] = value
    return fields


# --- JUnit, TAP, CTRF


def to_suites(run: FinishedRun) -> list[Suite]:
    """Return one suite for each pack, with one case for each case."""
    last: dict[tuple[int, str], float] = {}
    for result in read_results(run.folder):
        key = (result.number >> 32, result.id)
        last[key] = last.get(key, 0) + result.millis
    suites: list[Suite] = []
    for number, name in enumerate(run.summary.packs):
        cases = tuple(
            _to_case(case, last.get((number, case.id), 0))
            for case in run.cases
            if case.pack == number
        )
        stop = int(sum(case.millis for case in cases))
        suites.append(Suite(portable_name(name), cases, 0, stop))
    return suites


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
    failing = [case for case in run.cases if case.status != "pass"]
    rows = (failing + [case for case in run.cases if case.status == "pass"])[:MAX_MARKDOWN_ROWS]
    lines += ["| result | case | severity | trials | reason |", "|---|---|---|---|---|"]
    for case in rows:
        reason = escape_markdown("; ".join(case.failures))
        label = escape_markdown(case.label or case.id)
        trials = f"{case.passes}/{case.trials}"
        lines.append(f"| {mark_of(case)} | {label} | {case.severity} | {trials} | {reason} |")
    if len(run.cases) > len(rows):
        lines.append(f"\n… and {counted(len(run.cases) - len(rows), 'more case')}")
    return "\n".join(lines) + "\n"


def github_annotations(run: FinishedRun, packs: Iterable[Path]) -> Iterator[str]:
    """Yield a workflow command of GitHub for each failing case."""
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


def _find_case(file: str, case: str) -> int:
    """Return the line with the id of a case, or 0."""
    pattern = re.compile(rf"""\bid["']?\s*[:=]\s*["']?{re.escape(case)}["']?\s*(?:[,}}#]|$)""")
    try:
        lines = Path(file).read_text("utf-8", "replace").splitlines()
    except OSError:  # a folder, or removed since
        return 0
    return next((number for number, line in enumerate(lines, 1) if pattern.search(line)), 0)
