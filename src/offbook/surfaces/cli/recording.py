"""`offbook record`, `offbook replay` and `offbook determinism`: commands and their cassettes."""

from __future__ import annotations

import shlex
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from offbook.cli_options import (
    FAULTS_HELP,
    FILE_PATH,
    deadline_option,
    echo,
    fault_options,
    json_option,
    live_options,
    network_options,
    preset_option,
    print_json,
    read_redactions,
    redact_option,
    refuse_together,
    report_faults,
    script_option,
    trace_option,
    upstream_option,
)
from offbook.errors import UsageError, counted
from offbook.options import require_some

if TYPE_CHECKING:
    from offbook.determinism.faults import Faults
    from offbook.exchange.model import ModelSource
    from offbook.runs.commands import NetworkOptions
    from offbook.sources.cassette.recording import Recording
    from offbook.sources.cassette.replay import Cassette
    from offbook.sources.live import Live

UNREADABLE = 2  # the exit code of a scenario that cannot be read
RECORD_EXAMPLE = """\b
Example:
  offbook record tests/refund.yaml -- python agent.py
  offbook record tests/refund.yaml --upstream http://127.0.0.1:8080/v1 -- python agent.py
  offbook record tests/refund.yaml --only 2 -- python agent.py
  offbook record mocks.jsonl -- python agent.py

\b
FILE is a cassette (.yaml), or mocks (.jsonl). Keys come from your environment
and are never written. Requests go to the base URLs of your environment
(OPENAI_BASE_URL, …). Values that differ between two runs of Claude Code, Codex
and Gemini CLI are redacted.

\b
Exit codes:
  0  recorded
  1  the command failed; the interactions before that are kept
  2  the file exists, is in use by another recording, or cannot be read
"""

REPLAY_EXAMPLE = """\b
Example:
  offbook replay tests/refund.yaml -- python agent.py
  offbook replay tests/refund.yaml --loose -- npm test
  offbook replay tests/refund.yaml --until 39 -- python agent.py
  offbook replay tests/refund.yaml --from 39 --live -- python agent.py
  offbook replay tests/refund.yaml --from 39 --script new.yaml -- python agent.py
  offbook replay tests/refund.yaml --shrink short.yaml -- python agent.py
  offbook replay tests/refund.yaml --twice -- python agent.py

\b
Exit codes:
  0  the command succeeded and used the whole cassette, or reached --until;
     with --shrink, the shortest tape is written; with --twice, no result differs
  1  the command failed, sent another request, or left interactions unused
  2  the cassette cannot be read, or the command cannot be started
"""

DETERMINISM_EXAMPLE = """\b
Example:
  offbook determinism tests/test_shop.py::test_refund --runs 3
  offbook determinism agent.py --cassette tests/refund.yaml --freeze-clock
  offbook determinism scenarios/refund.yaml

\b
TARGET is a pytest node, a Python script, a scenario, or any program. A file
beside it (agent.cassette.yaml, agent.mocks.jsonl) is its model. With --live,
the first pass calls the real model and is recorded.

\b
Exit codes:
  0  all passes are equal
  1  a pass differs (the first divergence is shown), or all passes failed
  2  the target cannot be run
"""

command_argument = click.argument(
    "command", metavar="-- COMMAND…", nargs=-1, type=click.UNPROCESSED
)


