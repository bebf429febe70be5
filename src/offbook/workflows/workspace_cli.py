"""The commands `offbook workspace`.

Each command parses its options and calls the test tool of the same name. The tools are imported
inside the commands: `offbook workspace inspect` needs a tenth of the modules of `run`.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from offbook.cli_options import (
    VALUE_HELP,
    env_option,
    json_option,
    live_options,
    preset_option,
    print_json,
    print_redacted,
    read_env,
    read_list,
    read_object,
    read_pairs,
    read_redactions,
)
from offbook.errors import counted
from offbook.workflows.snapshots_cli import diff_workspace, take_snapshot

if TYPE_CHECKING:
    from offbook.workflows.loop_tools import RecordResult, ReplayResult

STATUS_SIGNS = {"pass": "✓", "warn": "!", "fail": "✗", "no_data": "?", "error": "✗"}
BACKENDS_HELP = "claude, codex, gemini, kiro, pi, playbook or command."
PLAYBOOK_HELP = "Model of the agent: a playbook, mocks or a cassette."


@click.group(
    "workspace",
    epilog="\b\nExample:\n  offbook workspace setup flow\n"
    "  offbook workspace run flow --task 'Add error handling' --mock-responses answers.yaml",
)
def workspace() -> None:
    """Set up workspaces, run the loop in them and check the results."""


for _command in (take_snapshot, diff_workspace):
    workspace.add_command(_command)


@workspace.command(
    "setup",
    epilog="""\b
Example:
  offbook workspace setup flow --fixture src/main.py="print()" --scratchpad "## Plan"
  offbook workspace setup flow --fixtures files.yaml --config preset.yaml --json
""",
)
@click.argument("workspace_id", metavar="ID")
@click.option("--fixture", multiple=True, metavar="PATH=TEXT", help="A file to write; repeatable.")
@click.option("--fixtures", metavar="VALUE", help=f"File texts by path: {VALUE_HELP}.")
@click.option("--config", metavar="VALUE", help=f"Hats and limits of the loop: {VALUE_HELP}.")
@click.option("--scratchpad", metavar="TEXT", help="Initial text of .agent/scratchpad.md.")
@json_option
def setup_workspace(
    workspace_id: str,
    *,
    fixture: tuple[str, ...],
    fixtures: str | None,
    config: str | None,
    scratchpad: str | None,
    as_json: bool,
) -> None:
    """Create a workspace with files, configuration and scratchpad."""
    from offbook.workflows.presets import read_preset
    from offbook.workflows.tools import setup

    if config and not config.lstrip().startswith(("{", "[", "-")):
        read_preset(config)  # a file: an error has its line
    # --fixture wins over a file of the same path in --fixtures.
    files = (read_object(fixtures, "fixtures") or {}) | read_pairs(fixture, "fixture")
    result = setup(
        workspace_id,
        fixtures=files,
        config=read_object(config, "config"),
        scratchpad=scratchpad,
    )
    if as_json:
        print_json(result)
        return
    click.echo(result.workspace_path)
    for name in result.created_files:
        click.echo(f"  {name}")


@workspace.command(
    "run",
    epilog="""\b
Example:
  offbook workspace run flow --task "Add error handling" --mock-responses answers.yaml
  offbook workspace run flow --task "Add error handling" --command "my-agent --quiet"
  offbook workspace run flow --task "Add error handling" --backend claude --playbook api.yaml

\b
Exit codes:
  0  the loop kept its completion promise
  1  the loop reached a limit, or the script and the agent disagree
  2  wrong usage
""",
)
@click.argument("workspace_id", metavar="ID")
@click.option("--task", required=True, help="Task of the loop.")
@click.option("--backend", help=f"mock, replay, {BACKENDS_HELP}")
@click.option("--command", "command_line", default="", help="Command of the backend `command`.")
@click.option("--orchestrator", default="", metavar="NAME", help="Run the loop of `ralph` instead.")
@click.option("--cassette", default="", metavar="NAME", help="Cassette of the backend `replay`.")
@click.option("--max-iterations", default=5, show_default=True)
@click.option("--max-runtime-secs", default=300.0, show_default=True)
@env_option
@click.option("--mock-responses", multiple=True, metavar="VALUE", help=f"Answers: {VALUE_HELP}.")
@click.option("--playbook", "--mocks", default="", metavar="FILE", help=PLAYBOOK_HELP)
@json_option
@live_options
def run_in_workspace(
    workspace_id: str,
    *,
    task: str,
    backend: str | None,
    command_line: str,
    cassette: str,
    env: tuple[str, ...],
    mock_responses: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> int:
    """Run the loop on a task."""
    from offbook.workflows.loop_tools import run

    def print_progress(_: float, total: float | None, message: str) -> None:
        click.echo(f"{message}, of {total:g} at most" if total else message, err=True)

    result = run(
        workspace_id,
        task,
        # An option that only one backend has selects it.
        backend=backend or ("command" if command_line else "replay" if cassette else "mock"),
        command=shlex.split(command_line),
        cassette=cassette,
        env=read_env(env),
        mock_responses=read_list(mock_responses, "mock_responses"),
        progress=print_progress if sys.stderr.isatty() else None,  # not into the logs of CI
        **options,
    )
    if as_json:
        print_json(result)
    else:
        # The agent's output first, then a summary of two lines for people.
        click.echo(result.stdout, nl=not result.stdout.endswith("\n"))
        for line in filter(None, (*result.warnings, result.error)):
            click.echo(f"offbook: {line}", err=True)
        click.echo(
            f"{result.termination_reason} after {counted(result.iterations, 'iteration')}, "
            f"{result.elapsed_secs:.1f} s, exit code {result.exit_code}"
        )
        click.echo(result.session_file)
    return int(result.exit_code != 0 or bool(result.error))


@workspace.command(
    "record",
    epilog="""\b
