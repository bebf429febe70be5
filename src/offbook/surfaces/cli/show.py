"""`offbook show TRACE`: what happened, as a tree."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path

import click
import msgspec

from offbook import cli_options
from offbook.cli_options import print_json, use_colour
from offbook.errors import FormatError
from offbook.reports.json_report import count_events
from offbook.reports.terminal import TraceTree, print_lines
from offbook.trace.reader import Trace

NAMED = 10
EXAMPLE = """\b
Example:
  offbook show .offbook/traces/test_shop.py-test_refund.jsonl
  offbook show trace.jsonl --json

\b
Exit codes:
  0  the trace was shown; its last line may be torn, as after a crash
  1  some line in the middle could not be read; the others were shown
  2  nothing could be read
"""


@click.command("show", epilog=EXAMPLE)
@click.argument("trace", type=cli_options.FILE_PATH)
@click.option("--full", is_flag=True, help="Show texts whole, not their beginnings.")
@cli_options.json_option
def command(trace: Path, *, full: bool, as_json: bool) -> int:
    """Show a trace as a tree: turns, model messages, tool calls, questions, verdicts."""
    reading = Trace(trace)
    if as_json:
        summary = count_events(reading)
        print_json({"trace": str(trace), **msgspec.to_builtins(summary), "faults": reading.faults})
        return _complain(reading, empty=not summary.events)
    lines = TraceTree(full=full).render(reading)
    first = next(lines, None)
    if first is not None:
        print_lines(chain([first], lines), sys.stdout, colour=use_colour())
        sys.stdout.flush()
    return _complain(reading, empty=first is None)


def _complain(reading: Trace, *, empty: bool) -> int:
    """Name the lines that could not be read; what they mean for the exit code."""
    for fault in reading.faults[:NAMED]:
        click.echo(f"offbook: {reading.path}:{fault.line}: {fault.why}", err=True)
    more = len(reading.faults) - NAMED
    if more > 0:
        click.echo(f"offbook: … and {more} more lines that cannot be read", err=True)
    if empty:
        raise FormatError("there is no event to show", path=reading.path)
    return int(any(not fault.torn for fault in reading.faults))
