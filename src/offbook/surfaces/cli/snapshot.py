"""`offbook snapshot ID`: a workspace as it is now; `offbook snapshot review`: what waits."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from offbook import cli_options
from offbook.cli_options import VALUE_HELP, print_json, read_object
from offbook.surfaces.cli.diff import tell_difference
from offbook.workflows.snapshots import (
    PendingSnapshot,
    accept_snapshot,
    in_ci,
    list_pending,
    reject_snapshot,
    review,
    snapshot,
)

EXAMPLE = """\b
Example:
  offbook snapshot flow --id before
  offbook snapshot flow --include 'src/**' --exclude '*.log' --json
  offbook snapshot review
  offbook snapshot review tests/snapshots --accept approved_state
"""
REVIEW = """\b
Example:
  offbook snapshot review
  offbook snapshot review flow --reject all
  offbook snapshot review tests/snapshots --accept one --accept two --json

\b
Exit codes:
  0  nothing waits any more
  1  something still waits
  2  wrong usage; in CI, every decision
"""


class Snapshots(click.Group):
    """What is no command of its own is the name of a workspace."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.commands:
            return super().resolve_command(ctx, args)
        return "take", self.commands["take"], args

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return ["review"]


@click.group(
    "snapshot", cls=Snapshots, epilog=EXAMPLE, context_settings={"ignore_unknown_options": True}
)
def command() -> None:
    """Keep a workspace as it is now, or review what waits.

    `offbook snapshot ID` takes one; `offbook snapshot take -h` shows its options.
    """


@command.command("take")
@click.argument("workspace_id", metavar="ID")
@click.option("--id", "name", help="What to call it; snap_ID_001 and so on by default.")
@click.option("--include", multiple=True, metavar="GLOB", help="Only such files; repeatable.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="No such files; repeatable.")
@click.option("--redactions", metavar="VALUE", help=f"What to hide: {VALUE_HELP}.")
@cli_options.json_option
def take(
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


@command.command("review", epilog=REVIEW)
@click.argument("places", metavar="[ID | FOLDER]…", nargs=-1)
@click.option("--accept", multiple=True, metavar="NAME|all", help="Approve it; repeatable.")
@click.option("--reject", multiple=True, metavar="NAME|all", help="Forget it; repeatable.")
@cli_options.json_option
def review_(
    places: tuple[str, ...], *, accept: tuple[str, ...], reject: tuple[str, ...], as_json: bool
) -> int:
    """Decide about snapshots that do not match: in a terminal one by one, or by name."""
    if not accept and not reject and not as_json and sys.stdin.isatty() and not in_ci():
        return _ask_each(list_pending(places))
    reviewed = review(places, accept=accept, reject=reject)
    if as_json:
        print_json(reviewed)
    else:
        for word, paths in (
            ("accepted", reviewed.accepted),
            ("rejected", reviewed.rejected),
            ("waits", reviewed.left),
        ):
            for path in paths:
                click.echo(f"{word} {path}")
        if not any((reviewed.accepted, reviewed.rejected, reviewed.left)):
            click.echo("nothing waits")
    return int(bool(reviewed.left))


def _ask_each(waiting: list[PendingSnapshot]) -> int:
    left = len(waiting)
    for one in waiting:
        click.echo(f"{one.path} ({'new' if one.new else 'changed'})")
        tell_difference(one.difference)
        answer = click.prompt("accept, reject, skip or quit", type=click.Choice(list("arsq")))
        if answer == "q":
            break
        if answer != "s":
            (accept_snapshot if answer == "a" else reject_snapshot)(Path(one.path))
            left -= 1
    click.echo(f"{left} of {len(waiting)} still wait" if left else "nothing waits any more")
    return int(bool(left))
