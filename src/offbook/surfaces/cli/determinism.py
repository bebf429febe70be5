"""`offbook determinism TARGET`: the same model, several times, and what differs."""

from __future__ import annotations

from pathlib import Path

import click

from offbook import cli_options
from offbook.cli_options import print_json, read_redactions

EXAMPLE = """\b
Example:
  offbook determinism tests/test_shop.py::test_refund --runs 3
  offbook determinism agent.py --cassette tests/refund.yaml --freeze-clock
  offbook determinism scenarios/refund.yaml

\b
A target is a pytest node, a Python script, a scenario, or any program. What is
beside it (agent.cassette.yaml, agent.mocks.jsonl) answers in every pass. With
--live, the first pass asks the real model and is recorded.

\b
Exit codes:
  0  all passes agree
  1  one differs: the first divergence is shown; or all of them failed
  2  the target cannot be run
"""


@click.command("determinism", epilog=EXAMPLE)
@click.argument("target")
@click.option("--runs", default=2, show_default=True, help="How often it is run.")
@click.option("--cassette", type=cli_options.FILE_PATH, help="What its model answers; or mocks.")
@click.option("--live", is_flag=True, help="Let the first pass ask the real model.")
@cli_options.upstream_option
@click.option("--shuffle/--no-shuffle", default=True, help="Another hash seed in each pass.")
@click.option(
    "--freeze-clock/--no-freeze-clock", help="Let time stand still, for targets in Python."
)
@click.option("--redact", multiple=True, metavar="JSON", help="What may differ.")
@cli_options.preset_option
@cli_options.deadline_option
@cli_options.json_option
def command(  # noqa: PLR0913 - one for each option
    target: str,
    *,
    runs: int,
    cassette: Path | None,
    live: bool,
    upstream: str | None,
    shuffle: bool,
    freeze_clock: bool,
    redact: tuple[str, ...],
    preset: tuple[str, ...],
    deadline: float,
    as_json: bool,
) -> int:
    """Run a target several times with the same model, and name what differs."""
    from offbook.runs.determinism import DeterminismTrial, check_determinism, resolve_target
    from offbook.sources.live import Live

    found, beside = resolve_target(target)
    asks = live or upstream is not None
    trial = DeterminismTrial(
        tuple(found),
        cassette or (None if asks else beside),
        Live(upstream) if asks else None,
        shuffle,
        freeze_clock,
        read_redactions(redact, preset),
        deadline,
    )
    report = check_determinism(trial, runs)
    if as_json:
        print_json(report)
        return int(bool(report.divergences or report.code))
    for divergence in report.divergences:
        click.echo(str(divergence))
    if not report.divergences:
        failed = f", and each ended with exit code {report.code}" if report.code else ""
        click.echo(f"{target}: {runs} passes agree ({report.exchanges} exchanges){failed}")
    return int(bool(report.divergences or report.code))
