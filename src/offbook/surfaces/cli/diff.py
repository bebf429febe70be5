"""`offbook diff ID`: what changed in a workspace."""

from __future__ import annotations

import click

from offbook import cli_options
from offbook.checks.snapshot import SnapshotDiff
from offbook.cli_options import VALUE_HELP, print_json, read_object
from offbook.workflows.snapshots import diff

EXAMPLE = """\b
Example:
  offbook diff flow
  offbook diff flow before after --json

\b
Exit codes:
  0  they were compared, whether they differ or not
  2  wrong usage
"""


@click.command("diff", epilog=EXAMPLE)
@click.argument("workspace_id", metavar="ID")
@click.argument("baseline", default="initial")
@click.argument("compare_to", default="current")
@click.option("--redactions", metavar="VALUE", help=f"What may differ: {VALUE_HELP}.")
@cli_options.json_option
def command(
    workspace_id: str, baseline: str, compare_to: str, *, redactions: str | None, as_json: bool
) -> None:
    """Show what changed in a workspace.

    BASELINE and COMPARE_TO are snapshots; `initial` is how it was set up, `current` how it is.
    """
    rules = read_object(redactions, "redactions")
    found = diff(workspace_id, baseline, compare_to=compare_to, redactions=rules)
    if as_json:
        print_json(found)
    else:
        tell_difference(found)


def tell_difference(found: SnapshotDiff) -> None:
    """Print what changed, file by file and line by line."""
    for sign, names in (
        ("~", found.changed_files),
        ("+", found.added_files),
        ("-", found.deleted_files),
    ):
        for name in names:
            one = found.diffs[name]
            click.echo(f"{sign} {name} (+{one.additions} -{one.deletions})")
            for hunk in one.hunks:
                click.echo(f"@@ {hunk.start}-{hunk.end} @@\n{hunk.content}")
    if found.empty:
        click.echo("nothing changed")
