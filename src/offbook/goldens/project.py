"""The golden fixtures, specs and live scripts of a project."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from configparser import ConfigParser
from configparser import Error as IniError
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from offbook.checks.expected_files import (
    FileMove,
    PendingChange,
    Snapshot,
    compare_snapshots,
    pending_change,
)
from offbook.errors import CheckFailed, FormatError, UsageError
from offbook.files import parse_toml, read_text
from offbook.goldens.fixture_store import (
    FixtureStore,
    GoldenScenario,
    read_files,
    read_scenarios,
    sidecar_path,
)
from offbook.goldens.golden_replay import (
    GoldenReplay,
    canonical_json,
    describe_exception,
    diff_scenario,
    mask_volatile,
    replay_all,
)
from offbook.goldens.live_scripts import (
    ComponentRegistry,
    ScenarioDef,
    check_promotion,
    play_scenario,
)
from offbook.runs.run import in_event_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

FIXTURES, SPECS, LIVE_SCRIPTS = "fixtures", "tests/specs", "scripts/live"
SPEC_SUFFIX = ".test-spec.md"
LiveState = Literal["passed", "failed", "skipped"]
# in the order in which pytest looks for them, with the keys of its table
SETTINGS_FILES = {
    "pytest.toml": ("pytest",),
    ".pytest.toml": ("pytest",),
    "pytest.ini": ("pytest",),
    ".pytest.ini": ("pytest",),
    "pyproject.toml": ("tool", "pytest"),
    "tox.ini": ("pytest",),
    "setup.cfg": ("tool:pytest",),
}


class Project:
    """A project by its root folder: `fixtures/`, `tests/specs/` and `scripts/live/`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.fixtures = FixtureStore(root / FIXTURES)
        self.registry = ComponentRegistry(root / LIVE_SCRIPTS, root)

    def spec_paths(self) -> list[Path]:
        """Return the sorted test specs."""
        return sorted((self.root / SPECS).glob(f"*{SPEC_SUFFIX}"))

    def spec_path(self, component: str) -> Path:
        """Return the path of a component's spec, whether it exists or not."""
        return self.root / SPECS / f"{component}{SPEC_SUFFIX}"

    def relative(self, path: Path) -> str:
        """Return a path relative to the root, or unchanged if it is outside."""
        return (
            # specs name files with forward slashes on every system
            path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)
        )