@click.command("record", epilog=RECORD_EXAMPLE)
@click.argument("file", type=FILE_PATH)
@command_argument
@click.option(
    "--append", is_flag=True, help="Extend a cassette: replay what it has, record what is new."
)
@click.option("--replace", is_flag=True, help="Overwrite an existing file.")
@click.option("--only", type=int, metavar="N", help="Record only interaction N again.")
@click.option(
    "--tracks",
    default="model",
    show_default=True,
    help="What is recorded: model, tools, people, http, clock, files, or all.",
)
@upstream_option
@redact_option
@preset_option
@click.option("--task", default="", help="The task of the recording; a replay can check it.")
@click.option("--price", multiple=True, metavar="MODEL=IN/OUT", help="Dollars per million tokens.")
@network_options
@trace_option
@deadline_option
@json_option
@live_options
def record(  # noqa: PLR0913 - one for each option
    file: Path,
    command: tuple[str, ...],
    *,
    append: bool,
    replace: bool,
    only: int | None,
    tracks: str,
    upstream: str | None,
    redact: tuple[str, ...],
    preset: tuple[str, ...],
    task: str,
    price: tuple[str, ...],
    network: NetworkOptions,
    trace: Path | None,
    deadline: float,
    as_json: bool,
) -> int:
    """Run a command with the real model, and record a cassette or mocks."""
    from offbook.runs.commands import record_command
    from offbook.sources.cassette.journal import load_cassette
    from offbook.sources.cassette.maintenance import describe_limits
    from offbook.sources.cassette.mismatch import format_numbers
    from offbook.sources.cassette.recording import Recording, price_table
    from offbook.sources.live import Live
    from offbook.trace.redaction import preset_for_command

    require_some(command, "missing command to record", hint=f"offbook record {file} -- COMMAND")
    rules = read_redactions(redact, preset or preset_for_command(command))
    live = Live(upstream)
    if file.suffix == ".jsonl":
        if append or only is not None or task or price or tracks != "model":
            raise UsageError(
                "--append, --only, --task, --price and --tracks need a cassette",
                where=str(file),
                hint="record to a .yaml file",
            )
        from offbook.runs.commands import record_mocks
        from offbook.sources.mocks.mock_recording import MockRecording

        mocks = MockRecording(live, file, replace=replace)
        result = record_mocks(mocks, command, trace=trace, deadline=deadline, **network)
        echo(f"offbook: recorded {counted(len(mocks.lines), 'mock')} in {file}", err=True)
        result.raise_failure()
        return int(result.exit_code != 0)
    if only is not None:
        return _record_again(live, file, command, only, deadline=deadline, **network)
    recording = Recording(
        live,
        file,
        redactions=rules,
        append=append,
        replace=replace,
        backend=command[0],
        task=task,
        price=price_table(_parse_price(text) for text in price),
        tracks=tracks,
    )
    result, summary = record_command(
        recording, command, trace=trace, deadline=deadline, echo=not as_json, **network
    )
    if as_json:
        print_json({**msgspec.to_builtins(summary), "exit_code": result.exit_code})
    else:
        cost = "unknown" if summary.cost_dollars is None else f"${summary.cost_dollars:.4f}"
        state = "interrupted: kept" if summary.interrupted else "recorded"
        replayed = f", replayed {summary.replayed}" if append else ""
        echo(
            f"offbook: {state} {counted(summary.interactions, 'interaction')} in {file}{replayed} "
            f"({summary.total_tokens} tokens, cost {cost})"
            if summary.interactions or not replace
            else f"offbook: nothing was recorded, {file} is unchanged",
            err=True,
        )
        if recording.unused:
            echo(
                "offbook: interactions that this run did not use can be removed: offbook cassette "
                f"edit {shlex.quote(str(file))} --trim {format_numbers(recording.unused)}",
                err=True,
            )
        for limit in describe_limits(load_cassette(file)):
            echo(f"offbook: {limit}", err=True)
    result.raise_failure()
    return int(result.exit_code != 0)


