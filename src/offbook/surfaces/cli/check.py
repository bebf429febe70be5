"""`offbook assert ID ASSERTION…`: what must be true of a run."""

from __future__ import annotations

import click

from offbook import cli_options
from offbook.cli_options import print_json, print_redacted, read_list
from offbook.workflows.tools import AssertionResult, check

EXAMPLE = """\b
Example:
  offbook assert flow '{"type": "exit_code", "expected": 0}'
  offbook assert flow assertions.yaml --json

\b
Exit codes:
  0  all hold
  1  some do not, or had nothing to look at
  2  wrong usage
"""
SIGNS = {"pass": "✓", "warn": "!", "fail": "✗", "no_data": "?", "error": "✗"}


@click.command("assert", epilog=EXAMPLE)
@click.argument("workspace_id", metavar="ID")
@click.argument("assertions", nargs=-1, required=True)
@cli_options.json_option
def command(workspace_id: str, assertions: tuple[str, ...], *, as_json: bool) -> int:
    """Hold assertions against a run.

    All are judged, and none stops the others. An ASSERTION, or a list of them, is
    JSON, a JSON or YAML file, or - for stdin.
    """
    checked = check(workspace_id, read_list(assertions, "assertions"))
    if as_json:
        print_json(checked)
    else:
        for result in checked.results:
            print_redacted(_tell(result))
        held = len(checked.results) - checked.failed_count
        click.echo(f"{held} of {len(checked.results)} hold")
    return int(not checked.passed)


def _tell(result: AssertionResult) -> str:
    line = f"{SIGNS[result.status]} {result.name}"
    return line if result.passed else f"{line}: {result.message}"
