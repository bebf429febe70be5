"""`offbook run`, `serve` and `mcp`: a scripted model for commands and clients, tools for agents."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from offbook.cli_options import (
    FAULTS_HELP,
    FILE_PATH,
    PORT_NUMBER,
    FiniteFloat,
    deadline_option,
    echo,
    fault_options,
    json_option,
    live_options,
    network_options,
    print_json,
    report_faults,
    script_option,
    trace_option,
)
from offbook.errors import OffbookError, UsageError
from offbook.exchange.dialects.wire import RULES
from offbook.files import make_temp_folder, remove_temp_folder
from offbook.options import require_some

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from offbook.determinism.faults import Faults
    from offbook.runs.commands import NetworkOptions
    from offbook.trace.events import Event

RUN_EXAMPLE = """\b
Example:
  offbook run --script shop.yaml -- python agent.py
  offbook run --script shop.py --trace run.jsonl -- npm test
  offbook run --script answers.jsonl -- ./agent.sh

\b
The command finds the scripted model in its environment: OPENAI_BASE_URL,
ANTHROPIC_BASE_URL, GOOGLE_GEMINI_BASE_URL and a key for each. Other hosts are
refused by the proxy in its environment, and fail the run.

\b
Exit codes:
  0  the command succeeded and the script was played to its end
  1  the command failed, or the agent did not follow the script
  2  wrong usage, an unreadable file, or a command that cannot be started
  130, 143, 129  interrupted by Ctrl-C, SIGTERM, SIGHUP; the command was ended
"""


lenient_option = click.option(
    "--lenient",
    multiple=True,
    metavar="RULE",
    help="Accept requests that break this provider rule; repeatable.",
)
_rules = "\n".join(f"  {name:<20} {description}" for name, description in RULES.items())
LENIENT_HELP = f"\n\n\b\nRules for --lenient; all are enforced by default:\n{_rules}"


@click.command("run", epilog=RUN_EXAMPLE + LENIENT_HELP + FAULTS_HELP)
@click.argument("command", metavar="-- COMMAND…", nargs=-1, type=click.UNPROCESSED)
@script_option
@click.option(
    "--allow-unused-mocks", is_flag=True, help="Warn of mock lines without use, do not fail."
)
@lenient_option
@network_options
@fault_options
@trace_option
@deadline_option
@json_option
@live_options
def run(  # noqa: PLR0913 - one for each option
    command: tuple[str, ...],
    *,
    script: Path | None,
    allow_unused_mocks: bool,
    lenient: tuple[str, ...],
    network: NetworkOptions,
    faults: Faults | None,
    trace: Path | None,
    deadline: float,
    as_json: bool,
) -> int:
    """Run a command against a scripted model. The command must play the script to its end."""
    from offbook.runs.commands import MAX_OUTPUT, run_command
    from offbook.runs.service import warn_of_mocks
    from offbook.sources.loading import open_source
    from offbook.trace.events import FileLine

    require_some(command, "missing command", hint="offbook run --script FILE -- COMMAND")
    if script is None:
        raise UsageError(
            "missing --script",
            hint="scenario files: offbook scenario run FILE…; "
            "the real model: offbook record FILE -- COMMAND",
        )
    source = open_source(script)()
    # A failed run keeps its trace, also without --trace.
    kept = Path(".offbook", "traces", f"{script.stem}.jsonl")
    folder = make_temp_folder()
    written = trace or folder / kept.name
    try:
        result = run_command(
            source,
            command,
            trace=written,
            place=FileLine(str(script)),
            lenient=lenient,
            faults=faults,
            allow_unused_mocks=allow_unused_mocks,
            deadline=deadline,
            # The answer of the command is the evidence of what it did about a fault.
            max_output=MAX_OUTPUT if as_json or faults is not None else 0,
            echo=not as_json,
            **network,
        )
        if trace is None and result.failure is not None and written.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            from shutil import move  # late: `offbook serve` moves no file

            move(written, kept)
            written = kept
    finally:
        remove_temp_folder(folder)
    report_faults(faults, result.events)
    for warning in warn_of_mocks(source, after_run=True):
        echo(f"offbook: {warning}", err=True)
    if as_json:
        print_json(result.as_json())
    if isinstance(result.failure, OffbookError) and written.exists():
        result.failure.add_hint(f"  trace: offbook show {written}")
    result.raise_failure()
    return 0


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

Over HTTP it listens on loopback only, and needs offbook[mcp].
"""

AMOUNT = FiniteFloat(min=0)


@click.command("serve", epilog=SERVE_EXAMPLE + LENIENT_HELP + FAULTS_HELP)
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
