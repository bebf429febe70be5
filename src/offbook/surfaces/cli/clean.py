"""`offbook clean`: what others forgot."""

from __future__ import annotations

import click

from offbook.runs.workspace import Workspaces
from offbook.surfaces.cli import options
from offbook.surfaces.cli.output import print_json

EXAMPLE = """\b
Example:
  offbook clean
  offbook clean --list
"""


@click.command("clean", epilog=EXAMPLE)
@click.option("--list", "listing", is_flag=True, help="Name all workspaces, and remove none.")
@options.json
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
