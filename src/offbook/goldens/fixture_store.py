"""Golden fixtures as files, and the folder of a project that stores them.

A fixture file has one scenario per line. A sidecar next to it sets how its scenarios are compared,
unless that is `exact`:

    fixtures/golden/till/open-drawer.jsonl
    fixtures/golden/till/open-drawer.match.json      {"match": "prefix", "filter": "till:*"}
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from offbook.errors import FormatError, UsageError, did_you_mean
from offbook.files import convert, parse_json, read_document, read_text, write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterable

FIXTURE_VERSION = 2
SIDECAR = ".match.json"
MANIFEST = "MANIFEST.json"
MANIFEST_LEVELS = 4  # a manifest may be this many folders above a fixture file

MatchMode = Literal["exact", "prefix", "subset"]
FixtureKind = Literal["golden", "scratch"]
StepDict = dict[str, Any]


class Problem(NamedTuple):
    """A defect of a fixture, a spec or a test file, with its location."""

    path: Path
    line: int
    what: str
    hint: str = ""

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.path}:{self.line}: {self.what}{hint}"


# omit_defaults: lines stay short, and the hash of a recording does not change when a later version
# adds a field
class GoldenFixture(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """One line of a fixture file: the steps of a scenario and the expected result.

    Version 1 is also that of other projects, which write none: a state of null is not compared.
    Recordings of version 2 have every state and every execution of a tool.
    """

    session_id: str
    scenario: str
    steps: list[StepDict]
    expect: dict[str, Any]
    metadata: dict[str, Any] = {}
    version: int = 1


class MatchRule(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The comparison of a scenario's events with the expected ones.

    - `match`: `exact` allows these events only; `prefix` allows more events after them; `subset`
      allows more events between them and more fields in them.
    - `filter` selects the events to compare; `unsubscribe_after_step` ends the selection.
    - `volatile` are fields of which only the type is compared: `id`, or `order.id`.
    """

    match: MatchMode = "exact"
    filter: str | list[str] = "*"
    unsubscribe_after_step: int | None = None
    note: str = ""
    volatile: list[str] = []


