"""`offbook cleanup ID…`: workspaces that are done with."""

from __future__ import annotations

import click

from offbook import cli_options
from offbook.cli_options import print_json
from offbook.workflows.tools import cleanup

EXAMPLE = """\b
Example:
  offbook cleanup flow
  offbook cleanup flow --preserve-session --json
"""


@click.command("cleanup", epilog=EXAMPLE)
@click.argument("workspace_ids", metavar="ID…", nargs=-1, required=True)
@click.option("--preserve-session", is_flag=True, help="Keep session.jsonl, and nothing else.")
@cli_options.json_option
def command(workspace_ids: tuple[str, ...], *, preserve_session: bool, as_json: bool) -> None:
    """Remove a workspace, or several."""
    for name in workspace_ids:
        gone = cleanup(name, preserve_session=preserve_session)
        if as_json:
            print_json(gone)
        else:
            kept = f", all but {', '.join(gone.preserved_files)}" if gone.preserved_files else ""
            click.echo(f"removed {name}{kept}")
