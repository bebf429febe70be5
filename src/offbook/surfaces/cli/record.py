"""`offbook record CASSETTE -- COMMAND …`: the real model, once, for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from offbook import cli_options
from offbook.cli_options import print_json, read_redactions
from offbook.errors import UsageError

EXAMPLE = """\b
Example:
  offbook record tests/refund.yaml -- python agent.py
  offbook record tests/refund.yaml --upstream http://127.0.0.1:8080/v1 -- python agent.py
  offbook record tests/refund.yaml --only 2 -- python agent.py

\b
Keys come from your environment and are written nowhere. Base URLs that it
names (OPENAI_BASE_URL, …) are where the requests go. What differs between two
runs of Claude Code, Codex and Gemini CLI is known, and evened out.

\b
Exit codes:
  0  recorded
  1  the command failed; what it asked until then is kept
  2  the cassette exists already, is being recorded, or cannot be read
"""


@click.command("record", epilog=EXAMPLE)
@click.argument("cassette", type=cli_options.FILE_PATH)
@click.argument("command_", metavar="-- COMMAND…", nargs=-1, type=click.UNPROCESSED)
@click.option("--append", is_flag=True, help="Add to a cassette that is there already.")
@click.option("--replace", is_flag=True, help="Begin a cassette that is there already anew.")
@click.option("--only", type=int, metavar="N", help="Record only interaction N again.")
@cli_options.upstream_option
@click.option("--redact", multiple=True, metavar="JSON", help="Redactions to keep in it.")
@cli_options.preset_option
@click.option("--task", default="", help="What it was recorded for; a replay checks it.")
@click.option("--price", multiple=True, metavar="MODEL=IN/OUT", help="Dollars a million tokens.")
@cli_options.trace_option
@cli_options.deadline_option
@cli_options.json_option
def command(
    cassette: Path,
    command_: tuple[str, ...],
    *,
    redact: tuple[str, ...],
    preset: tuple[str, ...],
    **given: Any,
) -> int:
    """Run a command with the real model and record a cassette."""
    from offbook.trace.redaction import preset_for_command

    rules = read_redactions(redact, preset or preset_for_command(command_))
    if not command_:
        raise UsageError("missing command to record", hint="offbook record CASSETTE -- COMMAND")
    if given["only"] is not None:
        return _renew(cassette, command_, given["only"], given["upstream"], given["deadline"])
    return _record(cassette, command_, rules, **given)


def _record(  # noqa: PLR0913 - one for each option
    cassette: Path,
    command_: tuple[str, ...],
    rules: dict[str, Any],
    *,
    upstream: str | None,
    append: bool,
    replace: bool,
    task: str,
    price: tuple[str, ...],
    trace: Path | None,
    deadline: float,
    as_json: bool,
    **_: Any,
) -> int:
    from offbook.runs.commands import record_command
    from offbook.runs.run_files import record_trace
    from offbook.sources.cassette.recording import Recording, price_table
    from offbook.sources.live import Live

    recording = Recording(
        Live(upstream),
        cassette,
        redactions=rules,
        append=append,
        replace=replace,
        backend=command_[0],
        task=task,
        price=price_table(_read_price(one) for one in price),
    )
    with record_trace(trace, subject=str(cassette)) as hub:
        done, summary = record_command(
            recording, command_, hub=hub, deadline=deadline, echo=not as_json
        )
    if as_json:
        print_json({**msgspec.to_builtins(summary), "exit_code": done.exit_code})
    else:
        cost = "unknown" if summary.cost_dollars is None else f"${summary.cost_dollars:.4f}"
        kept = "interrupted: kept" if summary.interrupted else "recorded"
        click.echo(
            f"offbook: {kept} {summary.interactions} interactions in {cassette} "
            f"({summary.total_tokens} tokens, cost {cost})",
            err=True,
        )
    if done.failures:
        raise done.failures[0]
    return int(done.exit_code != 0)


def _renew(
    cassette: Path,
    command_: tuple[str, ...],
    number: int,
    upstream: str | None,
    deadline: float,
) -> int:
    from offbook.runs.commands import run_with_source
    from offbook.sources.cassette.recording import Rerecording
    from offbook.sources.live import Live

    with Rerecording(cassette, number, Live(upstream)) as renewing:
        done = run_with_source(renewing, command_, deadline=deadline)
    if not renewing.renewed:
        raise UsageError(
            f"the command never came to interaction {number}",
            where=str(cassette),
            hint="nothing was changed",
        )
    click.echo(f"offbook: recorded interaction {number} of {cassette} again", err=True)
    return int(done.exit_code != 0)


def _read_price(text: str) -> tuple[str, float, float]:
    model, _, dollars = text.partition("=")
    given, _, taken = dollars.partition("/")
    try:
        return model, float(given), float(taken)
    except ValueError as error:
        raise UsageError(
            f"--price {text!r} is not MODEL=IN/OUT", hint="write --price gpt-5=1.25/10"
        ) from error
