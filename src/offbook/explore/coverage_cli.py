"""The command `offbook coverage`."""

from __future__ import annotations

import math
from pathlib import Path

import click

from offbook.cli_options import FILE_PATH, json_option, print_json, print_redacted
from offbook.errors import UsageError

EXAMPLE = """\b
Example:
  offbook coverage .offbook/traces/*.jsonl
  offbook coverage traces/ --fail-under 80
  pytest --offbook-coverage                 # over a run of pytest

\b
A tool is covered if a call of it succeeded. Blocked calls, refused arguments and
failures are counted, and do not cover it.

\b
Exit codes:
  0  the coverage was shown
  1  it is below --fail-under, or the traces have no parts of an agent
  2  wrong usage, or an unreadable trace
"""


@click.command("coverage", epilog=EXAMPLE)
@click.argument("traces", nargs=-1, type=FILE_PATH, metavar="TRACE…")
@click.option("--fail-under", type=click.FloatRange(0, 100, min_open=True), metavar="PERCENT")
@json_option
def coverage_command(traces: tuple[Path, ...], *, fail_under: float | None, as_json: bool) -> int:
    """Show which tools, hooks, answers, hats, nodes and handoffs stored runs have used."""
    from offbook.checks.agent_coverage import AgentCoverage, read_coverage
    from offbook.trace.reader import Trace, raise_if_corrupt

    if fail_under is not None and math.isnan(fail_under):  # no number is below it
        raise UsageError("--fail-under: expected a number from 0 to 100, got nan")
    coverage = AgentCoverage()
    for path in list_traces(traces):
        trace = Trace(path)
        read_coverage(trace, coverage)
        raise_if_corrupt(trace.faults, path)
    percent = coverage.percent
    if as_json:
        print_json(coverage.as_json())
    else:
        print_redacted("\n".join(coverage.render()))
    if percent is None:
        return 1
    if fail_under is not None and percent < fail_under:
        click.echo(f"offbook: coverage {percent:.1f} % is under {fail_under:g} %", err=True)
        return 1
    return 0


def list_traces(paths: tuple[Path, ...]) -> list[Path]:
    """Return the trace files among paths; a folder means all traces in it."""
    if not paths:
        raise UsageError("missing trace", hint="offbook coverage .offbook/traces/*.jsonl")
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
        if not inside:
            raise UsageError(
                "no trace in this folder",
                where=str(path),
                hint="pytest --offbook-traces=all keeps the traces of all tests",
            )
        found += inside
    return found
