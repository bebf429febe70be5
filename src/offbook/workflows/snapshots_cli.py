"""The commands `offbook workspace snapshot`, `diff` and `review`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from offbook.cli_options import VALUE_HELP, json_option, print_json, read_object

if TYPE_CHECKING:
    from offbook.checks.snapshot import SnapshotDiff
    from offbook.workflows.snapshots import PendingSnapshot


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
        click.echo(f"{result.snapshot_id}: {result.file_count} files, {result.total_bytes} bytes")


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
    from offbook.workflows.snapshots import diff

    rules = read_object(redactions, "redactions")
    difference = diff(workspace_id, baseline, compare_to=compare_to, redactions=rules)
    if as_json:
        print_json(difference)
    else:
        _print_difference(difference)


def _print_difference(difference: SnapshotDiff) -> None:
    for sign, names in (
        ("~", difference.changed_files),
        ("+", difference.added_files),
        ("-", difference.deleted_files),
    ):
        for name in names:
            changes = difference.diffs[name]
            click.echo(f"{sign} {name} (+{changes.additions} -{changes.deletions})")
            for hunk in changes.hunks:
                click.echo(f"@@ {hunk.start}-{hunk.end} @@\n{hunk.content}")
    if difference.empty:
        click.echo("nothing changed")


@click.command(
    "review",
    epilog="""\b
Example:
  offbook workspace review
  offbook workspace review flow --reject all
  offbook workspace review tests/snapshots --accept one --accept two --json

\b
Exit codes:
  0  no snapshot is pending
  1  a snapshot is still pending
  2  wrong usage; in CI, any decision
""",
)
@click.argument("locations", metavar="[ID | FOLDER]…", nargs=-1)
@click.option("--accept", multiple=True, metavar="NAME|all", help="Approve it; repeatable.")
@click.option("--reject", multiple=True, metavar="NAME|all", help="Delete it; repeatable.")
@json_option
def review_snapshots(
    locations: tuple[str, ...], *, accept: tuple[str, ...], reject: tuple[str, ...], as_json: bool
) -> int:
    """Accept or reject pending snapshots, interactively or by name."""
    from offbook.workflows.snapshots import in_ci, list_pending, review

    # A script that has a terminal by chance must not wait for an answer in CI.
    if not accept and not reject and not as_json and sys.stdin.isatty() and not in_ci():
        return _review_interactively(list_pending(locations))
    result = review(locations, accept=accept, reject=reject)
    if as_json:
        print_json(result)
    else:
        for label, paths in (
            ("accepted", result.accepted),
            ("rejected", result.rejected),
            ("pending", result.left),
        ):
            for path in paths:
                click.echo(f"{label} {path}")
        if not any((result.accepted, result.rejected, result.left)):
            click.echo("no pending snapshots")
    return int(bool(result.left))


def _review_interactively(pending: list[PendingSnapshot]) -> int:
    from offbook.workflows.snapshots import accept_snapshot, reject_snapshot

    remaining = len(pending)
    for snapshot in pending:
        click.echo(f"{snapshot.path} ({'new' if snapshot.new else 'changed'})")
        _print_difference(snapshot.difference)
        # Decisions apply at once, so that `q` keeps those made before it.
        answer = click.prompt("accept, reject, skip or quit", type=click.Choice(list("arsq")))
        if answer == "q":
            break
        if answer != "s":
            (accept_snapshot if answer == "a" else reject_snapshot)(Path(snapshot.path))
            remaining -= 1
    click.echo(
        f"{remaining} of {len(pending)} still pending" if remaining else "no pending snapshots"
    )
    return int(remaining > 0)
