"""`offbook spec …`: what components must do, and which tests show it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import click

from offbook.determinism.clock import SystemClock
from offbook.errors import UsageError
from offbook.files import write_whole
from offbook.runs.goldens.outcomes import Outcomes
from offbook.runs.goldens.project import Project
from offbook.runs.goldens.spec import Problem, write_template
from offbook.runs.goldens.validation import (
    check_completeness,
    check_replay,
    check_static,
    show_table,
    tabulate,
)
from offbook.surfaces.cli import options

EXAMPLE = """\b
Example:
  offbook spec new till
  pytest && offbook spec check --ran

Specs stand in tests/specs/COMPONENT.test-spec.md.
"""


@click.group("spec", epilog=EXAMPLE)
@options.project
@click.pass_context
def command(context: click.Context, project: Project) -> None:
    """Write and check test specs."""
    context.obj = project


@command.command("new")
@click.argument("component")
@click.pass_obj
def new_one(project: Project, component: str) -> None:
    """Begin a spec from the template."""
    path = project.spec(component)
    if path.exists():
        raise UsageError("there is a spec already", where=str(path))
    today = datetime.fromtimestamp(SystemClock().millis() / 1000, UTC).date()
    write_whole(path, write_template(component, str(today)))
    click.echo(f"wrote {project.relative(path)}: fill it in, then `offbook spec check`")


@command.command("check")
@click.option("--ran", is_flag=True, help="Also ask that the tests ran and passed.")
@click.pass_obj
def check_all(project: Project, *, ran: bool) -> int:
    """Check that what the specs name is there, replays, and (--ran) was shown by tests."""
    specs = project.specs()
    if not specs:
        raise UsageError(
            "there is no spec to check", where=str(project.root), hint="offbook spec new COMPONENT"
        )
    problems = list(check_static(project))
    if not problems:
        problems = asyncio.run(check_replay(project))
    if ran:
        problems += _check_ran(project)
    for problem in problems:
        click.echo(str(problem).replace(f"{project.root}/", ""))
    rows = tabulate(project, Outcomes(project.root))
    click.echo(f"{len(specs)} specs, {len(rows)} requirements, {len(problems)} problems")
    return int(bool(problems))


def _check_ran(project: Project) -> list[Problem]:
    outcomes = Outcomes.read(project.root)
    if not outcomes:
        raise UsageError(
            "no test has run here yet", where=str(project.root), hint="run pytest first"
        )
    return list(check_completeness(project, outcomes))


@command.command("table")
@click.pass_obj
def show_coverage(project: Project) -> None:
    """Show every requirement with its fixture, its test, and what came of it."""
    click.echo(show_table(tabulate(project, Outcomes.read(project.root))))
