"""`offbook evaluate ID EVALUATION…`: a model as the judge."""

from __future__ import annotations

import asyncio
import shlex
from typing import Any

import click

from offbook import cli_options
from offbook.cli_options import print_json, read_env, read_list
from offbook.workflows.evaluation import evaluate

EXAMPLE = """\b
Example:
  offbook evaluate flow '{"criterion": "plan_quality", "target": "scratchpad"}' --judge tape.yaml
  offbook evaluate flow evaluations.yaml --judge-command "my-judge" --env KEY
  offbook evaluate flow all.yaml --judge anthropic --judge-model M --env ANTHROPIC_API_KEY
  offbook evaluate flow all.yaml --judge-backend claude --judge tape.yaml --record judged

\b
Exit codes:
  0  all passed
  1  some did not, or the judge gave no score
  2  wrong usage
"""


@click.command("evaluate", epilog=EXAMPLE)
@click.argument("workspace_id", metavar="ID")
@click.argument("evaluations", nargs=-1, required=True)
@click.option("--judge", default="", help="A playbook, mocks, a cassette, or a provider.")
@click.option("--judge-backend", default="", help="A client whose model that is: claude, codex, …")
@click.option("--judge-command", default="", help="Or a command: the question is at its stdin.")
@click.option("--judge-preset", default="judge", help="A preset whose hat `judge` instructs it.")
@click.option("--judge-model", default="", help="What the judge's model is called.")
@click.option("--tested-model", default="", help="What the tested model is called.")
@click.option("--chain-of-thought/--score-only", default=True, help="Reasoning before the score.")
@click.option("--record", default="", metavar="NAME", help="Keep the judge in this cassette.")
@click.option("--force", is_flag=True, help="Let a model judge itself.")
@cli_options.env_option
@cli_options.json_option
def command(
    workspace_id: str,
    evaluations: tuple[str, ...],
    *,
    judge_command: str,
    env: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> int:
    """Let a model judge a run.

    An EVALUATION, or a list of them, is JSON, a JSON or YAML file, or - for stdin.
    """
    found = asyncio.run(
        evaluate(
            workspace_id,
            read_list(evaluations, "evaluations"),
            judge_command=shlex.split(judge_command),
            env=read_env(env),
            **options,
        )
    )
    if as_json:
        print_json(found)
    else:
        for one in found.evaluations:
            score = f"{one.score} of {one.max_score}" if one.score is not None else one.error
            click.echo(f"{'✓' if one.passed else '✗'} {one.criterion} {one.target}: {score}")
            for line in one.reasoning.splitlines():
                click.echo(f"    {line}")
    return int(not found.all_passed)
