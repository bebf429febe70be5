"""`offbook run`: scenario files, the loop in a workspace, or any command with a scripted model."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections import Counter
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.core import ParameterSource

from offbook import cli_options
from offbook.cli_options import (
    LENIENT_RULES_HELP,
    VALUE_HELP,
    lenient_option,
    print_json,
    read_env,
    read_list,
)
from offbook.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

EXAMPLE = """\b
Example:
  offbook run scenarios/ --jobs 4
  offbook run flow.yaml --reports out --fail-on-flaky
  offbook run auth.yaml --record
  offbook run scenarios/ --junit out/junit.xml --ctrf out/ctrf.json
  offbook run flow --task "Add error handling" --mock-responses answers.yaml
  offbook run flow --task "Add error handling" --command "my-agent --quiet"
  offbook run flow --task "Add error handling" --backend claude --playbook api.yaml
  offbook run --playbook shop.yaml -- python agent.py
  offbook run --playbook shop.py --trace run.jsonl -- npm test
  offbook run --mocks answers.jsonl -- ./agent.sh
  offbook run --record-mocks mocks.jsonl -- python agent.py

\b
With --playbook or --mocks, the command finds the model in its environment:
OPENAI_BASE_URL, ANTHROPIC_BASE_URL, GOOGLE_GEMINI_BASE_URL and a key for each.
With --record-mocks it is the real model, asked with the keys you have.

\b
Exit codes:
  0  every scenario passed; the loop kept its promise; the command succeeded,
     and the script was played to its end
  1  a scenario failed, or was flaky with --fail-on-flaky; the loop met a limit;
     the command failed, or the script and the agent disagree
  2  wrong usage, a file that cannot be read, a command that cannot be started