class Sidecar(
    MatchRule, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The rule of a fixture file; `scenarios` has the rules of single scenarios by name."""

    scenarios: dict[str, MatchRule] = {}

    def rule(self, scenario: str) -> MatchRule:
        """Return the rule of one scenario of the file."""
        default = MatchRule(
            self.match, self.filter, self.unsubscribe_after_step, self.note, self.volatile
        )
        return self.scenarios.get(scenario, default)


class ManifestEntry(Sidecar, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The rule of one file in a manifest."""

    file: str


class FixtureManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rules of all files of a folder, for fixtures that another project recorded."""

    fixtures: list[ManifestEntry]
    origin: str = ""


class GoldenScenario(NamedTuple):
    """A scenario of a fixture file, with its location and its rule."""

    fixture: GoldenFixture
    path: Path
    line: int
    rule: MatchRule

    @property
    def component(self) -> str:
        """The name of the component: the folder of the file."""
        return self.path.parent.name

    @property
    def name(self) -> str:
        """The name in lists: `component/file`, or `component/file#scenario` if they differ."""
        name = f"{self.component}/{self.path.stem}"
        scenario = self.fixture.scenario
        return name if scenario == self.path.stem else f"{name}#{scenario}"

    @property
    def location(self) -> str:
        """The file and the line."""
        return f"{self.path}:{self.line}"


def read_scenarios(path: Path) -> list[GoldenScenario]:
    """Read all scenarios of a fixture file. A file without a scenario is an error."""
    text = read_text(path)
    sidecar = read_sidecar(path)
    scenarios: list[GoldenScenario] = []
    line_of: dict[str, int] = {}
    # not splitlines(): JSON strings may contain U+2028, which is a line break only for Python
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        fixture = convert(parse_json(line, path, number), GoldenFixture, path=path, line=number)
        if fixture.version > FIXTURE_VERSION:
            raise FormatError(
                f"fixture version {fixture.version} is newer than {FIXTURE_VERSION}",
                path=path,
                line=number,
                hint="upgrade Offbook to read it",
            )
        for step_number, step in enumerate(fixture.steps, start=1):
            if not isinstance(step.get("type"), str):
                raise FormatError(
                    f"step {step_number} has no type",
                    path=path,
                    line=number,
                    hint=did_you_mean("type", step),
                )
        if fixture.scenario in line_of:
            raise FormatError(
                f"duplicate scenario {fixture.scenario!r}",
                path=path,
                line=number,
                hint=f"line {line_of[fixture.scenario]} has the same name: rename one",
            )
        line_of[fixture.scenario] = number
        rule = sidecar.rule(fixture.scenario)
        scenarios.append(GoldenScenario(fixture, path, number, rule))
    if not scenarios:
        # an empty file would pass every replay without checking anything
        raise FormatError(
            "empty fixture file",
            path=path,
            line=1,
            hint=f"record it: offbook golden record {path.parent.name}/{path.stem}",
        )
    for name in sidecar.scenarios:
        if name not in line_of:
            raise FormatError(
                f"unknown scenario {name!r}, not in {path.name}",
                path=sidecar_path(path),
                hint=did_you_mean(name, line_of),
            )
    return scenarios


def read_files(paths: Iterable[Path]) -> tuple[list[GoldenScenario], list[Problem]]:
    """Read the scenarios of several files, and the problems of those that cannot be read."""
    scenarios: list[GoldenScenario] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            scenarios += read_scenarios(path)
        except FormatError as error:  # the file itself, its sidecar or its manifest
            problem = Problem(Path(error.path), error.line or 1, error.what, error.hint)
            if problem not in problems:  # several files may have one manifest
                problems.append(problem)
    return scenarios, problems


def sidecar_path(path: Path) -> Path:
    """Return the path of a fixture file's sidecar."""
    return path.with_name(f"{path.stem}{SIDECAR}")


def read_sidecar(path: Path) -> Sidecar:
    """Return the rule of a fixture file: its sidecar, else its manifest entry, else `exact`."""
    sidecar = sidecar_path(path)
    # an invalid sidecar raises: without it the file would be compared by another rule
    if sidecar.is_file():
        return read_document(sidecar, Sidecar)
    for folder in path.parents[:MANIFEST_LEVELS]:
        manifest = folder / MANIFEST
        if manifest.is_file():
            entries = read_document(manifest, FixtureManifest).fixtures
            return next((entry for entry in entries if folder / entry.file == path), Sidecar())
    return Sidecar()


def write_fixture(path: Path, fixture: GoldenFixture, rule: MatchRule) -> list[Path]:
    """Write a fixture, and its sidecar unless the rule is `exact`. Return the written paths."""
    sidecar = sidecar_path(path)
    rule_json = msgspec.json.encode(rule)
    write_atomic(path, msgspec.json.encode(fixture) + b"\n")
    if rule_json == b"{}":  # all defaults
        # a sidecar of an older recording would change how this one is compared
        sidecar.unlink(missing_ok=True)
        return [path]
    write_atomic(sidecar, msgspec.json.format(rule_json, indent=2) + b"\n")
    return [path, sidecar]


class FixtureStore:
    """The folder `fixtures/` of a project: `golden` for tests, `scratch` for new recordings."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def fixture_path(self, kind: FixtureKind, component: str, name: str) -> Path:
        """Return the path of a fixture file, whether it exists or not."""
        for part in (component, name):
            if not part or part != os.path.basename(part) or part.startswith("."):  # noqa: PTH119 - Path drops a trailing separator
                raise UsageError(f"invalid fixture name {part!r}", hint="write COMPONENT/NAME")
        return self.root / kind / component / f"{name}.jsonl"

    def paths(self, kind: FixtureKind = "golden", component: str = "") -> list[Path]:
        """Return the sorted fixture files, of all components or of one."""
        return sorted((self.root / kind).glob(f"{component or '*'}/*.jsonl"))

    def scenarios(self, kind: FixtureKind = "golden", component: str = "") -> list[GoldenScenario]:
        """Read all scenarios, of all components or of one."""
        return [
            scenario for path in self.paths(kind, component) for scenario in read_scenarios(path)
        ]

    def find(self, kind: FixtureKind, name: str) -> Path:
        """Return the existing file of `component/name`."""
        component, _, stem = name.partition("/")
        path = self.fixture_path(kind, component, stem)
        if not path.is_file():
            names = [f"{known.parent.name}/{known.stem}" for known in self.paths(kind)]
            raise UsageError(
                f"no {kind} fixture {name!r}",
                where=str(self.root),
                hint=did_you_mean(name, names),
            )
        return path

    def orphan_sidecars(self) -> list[Path]:
        """Return the sidecars of golden fixtures that no longer exist."""
        sidecars = sorted((self.root / "golden").glob(f"*/*{SIDECAR}"))
        return [
            path
            for path in sidecars
            if not path.with_name(f"{path.name.removesuffix(SIDECAR)}.jsonl").is_file()
        ]

    def misplaced(self) -> list[Problem]:
        """Return the golden files that are not directly in the folder of a component."""
        folder = self.root / "golden"
        hint = "move it to fixtures/golden/COMPONENT/NAME.jsonl"
        return [
            Problem(path, 1, "no test can replay this golden", hint)
            for path in sorted(folder.rglob("*.jsonl"))
            if path.parent.parent != folder
        ]

    def digest(self) -> str:
        """Return a hash of all golden files, to detect a test run that changes one."""
        digest = sha256()
        for path in sorted((self.root / "golden").rglob("*")):
            if path.is_file():
                # the name too: a renamed file is a change
                digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()