def _record_again(
    live: Live, file: Path, command: tuple[str, ...], number: int, **options: Any
) -> int:
    """Replay a cassette except for one interaction, which is recorded again."""
    from offbook.runs.agents import ANY_EXIT_CODE
    from offbook.runs.commands import INCOMPLETE_REPLY, run_command
    from offbook.sources.cassette.mismatch import format_numbers
    from offbook.sources.cassette.recording import Rerecording

    with Rerecording(file, number, live) as rerecording:
        result = run_command(rerecording, command, codes=ANY_EXIT_CODE, **options)
        result.raise_failure()  # in the block: the cassette stays as it is
    if not rerecording.recorded:
        raise UsageError(
            INCOMPLETE_REPLY
            if rerecording.interrupted
            else f"the command never reached interaction {number}",
            where=str(file),
            hint="the cassette is unchanged",
        )
    echo(f"offbook: recorded interaction {number} of {file} again", err=True)
    if rerecording.outdated:
        line = shlex.join(["offbook", "record", str(file), "--replace", "--", *command])
        numbers = format_numbers(rerecording.outdated, separator=", ")
        echo(
            f"offbook: interactions {numbers} continue it with their old answers; "
            f"to record all again: {line}",
            err=True,
        )
    return int(result.exit_code != 0)


def _parse_age(text: str) -> timedelta:
    units = {"d": "days", "h": "hours"}
    if not text[:-1].isdigit() or text[-1] not in units:
        raise UsageError(f"invalid --max-age {text!r}", hint="write days or hours: 30d, 12h")
    return timedelta(**{units[text[-1]]: int(text[:-1])})


def _parse_price(text: str) -> tuple[str, float, float]:
    model, _, prices = text.partition("=")
    input_price, _, output_price = prices.partition("/")
    try:
        return model, float(input_price), float(output_price)
    except ValueError as error:
        raise UsageError(
            f"invalid --price {text!r}", hint="write MODEL=IN/OUT: --price gpt-5=1.25/10"
        ) from error


