"""`offbook import TRACE -o FILE`: a trace of another tool becomes a test."""

from __future__ import annotations

from pathlib import Path

import click

from offbook import cli_options
from offbook.errors import UsageError

EXAMPLE = """\b
Example:
  offbook import production.jsonl --trace-id t-123 -o tests/t-123.yaml
  offbook import spans.json -o mocks.jsonl

\b
Formats: generic {prompt, response, tool_calls} lines, claude-code, codex, pi,
otlp (OpenTelemetry GenAI spans), ralph. It is seen from the file.

\b
Exit codes:
  0  imported
  2  the file cannot be read, has nothing to import, or FILE is there already
"""


SHOWN = 5


@click.command("import", epilog=EXAMPLE)
@click.argument("trace", type=cli_options.FILE_PATH)
@click.option(
    "-o",
    "--output",
    type=cli_options.FILE_PATH,
    required=True,
    help="A cassette (.yaml), or mocks (.jsonl).",
)
@click.option("--kind", default="", metavar="FORMAT", help="The format, where it is not seen.")
@click.option("--trace-id", help="Import this trace only.")
@click.option("--replace", is_flag=True, help="Write over what is there.")
def command(trace: Path, *, output: Path, kind: str, trace_id: str | None, replace: bool) -> None:
    """Turn a trace of another tool into a cassette or into mocks."""
    from offbook.sources.importers.conversion import read_trace, write_cassette, write_mocks
    from offbook.sources.importers.importer import Skipped

    skipped = Skipped()
    exchanges = read_trace(trace, kind, trace_id, skipped)
    if output.suffix in {".yaml", ".yml"}:
        count = write_cassette(exchanges, output, replace=replace)
    elif output.suffix == ".jsonl":
        if output.exists() and not replace:
            raise UsageError("this file is there already", where=str(output), hint="use --replace")
        count = write_mocks(exchanges, output)
    else:
        raise UsageError(
            f"what is a {output.suffix or 'file without an ending'}?",
            where=str(output),
            hint="write to a cassette (.yaml) or to mocks (.jsonl)",
        )
    click.echo(f"{output}: {count} interactions")
    traces = list(dict.fromkeys(exchange.trace for exchange in exchanges))
    if len(traces) > 1:
        named = ", ".join(traces[:SHOWN]) + (", …" if len(traces) > SHOWN else "")
        told_of = f"{len(traces)} traces, one among the other as they came: --trace-id chooses one"
        click.echo(f"{told_of} ({named})", err=True)
    if skipped:
        listed = ", ".join(f"{count} x {what}" for what, count in sorted(skipped.items()))
        click.echo(f"left out: {listed}", err=True)
