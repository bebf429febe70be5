"""`offbook compare` and `offbook export`: what differs between two traces, and spans of traces."""

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
from offbook.errors import CollectorError, FormatError, UsageError

COMPARE_EXAMPLE = """\b
Example:
  offbook compare before.jsonl after.jsonl
  offbook compare main-traces/ branch-traces/ --json
  offbook compare a.jsonl b.jsonl --redact '{"patterns": {"port": "port \\\\d+"}}'

\b
Times of the run, ids and temporary folders do not count. Tokens, cost
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


EXPORT_EXAMPLE = """\b
Example:
  offbook export run.jsonl -o spans.json
  offbook export .offbook/traces/*.jsonl --to http://127.0.0.1:4318

\b
Runs, requests and tool calls become spans by the OpenTelemetry conventions
for generative AI. A file has one OTLP document per line; `offbook import`
reads it, too. --to needs `pip install 'offbook[otel]'`.

\b
Exit codes:
  0  exported
  1  the collector did not accept the spans of a trace
  2  a trace cannot be read, or has no run and no request
"""


@click.command("export", epilog=EXPORT_EXAMPLE)
@click.argument("traces", type=FILE_PATH, nargs=-1, required=True)
@click.option("-o", "--output", type=FILE_PATH, help="Write the spans to this file, not to stdout.")
@click.option("--to", metavar="URL", help="Send the spans to a collector over OTLP/HTTP.")
def export(traces: tuple[Path, ...], *, output: Path | None, to: str | None) -> int:
    """Convert traces into OpenTelemetry spans: as OTLP JSON, or sent to a collector."""
    import msgspec

    from offbook.reports.otel_spans import count_spans, export_spans
    from offbook.secrets import hide_secrets
    from offbook.trace.reader import Trace, raise_if_corrupt

    if to is not None and output is not None:
        raise UsageError("--output and --to exclude each other", hint="give one of them")
    failed = 0
    lines: list[str] = []
    for path in traces:
        trace = Trace(path)
        document = export_spans(trace)
        raise_if_corrupt(trace.faults, path)
        count = count_spans(document)
        if not count:
            raise FormatError("no run and no request in this trace", path=path)
        line = hide_secrets(msgspec.json.encode(document).decode())
        lines.append(line)
        if to is None:
            continue
        from offbook.runs.otlp_collector import send_spans

        try:
            send_spans(msgspec.json.decode(line), to)
        except CollectorError as error:  # the next trace may be accepted
            failed = 1
            click.echo(f"offbook: {path}: {error}", err=True)
        else:
            click.echo(f"{path}: {count} spans sent to {to}")
    if to is None:
        text = "".join(f"{line}\n" for line in lines)
        if output is None:
            click.echo(text, nl=False)
        else:
            from offbook.files import write_atomic

            write_atomic(output, text)
            click.echo(f"{output}: {len(lines)} traces")
    return failed
