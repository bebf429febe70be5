"""`offbook clean`: what others forgot."""

from __future__ import annotations

import click

from offbook import cli_options
from offbook.cli_options import print_json
from offbook.workflows.workspace import Workspaces

EXAMPLE = """\b
Example:
  offbook clean
  offbook clean --list
"""


@click.command("clean", epilog=EXAMPLE)
@click.option("--list", "listing", is_flag=True, help="Name all workspaces, and remove none.")
@cli_options.json_option
def command(*, listing: bool, as_json: bool) -> None:
    """Remove workspaces that were forgotten: a day old, their process gone."""
    workspaces = Workspaces()
    names = workspaces.ids() if listing else workspaces.sweep()
    if as_json:
        print_json({"workspaces": names} if listing else {"removed": names})
    else:
        for name in names:
            click.echo(name if listing else f"removed {name}")
        if not names:
            click.echo("there is none")
