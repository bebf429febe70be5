"""The fixtures of a project: golden ones that tests rely on, scratch ones that are being tried."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

import msgspec

from offbook.errors import UsageError, nearest
from offbook.files import write_whole
from offbook.runs.goldens.fixture import SIDECAR, Scenario, read_scenarios, sidecar_path

if TYPE_CHECKING:
    from pathlib import Path

    from offbook.runs.goldens.fixture import Fixture, Rule

Shelf = Literal["golden", "scratch"]


class Library:
    """The folder `fixtures/` of a project, with `golden/<component>/<name>.jsonl` in it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def place(self, shelf: Shelf, component: str, name: str) -> Path:
        """Where a fixture stands, or would."""
        for part in (component, name):
            if not part or part != os.path.basename(part) or part.startswith("."):  # noqa: PTH119 - it looks for separators
                raise UsageError(
                    f"{part!r} is no name for a fixture", hint="write COMPONENT NAME, or C/NAME"
                )
        return self.root / shelf / component / f"{name}.jsonl"

    def paths(self, shelf: Shelf = "golden", component: str = "") -> list[Path]:
        """The files on a shelf, in order."""
        return sorted((self.root / shelf).glob(f"{component or '*'}/*.jsonl"))

    def names(self, shelf: Shelf = "golden") -> list[str]:
        """What is on a shelf, as `component/name`."""
        return [f"{path.parent.name}/{path.stem}" for path in self.paths(shelf)]

    def scenarios(self, shelf: Shelf = "golden", component: str = "") -> list[Scenario]:
        """All scenarios on a shelf."""
        return [one for path in self.paths(shelf, component) for one in read_scenarios(path)]

    def find(self, shelf: Shelf, name: str) -> Path:
        """The file of `component/name`, or the nearest names."""
        component, _, stem = name.partition("/")
        path = self.place(shelf, component, stem)
        if not path.is_file():
            raise UsageError(
                f"there is no {shelf} fixture {name!r}",
                where=str(self.root),
                hint=nearest(name, self.names(shelf)),
            )
        return path

    def stray_sidecars(self) -> list[Path]:
        """Sidecars whose fixture is gone."""
        found = sorted((self.root / "golden").glob(f"*/*{SIDECAR}"))
        return [path for path in found if not _owner(path).is_file()]


def _owner(sidecar: Path) -> Path:
    return sidecar.with_name(f"{sidecar.name.removesuffix(SIDECAR)}.jsonl")


def write_fixture(path: Path, fixture: Fixture, rule: Rule) -> list[Path]:
    """Write a fixture, and its sidecar where it is not compared exactly; what was written."""
    own = sidecar_path(path)
    told = msgspec.json.encode(rule)
    write_whole(path, msgspec.json.encode(fixture) + b"\n")
    if told == b"{}":
        own.unlink(missing_ok=True)
        return [path]
    write_whole(own, msgspec.json.format(told, indent=2) + b"\n")
    return [path, own]
