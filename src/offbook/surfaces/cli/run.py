"""`offbook run`: a command against a scripted model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from offbook.cli_options import (
    FAULTS_HELP,
    deadline_option,
    echo,
    fault_options,
    json_option,
    lenient_help,
    lenient_option,
    live_options,
    network_options,
    print_json,
    report_faults,
    script_option,
    trace_option,
)
from offbook.errors import OffbookError, UsageError
from offbook.files import make_temp_folder, remove_temp_folder
from offbook.options import require_some

if TYPE_CHECKING:
    from offbook.determinism.faults import Faults
    from offbook.runs.commands import NetworkOptions

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


@click.command("run", epilog=RUN_EXAMPLE + lenient_help() + FAULTS_HELP)
@click.argument("command", metavar="-- COMMAND…", nargs=-1, type=click.UNPROCESSED)
@script_option
@click.option(
    "--allow-unused-mocks", is_flag=True, help="Warn about unused mock lines, do not fail."
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