Example:
  offbook workspace record auth auth_flow --task "Add auth" --backend codex --env OPENAI_API_KEY
  offbook workspace record auth auth_flow --task "Add auth" -- my-agent --quiet

\b
Exit codes:
  0  recorded
  1  the loop failed; the answers until then are kept
  2  the cassette exists already, or wrong usage
""",
)
@click.argument("workspace_id", metavar="ID")
@click.argument("cassette_name", metavar="CASSETTE")
@click.argument("command", metavar="[-- COMMAND…]", nargs=-1, type=click.UNPROCESSED)
@click.option("--task", default="", help="Task of the loop; a replay checks it.")
@click.option("--backend", default="", help=BACKENDS_HELP)
@click.option("--playbook", default="", help=PLAYBOOK_HELP)
@env_option
@click.option("--replace", is_flag=True, help="Overwrite an existing cassette.")
@click.option("--redact", multiple=True, metavar="JSON", help="Redactions to store with it.")
@preset_option
@click.option("--max-iterations", default=10, show_default=True)
@click.option("--max-runtime-secs", default=300.0, show_default=True)
@json_option
def record_in_workspace(
    *,
    command: tuple[str, ...],
    backend: str,
    env: tuple[str, ...],
    redact: tuple[str, ...],
    preset: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> int:
    """Run the loop with a real agent and record a cassette in the workspace."""
    from offbook.trace.redaction import preset_for_command
    from offbook.workflows.loop_tools import record

    result = record(
        **_agent_options(command, backend, env),
        # The output of known clients has ids and dates that differ in each run.
        redactions=read_redactions(redact, preset or preset_for_command(command)),
        **options,
    )
    summary = (
        f"recorded {counted(result.interactions, 'interaction')}: "
        f"{result.termination_reason}, exit code {result.exit_code}\n{result.cassette_path}"
    )
    _print_loop_result(result, summary, as_json=as_json)
    return int(result.exit_code != 0)


@workspace.command(
    "replay",
    epilog="""\b
Example:
  offbook workspace replay auth auth_flow --task "Add auth"
  offbook workspace replay auth auth_flow --task "Add auth" --loose

\b
No agent is started, except with --allow-passthrough.

\b
Exit codes:
  0  the whole cassette was replayed
  1  the loop sent something else, or less, than was recorded
  2  the cassette cannot be read, or wrong usage
""",
)
@click.argument("workspace_id", metavar="ID")
@click.argument("cassette_name", metavar="CASSETTE")
@click.argument("command", metavar="[-- COMMAND…]", nargs=-1, type=click.UNPROCESSED)
@click.option("--task", default="", help="Task of the loop; it must be the recorded one.")
@click.option("--strict/--loose", default=True, help="Compare each prompt, or only its position.")
@click.option("--allow-passthrough", is_flag=True, help="Run the agent for unrecorded prompts.")
@click.option("--backend", default="", help=f"Agent of the passthrough: {BACKENDS_HELP}")
@click.option("--playbook", default="", help=PLAYBOOK_HELP)
@env_option
@click.option("--redact", multiple=True, metavar="JSON", help="Redactions besides the stored ones.")
@preset_option
@click.option("--max-runtime-secs", default=300.0, show_default=True)
@json_option
@live_options
def replay_in_workspace(
    *,
    command: tuple[str, ...],
    backend: str,
    env: tuple[str, ...],
    redact: tuple[str, ...],
    preset: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> int:
    """Run the loop with the answers of a cassette of the workspace."""
    from offbook.workflows.loop_tools import replay

    result = replay(
        **_agent_options(command, backend, env),
        redactions=read_redactions(redact, preset),
        **options,
    )
    summary = (
        f"replayed {counted(result.interactions_replayed, 'interaction')}, "
        f"{result.interactions_passthrough} passed through: "
        f"{result.termination_reason}, exit code {result.exit_code}"
    )
    _print_loop_result(result, summary, as_json=as_json)
    return int(result.exit_code != 0 or bool(result.error))


def _agent_options(command: tuple[str, ...], backend: str, env: tuple[str, ...]) -> dict[str, Any]:
    """Return the agent of a recording as the tools take it."""
    backend = backend or ("command" if command else "")
    return {"command": command, "backend": backend, "env": read_env(env)}


def _print_loop_result(result: RecordResult | ReplayResult, summary: str, *, as_json: bool) -> None:
    if as_json:
        print_json(result)
    else:
        click.echo(summary)
    for line in filter(None, (*result.warnings, result.error)):
        click.echo(f"offbook: {line}", err=True)


@workspace.command(
    "assert",
    epilog="""\b