"""

SCENARIOS = "scenarios"
LOOP = "the loop"
SCRIPTED = "a command with a scripted model"
RECORDED = "a command that is recorded"
# What each way to run takes; an option of another way would do nothing, so it is refused.
WAYS = {
    SCENARIOS: "jobs reports junit tap ctrf record fail_on_flaky as_json",
    LOOP: "task backend line cassette orchestrator max_iterations max_runtime_secs env as_json "
    "mock_responses playbook mocks",
    SCRIPTED: "playbook mocks lenient trace deadline",
    RECORDED: "record_mocks upstream replace trace deadline",
}


@click.command("run", epilog=EXAMPLE + LENIENT_RULES_HELP)
@click.argument("words", metavar="FILE… | ID | -- COMMAND…", nargs=-1, required=True)
@click.option("--jobs", default=0, help="How many scenarios at once; as many as cores by default.")
@click.option(
    "--reports",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".offbook/reports"),
    show_default=True,
    help="Where the reports of scenarios go.",
)
@click.option("--junit", type=cli_options.FILE_PATH, help="One report over all scenarios …")
@click.option("--tap", type=cli_options.FILE_PATH, help="… as TAP.")
@click.option("--ctrf", type=cli_options.FILE_PATH, help="… as CTRF.")
@click.option(
    "--record", is_flag=True, help="Record the cassettes of scenarios, with their agents."
)
@click.option("--fail-on-flaky", is_flag=True, help="Passed only after a failure is no pass.")
@click.option("--task", help="What the loop works on, in the workspace ID.")
@click.option("--backend", help="mock, replay, playbook, command, claude, codex, gemini, kiro, pi.")
@click.option("--command", "line", help="The command of the backend `command`.")
@click.option(
    "--orchestrator", default="", metavar="NAME", help="Whose loop it is: ralph, or ours."
)
@click.option("--cassette", default="", metavar="NAME", help="What the backend `replay` replays.")
@click.option("--max-iterations", default=5, show_default=True)
@click.option("--max-runtime-secs", default=300.0, show_default=True)
@cli_options.env_option
@click.option("--mock-responses", multiple=True, metavar="VALUE", help=f"Answers: {VALUE_HELP}.")
@click.option(
    "--playbook",
    type=cli_options.FILE_PATH,
    help="What the model of the agent does: a playbook, mocks or a cassette.",
)
@click.option(
    "--mocks",
    type=cli_options.FILE_PATH,
    metavar="FILE",
    help="What the model of the agent answers: a mock file (.jsonl).",
)
@lenient_option
@click.option(
    "--record-mocks",
    type=cli_options.FILE_PATH,
    metavar="FILE",
    help="Ask the real model, and keep its answers as mocks (.jsonl).",
)
@cli_options.upstream_option
@click.option("--replace", is_flag=True, help="Begin a mock file that is there already anew.")
@cli_options.trace_option
@cli_options.deadline_option
@cli_options.json_option
def command(words: tuple[str, ...], **given: Any) -> int:
    """Run scenarios, the loop, or any command.

    Scenario files are played side by side. With --task, the loop works in the workspace ID. With
    --playbook or --mocks alone, a command runs with a scripted model, and has to play a playbook
    to its end; with --record-mocks, it runs with the real one.
    """
    way = _choose_way(given)
    taken = WAYS[way].split()
    _refuse_others(way, taken)
    mocks = given.pop("mocks")
    given["playbook"] = given["playbook"] or mocks
    go = {SCENARIOS: _play, LOOP: _work, SCRIPTED: _serve, RECORDED: _record}
    return go[way](words, **{name: given[name] for name in taken if name in given})


def _choose_way(given: Mapping[str, Any]) -> str:
    task, script = given["task"], _choose_script(given["playbook"], given["mocks"])
    if given["record_mocks"] is not None:
        if script is not None or task is not None:
            other = "--task" if script is None else "--mocks" if given["mocks"] else "--playbook"
            raise UsageError(f"--record-mocks and {other} exclude each other")
        return RECORDED
    if task is not None:
        return LOOP
    return SCENARIOS if script is None else SCRIPTED


def _refuse_others(way: str, taken: Iterable[str]) -> None:
    """Refuse the options that were given, and that this way to run does not take."""
    context = click.get_current_context()
    names = {option.name: option.opts[0] for option in context.command.params}
    for name in context.params.keys() - {"words", *taken}:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(
                f"{names[name]} does nothing for {way}", hint="see: offbook run --help"
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


def _work(  # noqa: PLR0913 - one for each option
    words: tuple[str, ...],
    *,
    task: str,
    backend: str | None,
    line: str | None,
    cassette: str,
    playbook: Path | None,
    env: tuple[str, ...],
    mock_responses: tuple[str, ...],
    as_json: bool,
    **limits: Any,
) -> int:
    if len(words) != 1:
        raise UsageError("a task needs one workspace", hint='offbook run ID --task "…"')
    from offbook.workflows.loop_run import run

    ran = asyncio.run(
        run(
            words[0],
            task,
            backend=backend or ("command" if line else "replay" if cassette else "mock"),
            command=shlex.split(line or ""),
            playbook=str(playbook or ""),
            cassette=cassette,
            env=read_env(env),
            mock_responses=read_list(mock_responses, "mock_responses"),
            progress=_show_progress if sys.stderr.isatty() else None,
            **limits,
        )
    )
    if as_json:
        print_json(ran)
    else:
        click.echo(ran.stdout, nl=not ran.stdout.endswith("\n"))
        for said in filter(None, (*ran.warnings, ran.error)):
            click.echo(f"offbook: {said}", err=True)
        click.echo(
            f"{ran.termination_reason} after {ran.iterations} iterations, "
            f"{ran.elapsed_secs:.1f} s, exit code {ran.exit_code}"
        )
        click.echo(ran.session_file)
    return int(ran.exit_code != 0 or bool(ran.error))


def _show_progress(done: float, total: float | None, message: str) -> None:  # noqa: ARG001 - as it is told
    click.echo(f"{message}, of {total:g} at most" if total else message, err=True)


def _serve(
    words: tuple[str, ...],
    *,
    playbook: Path,
    lenient: tuple[str, ...],
    trace: Path | None,
    deadline: float,
) -> int:
    from offbook.runs.commands import Service, raise_failures, serve_command
    from offbook.runs.run_files import record_trace
    from offbook.sources.loading import open_source

    make = open_source(playbook)
    with (
        record_trace(trace, subject=str(playbook)) as hub,
        Service(make, hub, lenient=lenient) as service,
    ):
        outcome = serve_command(service, words, deadline=deadline)
        for remark in service.remarks(used=True):
            click.echo(f"offbook: {remark}", err=True)
    raise_failures(outcome.complaints)
    if outcome.code:
        click.echo(f"offbook: the command failed with exit code {outcome.code}", err=True)
    return int(outcome.code != 0)


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
    if done.failure is not None:
        raise done.failure
    return int(done.code != 0)


def _play(
    words: tuple[str, ...],
    *,
    jobs: int,
    reports: Path,
    record: bool,
    fail_on_flaky: bool,
    as_json: bool,
    **combined: Path | None,
) -> int:
    from offbook.workflows.scenario import find_scenarios
    from offbook.workflows.scenario_runner import ScenarioResult, run_scenarios, write_reports

    scenarios = find_scenarios(map(Path, words))
    over = count(1)

    def tell(played: ScenarioResult) -> None:
        sign = "✗" if not played.passed else "~" if played.flaky else "✓"
        tries = f", {played.attempts} attempts" if played.attempts > 1 else ""
        where = f" [{next(over)}/{len(scenarios)}]" if len(scenarios) > 1 else ""
        click.echo(f"{sign} {played.name} ({played.seconds:.2f} s{tries}){where}", err=as_json)
        for said in played.error.splitlines():
            click.echo(f"    {said}", err=as_json)
        if played.session and not played.passed:
            click.echo(f"    the session: {played.session}", err=as_json)

    played = asyncio.run(
        run_scenarios(scenarios, jobs=jobs, reports=reports, recording=record, told=tell)
    )
    write_reports(played, {name: path for name, path in combined.items() if path is not None})
    counts = Counter("passed" if one.passed else "failed" for one in played)
    flaky = sum(one.flaky for one in played)
    if as_json:
        totals = {"passed": counts["passed"], "failed": counts["failed"], "flaky": flaky}
        told = [msgspec.structs.asdict(one) for one in played]
        for one in told:
            one.pop("suite")
        print_json({**totals, "scenarios": told})
    else:
        click.echo(f"{counts['passed']} passed, {counts['failed']} failed, {flaky} flaky")
    return int(bool(counts["failed"]) or (fail_on_flaky and bool(flaky)))
