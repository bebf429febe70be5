"""The commands `offbook workspace snapshot` and `diff`."""

from __future__ import annotations

import sys

import click

from offbook.cli_options import (
    VALUE_HELP,
    describe_difference,
    json_option,
    print_json,
    read_object,
    use_colour,
)
from offbook.errors import counted


@click.command(
    "snapshot",
    epilog="""\b
Example:
  offbook workspace snapshot flow --id before
  offbook workspace snapshot flow --include 'src/**' --exclude '*.log' --json
""",
)
@click.argument("workspace_id", metavar="ID")
@click.option("--id", "name", help="Name of the snapshot. Default: snap_ID_001 and so on.")
@click.option("--include", multiple=True, metavar="GLOB", help="Only these files; repeatable.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Not these files; repeatable.")
@click.option("--redactions", metavar="VALUE", help=f"Values to hide: {VALUE_HELP}.")
@json_option
def take_snapshot(
    workspace_id: str,
    *,
    name: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    redactions: str | None,
    as_json: bool,
) -> None:
    """Store the current files of a workspace."""
    from offbook.workflows.snapshots import snapshot

    result = snapshot(
        workspace_id,
        snapshot_id=name,
        include_patterns=include,
        exclude_patterns=exclude,
        redactions=read_object(redactions, "redactions"),
    )
    if as_json:
        print_json(result)
    else:
        size = f"{counted(result.file_count, 'file')}, {counted(result.total_bytes, 'byte')}"
        click.echo(f"{result.snapshot_id}: {size}")


@click.command(
    "diff",
    epilog="""\b
Example:
  offbook workspace diff flow
  offbook workspace diff flow before after --json

\b
Exit codes:
  0  compared, with or without differences
  2  wrong usage
""",
)
@click.argument("workspace_id", metavar="ID")
@click.argument("baseline", default="initial")
@click.argument("compare_to", default="current")
@click.option("--redactions", metavar="VALUE", help=f"Values that may differ: {VALUE_HELP}.")
@json_option
def diff_workspace(
    workspace_id: str, baseline: str, compare_to: str, *, redactions: str | None, as_json: bool
) -> None:
    """Show the changes between two snapshots.

    `initial` is the workspace after its setup, `current` its present state.
    """
    from offbook.reports.styled_lines import print_lines
    from offbook.workflows.snapshots import diff

    rules = read_object(redactions, "redactions")
    difference = diff(workspace_id, baseline, compare_to=compare_to, redactions=rules)
    if as_json:
        print_json(difference)
    else:
        print_lines(describe_difference(difference), sys.stdout, colour=use_colour())
