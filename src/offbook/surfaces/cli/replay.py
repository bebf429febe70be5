"""`offbook replay CASSETTE -- COMMAND …`: a cassette as the model of any command."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
import msgspec

from offbook.errors import UsageError
from offbook.surfaces.cli.loop import loop_options, read_agent
from offbook.surfaces.cli.output import print_json
from offbook.surfaces.cli.record import read_redactions

EXAMPLE = """\b
Example:
  offbook replay tests/refund.yaml -- python agent.py
  offbook replay tests/refund.yaml --loose -- npm test
  offbook replay auth_flow --workspace auth --task "Add auth"

\b
With --workspace, the loop works on the task there, and CASSETTE is the name of
a cassette in that workspace. No agent is started, unless --allow-passthrough.

\b
Exit codes:
  0  the command succeeded, and all was replayed as it was recorded
  1  the command failed, or asked something else, or less
  2  the cassette cannot be read, or the command cannot be started
"""


@click.command("replay", epilog=EXAMPLE)
@click.argument("cassette", type=click.Path(path_type=Path))
@click.argument("command_", metavar="-- COMMAND…", nargs=-1, type=click.UNPROCESSED)
@click.option("--strict/--loose", default=True, help="Compare each request, or only its turn.")
@click.option("--allow-passthrough", is_flag=True, help="Ask the real model what is not recorded.")
@click.option("--upstream", metavar="URL", help="The base URL of the real model.")
@click.option("--redact", multiple=True, metavar="JSON", help="Redactions beside its own.")
@click.option("--preset", multiple=True, metavar="CLIENT", help="What is known of a client.")
@click.option("--task", default="", help="Refuse a recording of another task.")
@click.option(
    "--cursor",
    type=click.Path(path_type=Path),
    help="Go on where an earlier replay with this file ended.",
)
@click.option("--timed", is_flag=True, help="Let streams take as long as they did.")
@click.option("--trace", type=click.Path(path_type=Path), help="Write what happened to this file.")
@click.option("--deadline", default=600.0, show_default=True, help="Seconds it may take.")
@loop_options
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def command(  # noqa: PLR0913 - one for each option
    cassette: Path,
    command_: tuple[str, ...],
    *,
    strict: bool,
    allow_passthrough: bool,
    upstream: str | None,
    redact: tuple[str, ...],
    preset: tuple[str, ...],
    task: str,
    cursor: Path | None,
    timed: bool,
    trace: Path | None,
    deadline: float,
    as_json: bool,
    **loop: Any,
) -> int:
    """Run a command whose model is a cassette, or the loop with its answers.

    All of it must be used, and nothing else asked.
    """
    rules = read_redactions(redact, preset)
    if loop["workspace"]:
        return _replay_loop(
            str(cassette),
            task,
            strict=strict,
            allow_passthrough=allow_passthrough,
            redactions=rules,
            as_json=as_json,
            **read_agent(command_, loop),
        )
    if not command_:
        raise UsageError("what is to be replayed?", hint="offbook replay CASSETTE -- COMMAND")
    from offbook.runs.commands.recording import replay_command, tracing
    from offbook.sources.cassette.replay import Replay
    from offbook.sources.live import Live
    from offbook.trace.verdicts import deliver

    with tracing(trace, str(cassette)) as hub:
        replay = Replay(
            cassette,
            strict=strict,
            passthrough=Live(upstream) if allow_passthrough else None,
            redactions=rules,
            cursor=cursor,
            hub=hub,
            timed=timed,
            again=f"offbook record {shlex.join([str(cassette)])} --only {{number}} "
            f"-- {shlex.join(command_)}",
        )
        if task:
            replay.check_task(task)
        done, summary = replay_command(
            replay, command_, hub=hub, deadline=deadline, echo=not as_json
        )
        verdict = replay.verdict() if cursor is None or replay.failure else None
        if verdict is not None:
            deliver(hub, verdict)
    if as_json:
        print_json({**msgspec.to_builtins(summary), "exit_code": done.code})
    if verdict is not None and verdict.message:
        click.echo(f"offbook: {verdict.message}", err=True)
    elif not as_json:
        click.echo(
            f"offbook: replayed {summary.interactions_replayed} interactions, cost $0.00", err=True
        )
    failed = done.code != 0 or (verdict is not None and not verdict.holds)
    if done.failure is not None and replay.failure is None:
        raise done.failure
    return int(failed)


def _replay_loop(name: str, task: str, *, as_json: bool, **options: Any) -> int:
    import asyncio

    from offbook.runs.tools.replay import replay

    replayed = asyncio.run(replay(options.pop("workspace_id"), name, task, **options))
    if as_json:
        print_json(replayed)
    else:
        click.echo(
            f"replayed {replayed.interactions_replayed} interactions, "
            f"{replayed.interactions_passthrough} passed on: "
            f"{replayed.termination_reason}, exit code {replayed.exit_code}"
        )
    for said in filter(None, (*replayed.warnings, replayed.error)):
        click.echo(f"offbook: {said}", err=True)
    return int(replayed.exit_code != 0 or bool(replayed.error))