class Goldens:
    """The pytest fixture `goldens`: `goldens.replay("till/open-drawer")`."""

    def __init__(
        self,
        project: Project,
        on_replay: Callable[[str], None],
        untimed: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._project = project
        self._on_replay = on_replay
        self._untimed = untimed
        # kept, because a test may catch them
        self.failures: list[Exception] = []

    def replay(self, name: str) -> list[GoldenReplay]:
        """Replay all scenarios of the golden `component/name`; raise CheckFailed if one differs."""
        try:
            return self._replay(name)
        except Exception as error:
            self.failures.append(error)
            raise

    def _replay(self, name: str) -> list[GoldenReplay]:
        scenarios = read_scenarios(self._project.fixtures.find("golden", name))
        # the first import of a live script is not the time of the test
        with self._untimed(), suppress(UsageError):
            for scenario in scenarios:
                self._project.registry.find(scenario.component)

        def run() -> list[GoldenReplay]:
            return asyncio.run(replay_all(scenarios, self._project.registry.find))

        if in_event_loop():
            # an `async def` test has a running event loop, and a thread can have only one
            with ThreadPoolExecutor(1) as pool:
                replays = pool.submit(run).result()
        else:
            replays = run()
        # noted also if it differs: the test did use the golden
        self._on_replay(name)
        differing = [replay.render() for replay in replays if not replay.ok]
        if differing:
            raise CheckFailed("\n".join(differing), hint=f"offbook golden show {name}")
        return replays


class LiveResult(NamedTuple):
    """The result of a scenario that ran on the real component."""

    name: str
    state: LiveState
    reasons: list[str]

    def render(self) -> str:
        """Return the state and the name on one line, and the reasons below."""
        return "\n  ".join([f"{self.state:7} {self.name}", *self.reasons])


async def check_live(
    project: Project, component: str, environment: Mapping[str, str] = os.environ
) -> list[LiveResult]:
    """Run all scenarios of a component for real and compare the results with its goldens.

    A golden without a scenario fails as well: nothing shows that the component still does it.
    """
    definitions = project.registry.scenarios(component)
    scenarios, problems = read_files(project.fixtures.paths(component=component))
    goldens = {each.fixture.scenario: each for each in scenarios}
    results = [
        await _check_scenario(project, component, definition, goldens.get(name), environment)
        for name, definition in definitions.items()
    ]
    script = project.relative(project.registry.script_path(component))
    for name in goldens:
        if name not in definitions:
            reason = f"the golden has no scenario in {script}, so it cannot be checked"
            results.append(LiveResult(f"{component}/{name}", "failed", [reason]))
    results += [LiveResult(component, "failed", [str(problem)]) for problem in problems]
    if not results:
        results.append(LiveResult(component, "failed", [f"{script} has no scenario"]))
    return results


async def _check_scenario(
    project: Project,
    component: str,
    definition: ScenarioDef,
    golden: GoldenScenario | None,
    environment: Mapping[str, str],
) -> LiveResult:
    name = f"{component}/{definition.name}"
    missing = definition.missing_variables(environment)
    if missing:
        return LiveResult(name, "skipped", [f"{', '.join(missing)} is not set"])
    if golden is None:
        command = f"offbook golden update {name}"
        return LiveResult(name, "failed", [f"no golden to compare with; record it: {command}"])
    try:
        steps, observation = await play_scenario(project.registry.find(component), definition)
    except Exception as error:  # noqa: BLE001 - the real component may raise anything
        return LiveResult(name, "failed", [describe_exception(error)])
    reasons = diff_scenario(golden, observation)
    # replays use the steps and the rule of the golden, so these must be those of the script
    volatile = definition.rule.volatile
    played, recorded = (mask_volatile(each, volatile) for each in (steps, golden.fixture.steps))
    if canonical_json(played) != canonical_json(recorded):
        reasons.append(f"{golden.location}: the golden has other steps than the scenario")
    if definition.rule != golden.rule:
        reasons.append(f"{golden.location}: the golden has another match rule than the scenario")
    return LiveResult(name, "failed" if reasons else "passed", reasons)


# ----------------------------------------------------------------------------------- recordings


def open_project(folder: Path) -> Project:
    """Return the project of a folder, as pytest finds it: commands work in every folder of it."""
    settings = find_pytest_settings(folder.resolve())
    # a live script imports the project as its tests do
    sys.path[:0] = [path for path in map(str, settings.pythonpath) if path not in sys.path]
    return Project(settings.root)


def find_recordings(location: str) -> list[PendingChange] | None:
    """Return the recordings in the project of a folder, for `offbook review`."""
    return list_recordings(open_project(Path(location))) if Path(location).is_dir() else None


def list_recordings(project: Project) -> list[PendingChange]:
    """Return the recordings that would change a golden."""
    changes = [compare_recording(project, path) for path in project.fixtures.paths("scratch")]
    return [change for change in changes if not change.difference.empty]


def compare_recording(project: Project, scratch: Path) -> PendingChange:
    """Return a recording as a change of its golden; only one that replays can be accepted."""
    golden = project.fixtures.fixture_path("golden", scratch.parent.name, scratch.stem)
    title = project.relative(golden)
    before = Snapshot({title: _readable_fixture(golden)} if golden.is_file() else {})
    difference = compare_snapshots(before, Snapshot({title: _readable_fixture(scratch)}))
    # The sidecar first: the main file is the last one.
    files = ((sidecar_path(scratch), sidecar_path(golden)), (scratch, golden))
    moves = [FileMove(str(source), str(target)) for source, target in files]
    name = f"{scratch.parent.name}/{scratch.stem}"
    check = partial(_check_promotion, project, name)
    return pending_change("golden", name, moves, difference, check)


def _check_promotion(project: Project, name: str) -> None:
    asyncio.run(check_promotion(project.fixtures, name, project.registry.find))


def _readable_fixture(path: Path) -> str:
    """Return a fixture file as indented JSON, without the time and hash of its recording."""
    texts: list[str] = []
    for scenario in read_scenarios(path):
        shown: dict[str, Any] = msgspec.to_builtins(scenario.fixture)
        shown["description"] = shown.pop("metadata", {}).get("description", "")
        shown |= {"rule": rule} if (rule := msgspec.to_builtins(scenario.rule)) else {}
        texts.append(msgspec.json.format(msgspec.json.encode(shown), indent=2).decode() + "\n")
    return "".join(texts)


# --------------------------------------------------------------------------- the settings of pytest


class PytestSettings(NamedTuple):
    """The root folder of pytest, and the folders of its setting `pythonpath`."""

    root: Path
    pythonpath: list[Path]


def find_pytest_settings(start: Path) -> PytestSettings:
    """Return the settings that `pytest` has when it is started in a folder."""
    folders = [start, *start.parents]
    for folder in folders:
        for name in SETTINGS_FILES:
            path = folder / name
            table = _read_table(path) if path.is_file() else None
            if table is not None:
                listed = table.get("pythonpath", [])
                names = shlex.split(listed) if isinstance(listed, str) else listed
                return PytestSettings(folder, [folder / str(entry) for entry in names])
    for name in ("pyproject.toml", "setup.py"):
        for folder in folders:
            if (folder / name).is_file():
                return PytestSettings(folder, [])
    return PytestSettings(start, [])


def _read_table(path: Path) -> dict[str, Any] | None:
    """Return the settings of pytest in a file, or None if it has none."""
    text = read_text(path)
    if path.suffix == ".toml":
        document = parse_toml(text, path)
    else:
        parser = ConfigParser(interpolation=None, strict=False)
        try:
            parser.read_string(text)
        except IniError as error:
            raise FormatError(str(error), path=path) from error
        document = {name: dict(parser[name]) for name in parser.sections()}
    table: Any = document
    for key in SETTINGS_FILES[path.name]:
        table = table.get(key, {})
    if path.name == "pyproject.toml":
        table = table.get("ini_options", table)
    # files that are only for pytest count even if they are empty
    return table if table or path.name.lstrip(".").startswith("pytest.") else None
