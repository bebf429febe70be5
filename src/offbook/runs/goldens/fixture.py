"""Fixture files: one scenario a line, and beside the file how strictly it is compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from offbook.errors import FormatError, FutureVersion, nearest
from offbook.files import convert, parse_json, read_document, read_text

if TYPE_CHECKING:
    from pathlib import Path

VERSION = 1
SIDECAR = ".match.json"
MANIFEST = "MANIFEST.json"
Match = Literal["exact", "prefix", "subset"]
Step = dict[str, Any]


class Fixture(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """One scenario: the steps that were done, and what came of them."""

    session_id: str
    scenario: str
    steps: list[Step]
    expect: dict[str, Any]
    metadata: dict[str, Any] = {}
    version: int = VERSION


class Rule(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """How a scenario is compared.

    - `exact`: these events and no others; `prefix`: these first, whatever follows; `subset`: these
      in this order, others between them and more in them.
    - `filter` says which events are looked at, `unsubscribe_after_step` when looking ends.
    """

    match: Match = "exact"
    filter: str | list[str] = "*"
    unsubscribe_after_step: int | None = None
    note: str = ""


class Sidecar(Rule, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The rule of a file; `scenarios` has those that differ, by name."""

    scenarios: dict[str, Rule] = {}

    def rule(self, scenario: str) -> Rule:
        """The rule of one scenario of the file."""
        own = Rule(self.match, self.filter, self.unsubscribe_after_step, self.note)
        return self.scenarios.get(scenario, own)


class _Listed(Sidecar, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    file: str


class _Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fixtures: list[_Listed]
    origin: str = ""


class Scenario(NamedTuple):
    """A scenario, where it stands, and how it is compared."""

    fixture: Fixture
    path: Path
    line: int
    rule: Rule

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


def read_scenarios(path: Path) -> list[Scenario]:
    """All scenarios of a file; a file without any is an error."""
    raw = read_text(path)
    sidecar = read_sidecar(path)
    found: list[Scenario] = []
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
        found.append(Scenario(fixture, path, number, sidecar.rule(fixture.scenario)))
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
                hint=nearest(name, lines),
            )
    return found


def _read_line(raw: str, path: Path, line: int) -> Fixture:
    fixture = convert(parse_json(raw, path, line), Fixture, path=path, line=line)
    if fixture.version > VERSION:
        raise FutureVersion(
            f"this fixture has version {fixture.version}, newer than {VERSION}",
            path=path,
            line=line,
            hint="upgrade Offbook to read it",
        )
    for number, step in enumerate(fixture.steps, start=1):
        if not isinstance(step.get("type"), str):
            keys = nearest("type", step)
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
