"""`offbook serve` and `mcp`: a scripted model for clients, and the test tools for agents.

They are not in `run.py`: a client waits for the first reply of a server.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from offbook.cli_options import (
    FAULTS_HELP,
    FILE_PATH,
    PORT_NUMBER,
    FiniteFloat,
    echo,
    fault_options,
    lenient_help,
    lenient_option,
    live_options,
    report_faults,
    trace_option,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from offbook.determinism.faults import Faults
    from offbook.trace.events import Event

SERVE_EXAMPLE = """\b
Example:
  offbook serve shop.yaml
  curl -s http://127.0.0.1:4111/v1/chat/completions -d '{"model": "m",
    "messages": [{"role": "user", "content": "Refund order 7"}]}'

\b
Requests below /s/NAME get the script for themselves, from its beginning.
Stop the server with Ctrl-C.

\b
Exit codes:
  0  stopped
  1  a request did not match the script
  2  the file cannot be read, or the port is in use
"""

MCP_EXAMPLE = """\b
Example:
  offbook mcp --http --port 8111
  claude mcp add offbook -- offbook mcp

Over HTTP it listens on loopback only.
"""

AMOUNT = FiniteFloat(min=0)


@click.command("serve", epilog=SERVE_EXAMPLE + lenient_help() + FAULTS_HELP)
@click.argument("file", type=FILE_PATH)
@click.option(
    "--port", default=4111, show_default=True, type=PORT_NUMBER, help="0 selects a free port."
)
@lenient_option
@fault_options
@trace_option
@click.option(
    "--first-token", default=0.0, type=AMOUNT, help="Milliseconds before the first chunk."
)
@click.option(
    "--tokens-per-second", default=0.0, type=AMOUNT, help="Speed of a stream; 0 sends it at once."
)
@click.option(
    "--jitter",
    default=0.0,
    type=FiniteFloat(0, 1),
    help="Random part of each delay: 0.2 is up to a fifth.",
)
@click.option("--seed", default=0, help="Seed of the jitter.")
@live_options
def serve(  # noqa: PLR0913 - one for each option
    file: Path,
    *,
    port: int,
    lenient: tuple[str, ...],
    faults: Faults | None,
    trace: Path | None,
    first_token: float,
    tokens_per_second: float,
    jitter: float,
    seed: int,
) -> int:
    """Serve a scripted model to any client, on loopback.

    FILE is a playbook, mocks or a cassette. The server speaks the wire formats of all
    supported providers.
    """
    from offbook.runs.service import Service, warn_of_mocks
    from offbook.sources.loading import open_source
    from offbook.sources.server.endpoint import Pacing
    from offbook.trace.recorder import record_trace

    paced = first_token or tokens_per_second
    pacing = Pacing(first_token, tokens_per_second, jitter, seed) if paced else None
    make_source = open_source(file)
    events: list[Event] = []
    with (
        record_trace(trace, subject=str(file)) as hub,
        Service(
            make_source, hub, port=port, pacing=pacing, lenient=lenient, faults=faults
        ) as service,
        _stop_signal() as wait_for_stop,  # before the first line, which a caller may wait for
    ):
        if faults is not None:  # before the first line, too: a client may ask at once
            hub.subscribe(events.append)
        for warning in warn_of_mocks(make_source(), after_run=False):
            echo(f"offbook: {warning}", err=True)
        echo(f"serving {file}; stop with Ctrl-C\n")
        for name, value in service.endpoint.variables.items():
            if name.endswith(("_BASE_URL", "_API_KEY")):
                click.echo(f"export {name}={value}")  # a key of ours, which the agent needs
        wait_for_stop()
        if faults is not None:
            from offbook.checks.fault_outcomes import judge_faults

            # A bad one fails nothing: what a client that we did not start did is often unknown.
            hub.emit_verdict(judge_faults(events))
    report_faults(faults, events)
    service.raise_failures()
    return 0


@contextmanager
def _stop_signal() -> Generator[Callable[[], object]]:
    """Handle Ctrl-C and SIGTERM in this block; yield a function that waits for one of them."""
    # A pipe, not an event: a signal just before `Event.wait` would not end it.
    stopped, stop = os.pipe()
    os.set_blocking(stop, False)
    signal.set_wakeup_fd(stop)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)
    try:
        yield lambda: os.read(stopped, 1)
    finally:
        signal.set_wakeup_fd(-1)
        os.close(stopped)
        os.close(stop)


@click.command("mcp", epilog=MCP_EXAMPLE)
@click.option("--http", is_flag=True, help="Serve streamable HTTP instead of stdin and stdout.")
@click.option(
    "--port",
    default=8111,
    show_default=True,
    type=PORT_NUMBER,
    help="Port for HTTP; 0 selects a free one.",
)
def mcp(*, http: bool, port: int) -> None:
    """Serve the test tools to agents, over the Model Context Protocol."""
    if http:
        from offbook.surfaces.mcp_server import serve_http

        serve_http(port, lambda url: echo(f"serving {url}", err=True))
    else:
        from offbook.surfaces.mcp_server import serve_stdio

        serve_stdio()
