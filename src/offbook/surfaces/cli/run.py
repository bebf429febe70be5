"""`offbook run -- COMMAND`: any command with a scripted model, or a recorded one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from offbook import cli_options
from offbook.cli_options import LENIENT_RULES_HELP, lenient_option
from offbook.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

EXAMPLE = """\b
Example:
  offbook run --playbook shop.yaml -- python agent.py
  offbook run --playbook shop.py --trace run.jsonl -- npm test
  offbook run --mocks answers.jsonl -- ./agent.sh
  offbook run --record-mocks mocks.jsonl -- python agent.py

\b
With --playbook or --mocks, the command finds the model in its environment:
OPENAI_BASE_URL, ANTHROPIC_BASE_URL, GOOGLE_GEMINI_BASE_URL and a key for each.
With --record-mocks it is the real model, called with the keys you have.

\b
Exit codes:
  0  the command succeeded, and the script was played to its end
  1  the command failed, or the script and the agent disagree
  2  wrong usage, a file that cannot be read, a command that cannot be started
"""

SCRIPTED = "a command with a scripted model"
RECORDED = "a command that is recorded"
# An option of the other mode would have no effect, so it is rejected.
MODES = {
    SCRIPTED: "playbook mocks lenient trace deadline",
    RECORDED: "record_mocks upstream replace trace deadline",
}


@click.command("run", epilog=EXAMPLE + LENIENT_RULES_HELP)
@click.argument("words", metavar="-- COMMAND…", nargs=-1, required=True)
@click.option(
    "--playbook",
    type=cli_options.FILE_PATH,
    help="Model of the command: a playbook, mocks or a cassette.",
)
@click.option(
    "--mocks",
    type=cli_options.FILE_PATH,
    metavar="FILE",
    help="Model of the command: a mock file (.jsonl).",
)
@lenient_option
@click.option(
    "--record-mocks",
    type=cli_options.FILE_PATH,
    metavar="FILE",
    help="Call the real model and store its answers as mocks (.jsonl).",
)
@cli_options.upstream_option
@click.option("--replace", is_flag=True, help="Overwrite an existing mock file.")
@cli_options.trace_option
@cli_options.deadline_option
def command(words: tuple[str, ...], **given: Any) -> int:
    """Run a command against a scripted model.

    The command must play a playbook to its end. With --record-mocks, it runs against the real
    model, whose answers are stored.
    """
    mode = _choose_mode(given)
    names = MODES[mode].split()
    _refuse_others(mode, names)
    mocks = given.pop("mocks")
    given["playbook"] = given["playbook"] or mocks
    options = {name: given[name] for name in names if name in given}
    return (_serve if mode == SCRIPTED else _record)(words, **options)


def _choose_mode(given: Mapping[str, Any]) -> str:
    script = _choose_script(given["playbook"], given["mocks"])
    if given["record_mocks"] is None and script is None:
        raise UsageError(
            "missing --playbook, --mocks or --record-mocks",
            hint="scenario files: offbook scenario run FILE…",
        )
    if given["record_mocks"] is not None and script is not None:
        other = "--mocks" if given["mocks"] else "--playbook"
        raise UsageError(f"--record-mocks and {other} exclude each other")
    return SCRIPTED if script is not None else RECORDED


def _refuse_others(mode: str, names: Iterable[str]) -> None:
    """Reject options that have no effect in this mode."""
    context = click.get_current_context()
    flags = {option.name: option.opts[0] for option in context.command.params}
    for name in context.params.keys() - {"words", *names}:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(
                f"{flags[name]} has no effect for {mode}", hint="see: offbook run --help"
            )


def _choose_script(playbook: Path | None, mocks: Path | None) -> Path | None:
    if mocks is None:
        return playbook
    if playbook is not None:
        raise UsageError("--playbook and --mocks exclude each other", hint="give one of them")
    if mocks.suffix != ".jsonl":
        raise UsageError(
            "mocks are a .jsonl file", where=str(mocks), hint="a playbook goes to --playbook"
        )
    return mocks


def _serve(
    words: tuple[str, ...],
    *,
    playbook: Path,
    lenient: tuple[str, ...],
    trace: Path | None,
    deadline: float,
) -> int:
    from offbook.runs.commands import Service, raise_failures
    from offbook.runs.run_files import record_trace
    from offbook.sources.loading import open_source

    make = open_source(playbook)
    with (
        record_trace(trace, subject=str(playbook)) as hub,
        Service(make, hub, lenient=lenient) as service,
    ):
        result = service.run(words, deadline=deadline)
        for warning in service.warnings(after_run=True):
            click.echo(f"offbook: {warning}", err=True)
    raise_failures(result.failures)
    if result.exit_code:
        click.echo(f"offbook: the command failed with exit code {result.exit_code}", err=True)
    return int(result.exit_code != 0)


def _record(
    words: tuple[str, ...],
    *,
    record_mocks: Path,
    upstream: str | None,
    replace: bool,
    trace: Path | None,
    deadline: float,
) -> int:
    from offbook.runs.commands import record_mocks as record_answers
    from offbook.runs.run_files import record_trace
    from offbook.sources.live import Live
    from offbook.sources.mocks.mock_recording import MockRecording

    recording = MockRecording(Live(upstream), record_mocks, replace=replace)
    with record_trace(trace, subject=words[0]) as hub:
        done = record_answers(recording, words, hub=hub, deadline=deadline)
    click.echo(f"offbook: recorded {len(recording.lines)} mocks in {record_mocks}", err=True)
    if done.failures:
        raise done.failures[0]
    return int(done.exit_code != 0)
