"""`offbook snapshot ID`: a workspace as it is now."""

from __future__ import annotations

import click

from offbook.runs.tools.snapshot import snapshot
from offbook.surfaces.cli.inputs import VALUE, read_object
from offbook.surfaces.cli.output import print_json

EXAMPLE = """\b
Example:
  offbook snapshot flow --id before
  offbook snapshot flow --include 'src/**' --exclude '*.log' --json
"""


@click.command("snapshot", epilog=EXAMPLE)
@click.argument("workspace_id", metavar="ID")
@click.option("--id", "name", help="What to call it; snap_ID_001 and so on by default.")
@click.option("--include", multiple=True, metavar="GLOB", help="Only such files; repeatable.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="No such files; repeatable.")
@click.option("--redactions", metavar="VALUE", help=f"What to hide: {VALUE}.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def command(
    workspace_id: str,
    *,
    name: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    redactions: str | None,
    as_json: bool,
) -> None:
    """Keep a workspace as it is now."""
    taken = snapshot(
        workspace_id,
        snapshot_id=name,
        include_patterns=include,
        exclude_patterns=exclude,
        redactions=read_object(redactions, "redactions"),
    )
    if as_json:
        print_json(taken)
    else:
        click.echo(f"{taken.snapshot_id}: {taken.file_count} files, {taken.total_bytes} bytes")
