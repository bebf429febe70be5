"""The command `offbook snapshot review`."""

from __future__ import annotations

import click

from offbook.checks.pending_changes import Review
from offbook.cli_options import json_option
from offbook.cli_review import REVIEW_CODES, run_review
from offbook.workflows.snapshot_review import list_pending


@click.group(
    "snapshot", epilog="\b\nExample:\n  offbook snapshot review\n  offbook snapshot review flow"
)
def snapshot_group() -> None:
    """Review snapshots that do not match."""


@snapshot_group.command(
    "review",
    epilog="""\b
Example:
  offbook snapshot review
  offbook snapshot review flow --reject all
  offbook snapshot review tests/snapshots --accept one --accept two --json

"""
    + REVIEW_CODES,
)
@click.argument("locations", metavar="[ID | FOLDER]…", nargs=-1)
@click.option("--accept", multiple=True, metavar="NAME|all", help="Approve it; repeatable.")
@click.option("--reject", multiple=True, metavar="NAME|all", help="Delete it; repeatable.")
@json_option
def review_snapshots(
    locations: tuple[str, ...], *, accept: tuple[str, ...], reject: tuple[str, ...], as_json: bool
) -> int:
    """Accept or reject pending snapshots, by keys or by name."""
    return run_review(
        Review(list_pending(locations)),
        accept=accept,
        reject=reject,
        as_json=as_json,
        command=["offbook", "snapshot", "review", *locations],
    )
