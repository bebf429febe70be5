"""The commands `offbook golden …`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from offbook.checks.expected_files import Review
from offbook.cli_options import (
    describe_difference,
    echo,
    json_option,
    print_json,
    refuse_together,
    use_colour,
)
from offbook.determinism.run_context import SystemClock
from offbook.errors import UsageError, counted, require_known
from offbook.files import require_new, write_atomic
from offbook.goldens.fixture_store import read_files, read_scenarios
from offbook.goldens.golden_replay import describe_exception, replay_all
from offbook.goldens.live_scripts import find_problems, is_foreign, promote, record
from offbook.goldens.project import Project, check_live, compare_recording, open_project
from offbook.goldens.specs import (
    SpecResult,
    SpecResults,
    check_completeness,
    check_replay,
    check_static,
    list_unchecked,
    render_table,
    tabulate,
    write_template,
)
from offbook.options import require_some
from offbook.reports.styled_lines import print_lines

if TYPE_CHECKING:
    from offbook.goldens.fixture_store import FixtureKind
    from offbook.goldens.live_scripts import ScenarioDef

KINDS: tuple[FixtureKind, ...] = ("golden", "scratch")

GOLDEN_EXAMPLE = """\b
Example:
  offbook golden update hub/subscribe-basic
  offbook golden update --all
  offbook golden record hub/subscribe-basic
  offbook golden promote hub/subscribe-basic
  offbook golden show
  offbook golden check

Goldens are the files fixtures/golden/COMPONENT/NAME.jsonl. Recordings are written to
fixtures/scratch until they are promoted. Scenarios are functions in scripts/live/COMPONENT_live.py.
"""

UPDATE_EXAMPLE = """\b
Example:
  offbook golden update till/open-drawer
  offbook golden update till
  offbook golden update --all --yes

\b
Exit codes:
  0  every golden is updated or unchanged
  1  a golden is not: its scenario failed or was skipped, or the answer was no
  2  wrong usage
"""

CHECK_EXAMPLE = """\b
Example:
  offbook golden check
  offbook golden check till/open-drawer
  offbook golden check --live hub

\b
Exit codes:
  0  all goldens replay; with --live, all scenarios that ran passed, and at least one ran
  1  a golden has a problem, a scenario failed, or none could run
  2  wrong usage
"""

SPEC_EXAMPLE = """\b
Example:
  offbook golden spec --new till
  pytest && offbook golden spec --ran
  offbook golden spec --table

Specs are the files tests/specs/COMPONENT.test-spec.md.

\b
Exit codes:
  0  the files and tests of all specs exist, and all goldens replay
  1  a spec has a problem
  2  wrong usage