@click.command("replay", epilog=REPLAY_EXAMPLE + FAULTS_HELP)
@click.argument("file", type=FILE_PATH, metavar="CASSETTE")
@command_argument
@click.option(
    "--strict/--loose", default=True, help="Compare whole requests, or only their position."
)
@click.option(
    "--allow-passthrough", is_flag=True, help="Send unrecorded requests to the real model."
)
@click.option(
    "--tracks",
    default="model",
    show_default=True,
    help="What is answered from the tape: model, tools, people, http, clock, files, or all.",
)
@click.option("--until", type=int, metavar="N", help="Stop the run after interaction N.")
@click.option(
    "--from", "fork", type=int, metavar="N", help="Go on after interaction N with another model."
)
@script_option
@click.option("--live", is_flag=True, help="With --from: go on with the real model.")
@click.option(
    "--shrink",
    type=FILE_PATH,
    metavar="FILE",
    help="Write the shortest tape with which the command still fails.",
)
@click.option("--twice", is_flag=True, help="Run twice with the real tools; report what differs.")
@upstream_option
@redact_option
@preset_option
@click.option("--task", default="", help="Reject a recording of another task.")
@click.option(
    "--cursor", type=FILE_PATH, help="Continue where the last replay with this file ended."
)
@click.option("--max-age", metavar="AGE", help="Refuse an older recording: 30d, 12h.")
@click.option("--timed", is_flag=True, help="Stream with the recorded delays.")
@network_options
@fault_options
@trace_option
@deadline_option
@json_option
@live_options
def replay(  # noqa: PLR0913 - one for each option
    file: Path,
    command: tuple[str, ...],
    *,
    strict: bool,
    allow_passthrough: bool,
    tracks: str,
    until: int | None,
    fork: int | None,
    script: Path | None,
    live: bool,
    shrink: Path | None,
    twice: bool,
    upstream: str | None,
    redact: tuple[str, ...],
    preset: tuple[str, ...],
    task: str,
    cursor: Path | None,
    max_age: str | None,
    timed: bool,
    network: NetworkOptions,
    faults: Faults | None,
    trace: Path | None,
    deadline: float,
    as_json: bool,
) -> int:
    """Run a command against a cassette. It must use all of it and send no other request."""
    from offbook.runs.commands import run_command
    from offbook.sources.cassette.format import parse_tracks
    from offbook.sources.cassette.replay import VERDICT_NAME, Cassette
    from offbook.trace.events import FileLine

    if not command:
        raise UsageError("missing command to replay", hint=f"offbook replay {file} -- COMMAND")
    passthrough = _open_other_model(script, upstream, live=live)
    forks = fork is not None or "model" not in parse_tracks(tracks)
    if forks != (passthrough is not None):
        raise UsageError(
            "--script and --live continue a tape after --from, or replace its track model",
            hint=f"offbook replay {file} --from N --live -- COMMAND",
        )
    refuse_together(**{"from": fork, "until": until})
    if allow_passthrough and passthrough is None:
        from offbook.sources.live import Live

        passthrough = Live(upstream)
    cassette = Cassette(
        file,
        strict=strict,
        passthrough=passthrough,
        redactions=read_redactions(redact, preset),
        cursor=cursor,
        timed=timed,
        max_age=None if max_age is None else _parse_age(max_age),
        tracks=tracks,
        until=until if fork is None else fork,
        record_command=f"offbook record {shlex.join([str(file)])} --only {{number}} "
        f"-- {shlex.join(command)}",
    )
    with closing(cassette):
        if task:
            cassette.check_task(task)
        if shrink is not None or twice:
            other = {"until": until, "from": fork, "cursor": cursor}
            refuse_together(shrink=shrink, twice=twice, **other)
        if shrink is not None:
            return _shrink(cassette, shrink, command, deadline, network, as_json=as_json)
        if twice:
            return _run_twice(cassette, command, deadline, network, as_json=as_json)
        kept = None if fork is None else _keep_fork(cassette, file, fork)
        try:
            result = run_command(
                kept or cassette,
                command,
                trace=trace,
                place=FileLine(str(file)),
                faults=faults,
                deadline=deadline,
                echo=not as_json,
                **network,
            )
        except BaseException:  # the command was not started
            if kept is not None:
                kept.discard()
            raise
        summary = cassette.summary()
        if kept is not None:
            kept.close({"fork": {"parent": file.name, "step": fork}})
            echo(
                f"offbook: the fork is in {kept.path}; to see where it parts: "
                f"{shlex.join(['offbook', 'compare', str(file), str(kept.path)])}",
                err=True,
            )
    report_faults(faults, result.events)
    if as_json:
        print_json({**msgspec.to_builtins(summary), **result.as_json()})
    if until is not None and cassette.forked:
        line = shlex.join(["offbook", "replay", str(file), "--from", str(until), "--live", "--"])
        echo(
            f"offbook: stopped after interaction {until} of {len(cassette.file)}; "
            f"to go on: {line} {shlex.join(command)}",
            err=True,
        )
        return 0
    result.raise_failure()
    remarks = [v.message for v in result.verdicts if v.check == VERDICT_NAME and v.message]
    if not remarks and not as_json:
        replayed = counted(summary.interactions_replayed, "interaction")
        remarks = [f"replayed {replayed}, cost $0.00"]
    for remark in remarks:
        echo(f"offbook: {remark}", err=True)
    return 0


def _keep_fork(cassette: Cassette, file: Path, step: int) -> Recording:
    """Return a recording of a fork, in a new file next to its parent."""
    from offbook.sources.cassette.recording import Recording

    path, number = file.with_name(f"{file.stem}.fork-{step}{file.suffix}"), 1
    while path.exists():
        number += 1
        path = file.with_name(f"{file.stem}.fork-{step}-{number}{file.suffix}")
    return Recording(cassette, path, **cassette.recording_options)


