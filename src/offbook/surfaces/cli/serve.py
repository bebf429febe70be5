"""`offbook serve FILE`: a scripted model for any client, in any language."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import click

from offbook import cli_options
from offbook.cli_options import LENIENT_RULES_HELP, lenient_option
from offbook.runs.commands import Service, raise_failures
from offbook.runs.run_files import record_trace
from offbook.sources.loading import open_source
from offbook.sources.server.endpoint import Pacing

EXAMPLE = """\b
Example:
  offbook serve shop.yaml
  curl -s http://127.0.0.1:4111/v1/chat/completions -d '{"model": "m",
    "messages": [{"role": "user", "content": "Refund order 7"}]}'

\b
A client that asks under /s/NAME has the script for itself, from its beginning.
Stop it with Ctrl-C.

\b
Exit codes:
  0  it was stopped
  1  somebody asked what the script does not answer
  2  the file cannot be read, or the port is in use
"""


AMOUNT = click.FloatRange(min=0)


@click.command("serve", epilog=EXAMPLE + LENIENT_RULES_HELP)
@click.argument("file", type=cli_options.FILE_PATH)
@click.option(
    "--port",
    default=4111,
    show_default=True,
    type=cli_options.PORT_NUMBER,
    help="0 takes any that is free.",
)
@lenient_option
@cli_options.trace_option
@click.option("--first-token", default=0.0, type=AMOUNT, help="Milliseconds until a stream begins.")
@click.option(
    "--tokens-per-second", default=0.0, type=AMOUNT, help="How fast a stream goes; 0 is at once."
)
@click.option(
    "--jitter", default=0.0, type=click.FloatRange(0, 1), help="How uneven: 0.2 is up to a fifth."
)
@click.option("--seed", default=0, help="For the jitter.")
def command(
    file: Path,
    *,
    port: int,
    lenient: tuple[str, ...],
    trace: Path | None,
    first_token: float,
    tokens_per_second: float,
    jitter: float,
    seed: int,
) -> int:
    """Serve a scripted model to any client.

    FILE is a playbook, mocks or a cassette. It answers as OpenAI, Anthropic and Gemini would, on
    this machine only.
    """
    paced = first_token or tokens_per_second
    pacing = Pacing(first_token, tokens_per_second, jitter, seed) if paced else None
    make = open_source(file)
    with (
        record_trace(trace, subject=str(file)) as hub,
        Service(make, hub, port=port, pacing=pacing, lenient=lenient) as service,
    ):
        for warning in service.warnings():
            click.echo(f"offbook: {warning}", err=True)
        click.echo(f"{file} is served; Ctrl-C stops it\n")
        for name, value in service.endpoint.variables.items():
            if name.endswith(("_BASE_URL", "_API_KEY")):
                click.echo(f"export {name}={value}")
        _wait()
    raise_failures(service.failures(strict=False))
    return 0


def _wait() -> None:
    """Until somebody says that it is enough."""
    enough = threading.Event()

    def stop(*_: object) -> None:
        enough.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    enough.wait()
