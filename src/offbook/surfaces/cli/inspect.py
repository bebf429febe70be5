"""`offbook inspect ID`: what happened in a run."""

from __future__ import annotations

from typing import Any, cast

import click

from offbook import cli_options
from offbook.cli_options import VALUE_HELP, print_json, read_object
from offbook.workflows.tools import INSPECT_FORMATS, InspectFormat, inspect

EXAMPLE = """\b
Example:
  offbook inspect flow --format timeline
  offbook inspect flow --topic 'build.*' --limit 10
  offbook inspect flow --filter '{"after_iteration": 1}' --json
"""


@click.command("inspect", epilog=EXAMPLE)
@click.argument("workspace_id", metavar="ID")
@click.option(
    "--format", "format_", type=click.Choice(INSPECT_FORMATS), default="json", show_default=True
)
@click.option("--limit", default=100, show_default=True, help="How many records at most.")
@click.option("--filter", "filter_", metavar="VALUE", help=f"Which events: {VALUE_HELP}.")
@click.option("--event", "events", multiple=True, metavar="TYPE", help="Only of this type.")
@click.option("--topic", "topics", multiple=True, metavar="GLOB", help="Only of such a topic.")
@cli_options.json_option
def command(
    workspace_id: str,
    *,
    format_: str,
    limit: int,
    filter_: str | None,
    events: tuple[str, ...],
    topics: tuple[str, ...],
    as_json: bool,
) -> int:
    """Look into a run: records, summary, timeline."""
    wanted = read_object(filter_, "filter") or {}
    if events:
        wanted["event_types"] = list(events)
    if topics:
        wanted["topics"] = list(topics)
    told = inspect(workspace_id, filter=wanted, limit=limit, format=cast("InspectFormat", format_))
    if as_json or format_ == "json":
        print_json(told)
    elif format_ == "summary":
        for name, value in told.items():
            click.echo(f"{name}: {value}")
    else:
        _tell_timeline(told)
    for fault in told.get("faults", ()):
        click.echo(f"offbook: line {fault['line']}: {fault['why']}", err=True)
    return int(bool(told.get("faults")) and not told.get("truncated_tail"))


def _tell_timeline(told: dict[str, Any]) -> None:
    for moment in told["timeline"]:
        events = ", ".join(moment["events"]) or "nothing published"
        click.echo(f"{moment['iteration']}. {moment['hat']}: {events} ({moment['duration_ms']} ms)")
    if "message" in told:
        click.echo(told["message"])
