"""`offbook view`: write traces and runs as one HTML page."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from offbook.capability import PENDING, load
from offbook.cli_options import (
    FILE_PATH,
    PORT_NUMBER,
    echo,
    json_option,
    preset_option,
    print_json,
    read_redactions,
    redact_option,
    refuse_together,
)
from offbook.errors import UsageError
from offbook.files import write_atomic
from offbook.options import require_some

if TYPE_CHECKING:
    from offbook.viewer.live_server import LiveServer, ReviewDesk

EXAMPLE = """\b
Example:
  offbook view trace.jsonl
  offbook view trace.jsonl -o report.html --open
  offbook view before.jsonl --compare after.jsonl
  offbook view .offbook/evals/20261115-120000-slack
  offbook view --live trace.jsonl
  offbook view --watch tests/

\b
Exit codes:
  0  the page is written, also when it contains failures
  1  lines of a trace are damaged: the page lists them
  2  wrong usage, or nothing to show
"""


@click.command("view", epilog=EXAMPLE)
@click.argument("paths", metavar="TRACE|RUN_DIR|TESTS...", nargs=-1, type=FILE_PATH)
@click.option("-o", "--output", metavar="FILE", type=FILE_PATH, help="Default: NAME.html.")
@click.option(
    "--compare", metavar="OTHER", type=FILE_PATH, help="Compare the first path with OTHER."
)
@redact_option
@preset_option
@click.option("--title", help="Title of the page. Default: the name of the trace.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
@click.option("--live", is_flag=True, help="Serve the page on loopback and follow the run.")
@click.option("--watch", is_flag=True, help="Run tests, serve their page, repeat after changes.")
@click.option("--port", type=PORT_NUMBER, default=0, help="Port of the page. Default: a free one.")
@json_option
@click.pass_context
def view(  # noqa: PLR0913 - the options of the command
    context: click.Context,
    paths: tuple[Path, ...],
    *,
    output: Path | None,
    compare: Path | None,
    redact: tuple[str, ...],
    preset: tuple[str, ...],
    title: str | None,
    open_page: bool,
    live: bool,
    watch: bool,
    port: int,
    as_json: bool,
) -> int:
    """Write a trace, a folder of traces or an eval run as one HTML page.

    The page needs no network, no server and nothing installed. With --watch, the paths are test
    files and folders: those that a change affects run again, and the page shows the new results.
    """
    refuse_together(live=live, watch=watch)
    if watch:
        return _watch(context, paths or (Path(),), port=port, open_page=open_page)
    if live:
        return _follow(context, paths, port=port, open_page=open_page)
    require_some(paths, "missing TRACE or RUN_DIR", hint="offbook view trace.jsonl")
    from offbook.viewer.html_page import (
        read_comparison,
        read_sources,
        render_page,
        require_events,
    )

    first, *others = paths
    if compare is not None and others:
        raise UsageError("--compare takes one trace and another one", hint="name one TRACE")
    for path in (*paths, *filter(None, [compare])):
        if not path.exists():
            raise UsageError(f"no such file or folder: {path}", hint="name a trace or a run")
    if compare is None:
        traces, records = read_sources(paths)
    else:
        from offbook.trace.redaction import Redaction

        ignored = Redaction(read_redactions(redact, preset))
        traces, records = read_comparison(first, compare, ignored)
    name = title or ", ".join(path.resolve().stem for path in paths[:3])
    page = render_page(traces, title=name, records=records)
    if not records:
        require_events(traces)
    damaged = [(trace.path, fault) for trace in traces for fault in trace.faults if not fault.torn]
    target = output or Path(f"{first.resolve().stem}.html")
    write_atomic(target, page)
    if as_json:
        print_json({"page": str(target), "bytes": len(page.encode()), "traces": len(traces)})
    else:
        echo(target)
    for path, fault in damaged[:5]:
        echo(f"offbook: {path}:{fault.line}: {fault.reason}", err=True)
    if open_page:
        click.launch(str(target.resolve()))
    return int(bool(damaged))


def _follow(context: click.Context, paths: tuple[Path, ...], *, port: int, open_page: bool) -> int:
    """Serve the page of a growing trace or run until Ctrl-C."""
    from offbook.viewer.live_server import LiveFeed, LiveServer

    if len(paths) > 1:
        raise UsageError("--live follows one trace or folder", hint=f"--live {paths[0]}")
    path = paths[0] if paths else Path(".offbook")
    server = LiveServer(LiveFeed(path), _open_desk(context), port)

    def started() -> None:
        _print_address(server, open_page=open_page)
        echo(f"follows {path}; Ctrl-C ends it", err=True)
        if not path.exists():
            echo(f"{path} does not exist yet: waiting for it", err=True)

    asyncio.run(server.run(started))
    return 0


def _watch(context: click.Context, paths: tuple[Path, ...], *, port: int, open_page: bool) -> int:
    """Run tests, and serve their page until Ctrl-C."""
    from offbook.viewer.watched_page import serve_tests

    def started(server: LiveServer) -> None:
        _print_address(server, open_page=open_page)
        echo("watching for changes; Ctrl-C ends it", err=True)

    def announce(file: Path, changed: str) -> None:
        reason = f": {os.path.relpath(changed)} changed" if changed else ""
        echo(f"offbook: {file}{reason}", err=True)

    asyncio.run(serve_tests(paths, _open_desk(context), port, started, announce))
    return 0


def _open_desk(context: click.Context) -> ReviewDesk:
    """Return the review of the pending changes of this folder."""
    from offbook.checks.expected_files import list_pending
    from offbook.viewer.live_server import ReviewDesk

    finders = [load(target) for target in context.meta.get(PENDING, tuple)()]
    return ReviewDesk(partial(list_pending, [str(Path.cwd())], finders))


def _print_address(server: LiveServer, *, open_page: bool) -> None:
    echo(f"page:   {server.url}")
    echo(f"review: {server.url}review")
    if open_page:
        click.launch(server.url)
