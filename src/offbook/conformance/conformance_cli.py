"""The command `offbook conformance`."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from offbook.cli_options import FILE_PATH, json_option, print_json, print_redacted
from offbook.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.conformance.conformance_run import ConformanceResult

MAX_DIFF = 12  # lines of a difference without -v
SLOWEST = 10
PROGRESS_SECONDS = 0.1
MARKS = {
    "passed": "PASS",
    "failed": "FAIL",
    "xfailed": "XFAIL",
    "xpassed": "XPASS",
    "updated": "WRITE",
}
EXAMPLE = """\b
Example:
  offbook conformance tests/ --run 'python {file}'
  offbook conformance tests/ --run '.js=node {file}' --filter 'parser|re:^errors/'
  offbook conformance tests/ --update

A source passes if its output is that of NAME.expected, or if it fails with a text of NAME.error.
Commands and limits can be settings: conformance.toml in the folder.

\b
Exit codes:
  0  every case passed, or failed as its @xfail says
  1  a case failed, has no expectation, or none was selected
  2  wrong usage
"""


@click.command(epilog=EXAMPLE)
@click.argument("folder", type=FILE_PATH, metavar="DIR")
@click.option(
    "--run", multiple=True, metavar="[.EXT=]COMMAND", help="Command; {file} is the source."
)
@click.option("--filter", "name_filter", default="", help="A part of a name, a glob, re:…, or a|b.")
@click.option("-v", "--verbose", is_flag=True, help="Show every case, and whole differences.")
@click.option("--timing", is_flag=True, help="Show the times, and the slowest cases.")
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Cases at a time; default: the number of CPUs."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds before a case is killed; default: 30.",
)
@click.option("--update", is_flag=True, help="Write the output as the new expectation.")
@click.option("--junit", type=FILE_PATH, help="Write a JUnit report to this file.")
@json_option
def conformance(  # noqa: PLR0913 - the options of the command
    folder: Path,
    *,
    run: tuple[str, ...],
    name_filter: str,
    verbose: bool,
    timing: bool,
    jobs: int | None,
    timeout: float | None,
    update: bool,
    junit: Path | None,
    as_json: bool,
) -> int:
    """Run a command on the source files of DIR and compare its output."""
    from offbook.conformance.cases import find_cases, read_suite_settings
    from offbook.conformance.conformance_run import run_cases

    if not folder.is_dir():
        raise UsageError("no such folder", where=str(folder))
    if update:
        _refuse_in_ci()
    settings = read_suite_settings(folder, run)
    if timeout is not None:
        settings = msgspec.structs.replace(settings, timeout=timeout)
    cases = find_cases(folder, settings, name_filter)
    if not cases:
        selected = f" for --filter {name_filter!r}" if name_filter else ""
        click.echo(f"no cases in {folder}{selected}: nothing was checked", err=True)
        return 1
    started = time.monotonic()
    progress = Progress(len(cases))
    results: list[ConformanceResult] = []
    try:
        for result in run_cases(cases, settings, jobs=jobs or os.cpu_count() or 1, update=update):
            results.append(result)
            progress.show(results)
            if not as_json and (verbose or result.outcome not in {"passed", "xfailed"}):
                progress.clear()
                print_redacted(render(result, verbose=verbose, timing=timing or verbose))
    finally:
        progress.clear()
    results.sort(key=lambda result: result.name)
    seconds = time.monotonic() - started
    if junit is not None:
        _write_junit(junit, folder, results, seconds)
    if as_json:
        print_json(summarise(results, seconds))
    else:
        if timing:
            click.echo(render_timing(results))
        click.echo(render_summary(results, seconds))
    return int(any(result.failed for result in results))


class Progress:
    """A line that counts the cases, on a terminal only."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._shown = 0.0
        self._visible = False
        self._enabled = sys.stderr.isatty()
        self._failed = 0

    def show(self, results: list[ConformanceResult]) -> None:
        """Write the line again, a few times a second."""
        self._failed += results[-1].failed
        if not self._enabled or time.monotonic() - self._shown < PROGRESS_SECONDS:
            return
        self._shown = time.monotonic()
        self._visible = True
        failed = f", {self._failed} failed" if self._failed else ""
        sys.stderr.write(f"\r\x1b[K{len(results)}/{self._total}{failed}")
        sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line."""
        if self._visible:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._visible = False


def render(result: ConformanceResult, *, verbose: bool, timing: bool) -> str:
    """Return a case with its result, and its difference."""
    seconds = f" ({result.millis:.0f} ms)" if timing else ""
    message = f": {result.message}" if result.message else ""
    lines = list(result.diff)
    if not verbose and len(lines) > MAX_DIFF:
        lines = [*lines[:MAX_DIFF], f"… {len(lines) - MAX_DIFF} more lines; -v shows all"]
    if result.leaked and verbose:
        lines.append(f"killed {result.leaked} processes that it left behind")
    return "\n  ".join([f"{MARKS[result.outcome]:5} {result.name}{seconds}{message}", *lines])


def render_summary(results: Iterable[ConformanceResult], seconds: float) -> str:
    """Return the number of cases by result."""
    counts = Counter(result.outcome for result in results)
    shown = {"passed": counts["passed"], "failed": counts["failed"] + counts["xpassed"]}
    shown |= {name: counts[name] for name in ("xfailed", "updated") if counts[name]}
    parts = [f"{number} {name}" for name, number in shown.items()]
    return f"{', '.join(parts)}, {counts.total()} total in {seconds:.1f} s"


def render_timing(results: list[ConformanceResult]) -> str:
    """Return the average, percentiles and the slowest cases."""
    times = sorted(result.millis for result in results)
    lines = [f"average {sum(times) / len(times):.0f} ms"]
    lines += [
        f"p{p} {times[min(len(times) * p // 100, len(times) - 1)]:.0f} ms" for p in (50, 95, 99)
    ]
    slowest = sorted(results, key=lambda result: -result.millis)[:SLOWEST]
    rows = [f"{result.millis:8.0f} ms  {result.name}" for result in slowest]
    return "\n".join([", ".join(lines), "slowest:", *rows])


def summarise(results: list[ConformanceResult], seconds: float) -> dict[str, object]:
    """Return the results for scripts. The names of the keys do not change."""
    counts = Counter(result.outcome for result in results)
    return {
        "ok": not any(result.failed for result in results),
        "summary": {
            **{name: counts[name] for name in MARKS},
            "total": len(results),
            "seconds": round(seconds, 3),
        },
        "results": [
            {**msgspec.to_builtins(result), "millis": round(result.millis, 3)} for result in results
        ],
    }


def _write_junit(
    path: Path, folder: Path, results: list[ConformanceResult], seconds: float
) -> None:
    from offbook.files import write_atomic
    from offbook.reports.ci_formats import JUnitReport
    from offbook.reports.report import Case, CaseStatus, Suite, portable_name
    from offbook.secrets import hide_secrets

    def status(result: ConformanceResult) -> CaseStatus:
        if result.outcome == "xfailed":
            return "skipped"
        return "failed" if result.failed else "passed"

    cases = [
        Case(
            portable_name(result.name),
            status(result),
            millis=round(result.millis),
            message=hide_secrets("\n".join([result.message, *result.diff])),
            kind=result.outcome,
        )
        for result in results
    ]
    suite = Suite(portable_name(str(folder)), tuple(cases), 0, round(seconds * 1000))
    write_atomic(path, JUnitReport().render(suite))


def _refuse_in_ci() -> None:
    from offbook.checks.expected_files import in_ci

    if in_ci():
        raise UsageError(
            "--update is refused in CI (the variable CI is set)",
            hint="update on your machine and commit the files",
        )