def _shrink(
    cassette: Cassette,
    output: Path,
    command: tuple[str, ...],
    deadline: float,
    network: NetworkOptions,
    *,
    as_json: bool,
) -> int:
    """Write the shortest tape with which a command fails."""
    from offbook.runs.commands import find_command_failure
    from offbook.sources.cassette.rerunning import shrink_tape

    def find_failure(source: ModelSource) -> str | None:
        return find_command_failure(source, command, deadline=deadline, **network)

    shrunk = shrink_tape(cassette, find_failure, output)
    if as_json:
        print_json(shrunk)
        return 0
    replays = counted(shrunk.replays, "replay")
    echo(
        f"{output}: {shrunk.interactions} of {counted(shrunk.recorded, 'interaction')} show the "
        f"failure ({replays}): {shrunk.failure}\n"
        f"to see it: {shlex.join(['offbook', 'replay', str(output), '--', *command])}"
    )
    return 0


def _run_twice(
    cassette: Cassette,
    command: tuple[str, ...],
    deadline: float,
    network: NetworkOptions,
    *,
    as_json: bool,
) -> int:
    """Report the tools whose results differ in two runs of a command."""
    from offbook.runs.agents import ANY_EXIT_CODE
    from offbook.runs.commands import run_command

    def run(source: ModelSource) -> None:
        result = run_command(
            source, command, deadline=deadline, echo=False, codes=ANY_EXIT_CODE, **network
        )
        result.raise_failure()

    compared = cassette.compare_tools(run)
    if as_json:
        print_json(compared)
        return int(bool(compared.changes))
    for change in compared.changes:
        echo(str(change))
    results = counted(compared.calls, "call")
    differ = f"{len(compared.changes)} with another result" if compared.changes else "no difference"
    echo(f"offbook: {results} of tools compared in two runs: {differ}", err=True)
    return int(bool(compared.changes))


def _open_other_model(
    script: Path | None, upstream: str | None, *, live: bool
) -> ModelSource | None:
    """Return the model that answers in place of a tape, if there is one."""
    refuse_together(script=script, live=live)
    if script is not None:
        from offbook.sources.loading import open_source

        return open_source(script)()
    if live:
        from offbook.sources.live import Live

        return Live(upstream)
    return None


@click.command("determinism", epilog=DETERMINISM_EXAMPLE)
@click.argument("target")
@click.option("--runs", default=2, show_default=True, help="Number of passes.")
@click.option("--cassette", type=FILE_PATH, help="The model: a cassette or mocks.")
@click.option("--live", is_flag=True, help="Call the real model in the first pass.")
@upstream_option
@click.option("--shuffle/--no-shuffle", default=True, help="Use another hash seed in each pass.")
@click.option("--freeze-clock/--no-freeze-clock", help="Stop the clock of Python targets.")
@redact_option
@preset_option
@deadline_option
@json_option
def determinism(  # noqa: PLR0913 - one for each option
    target: str,
    *,
    runs: int,
    cassette: Path | None,
    live: bool,
    upstream: str | None,
    shuffle: bool,
    freeze_clock: bool,
    redact: tuple[str, ...],
    preset: tuple[str, ...],
    deadline: float,
    as_json: bool,
) -> int:
    """Run a target several times with the same model, and report what differs."""
    from offbook.runs.determinism import (
        SCENARIO_SUFFIXES,
        DeterminismTrial,
        check_determinism,
        resolve_target,
    )
    from offbook.sources.live import Live

    command, neighbour = resolve_target(target)
    uses_live = live or upstream is not None
    trial = DeterminismTrial(
        tuple(command),
        cassette or (None if uses_live else neighbour),
        Live(upstream) if uses_live else None,
        shuffle,
        freeze_clock,
        read_redactions(redact, preset),
        deadline,
    )
    report = check_determinism(trial, runs)
    if as_json:
        print_json(report)
    elif report.divergences:
        for divergence in report.divergences:
            echo(str(divergence))
    else:
        failed = f"; each exited with {report.code}" if report.code else ""
        echo(f"{target}: {runs} passes are equal ({report.exchanges} exchanges){failed}")
    if report.code == UNREADABLE and Path(target).suffix in SCENARIO_SUFFIXES:
        return UNREADABLE
    return int(bool(report.divergences or report.code))
