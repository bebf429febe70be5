"""Where a project keeps its fixtures, specs and live scripts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

from offbook.errors import OffbookError
from offbook.goldens.fixture_store import FixtureStore, GoldenScenario
from offbook.goldens.golden_replay import canonical_json, diff_scenario
from offbook.goldens.live_scripts import ComponentRegistry, ScenarioDef, play_scenario
from offbook.goldens.spec_file import SPEC_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


# --- Where a project keeps its fixtures, specs and live scripts.

FIXTURES, SPECS, LIVE_SCRIPTS = "fixtures", "tests/specs", "scripts/live"


class Project:
    """A project by its root folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.library = FixtureStore(root / FIXTURES)
        self.registry = ComponentRegistry(root / LIVE_SCRIPTS)

    def specs(self) -> list[Path]:
        """The test specs, in order."""
        return sorted((self.root / SPECS).glob(f"*{SPEC_SUFFIX}"))

    def spec(self, component: str) -> Path:
        """Where the spec of a component stands, or would."""
        return self.root / SPECS / f"{component}{SPEC_SUFFIX}"

    def relative(self, path: Path) -> str:
        """A path as people write it."""
        return (
            path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)
        )


def find_root(start: Path) -> Path:
    """The project that a folder belongs to: the nearest that has fixtures or specs, or itself."""
    for folder in (start, *start.parents):
        if (folder / FIXTURES).is_dir() or (folder / SPECS).is_dir():
            return folder
        if (folder / "pyproject.toml").is_file() or (folder / ".git").exists():
            return folder
    return start


# --- Plays the scenarios of live scripts on the real thing, and compares with what replays expect.

LiveState = Literal["passed", "failed", "skipped"]


class LiveResult(NamedTuple):
    """What the real thing showed of one scenario."""

    name: str
    state: LiveState
    why: list[str]

    def tell(self) -> str:
        """One line, and below it what was not as expected."""
        return "\n  ".join([f"{self.state:7} {self.name}", *self.why])


async def check_live(
    project: Project, component: str, environment: Mapping[str, str] = os.environ
) -> list[LiveResult]:
    """Play all scenarios of a component for real; a golden without one is a failure as well."""
    takes = project.registry.takes(component)
    goldens = {one.fixture.scenario: one for one in project.library.scenarios("golden", component)}
    shown = [
        await _check_scenario(project, component, take, goldens.get(take.name), environment)
        for take in takes.values()
    ]
    script = project.relative(project.registry.script_path(component))
    for name in goldens:
        if name not in takes:
            why = f"its golden has no scenario in {script}: nothing shows that it is real"
            shown.append(LiveResult(f"{component}/{name}", "failed", [why]))
    if not shown:
        why = f"{script} has no scenario, so it proves nothing"
        shown.append(LiveResult(component, "failed", [why]))
    return shown


async def _check_scenario(
    project: Project,
    component: str,
    take: ScenarioDef,
    golden: GoldenScenario | None,
    environment: Mapping[str, str],
) -> LiveResult:
    name = f"{component}/{take.name}"
    missing = [key for key in take.needs if not environment.get(key)]
    if missing:
        return LiveResult(name, "skipped", [f"{', '.join(missing)} is not set"])
    if golden is None:
        record = f"offbook fixture record {component} {take.name}"
        return LiveResult(name, "failed", [f"it has no golden to compare with: {record}"])
    try:
        steps, observed = await play_scenario(project.registry.find(component), take)
    except OffbookError as error:
        return LiveResult(name, "failed", [str(error)])
    except Exception as error:  # noqa: BLE001 - whatever the real thing raises
        return LiveResult(name, "failed", [f"it raised {type(error).__name__}: {error}"])
    why = diff_scenario(golden, observed)
    if canonical_json(steps) != canonical_json(golden.fixture.steps):
        why.append(f"{golden.where}: the steps of the golden are not those of the scenario")
    if take.rule != golden.rule:
        why.append(f"{golden.where}: the golden is compared otherwise than the scenario")
    return LiveResult(name, "failed" if why else "passed", why)
