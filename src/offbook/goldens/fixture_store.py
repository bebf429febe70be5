"""Fixture files: one scenario a line, and beside the file how strictly it is compared."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from offbook.errors import FormatError, FutureVersion, UsageError, did_you_mean
from offbook.files import convert, parse_json, read_document, read_text, write_atomic

if TYPE_CHECKING:
    from pathlib import Path


# --- Fixture files: one scenario a line, and beside the file how strictly it is compared.

FIXTURE_VERSION = 1
SIDECAR = ".match.json"
MANIFEST = "MANIFEST.json"
MatchMode = Literal["exact", "prefix", "subset"]
StepDict = dict[str, Any]


class GoldenFixture(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """One scenario: the steps that were done, and what came of them."""

    session_id: str
    scenario: str
    steps: list[StepDict]
    expect: dict[str, Any]
    metadata: dict[str, Any] = {}
    version: int = FIXTURE_VERSION


class MatchRule(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """How a scenario is compared.

    - `exact`: these events and no others; `prefix`: these first, whatever follows; `subset`: these
      in this order, others between them and more in them.
    - `filter` says which events are looked at, `unsubscribe_after_step` when looking ends.
    """

    match: MatchMode = "exact"
    filter: str | list[str] = "*"
    unsubscribe_after_step: int | None = None
    note: str = ""


class Sidecar(
    MatchRule, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The rule of a file; `scenarios` has those that differ, by name."""

    scenarios: dict[str, MatchRule] = {}

    def rule(self, scenario: str) -> MatchRule:
        """The rule of one scenario of the file."""
        own = MatchRule(self.match, self.filter, self.unsubscribe_after_step, self.note)
        return self.scenarios.get(scenario, own)


class _Listed(Sidecar, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    file: str


class _Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fixtures: list[_Listed]
    origin: str = ""


class GoldenScenario(NamedTuple):
    """A scenario, where it stands, and how it is compared."""

    fixture: GoldenFixture
    path: Path
    line: int
    rule: MatchRule

    @property
    def component(self) -> str:
        """What it is a scenario of: the name of its folder."""
        return self.path.parent.name

    @property
    def name(self) -> str:
        """What it is called in lists: component, file, and its own name where that differs."""
        name = f"{self.component}/{self.path.stem}"
        own = self.fixture.scenario
        return name if own == self.path.stem else f"{name}#{own}"

    @property
    def where(self) -> str:
        """The file and the line."""
        return f"{self.path}:{self.line}"


def read_scenarios(path: Path) -> list[GoldenScenario]:
    """All scenarios of a file; a file without any is an error."""
    raw = read_text(path)
    sidecar = read_sidecar(path)
    found: list[GoldenScenario] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(raw.split("\n"), start=1):
        if not line.strip():
            continue
        fixture = _read_line(line, path, number)
        first = lines.setdefault(fixture.scenario, number)
        if first != number:
            raise FormatError(
                f"a second scenario is called {fixture.scenario!r}",
                path=path,
                line=number,
                hint=f"line {first} has it already: rename one",
            )
        found.append(GoldenScenario(fixture, path, number, sidecar.rule(fixture.scenario)))
    if not found:
        raise FormatError(
            "the fixture is empty: it would prove nothing",
            path=path,
            line=1,
            hint=f"record it: offbook fixture record {path.parent.name} {path.stem}",
        )
    for name in sidecar.scenarios:
        if name not in lines:
            raise FormatError(
                f"there is no scenario {name!r} in {path.name}",
                path=sidecar_path(path),
                hint=did_you_mean(name, lines),
            )
    return found


def _read_line(raw: str, path: Path, line: int) -> GoldenFixture:
    fixture = convert(parse_json(raw, path, line), GoldenFixture, path=path, line=line)
    if fixture.version > FIXTURE_VERSION:
        raise FutureVersion(
            f"this fixture has version {fixture.version}, newer than {FIXTURE_VERSION}",
            path=path,
            line=line,
            hint="upgrade Offbook to read it",
        )
    for number, step in enumerate(fixture.steps, start=1):
        if not isinstance(step.get("type"), str):
            keys = did_you_mean("type", step)
            raise FormatError(f"step {number} has no type", path=path, line=line, hint=keys)
    return fixture


def sidecar_path(path: Path) -> Path:
    """Where the rule of a fixture file stands."""
    return path.with_name(f"{path.stem}{SIDECAR}")


def read_sidecar(path: Path) -> Sidecar:
    """How a file is compared: its sidecar, the manifest of a folder above, or exactly."""
    own = sidecar_path(path)
    if own.is_file():
        return read_document(own, Sidecar)
    for folder in path.parents[:4]:
        manifest = folder / MANIFEST
        if manifest.is_file():
            return _find_listed(manifest, path)
    return Sidecar()


def _find_listed(manifest: Path, path: Path) -> Sidecar:
    for one in read_document(manifest, _Manifest).fixtures:
        if manifest.parent / one.file == path:
            return one
    return Sidecar()


# --- The fixtures of a project: golden ones that tests rely on, scratch ones that are being tried.

FixtureKind = Literal["golden", "scratch"]


class FixtureStore:
    """The folder `fixtures/` of a project, with `golden/<component>/<name>.jsonl` in it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def place(self, shelf: FixtureKind, component: str, name: str) -> Path:
        """Where a fixture stands, or would."""
        for part in (component, name):
            if not part or part != os.path.basename(part) or part.startswith("."):  # noqa: PTH119 - it looks for separators
                raise UsageError(
                    f"{part!r} is no name for a fixture", hint="write COMPONENT NAME, or C/NAME"
                )
        return self.root / shelf / component / f"{name}.jsonl"

    def paths(self, shelf: FixtureKind = "golden", component: str = "") -> list[Path]:
        """The files on a shelf, in order."""
        return sorted((self.root / shelf).glob(f"{component or '*'}/*.jsonl"))

    def names(self, shelf: FixtureKind = "golden") -> list[str]:
        """What is on a shelf, as `component/name`."""
        return [f"{path.parent.name}/{path.stem}" for path in self.paths(shelf)]

    def scenarios(self, shelf: FixtureKind = "golden", component: str = "") -> list[GoldenScenario]:
        """All scenarios on a shelf."""
        return [one for path in self.paths(shelf, component) for one in read_scenarios(path)]

    def find(self, shelf: FixtureKind, name: str) -> Path:
        """The file of `component/name`, or the nearest names."""
        component, _, stem = name.partition("/")
        path = self.place(shelf, component, stem)
        if not path.is_file():
            raise UsageError(
                f"there is no {shelf} fixture {name!r}",
                where=str(self.root),
                hint=did_you_mean(name, self.names(shelf)),
            )
        return path

    def stray_sidecars(self) -> list[Path]:
        """Sidecars whose fixture is gone."""
        found = sorted((self.root / "golden").glob(f"*/*{SIDECAR}"))
        return [path for path in found if not _owner(path).is_file()]


def _owner(sidecar: Path) -> Path:
    return sidecar.with_name(f"{sidecar.name.removesuffix(SIDECAR)}.jsonl")


def write_fixture(path: Path, fixture: GoldenFixture, rule: MatchRule) -> list[Path]:
    """Write a fixture, and its sidecar where it is not compared exactly; what was written."""
    own = sidecar_path(path)
    told = msgspec.json.encode(rule)
    write_atomic(path, msgspec.json.encode(fixture) + b"\n")
    if told == b"{}":
        own.unlink(missing_ok=True)
        return [path]
    write_atomic(own, msgspec.json.format(told, indent=2) + b"\n")
    return [path, own]
