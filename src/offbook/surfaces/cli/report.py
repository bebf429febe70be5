"""`offbook report`: write the verdicts of traces in a format for CI, or as a page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from offbook.capability import load
from offbook.cli_options import FILE_PATH
from offbook.errors import UsageError, did_you_mean
from offbook.surfaces.capabilities import load_capabilities

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offbook.reports.report import Suite

# The formats of the core. Capabilities declare theirs in their `CAPABILITY`.
FORMATS = {
    "junit": "offbook.reports.junit:JUnitReport",
    "tap": "offbook.reports.tap:TapReport",
    "tap13": "offbook.reports.tap:Tap13Report",
    "ctrf": "offbook.reports.ctrf:CtrfReport",
    "json": "offbook.reports.json_report:JsonReport",
    "markdown": "offbook.reports.github:MarkdownReport",
    "github": "offbook.reports.github:GitHubReport",
    "badge": "offbook.reports.badge:BadgeReport",
}
EXAMPLE = """\b
Example:
  offbook report trace.jsonl --format junit -o report.xml
  offbook report trace.jsonl other.jsonl --format html -o report.html
  offbook report trace.jsonl --format markdown >> "$GITHUB_STEP_SUMMARY"

\b
Exit codes:
  0  the report is written, also when it contains failures
  2  wrong usage, or a trace that cannot be read
"""


@click.command("report", epilog=EXAMPLE)
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True, type=FILE_PATH)
@click.option(
    "--format",
    "format_",
    metavar="FORMAT",
    required=True,
    help="junit, tap, tap13, ctrf, json, markdown, github, badge, or one of a capability: html.",
)
@click.option("-o", "--output", metavar="FILE", type=FILE_PATH, help="Default: standard output.")
def report(traces: tuple[Path, ...], *, format_: str, output: Path | None) -> int:
    """Write the verdicts of traces as a report."""
    from offbook.files import write_atomic

    others = {name: target for each in load_capabilities() for name, target in each.reports.items()}
    if format_ in others:
        text = load(others[format_])(traces)
    elif format_ in FORMATS:
        text = _render_suites(format_, traces)
    else:
        hint = did_you_mean(format_, [*FORMATS, *others])
        raise UsageError(f"unknown report format {format_!r}", hint=hint)
    if output is None and format_ == "github":
        from offbook.reports.workflow_commands import write_commands

        write_commands(text, sys.stdout)
    elif output is None:
        sys.stdout.write(text)
    else:
        write_atomic(output, text)
        click.echo(output)
    return 0


def _render_suites(format_: str, traces: Sequence[Path]) -> str:
    """Return the report of one suite for each trace."""
    from offbook.reports.report import collect_suite
    from offbook.trace.reader import Trace, raise_if_corrupt

    suites: list[Suite] = []
    for path in traces:
        trace = Trace(path)
        suites.append(collect_suite(trace, path.stem, trace=str(path)))
        raise_if_corrupt(trace.faults, path)  # a lost line may be a failed verdict
    return load(FORMATS[format_])().render(*suites)
