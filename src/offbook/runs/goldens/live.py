"""Plays the scenarios of live scripts on the real thing, and compares with what replays expect."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

from offbook.errors import OffbookError
from offbook.runs.goldens.fixture import Scenario
from offbook.runs.goldens.matching import show
from offbook.runs.goldens.replay import find_differences
from offbook.runs.goldens.scenario import Take, play_take

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offbook.runs.goldens.project import Project

State = Literal["passed", "failed", "skipped"]


class Shown(NamedTuple):
    """What the real thing showed of one scenario."""

    name: str
    state: State
    why: list[str]

    def tell(self) -> str:
        """One line, and below it what was not as expected."""
        return "\n  ".join([f"{self.state:7} {self.name}", *self.why])


async def prove(
    project: Project, component: str, environment: Mapping[str, str] = os.environ
) -> list[Shown]:
    """Play all scenarios of a component for real; a golden without one is a failure as well."""
    takes = project.registry.takes(component)
    goldens = {one.fixture.scenario: one for one in project.library.scenarios("golden", component)}
    shown = [
        await _prove_take(project, component, take, goldens.get(take.name), environment)
        for take in takes.values()
    ]
    script = project.relative(project.registry.script_path(component))
    for name in goldens:
        if name not in takes:
            why = f"its golden has no scenario in {script}: nothing shows that it is real"
            shown.append(Shown(f"{component}/{name}", "failed", [why]))
    if not shown:
        why = f"{script} has no scenario, so it proves nothing"
        shown.append(Shown(component, "failed", [why]))
    return shown


async def _prove_take(
    project: Project,
    component: str,
    take: Take,
    golden: Scenario | None,
    environment: Mapping[str, str],
) -> Shown:
    name = f"{component}/{take.name}"
    missing = [key for key in take.needs if not environment.get(key)]
    if missing:
        return Shown(name, "skipped", [f"{', '.join(missing)} is not set"])
    if golden is None:
        record = f"offbook fixture record {component} {take.name}"
        return Shown(name, "failed", [f"it has no golden to compare with: {record}"])
    try:
        steps, observed = await play_take(project.registry.find(component), take)
    except OffbookError as error:
        return Shown(name, "failed", [str(error)])
    except Exception as error:  # noqa: BLE001 - whatever the real thing raises
        return Shown(name, "failed", [f"it raised {type(error).__name__}: {error}"])
    why = find_differences(golden, observed)
    if show(steps) != show(golden.fixture.steps):
        why.append(f"{golden.where}: the steps of the golden are not those of the scenario")
    if take.rule != golden.rule:
        why.append(f"{golden.where}: the golden is compared otherwise than the scenario")
    return Shown(name, "failed" if why else "passed", why)