"""


@click.group("golden", epilog=GOLDEN_EXAMPLE)
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="The project's folder; default: the root folder of pytest.",
)
@click.pass_context
def golden(context: click.Context, root: Path | None) -> None:
    """Record and check golden fixtures and test specs."""
    project = open_project(root or Path.cwd())
    context.obj = Project(root.resolve()) if root else project


@golden.command("record", epilog=GOLDEN_EXAMPLE)
@click.argument("names", nargs=-1, required=True)
@click.pass_obj
def record_command(project: Project, names: tuple[str, ...]) -> None:
    """Run scenarios, COMPONENT/NAME, for real and write the results to scratch."""
    for name in names:
        component, slash, scenario = name.partition("/")
        if not slash:
            raise UsageError(
                f"invalid fixture name {name!r}",
                hint=f"write COMPONENT/NAME: offbook golden record {'/'.join(names[:2])}",
            )
        work = record(project.fixtures, project.registry, component, scenario, SystemClock())
        recording = asyncio.run(work)
        steps, events = len(recording.fixture.steps), len(recording.fixture.expect["events"])
        echo(f"recorded {name}: {counted(steps, 'step')}, {counted(events, 'event')}")
        for path in recording.written:
            echo(f"  {project.relative(path)}")
        echo(f"review: offbook review {name}")


@golden.command("update", epilog=UPDATE_EXAMPLE)
@click.argument("names", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Update all scenarios of all live scripts.")
@click.option("--yes", is_flag=True, help="Promote without asking.")
@click.pass_obj
def update_command(project: Project, names: tuple[str, ...], *, every: bool, yes: bool) -> int:
    """Record scenarios, show the changes, ask, and make the recordings golden.

    NAMES are COMPONENT/NAME, or COMPONENT for all of its scenarios.
    """
    if every == bool(names):
        raise UsageError("give names, or --all", hint="offbook golden update COMPONENT/NAME")
    registry = project.registry
    scenarios: list[tuple[str, ScenarioDef]] = []
    for name in names or registry.script_names():
        component, slash, scenario = name.partition("/")
        found = registry.scenarios(component).values()
        scenarios += [
            (component, each)
            for each in ([registry.scenario(component, scenario)] if slash else found)
        ]
    counts: Counter[str] = Counter()
    for component, definition in scenarios:
        name = f"{component}/{definition.name}"
        try:
            state = _update(project, component, definition, yes=yes)
        except Exception as error:  # noqa: BLE001 - the real component may raise anything
            state = "failed"
            echo(f"{name}: {describe_exception(error)}", err=True)
        counts[state] += 1
    echo(", ".join(f"{count} {state}" for state, count in counts.items()) or "no scenarios")
    return int(not counts or not {*counts} <= {"updated", "unchanged"})


def _update(project: Project, component: str, definition: ScenarioDef, *, yes: bool) -> str:
    """Record and promote one scenario, and return the state of its golden."""
    store, registry = project.fixtures, project.registry
    name = f"{component}/{definition.name}"
    missing = definition.missing_variables(os.environ)
    if missing:
        echo(f"{name}: skipped, {', '.join(missing)} is not set")
        return "skipped"
    recording = asyncio.run(record(store, registry, component, definition.name, SystemClock()))
    change = compare_recording(project, recording.written[0])
    if change.difference.empty:
        for path in recording.written:
            path.unlink()
        echo(f"{name}: unchanged")
        return "unchanged"
    print_lines(describe_difference(change.difference), sys.stdout, colour=use_colour())
    try:
        agreed = yes or click.confirm(f"make this the golden {name}?")
    except click.Abort:  # no terminal to ask in
        echo()
        agreed = False
    if not agreed:
        echo(f"{name}: not updated; to do it: offbook review {name}")
        return "not updated"
    Review([change]).accept(change)
    echo(f"promoted: {project.relative(Path(change.moves[-1].approved))}")
    return "updated"


@golden.command("show", epilog=GOLDEN_EXAMPLE)
@click.argument("name", required=False)
@click.option("--scratch", is_flag=True, help="Show the scratch fixture, not the golden one.")
@json_option
@click.pass_obj
def show_command(project: Project, name: str | None, *, scratch: bool, as_json: bool) -> None:
    """List the golden and scratch fixtures, or print one as indented JSON."""
    if name is not None:
        path = project.fixtures.find("scratch" if scratch else "golden", name)
        for scenario in read_scenarios(path):
            encoded = msgspec.json.encode(scenario.fixture)
            echo(msgspec.json.format(encoded, indent=2).decode())
        return
    read = {kind: read_files(project.fixtures.paths(kind)) for kind in KINDS}
    listed = {kind: scenarios for kind, (scenarios, _) in read.items()}
    for problem in (each for _, problems in read.values() for each in problems):
        echo(str(problem), err=True)
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
            echo(row.rstrip())
    if not any(listed.values()):
        echo(f"no fixtures in {project.fixtures.root}")


@golden.command("promote", epilog=GOLDEN_EXAMPLE)
@click.argument("name")
@click.option("--replace", is_flag=True, help="Replace an existing golden.")
@click.pass_obj
def promote_command(project: Project, name: str, *, replace: bool) -> None:
    """Make a scratch fixture golden, if it is a recording, unedited, and replays."""
    work = promote(project.fixtures, name, project.registry.find, replace=replace)
    for path in asyncio.run(work):
        echo(f"promoted: {project.relative(path)}")


@golden.command("check", epilog=CHECK_EXAMPLE)
@click.argument("names", nargs=-1)
@click.option("--live", is_flag=True, help="Run the scenarios of these components for real.")
@click.option(
    "--foreign", is_flag=True, help="Skip the origin checks, for fixtures not recorded here."
)
@json_option
@click.pass_obj
def check_command(
    project: Project, names: tuple[str, ...], *, live: bool, foreign: bool, as_json: bool
) -> int:
    """Replay goldens, all or the named ones, and check their origin.

    With --live, run the scenarios of live scripts for real, and compare with the goldens.
    """
    refuse_together(live=live, foreign=foreign)
    if live:
        return _check_live(project, names, as_json=as_json)
    store = project.fixtures
    paths = [store.find("golden", name) for name in names] or store.paths()
    misplaced = [] if names else store.misplaced()
    require_some([*paths, *misplaced], "no goldens to check", where=store.root)
    scenarios, unreadable = read_files(paths)
    replays = asyncio.run(replay_all(scenarios, project.registry.find))
    problems = [replay.render() for replay in replays if not replay.ok]
    problems += map(str, [*unreadable, *misplaced])
    unknown: list[str] = []
    if not foreign:
        for path in dict.fromkeys(each.path for each in scenarios):
            problems += map(str, find_problems(store, path, project.registry))
        unknown = [each.name for each in scenarios if is_foreign(each, project.registry)]
    if as_json:
        replayed = [each.name for each in scenarios]
        print_json({"replayed": replayed, "problems": problems, "origin_not_checked": unknown})
        return int(bool(problems) or not scenarios)
    if unknown:
        echo(f"origin not checked, not recorded by Offbook: {len(unknown)}")
    for problem in problems:
        echo(problem)
    echo(f"{counted(len(scenarios), 'scenario')} replayed, {counted(len(problems), 'problem')}")
    return int(bool(problems) or not scenarios)


def _check_live(project: Project, components: tuple[str, ...], *, as_json: bool) -> int:
    known = project.registry.script_names()
    for name in components:
        require_known("no live script of", name, known)
    hint = "write scripts/live/NAME_live.py"
    require_some(known, "no live script", where=project.root, hint=hint)
    results = [
        result for name in components or known for result in asyncio.run(check_live(project, name))
    ]
    stored = SpecResults.read(project.root)
    for result in results:
        if not as_json:
            echo(result.render())
        component, _, name = result.name.partition("/")
        script = project.relative(project.registry.script_path(component))
        stored.add(script, name, SpecResult(result.state))
    try:
        stored.write()
    except OSError as error:
        echo(f"the results are not stored: {error}", err=True)
    counts = Counter(result.state for result in results)
    if as_json:
        print_json({"scenarios": [result._asdict() for result in results]})
    else:
        echo(", ".join(f"{counts[state]} {state}" for state in ("passed", "failed", "skipped")))
    # skipped scenarios are not a success: without credentials the command would always pass
    if not counts["passed"] and not counts["failed"]:
        echo("no scenario ran", err=True)
    return int(bool(counts["failed"]) or not counts["passed"])


@golden.command("spec", epilog=SPEC_EXAMPLE)
@click.option("--new", "component", metavar="COMPONENT", help="Create a spec from the template.")
@click.option("--ran", is_flag=True, help="Also check that the tests ran and passed.")
@click.option(
    "--table", is_flag=True, help="Print every requirement with its fixture, test and state."
)
@json_option
@click.pass_obj
def spec_command(
    project: Project, *, component: str | None, ran: bool, table: bool, as_json: bool
) -> int:
    """Check that the files and tests of all specs exist and that all goldens replay."""
    refuse_together(new=component, ran=ran, table=table)
    refuse_together(json=as_json, new=component, table=table)
    if component is not None:
        path = require_new(project.spec_path(component), "spec")
        today = datetime.fromtimestamp(SystemClock().millis() / 1000, UTC).date()
        write_atomic(path, write_template(component, str(today)))
        echo(f"created {project.relative(path)}: fill it in, then `offbook golden spec`")
        return 0
    if table:
        echo(render_table(tabulate(project, SpecResults.read(project.root))))
        return 0
    hint = "offbook golden spec --new COMPONENT"
    paths = require_some(project.spec_paths(), "no specs to check", where=project.root, hint=hint)
    problems = list(check_static(project))
    # a replay of a missing or broken file would report the same problem again
    if not problems:
        problems = asyncio.run(check_replay(project))
    results = SpecResults.read(project.root)
    if ran:
        require_some(results, "no test results", where=project.root, hint="run pytest first")
        problems += check_completeness(project, results)
    texts = [str(problem).replace(f"{project.root}/", "") for problem in problems]
    unchecked = [*list_unchecked(project, results)] if ran else []
    if as_json:
        requirements = [
            {
                "component": row.spec.component,
                "id": row.requirement.id,
                "fixture": row.requirement.value("Fixture"),
                "test": row.requirement.value("Test Name"),
                "state": row.state,
            }
            for row in tabulate(project, results)
        ]
        print_json({"requirements": requirements, "problems": texts, "not_checked": unchecked})
        return int(bool(problems))
    for text in texts:
        echo(text)
    for text in unchecked:
        echo(f"not checked: {text}")
    counts = {"spec": paths, "requirement": tabulate(project, results), "problem": problems}
    echo(", ".join(counted(len(items), noun) for noun, items in counts.items()))
    return int(bool(problems))
