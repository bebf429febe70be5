"""`offbook run` and `offbook show`: run a command against a scripted model, and read a trace."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from offbook.cli_options import (
    FAULTS_HELP,
    FILE_PATH,
    deadline_option,
    fault_options,
    json_option,
    lenient_option,
    lenient_rules_help,
    live_options,
    print_json,
    read_faults,
    report_faults,
    trace_option,
    use_colour,
)
from offbook.errors import FormatError, UsageError

if TYPE_CHECKING:
    from offbook.trace.reader import Trace

RUN_EXAMPLE = """\b
Example:
  offbook run --playbook shop.yaml -- python agent.py
  offbook run --playbook shop.py --trace run.jsonl -- npm test
  offbook run --mocks answers.jsonl -- ./agent.sh

\b
The command finds the scripted model in its environment: OPENAI_BASE_URL,
ANTHROPIC_BASE_URL, GOOGLE_GEMINI_BASE_URL and a key for each.

\b
Exit codes:
  0  the command succeeded and the script was played to its end
  1  the command failed, or the agent did not follow the script
  2  wrong usage, an unreadable file, or a command that cannot be started
  130, 143, 129  interrupted by Ctrl-C, SIGTERM, SIGHUP; the command was ended
"""

SHOW_EXAMPLE = """\b
Example:
  offbook show .offbook/traces/test_shop.py-test_refund.jsonl
  offbook show trace.jsonl --json

\b
Exit codes:
  0  the trace was shown; its last line may be incomplete, as after a crash
  1  a line in the middle is unreadable; the others were shown
  2  nothing could be read
"""

SHOWN_FAULTS = 10


@click.command("run", epilog=RUN_EXAMPLE + lenient_rules_help() + FAULTS_HELP)
@click.argument("command", metavar="-- COMMAND…", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--playbook", type=FILE_PATH, metavar="FILE", help="The model: a playbook, mocks or a cassette."
)
@click.option("--mocks", type=FILE_PATH, metavar="FILE", help="The model: a mock file (.jsonl).")
@click.option(
    "--allow-unused-mocks", is_flag=True, help="Warn of mock lines without use, do not fail."
)
@lenient_option
@fault_options
@trace_option
@deadline_option
@live_options
def run(  # noqa: PLR0913 - one for each option
    command: tuple[str, ...],
    *,
    playbook: Path | None,
    mocks: Path | None,
    allow_unused_mocks: bool,
    lenient: tuple[str, ...],
    fault: tuple[str, ...],
    fault_seed: int | None,
    fault_rate: float | None,
    trace: Path | None,
    deadline: float,
) -> int:
    """Run a command against a scripted model. The command must play the script to its end."""
    from offbook.runs.service import Service, raise_failures
    from offbook.sources.loading import open_source
    from offbook.trace.events import FileLine
    from offbook.trace.recorder import record_trace

    if not command:
        raise UsageError("missing command", hint="offbook run --playbook FILE -- COMMAND")
    if playbook is not None and mocks is not None:
        raise UsageError("--playbook and --mocks exclude each other", hint="give one of them")
    if mocks is not None and mocks.suffix != ".jsonl":
        raise UsageError(
            "mocks are a .jsonl file",
            where=str(mocks),
            hint=f"--playbook {mocks} reads other files",
        )
    script = playbook or mocks
    if script is None:
        raise UsageError(
            "missing --playbook or --mocks",
            hint="scenario files: offbook scenario run FILE…; "
            "the real model: offbook record FILE -- COMMAND",
        )
    make_source = open_source(script)
    faults = read_faults(fault, fault_seed, fault_rate)
    with (
        record_trace(trace, subject=str(script)) as hub,
        report_faults(faults, hub),
        Service(make_source, hub, lenient=lenient, faults=faults) as service,
    ):
        hub.place = FileLine(str(script))
        result = service.run(command, deadline=deadline, allow_unused_mocks=allow_unused_mocks)
        for warning in service.warnings(after_run=True):
            click.echo(f"offbook: {warning}", err=True)
    raise_failures(result.failures)
    return 0


@click.command("show", epilog=SHOW_EXAMPLE)
@click.argument("trace", type=FILE_PATH)
@click.option("--full", is_flag=True, help="Show whole texts instead of their beginnings.")
@click.option(
    "--times/--no-times",
    default=None,
    help="Show durations, tokens and costs. Default: on a terminal.",
)
@json_option
def show(trace: Path, *, full: bool, times: bool | None, as_json: bool) -> int:
    """Show a trace as a tree: turns, model messages, tool calls, questions, verdicts."""
    from offbook.reports.json_report import count_events
    from offbook.reports.styled_lines import print_lines
    from offbook.reports.terminal import TraceTree
    from offbook.trace.reader import Trace

    reader = Trace(trace)
    if as_json:
        counts = count_events(reader)
        print_json({"trace": str(trace), **msgspec.to_builtins(counts), "faults": reader.faults})
        return _report_faults(reader, empty=not counts.events)
    shows_times = sys.stdout.isatty() if times is None else times
    lines = TraceTree(full=full, times=shows_times).render(reader)
    first = next(lines, None)
    if first is not None:
        print_lines(chain([first], lines), sys.stdout, colour=use_colour())
        sys.stdout.flush()
    return _report_faults(reader, empty=first is None)


def _report_faults(reader: Trace, *, empty: bool) -> int:
    """Print the unreadable lines of a trace, and return the exit code."""
    for fault in reader.faults[:SHOWN_FAULTS]:
        click.echo(f"offbook: {reader.path}:{fault.line}: {fault.reason}", err=True)
    more = len(reader.faults) - SHOWN_FAULTS
    if more > 0:
        click.echo(f"offbook: … and {more} more unreadable lines", err=True)
    if empty:
        raise FormatError("no events in this trace", path=reader.path)
    # an incomplete last line is expected after a crash
    return int(any(not fault.torn for fault in reader.faults))
