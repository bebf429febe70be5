"""`offbook replay CASSETTE -- COMMAND …`: a cassette as the model of any command."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
import msgspec

from offbook import cli_options
from offbook.cli_options import print_json, read_redactions
from offbook.errors import UsageError

EXAMPLE = """\b
Example:
  offbook replay tests/refund.yaml -- python agent.py
  offbook replay tests/refund.yaml --loose -- npm test

\b
Exit codes:
  0  the command succeeded, and all was replayed as it was recorded
  1  the command failed, or asked something else, or less
  2  the cassette cannot be read, or the command cannot be started
"""


@click.command("replay", epilog=EXAMPLE)
@click.argument("cassette", type=cli_options.FILE_PATH)
@click.argument("command_", metavar="-- COMMAND…", nargs=-1, type=click.UNPROCESSED)
@click.option("--strict/--loose", default=True, help="Compare each request, or only its turn.")
@click.option("--allow-passthrough", is_flag=True, help="Ask the real model what is not recorded.")
@cli_options.upstream_option
@click.option("--redact", multiple=True, metavar="JSON", help="Redactions beside its own.")
@cli_options.preset_option
@click.option("--task", default="", help="Refuse a recording of another task.")
@click.option(
    "--cursor",
    type=cli_options.FILE_PATH,
    help="Go on where an earlier replay with this file ended.",
)
@click.option("--timed", is_flag=True, help="Let streams take as long as they did.")
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
    """Run a command against a cassette.

    The command must use the whole cassette and send nothing else.
    """
    rules = read_redactions(redact, preset)
    if not command_:
        raise UsageError("missing command to replay", hint="offbook replay CASSETTE -- COMMAND")
    return _replay(cassette, command_, rules, **given)


def _replay(  # noqa: PLR0913 - one for each option
    cassette: Path,
    command_: tuple[str, ...],
    rules: dict[str, Any],
    *,
    strict: bool,
    allow_passthrough: bool,
    upstream: str | None,
    task: str,
    cursor: Path | None,
    timed: bool,
    trace: Path | None,
    deadline: float,
    as_json: bool,
    **_: Any,
) -> int:
    from offbook.runs.commands import replay_command
    from offbook.runs.run_files import record_trace
    from offbook.sources.cassette.replay import Cassette
    from offbook.sources.live import Live

    with record_trace(trace, subject=str(cassette)) as hub:
        replay = Cassette(
            cassette,
            strict=strict,
            passthrough=Live(upstream) if allow_passthrough else None,
            redactions=rules,
            cursor=cursor,
            hub=hub,
            timed=timed,
            again=f"offbook record {shlex.join([str(cassette)])} --only {{number}} "
            f"-- {shlex.join(command_)}",
        )
        if task:
            replay.check_task(task)
        done, summary = replay_command(
            replay, command_, hub=hub, deadline=deadline, echo=not as_json
        )
        verdict = replay.verdict() if cursor is None or replay.failure else None
        if verdict is not None:
            hub.emit_verdict(verdict)
    if as_json:
        print_json({**msgspec.to_builtins(summary), "exit_code": done.exit_code})
    if verdict is not None and verdict.message:
        click.echo(f"offbook: {verdict.message}", err=True)
    elif not as_json:
        told = f"replayed {summary.interactions_replayed} interactions, cost $0.00"
        click.echo(f"offbook: {told}", err=True)
    if done.failures and replay.failure is None:
        raise done.failures[0]
    return int(done.exit_code != 0 or (verdict is not None and not verdict.holds))
