"""`offbook compare`: what differs between two traces."""

from __future__ import annotations

from pathlib import Path

import click

from offbook.cli_options import (
    FILE_PATH,
    json_option,
    preset_option,
    print_json,
    print_redacted,
    read_redactions,
    redact_option,
)

COMPARE_EXAMPLE = """\b
Example:
  offbook compare before.jsonl after.jsonl
  offbook compare main-traces/ branch-traces/ --json
  offbook compare a.jsonl b.jsonl --redact '{"patterns": {"port": "port \\\\d+"}}'

\b
Times of the run, ids and temporary folders are no differences. Tokens, cost
and time are shown and do not change the exit code.

\b
Exit codes:
  0  the traces are the same
  1  they differ; the first divergence is shown
  2  a trace cannot be read, or the folders have no trace in common
"""


@click.command("compare", epilog=COMPARE_EXAMPLE)
@click.argument("before", type=FILE_PATH)
@click.argument("after", type=FILE_PATH)
@redact_option
@preset_option
@json_option
def compare(
    before: Path, after: Path, *, redact: tuple[str, ...], preset: tuple[str, ...], as_json: bool
) -> int:
    """Compare two traces, or two folders of traces, aligned by content."""
    from offbook.checks.comparison import compare_paths, render_comparison
    from offbook.trace.redaction import Redaction

    comparison = compare_paths(before, after, Redaction(read_redactions(redact, preset)))
    if as_json:
        print_json(comparison)
    else:
        print_redacted("\n".join(render_comparison(comparison)))
    return int(not comparison.same)
