"""`offbook view`: write traces and runs as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from offbook.cli_options import FILE_PATH, json_option, print_json
from offbook.errors import UsageError
from offbook.files import write_atomic

EXAMPLE = """\b
Example:
  offbook view trace.jsonl
  offbook view trace.jsonl -o report.html --open
  offbook view .offbook/evals/20261115-120000-slack

\b
Exit codes:
  0  the page is written, also when it contains failures
  1  lines of a trace are damaged: the page lists them
  2  wrong usage, or nothing to show
"""


@click.command("view", epilog=EXAMPLE)
@click.argument("paths", metavar="TRACE|RUN_DIR...", nargs=-1, required=True, type=FILE_PATH)
@click.option("-o", "--output", metavar="FILE", type=FILE_PATH, help="Default: NAME.html.")
@click.option("--title", help="Title of the page. Default: the name of the trace.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
@json_option
def view(
    paths: tuple[Path, ...],
    *,
    output: Path | None,
    title: str | None,
    open_page: bool,
    as_json: bool,
) -> int:
    """Write a trace, a folder of traces or an eval run as one HTML page.

    The page needs no network, no server and nothing installed.
    """
    from offbook.viewer.html_page import render_page
    from offbook.viewer.page_sources import read_sources

    for path in paths:
        if not path.exists():
            raise UsageError(f"no such file or folder: {path}", hint="name a trace or a run")
    traces, records = read_sources(paths)
    name = title or ", ".join(path.resolve().stem for path in paths[:3])
    page = render_page(traces, title=name, records=records)
    damaged = [(trace.path, fault) for trace in traces for fault in trace.faults if not fault.torn]
    target = output or Path(f"{paths[0].resolve().stem}.html")
    write_atomic(target, page)
    if as_json:
        print_json({"page": str(target), "bytes": len(page.encode()), "traces": len(traces)})
    else:
        click.echo(target)
    for path, fault in damaged[:5]:
        click.echo(f"offbook: {path}:{fault.line}: {fault.reason}", err=True)
    if open_page:
        click.launch(str(target.resolve()))
    return int(bool(damaged))
