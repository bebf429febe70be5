"""`offbook doctor`: which agents of others are here, and which versions of them were tried."""

from __future__ import annotations

import click

from offbook import cli_options
from offbook.cli_options import print_json
from offbook.runs.doctor import InstalledTool, find_installed

EXAMPLE = """\b
Example:
  offbook doctor
  offbook doctor --json

\b
Clients are looked for in the folder that OFFBOOK_CLIENTS names, then on
the PATH. What is missing is no failure: the exit code is 0.
"""


@click.command("doctor", epilog=EXAMPLE)
@cli_options.json_option
def command(*, as_json: bool) -> None:
    """Say which clients and SDKs are installed, and which versions were tested."""
    found = find_installed()
    if as_json:
        print_json(found)
        return
    width = max(len(finding.name) for finding in found)
    for finding in found:
        click.echo(f"{finding.name:<{width}}  {_describe(finding)}")


def _describe(finding: InstalledTool) -> str:
    if finding.installed is None:
        state = "does not run" if finding.path else "is missing"
        return f"{state}; {finding.tested} was tested: {finding.fix}"
    if finding.installed == finding.tested:
        return f"{finding.installed}, as tested"
    return f"{finding.installed}; {finding.tested} was tested"
