"""`offbook fixture …`: golden fixtures, recorded from the real thing."""

from __future__ import annotations

import asyncio
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from offbook.determinism.clock import SystemClock
from offbook.errors import UsageError
from offbook.runs.goldens.fixture import Scenario, read_scenarios
from offbook.runs.goldens.project import Project
from offbook.runs.goldens.promotion import find_complaints, promote
from offbook.runs.goldens.recorder import record
from offbook.runs.goldens.replay import replay_all
from offbook.surfaces.cli import options
from offbook.surfaces.cli.output import print_json

if TYPE_CHECKING:
    from offbook.runs.goldens.library import Shelf

EXAMPLE = """\b
Example:
  offbook fixture record hub subscribe-basic
  offbook fixture diff hub/subscribe-basic
  offbook fixture promote hub/subscribe-basic
  offbook fixture check

Fixtures stand in fixtures/golden/COMPONENT/NAME.jsonl; what is recorded goes to fixtures/scratch
until it is promoted. The scenarios are functions of scripts/live/COMPONENT_live.py.
"""


@click.group("fixture", epilog=EXAMPLE)
@options.project
@click.pass_context
def command(context: click.Context, project: Project) -> None:
    """Record, look at, promote and check golden fixtures."""
    context.obj = project


@command.command("record")
@click.argument("component")
@click.argument("name")
@click.pass_obj
def record_one(project: Project, component: str, name: str) -> None:
    """Play a scenario for real, and write what came of it to scratch."""
    done = asyncio.run(record(project.library, project.registry, component, name, SystemClock()))
    steps, events = len(done.fixture.steps), len(done.fixture.expect["events"])
    click.echo(f"recorded {component}/{name}: {steps} steps, {events} events")
    for path in done.written:
        click.echo(f"  {project.relative(path)}")
    click.echo(f"look at it: offbook fixture show {component}/{name} --scratch")
    click.echo(f"then:       offbook fixture promote {component}/{name}")


@command.command("list")
@options.json
@click.pass_obj
def list_all(project: Project, *, as_json: bool) -> None:
    """List the golden fixtures, and what is in scratch."""
    shelves: tuple[Shelf, ...] = ("golden", "scratch")
    found = {shelf: project.library.scenarios(shelf) for shelf in shelves}
    if as_json:
        print_json({shelf: [_describe(one) for one in found[shelf]] for shelf in shelves})
        return
    for shelf in shelves:
        for one in found[shelf]:
            about = one.fixture.metadata.get("description", "")
            click.echo(f"{shelf:8} {one.name:36} {one.rule.match:7} {about}".rstrip())
    if not any(found.values()):
        click.echo(f"there is no fixture in {project.library.root}")


def _describe(one: Scenario) -> dict[str, object]:
    return {
        "name": one.name,
        "path": str(one.path),
        "line": one.line,
        "match": one.rule.match,
        "steps": len(one.fixture.steps),
        "metadata": one.fixture.metadata,
    }


@command.command("show")
@click.argument("name")
@click.option("--scratch", is_flag=True, help="The one in scratch, not the golden one.")
@click.pass_obj
def show_one(project: Project, name: str, *, scratch: bool) -> None:
    """Show a fixture, a field a line."""
    click.echo(_spell(project.library.find("scratch" if scratch else "golden", name)))


def _spell(path: Path) -> str:
    whole = [
        msgspec.json.format(msgspec.json.encode(one.fixture), indent=2).decode()
        for one in read_scenarios(path)
    ]
    return "\n".join(whole)


@command.command("diff")
@click.argument("name")
@click.pass_obj
def diff_one(project: Project, name: str) -> int:
    """Compare what is in scratch with the golden of the same name; exit 1 when they differ."""
    paths = [project.library.find(shelf, name) for shelf in ("golden", "scratch")]
    before, after = (_spell(path).splitlines() for path in paths)
    names = [project.relative(path) for path in paths]
    lines = list(unified_diff(before, after, names[0], names[1], lineterm=""))
    click.echo("\n".join(lines) if lines else f"{name}: no difference")
    return int(bool(lines))


@command.command("promote")
@click.argument("name")
@click.option("--replace", is_flag=True, help="Put it in the place of a golden that is there.")
@click.pass_obj
def promote_one(project: Project, name: str, *, replace: bool) -> None:
    """Make a scratch fixture golden, if it was recorded, is itself, and replays."""
    find = project.registry.find
    for path in asyncio.run(promote(project.library, name, find, replace=replace)):
        click.echo(f"golden now: {project.relative(path)}")


@command.command("check")
@click.argument("names", nargs=-1)
@click.option("--foreign", is_flag=True, help="Fixtures of others: do not ask who recorded them.")
@click.pass_obj
def check_all(project: Project, names: tuple[str, ...], *, foreign: bool) -> int:
    """Replay goldens, all or the named ones, and look where they come from."""
    library = project.library
    paths = [library.find("golden", name) for name in names] or library.paths()
    if not paths:
        raise UsageError("there is no golden to check", where=str(library.root))
    scenarios = [one for path in paths for one in read_scenarios(path)]
    replayed = asyncio.run(replay_all(scenarios, project.registry.find))
    bad = [one.tell() for one in replayed if not one.ok]
    if not foreign:
        bad += [str(one) for path in paths for one in find_complaints(library, path)]
    for line in bad:
        click.echo(line)
    click.echo(f"{len(scenarios)} scenarios replayed, {len(bad)} complaints")
    return int(bool(bad))
