"""`offbook run --playbook FILE -- COMMAND …`: any command, with a scripted model."""

from __future__ import annotations

from pathlib import Path

import click

from offbook.runs.service import Service, raise_all, run_command

EXAMPLE = """\b
Example:
  offbook run --playbook shop.yaml -- python agent.py
  offbook run --playbook shop.py --trace run.jsonl -- npm test

\b
The command finds the model in its environment: OPENAI_BASE_URL,
ANTHROPIC_BASE_URL, GOOGLE_GEMINI_BASE_URL and a key for each.

\b
Exit codes:
  0  the command succeeded, and the script was played to its end
  1  the command failed, or the script and the agent disagree
  2  the file cannot be read, or the command cannot be started
"""


@click.command("run", epilog=EXAMPLE, context_settings={"ignore_unknown_options": True})
@click.option(
    "--playbook",
    "file",
    type=click.Path(path_type=Path),
    required=True,
    help="What the model does: a playbook, mocks or a cassette.",
)
@click.option("--trace", type=click.Path(path_type=Path), help="Write what happened to this file.")
@click.option(
    "--deadline", default=600.0, show_default=True, help="Seconds that the command may take."
)
@click.argument("command_", metavar="-- COMMAND…", nargs=-1, required=True, type=click.UNPROCESSED)
def command(file: Path, *, trace: Path | None, deadline: float, command_: tuple[str, ...]) -> int:
    """Run any command with a scripted model.

    Then check that it played the script to its end.
    """
    with Service(file, trace=trace) as service:
        outcome = run_command(service, command_, deadline=deadline)
    raise_all(outcome.complaints)
    if outcome.code:
        click.echo(f"offbook: the command failed with exit code {outcome.code}", err=True)
    return int(outcome.code != 0)