Example:
  offbook workspace assert flow '{"type": "exit_code", "expected": 0}'
  offbook workspace assert flow assertions.yaml --json

\b
Exit codes:
  0  all assertions hold
  1  an assertion failed, or found no data
  2  wrong usage
""",
)
@click.argument("workspace_id", metavar="ID")
@click.argument("assertions", metavar="ASSERTION…", nargs=-1, required=True)
@json_option
def assert_in_workspace(workspace_id: str, assertions: tuple[str, ...], *, as_json: bool) -> int:
    """Check assertions against the last run.

    All are evaluated, also after a failure. An ASSERTION, or a list of them, is JSON, a JSON or
    YAML file, or - for stdin.
    """
    from offbook.workflows.tools import check

    checked = check(workspace_id, read_list(assertions, "assertions"))
    if as_json:
        print_json(checked)
    else:
        for result in checked.results:
            line = f"{STATUS_SIGNS[result.status]} {result.name}"
            # A message may quote a file or the output, and with it a secret.
            print_redacted(line if result.passed else f"{line}: {result.message}")
        holding = len(checked.results) - checked.failed_count
        click.echo(f"{holding} of {len(checked.results)} hold")
    return int(not checked.passed)


@workspace.command(
    "inspect",
    epilog="""\b
Example:
  offbook workspace inspect flow --format timeline
  offbook workspace inspect flow --topic 'build.*' --limit 10
  offbook workspace inspect flow --filter '{"after_iteration": 1}' --json
""",
)
@click.argument("workspace_id", metavar="ID")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["json", "summary", "timeline"]),
    default="json",
    show_default=True,
)
@click.option("--limit", default=100, show_default=True, help="Maximum number of records.")
@click.option("--filter", "filter_", metavar="VALUE", help=f"Which events: {VALUE_HELP}.")
@click.option("--event", "events", multiple=True, metavar="TYPE", help="Only this type.")
@click.option("--topic", "topics", multiple=True, metavar="GLOB", help="Only matching topics.")
@json_option
def inspect_workspace(
    workspace_id: str,
    *,
    format_: str,
    limit: int,
    filter_: str | None,
    events: tuple[str, ...],
    topics: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show records, a summary or a timeline of the last run."""
    from offbook.workflows.tools import inspect

    # --event and --topic replace the same fields of --filter.
    event_filter = read_object(filter_, "filter") or {}
    if events:
        event_filter["event_types"] = list(events)
    if topics:
        event_filter["topics"] = list(topics)
    result = inspect(workspace_id, filter=event_filter, limit=limit, format=cast("Any", format_))
    if as_json or format_ == "json":
        print_json(result)
    elif format_ == "summary":
        for name, value in result.items():
            click.echo(f"{name}: {value}")
    else:
        for row in result["timeline"]:
            published = ", ".join(row["events"]) or "nothing published"
            click.echo(f"{row['iteration']}. {row['hat']}: {published} ({row['duration_ms']} ms)")
        if "message" in result:
            click.echo(result["message"])
    for fault in result.get("faults", ()):
        click.echo(f"offbook: line {fault['line']}: {fault['why']}", err=True)
    # A torn last line is what a crash leaves behind; any other fault is a corrupt session.
    return int(bool(result.get("faults")) and not result.get("truncated_tail"))


