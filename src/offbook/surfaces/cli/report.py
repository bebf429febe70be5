"""`offbook report ID FORMAT`: verdicts for CI."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import click

from offbook import cli_options
from offbook.cli_options import print_json
from offbook.workflows.tools import REPORTS, ReportFormat, report

EXAMPLE = """\b
Example:
  offbook report flow junit --name "error handling"
  offbook report flow tap --name flow --print

\b
Exit codes:
  0  the report is written, whatever it tells
  1  there was nothing to report
  2  wrong usage
"""


@click.command("report", epilog=EXAMPLE)
@click.argument("workspace_id", metavar="ID")
@click.argument("format_", metavar="FORMAT", type=click.Choice(tuple(REPORTS)))
@click.option("--name", help="The name of the suite; that of the workspace by default.")
@click.option("--include-traces", is_flag=True, help="Tell where the session is.")
@click.option("--output", metavar="PATH", help="Where in the workspace; reports/… by default.")
@click.option("--print", "shown", is_flag=True, help="Print the report itself.")
@cli_options.json_option
def command(
    workspace_id: str,
    format_: str,
    *,
    name: str | None,
    include_traces: bool,
    output: str | None,
    shown: bool,
    as_json: bool,
) -> int:
    """Write verdicts for CI: junit, tap, ctrf, json."""
    told = report(
        workspace_id,
        cast("ReportFormat", format_),
        name or workspace_id,
        include_traces=include_traces,
        output_path=output,
    )
    if as_json:
        print_json(told)
    elif shown:
        click.echo(Path(told.report_path).read_text(encoding="utf-8"), nl=False)
    else:
        click.echo(told.report_path)
    if not told.tests:
        click.echo("offbook: there was nothing to report: assert something first", err=True)
    return int(not told.tests)
