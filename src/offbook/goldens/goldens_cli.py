"""`offbook fixture …`: golden fixtures, recorded from the real thing."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from offbook import cli_options
from offbook.cli_options import print_json
from offbook.determinism.clock import SystemClock
from offbook.errors import UsageError, did_you_mean
from offbook.files import write_atomic
from offbook.goldens.fixture_store import GoldenScenario, read_scenarios
from offbook.goldens.golden_recording import find_complaints, promote, record
from offbook.goldens.golden_replay import replay_all
from offbook.goldens.project import Project, check_live
from offbook.goldens.spec_file import Problem, write_template
from offbook.goldens.spec_validation import (
    SpecResults,
    check_completeness,
    check_replay,
    check_static,
    show_table,
    tabulate,
)

if TYPE_CHECKING:
    from offbook.goldens.fixture_store import FixtureKind


def _find_project(_: click.Context, __: click.Parameter, root: Path | None) -> Project:
    from offbook.goldens.project import Project, find_root

    return Project((root or find_root(Path.cwd())).resolve())


project_option = click.option(
    "--root",
    "project",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    callback=_find_project,
    help="The folder of the project; the one around here by default.",
)


# --- `offbook fixture …`: golden fixtures, recorded from the real thing.

GOLDEN_EXAMPLE = """\b
Example:
  offbook fixture record hub subscribe-basic
  offbook fixture diff hub/subscribe-basic
  offbook fixture promote hub/subscribe-basic
  offbook fixture check

Fixtures stand in fixtures/golden/COMPONENT/NAME.jsonl; what is recorded goes to fixtures/scratch
until it is promoted. The scenarios are functions of scripts/live/COMPONENT_live.py.
"""


@click.group("fixture", epilog=GOLDEN_EXAMPLE)
@project_option
@click.pass_context
def golden(context: click.Context, project: Project) -> None:
    """Record, look at, promote and check golden fixtures."""
    context.obj = project


@golden.command("record")
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


@golden.command("list")
@cli_options.json_option
@click.pass_obj
def list_all(project: Project, *, as_json: bool) -> None:
    """List the golden fixtures, and what is in scratch."""
    shelves: tuple[FixtureKind, ...] = ("golden", "scratch")
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


def _describe(one: GoldenScenario) -> dict[str, object]:
    return {
        "name": one.name,
        "path": str(one.path),
        "line": one.line,
        "match": one.rule.match,
        "steps": len(one.fixture.steps),
        "metadata": one.fixture.metadata,
    }


@golden.command("show")
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


@golden.command("diff")
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


@golden.command("promote")
@click.argument("name")
@click.option("--replace", is_flag=True, help="Put it in the place of a golden that is there.")
@click.pass_obj
def promote_one(project: Project, name: str, *, replace: bool) -> None:
    """Make a scratch fixture golden, if it was recorded, is itself, and replays."""
    find = project.registry.find
    for path in asyncio.run(promote(project.library, name, find, replace=replace)):
        click.echo(f"golden now: {project.relative(path)}")


@golden.command("check")
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


# --- `offbook spec …`: what components must do, and which tests show it.

SPEC_EXAMPLE = """\b
Example:
  offbook spec new till
  pytest && offbook spec check --ran

Specs stand in tests/specs/COMPONENT.test-spec.md.
"""


@click.group("spec", epilog=SPEC_EXAMPLE)
@project_option
@click.pass_context
def spec(context: click.Context, project: Project) -> None:
    """Write and check test specs."""
    context.obj = project


@spec.command("new")
@click.argument("component")
@click.pass_obj
def new_one(project: Project, component: str) -> None:
    """Begin a spec from the template."""
    path = project.spec(component)
    if path.exists():
        raise UsageError("there is a spec already", where=str(path))
    today = datetime.fromtimestamp(SystemClock().millis() / 1000, UTC).date()
    write_atomic(path, write_template(component, str(today)))
    click.echo(f"wrote {project.relative(path)}: fill it in, then `offbook spec check`")


@spec.command("check")
@click.option("--ran", is_flag=True, help="Also ask that the tests ran and passed.")
@click.pass_obj
def check_specs(project: Project, *, ran: bool) -> int:
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
    rows = tabulate(project, SpecResults(project.root))
    click.echo(f"{len(specs)} specs, {len(rows)} requirements, {len(problems)} problems")
    return int(bool(problems))


def _check_ran(project: Project) -> list[Problem]:
    outcomes = SpecResults.read(project.root)
    if not outcomes:
        raise UsageError(
            "no test has run here yet", where=str(project.root), hint="run pytest first"
        )
    return list(check_completeness(project, outcomes))


@spec.command("table")
@click.pass_obj
def show_coverage(project: Project) -> None:
    """Show every requirement with its fixture, its test, and what came of it."""
    click.echo(show_table(tabulate(project, SpecResults.read(project.root))))


# --- `offbook live`: the scenarios of live scripts, on the real thing.

LIVE_EXAMPLE = """\b
Example:
  offbook live
  offbook live hub

\b
Exit codes:
  0  everything that ran is as its golden expects, and something ran
  1  something is not, or nothing could run
  2  wrong usage
"""


@click.command("live", epilog=LIVE_EXAMPLE)
@click.argument("components", nargs=-1)
@project_option
def live(components: tuple[str, ...], project: Project) -> int:
    """Play the scenarios of live scripts on the real thing, and compare with the goldens."""
    known = project.registry.scripts()
    for name in components:
        if name not in known:
            raise UsageError(f"{name!r} has no live script", hint=did_you_mean(name, known))
    if not known:
        raise UsageError(
            "there is no live script", where=str(project.root), hint="scripts/live/NAME_live.py"
        )
    shown = [one for name in components or known for one in asyncio.run(check_live(project, name))]
    for one in shown:
        click.echo(one.tell())
    counts = Counter(one.state for one in shown)
    click.echo(", ".join(f"{counts[state]} {state}" for state in ("passed", "failed", "skipped")))
    if not counts["passed"] and not counts["failed"]:
        click.echo("nothing ran, so nothing was shown", err=True)
    return int(bool(counts["failed"]) or not counts["passed"])