@workspace.command(
    "report",
    epilog="""\b
Example:
  offbook workspace report flow junit --name "error handling"
  offbook workspace report flow tap --name flow --print

\b
Exit codes:
  0  the report is written, also when it contains failures
  1  the run has no verdicts
  2  wrong usage
""",
)
@click.argument("workspace_id", metavar="ID")
@click.argument(
    "format_", metavar="FORMAT", type=click.Choice(["junit", "tap", "tap13", "ctrf", "json"])
)
@click.option("--name", help="Name of the suite. Default: ID.")
@click.option("--include-traces", is_flag=True, help="Include the path of the session file.")
@click.option("--output", metavar="PATH", help="Path in the workspace. Default: reports/….")
@click.option("--print", "print_report", is_flag=True, help="Print the report itself.")
@json_option
def report_workspace(
    workspace_id: str,
    format_: str,
    *,
    name: str | None,
    include_traces: bool,
    output: str | None,
    print_report: bool,
    as_json: bool,
) -> int:
    """Write the verdicts for CI: junit, tap, tap13 (for prove), ctrf or json."""
    from offbook.workflows.tools import report

    result = report(
        workspace_id,
        cast("Any", format_),
        name or workspace_id,
        include_traces=include_traces,
        output_path=output,
    )
    if as_json:
        print_json(result)
    elif print_report:
        click.echo(Path(result.report_path).read_text(encoding="utf-8"), nl=False)
    else:
        click.echo(result.report_path)
    if not result.tests:
        click.echo("offbook: nothing to report: assert something first", err=True)
    return int(not result.tests)


@workspace.command(
    "evaluate",
    epilog="""\b
Example:
  offbook workspace evaluate flow evaluations.yaml --judge judge.yaml
  offbook workspace evaluate flow evaluations.yaml --judge-command "my-judge" --env KEY
  offbook workspace evaluate flow all.yaml --judge anthropic --judge-model M --env ANTHROPIC_API_KEY
  offbook workspace evaluate flow all.yaml --judge-backend claude --judge j.yaml --record judged

\b
Exit codes:
  0  all passed
  1  a score was too low, or the judge gave none
  2  wrong usage
""",
)
@click.argument("workspace_id", metavar="ID")
@click.argument("evaluations", metavar="EVALUATION…", nargs=-1, required=True)
@click.option("--judge", default="", help="A playbook, mocks, a cassette or a provider.")
@click.option("--judge-backend", default="", help="A client that judges: claude, codex, …")
@click.option("--judge-command", default="", help="A command that judges; reads stdin.")
@click.option("--judge-preset", default="judge", help="Preset whose hat `judge` instructs it.")
@click.option("--judge-model", default="", help="Name of the judge's model.")
@click.option("--tested-model", default="", help="Name of the tested model.")
@click.option("--chain-of-thought/--score-only", default=True, help="Reasoning before the score.")
@click.option("--record", default="", metavar="NAME", help="Record the judge in this cassette.")
@click.option("--force", is_flag=True, help="Let a model judge itself.")
@env_option
@json_option
def evaluate_workspace(
    workspace_id: str,
    evaluations: tuple[str, ...],
    *,
    judge_command: str,
    env: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> int:
    """Let a model judge the last run.

    An EVALUATION, or a list of them, is JSON, a JSON or YAML file, or - for stdin.
    """
    from offbook.workflows.evaluation import evaluate

    result = evaluate(
        workspace_id,
        read_list(evaluations, "evaluations"),
        judge_command=shlex.split(judge_command),
        env=read_env(env),
        **options,
    )
    if as_json:
        print_json(result)
    else:
        for score in result.evaluations:
            sign = "✓" if score.passed else "✗"
            points = score.error if score.score is None else f"{score.score} of {score.max_score}"
            click.echo(f"{sign} {score.criterion} {score.target}: {points}")
            for line in score.reasoning.splitlines():
                click.echo(f"    {line}")
    return int(not result.all_passed)


@workspace.command(
    "cleanup",
    epilog="""\b
Example:
  offbook workspace cleanup flow
  offbook workspace cleanup flow --preserve-session --json
""",
)
@click.argument("workspace_ids", metavar="ID…", nargs=-1, required=True)
@click.option("--preserve-session", is_flag=True, help="Keep session.jsonl and nothing else.")
@json_option
def clean_up_workspaces(
    workspace_ids: tuple[str, ...], *, preserve_session: bool, as_json: bool
) -> None:
    """Remove workspaces."""
    from offbook.workflows.tools import cleanup

    for workspace_id in workspace_ids:
        result = cleanup(workspace_id, preserve_session=preserve_session)
        if as_json:
            print_json(result)
        else:
            kept = ", ".join(result.preserved_files)
            click.echo(f"removed {workspace_id}{f', except {kept}' if kept else ''}")


@workspace.command("list")
@json_option
def list_workspaces(*, as_json: bool) -> None:
    """List all workspaces."""
    from offbook.workflows.workspace import Workspaces

    names = Workspaces().ids()
    if as_json:
        print_json({"workspaces": names})
    else:
        click.echo("\n".join(names) or "no workspaces")


@workspace.command("clean")
@json_option
def remove_stale_workspaces(*, as_json: bool) -> None:
    """Remove workspaces that are a day old and whose process has ended."""
    from offbook.workflows.workspace import Workspaces

    names = Workspaces().remove_stale()
    if as_json:
        print_json({"removed": names})
    else:
        click.echo("\n".join(f"removed {name}" for name in names) or "no stale workspaces")
