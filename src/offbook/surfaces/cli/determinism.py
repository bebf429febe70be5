"""`offbook determinism TARGET`: the same model, several times, and what differs."""

from __future__ import annotations

from pathlib import Path

import click

from offbook.surfaces.cli.output import print_json

EXAMPLE = """\b
Example:
  offbook determinism tests/test_shop.py::test_refund --runs 3
  offbook determinism agent.py --cassette tests/refund.yaml

\b
A cassette beside the target (agent.cassette.yaml, or agent.yaml) is replayed
in every pass. With --live, the first pass asks the real model and is recorded.

\b
Exit codes:
  0  all passes agree
  1  one differs: the first divergence is shown
  2  the target cannot be run
"""


@click.command("determinism", epilog=EXAMPLE)
@click.argument("target")
@click.option("--runs", default=2, show_default=True, help="How often it is run.")
@click.option("--cassette", type=click.Path(path_type=Path), help="What its model answers.")
@click.option("--live", is_flag=True, help="Let the first pass ask the real model.")
@click.option("--shuffle/--no-shuffle", default=True, help="Another hash seed in each pass.")
@click.option("--deadline", default=600.0, show_default=True, help="Seconds for each pass.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    target: str,
    *,
    runs: int,
    cassette: Path | None,
    live: bool,
    shuffle: bool,
    deadline: float,
    as_json: bool,
) -> int:
    """Run a target several times with the same model, and name what differs."""
    from offbook.runs.determinism import check_determinism, find_command
    from offbook.sources.live import Live

    found, beside = find_command(target)
    report = check_determinism(
        found,
        cassette=cassette or (None if live else beside),
        live=Live() if live else None,
        runs=runs,
        shuffle=shuffle,
        deadline=deadline,
    )
    if as_json:
        print_json(report)
    else:
        for divergence in report.divergences:
            click.echo(str(divergence))
        if not report.divergences:
            click.echo(f"{target}: {runs} passes agree ({report.exchanges} exchanges)")
    return int(bool(report.divergences))
