"""`offbook setup ID`: a workspace to test in."""

from __future__ import annotations

import click

from offbook import cli_options
from offbook.cli_options import VALUE_HELP, print_json, read_object, read_pairs
from offbook.workflows.tools import setup

EXAMPLE = """\b
Example:
  offbook setup flow --fixture src/main.py="print()" --scratchpad "## Plan"
  offbook setup flow --fixtures files.yaml --config preset.yaml --json
"""


@click.command("setup", epilog=EXAMPLE)
@click.argument("workspace_id", metavar="ID")
@click.option("--fixture", multiple=True, metavar="PATH=TEXT", help="A file to write; repeatable.")
@click.option("--fixtures", metavar="VALUE", help=f"Texts by their paths: {VALUE_HELP}.")
@click.option("--config", metavar="VALUE", help=f"Hats and limits of the loop: {VALUE_HELP}.")
@click.option("--scratchpad", metavar="TEXT", help="What .agent/scratchpad.md says at first.")
@cli_options.json_option
def command(
    workspace_id: str,
    *,
    fixture: tuple[str, ...],
    fixtures: str | None,
    config: str | None,
    scratchpad: str | None,
    as_json: bool,
) -> None:
    """Make a workspace to test in: files, configuration, scratchpad."""
    files = (read_object(fixtures, "fixtures") or {}) | read_pairs(fixture, "fixture")
    made = setup(
        workspace_id,
        fixtures=files,
        config=read_object(config, "config"),
        scratchpad=scratchpad,
    )
    if as_json:
        print_json(made)
        return
    click.echo(made.workspace_path)
    for name in made.created_files:
        click.echo(f"  {name}")
