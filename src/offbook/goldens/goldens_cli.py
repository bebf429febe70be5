"""The commands `offbook golden …`."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from offbook.cli_options import json_option, print_json
from offbook.determinism.clock import SystemClock
from offbook.errors import UsageError, did_you_mean
from offbook.files import write_atomic
from offbook.goldens.fixture_store import read_scenarios
from offbook.goldens.golden_recording import find_problems, promote, record
from offbook.goldens.golden_replay import replay_all
from offbook.goldens.project import Project, check_live, find_root
from offbook.goldens.spec_file import write_template
from offbook.goldens.spec_validation import (
    SpecResult,
    SpecResults,
    check_completeness,
    check_replay,
    check_static,
    list_unchecked,
    render_table,
    tabulate,
)

if TYPE_CHECKING:
    from offbook.goldens.fixture_store import FixtureKind

KINDS: tuple[FixtureKind, ...] = ("golden", "scratch")

GOLDEN_EXAMPLE = """\b
Example:
  offbook golden record hub subscribe-basic
  offbook golden diff hub/subscribe-basic
  offbook golden promote hub/subscribe-basic
  offbook golden check

Goldens are the files fixtures/golden/COMPONENT/NAME.jsonl. Recordings are written to
fixtures/scratch until they are promoted. Scenarios are functions in scripts/live/COMPONENT_live.py.
"""

LIVE_EXAMPLE = """\b
Example:
  offbook golden live
  offbook golden live hub

\b
Exit codes:
  0  all scenarios that ran passed, and at least one ran
  1  a scenario failed, or none could run
  2  wrong usage
"""

SPEC_EXAMPLE = """\b
Example:
  offbook golden spec new till
  pytest && offbook golden spec check --ran

Specs are the files tests/specs/COMPONENT.test-spec.md.
"""


@click.group("golden", epilog=GOLDEN_EXAMPLE)
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="The project's folder; default: the one around the current folder.",
)
@click.pass_context
def golden(context: click.Context, root: Path | None) -> None:
    """Record, review and check golden fixtures and test specs."""
    # like git: commands work in every folder of the project
    context.obj = Project((root or find_root(Path.cwd())).resolve())


@golden.command("record")
@click.argument("component")
@click.argument("name")
@click.pass_obj
def record_command(project: Project, component: str, name: str) -> None:
    """Run a scenario for real and write its result to scratch."""
    work = record(project.fixtures, project.registry, component, name, SystemClock())
    recording = asyncio.run(work)
    steps, events = len(recording.fixture.steps), len(recording.fixture.expect["events"])
    click.echo(f"recorded {component}/{name}: {steps} steps, {events} events")
    for path in recording.written:
        click.echo(f"  {project.relative(path)}")
    click.echo(f"review:  offbook golden show {component}/{name} --scratch")
    click.echo(f"promote: offbook golden promote {component}/{name}")


@golden.command("list")
@json_option
@click.pass_obj
def list_command(project: Project, *, as_json: bool) -> None:
    """List the golden and scratch fixtures."""
    listed = {kind: project.fixtures.scenarios(kind) for kind in KINDS}
    if as_json:  # these keys are a promise to scripts
        print_json(
            {
                kind: [
                    {
                        "name": scenario.name,
                        "path": str(scenario.path),
                        "line": scenario.line,
                        "match": scenario.rule.match,
                        "steps": len(scenario.fixture.steps),
                        "metadata": scenario.fixture.metadata,
                    }
                    for scenario in scenarios
                ]
                for kind, scenarios in listed.items()
            }
        )
        return
    for kind, scenarios in listed.items():
        for scenario in scenarios:
            description = scenario.fixture.metadata.get("description", "")
            row = f"{kind:8} {scenario.name:36} {scenario.rule.match:7} {description}"
            click.echo(row.rstrip())
    if not any(listed.values()):
        click.echo(f"no fixtures in {project.fixtures.root}")


@golden.command("show")
@click.argument("name")
@click.option("--scratch", is_flag=True, help="Show the scratch fixture, not the golden one.")
@click.pass_obj
def show_command(project: Project, name: str, *, scratch: bool) -> None:
    """Print a fixture as indented JSON."""
    click.echo(_indented(project.fixtures.find("scratch" if scratch else "golden", name)))


@golden.command("diff")
@click.argument("name")
@click.pass_obj
def diff_command(project: Project, name: str) -> int:
    """Compare a scratch fixture with the golden of the same name; exit 1 if they differ."""
    paths = [project.fixtures.find(kind, name) for kind in KINDS]
    before, after = (_indented(path).splitlines() for path in paths)
    old, new = (project.relative(path) for path in paths)
    lines = list(unified_diff(before, after, old, new, lineterm=""))
    click.echo("\n".join(lines) if lines else f"{name}: no difference")
    return int(bool(lines))  # like diff(1)


def _indented(path: Path) -> str:
    return "\n".join(
        msgspec.json.format(msgspec.json.encode(scenario.fixture), indent=2).decode()
        for scenario in read_scenarios(path)
    )


@golden.command("promote")
@click.argument("name")
@click.option("--replace", is_flag=True, help="Replace an existing golden.")
@click.pass_obj
def promote_command(project: Project, name: str, *, replace: bool) -> None:
    """Make a scratch fixture golden, if it is a recording, unedited, and replays."""
    work = promote(project.fixtures, name, project.registry.find, replace=replace)
    for path in asyncio.run(work):
        click.echo(f"promoted: {project.relative(path)}")


@golden.command("check")
@click.argument("names", nargs=-1)
@click.option(
    "--foreign", is_flag=True, help="Skip the origin checks, for fixtures not recorded here."
)
@click.pass_obj
def check_command(project: Project, names: tuple[str, ...], *, foreign: bool) -> int:
    """Replay goldens, all or the named ones, and check their origin."""
    store = project.fixtures
    paths = [store.find("golden", name) for name in names] or store.paths()
    if not paths:
        raise UsageError("no goldens to check", where=str(store.root))
    scenarios = [scenario for path in paths for scenario in read_scenarios(path)]
    replays = asyncio.run(replay_all(scenarios, project.registry.find))
    problems = [replay.render() for replay in replays if not replay.ok]
    if not foreign:
        problems += [str(problem) for path in paths for problem in find_problems(store, path)]
    for problem in problems:
        click.echo(problem)
    click.echo(f"{len(scenarios)} scenarios replayed, {len(problems)} problems")
    return int(bool(problems))


@golden.command("live", epilog=LIVE_EXAMPLE)
@click.argument("components", nargs=-1)
@click.pass_obj
def live_command(project: Project, components: tuple[str, ...]) -> int:
    """Run the scenarios of live scripts for real and compare the results with the goldens."""
    known = project.registry.script_names()
    for name in components:
        if name not in known:
            raise UsageError(f"no live script of {name!r}", hint=did_you_mean(name, known))
    if not known:
        hint = "write scripts/live/NAME_live.py"
        raise UsageError("no live script", where=str(project.root), hint=hint)
    results = [
        result for name in components or known for result in asyncio.run(check_live(project, name))
    ]
    stored = SpecResults.read(project.root)
    for result in results:
        click.echo(result.render())
        component, _, name = result.name.partition("/")
        script = project.relative(project.registry.script_path(component))
        stored.add(script, name, SpecResult(result.state))
    try:
        stored.write()
    except OSError as error:
        click.echo(f"the results are not stored: {error}", err=True)
    counts = Counter(result.state for result in results)
    click.echo(", ".join(f"{counts[state]} {state}" for state in ("passed", "failed", "skipped")))
    # skipped scenarios are not a success: without credentials the command would always pass
    if not counts["passed"] and not counts["failed"]:
        click.echo("no scenario ran", err=True)
    return int(bool(counts["failed"]) or not counts["passed"])


@golden.group("spec", epilog=SPEC_EXAMPLE)
def spec_group() -> None:
    """Write and check test specs."""


@spec_group.command("new")
@click.argument("component")
@click.pass_obj
def new_spec_command(project: Project, component: str) -> None:
    """Create a spec from the template."""
    path = project.spec_path(component)
    if path.exists():
        raise UsageError("the spec exists already", where=str(path))
    today = datetime.fromtimestamp(SystemClock().millis() / 1000, UTC).date()
    write_atomic(path, write_template(component, str(today)))
    click.echo(f"created {project.relative(path)}: fill it in, then `offbook golden spec check`")


@spec_group.command("check")
@click.option("--ran", is_flag=True, help="Also check that the tests ran and passed.")
@click.pass_obj
def check_specs_command(project: Project, *, ran: bool) -> int:
    """Check that the files and tests of all specs exist and that all goldens replay."""
    paths = project.spec_paths()
    if not paths:
        hint = "offbook golden spec new COMPONENT"
        raise UsageError("no specs to check", where=str(project.root), hint=hint)
    problems = list(check_static(project))
    # a replay of a missing or broken file would report the same problem again
    if not problems:
        problems = asyncio.run(check_replay(project))
    results = SpecResults.read(project.root)
    if ran:
        if not results:
            hint = "run pytest first"
            raise UsageError("no test results", where=str(project.root), hint=hint)
        problems += check_completeness(project, results)
    for problem in problems:
        click.echo(str(problem).replace(f"{project.root}/", ""))
    for text in list_unchecked(project, results) if ran else ():
        click.echo(f"not checked: {text}")
    requirements = len(tabulate(project, results))
    click.echo(f"{len(paths)} specs, {requirements} requirements, {len(problems)} problems")
    return int(bool(problems))


@spec_group.command("table")
@click.pass_obj
def table_command(project: Project) -> None:
    """Print every requirement with its fixture, its test and the test's state."""
    click.echo(render_table(tabulate(project, SpecResults.read(project.root))))
