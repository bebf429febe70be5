"""Test specs: Markdown files that say what a component must do, and which test shows it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from offbook.errors import did_you_mean
from offbook.files import read_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SPEC_SUFFIX = ".test-spec.md"
STATUSES = ("Draft", "In Progress", "Complete")
TITLE = re.compile(r"# (.+) Test Specification$")
REQUIREMENT = re.compile(r"### (R\d+): (.+)$")
FIELD = re.compile(r"\*\*([^*]+)\*\*:\s*(.*)$")
BOX = re.compile(r"- \[([ xX])\] (.+)$")
ITEM = re.compile(r"(?:\d+\.|[-*]) +(\S.*)$")

HEADER, LIVE, CHECKLIST = "header", "Live Test (Authoritative)", "Coverage Checklist"
REQUIREMENTS, UNITS = "Test Requirements", "Unit Tests (Pure Logic)"
SECTIONS = ("Overview", REQUIREMENTS, LIVE, CHECKLIST)
OPTIONAL = (UNITS, "Notes")
FIELDS = {
    HEADER: ("Component", "Last Updated", "Status"),
    REQUIREMENTS: (
        "Fixture", "Test File", "Test Name", "Scenario", "Assertions", "Fixture Recording",
    ),
    LIVE: ("Script", "Requirement", "Timeout", "Description", "Execution", "Success Criteria"),
    UNITS: ("Test File", "Requirements", "Note"),
}  # fmt: skip


class Problem(NamedTuple):
    """Something that is wrong with a spec or what it names, and where."""

    path: Path
    line: int
    what: str
    hint: str = ""

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.path}:{self.line}: {self.what}{hint}"


class SpecField(NamedTuple):
    """A value of a spec, and its line; the items of the list below it, if it has one."""

    value: str
    line: int
    items: list[str]


class Requirement(msgspec.Struct):
    """One thing that a component must do."""

    id: str
    name: str
    line: int
    fields: dict[str, SpecField] = {}

    def value(self, field: str) -> str:
        """What a field says; nothing when it is not there."""
        found = self.fields.get(field)
        return found.value if found else ""

    def line_of(self, field: str) -> int:
        """Where a field stands, or the requirement."""
        found = self.fields.get(field)
        return found.line if found else self.line


class Spec(msgspec.Struct):
    """A test spec, read: what it says, and all that is wrong with how it says it."""

    path: Path
    header: dict[str, SpecField] = {}
    sections: dict[str, int] = {}
    requirements: list[Requirement] = []
    live: dict[str, SpecField] = {}
    units: dict[str, SpecField] = {}
    boxes: list[tuple[str, bool, int]] = []
    problems: list[Problem] = []

    @property
    def component(self) -> str:
        """What it specifies: the name of its file."""
        return self.path.name.removesuffix(SPEC_SUFFIX)

    @property
    def status(self) -> str:
        """How far it is."""
        found = self.header.get("Status")
        return found.value if found else ""

    def complain(self, line: int, what: str, hint: str = "") -> None:
        """Keep something that is wrong."""
        self.problems.append(Problem(self.path, line, what, hint))


def read_spec(path: Path) -> Spec:
    """A spec, and everything that is wrong with its form."""
    spec = Spec(path, {}, {}, [], {}, {}, [], [])
    reader = _Reader(spec)
    for number, line in _outside_fences(read_text(path)):
        reader.read(number, line.rstrip())
    _check_form(spec, titled=reader.titled)
    return spec


def _outside_fences(text: str) -> Iterator[tuple[int, str]]:
    fenced = False
    for number, line in enumerate(text.split("\n"), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


class _Reader:
    """Reads a spec line by line; knows in which section it is."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._section = HEADER
        self._fields: dict[str, SpecField] = spec.header
        self._list: list[str] | None = None
        self.titled = False

    def read(self, number: int, line: str) -> None:
        """Take in one line."""
        if TITLE.match(line):
            self.titled = True
        elif line.startswith("## "):
            self._open_section(number, line[3:].strip())
        elif line.startswith("### ") and self._section == REQUIREMENTS:
            self._open_requirement(number, line)
        elif field := FIELD.match(line):
            self._take_field(number, field[1], field[2])
        elif (box := BOX.match(line)) and self._section == CHECKLIST:
            self._spec.boxes.append((box[2], box[1] != " ", number))
        elif (item := ITEM.match(line)) and self._list is not None:
            self._list.append(item[1])

    def _open_section(self, number: int, name: str) -> None:
        known = SECTIONS + OPTIONAL
        if name not in known:
            self._spec.complain(number, f"there is no section {name!r}", did_you_mean(name, known))
        self._section = name
        self._spec.sections[name] = number
        self._fields = {LIVE: self._spec.live, UNITS: self._spec.units}.get(name, {})
        self._list = None

    def _open_requirement(self, number: int, line: str) -> None:
        found = REQUIREMENT.match(line)
        if found is None:
            self._spec.complain(number, f"not a requirement: {line!r}", "write '### R1: name'")
            return
        requirement = Requirement(found[1], found[2], number, {})
        wanted = f"R{len(self._spec.requirements) + 1}"
        if found[1] != wanted:
            self._spec.complain(number, f"{found[1]} stands where {wanted} should")
        self._spec.requirements.append(requirement)
        self._fields = requirement.fields
        self._list = None

    def _take_field(self, number: int, name: str, raw: str) -> None:
        known = FIELDS.get(self._section)
        if known is None:
            return
        if name not in known:
            self._spec.complain(
                number, f"there is no field {name!r} here", did_you_mean(name, known)
            )
        if name in self._fields:
            self._spec.complain(number, f"{name} stands here twice")
        self._list = []
        self._fields[name] = SpecField(raw.strip().strip('`"'), number, self._list)


def _check_form(spec: Spec, *, titled: bool) -> None:
    if not titled:
        spec.complain(1, "the title is missing", "write '# Name Test Specification'")
    for name in SECTIONS:
        if name not in spec.sections:
            spec.complain(1, f"the section {name!r} is missing", f"write '## {name}'")
    for name in FIELDS[HEADER]:
        if name not in spec.header:
            spec.complain(1, f"{name} is missing in the header", f"write '**{name}**: …'")
    if spec.status and spec.status not in STATUSES:
        line = spec.header["Status"].line
        spec.complain(
            line, f"there is no status {spec.status!r}", did_you_mean(spec.status, STATUSES)
        )
    if not spec.requirements:
        spec.complain(spec.sections.get(REQUIREMENTS, 1), "there is no requirement: R1 is missing")
    for one in spec.requirements:
        _check_requirement(spec, one)
    if LIVE in spec.sections and not spec.live.get("Script"):
        spec.complain(spec.sections[LIVE], "the live test has no Script")


def _check_requirement(spec: Spec, one: Requirement) -> None:
    for name in ("Test File", "Test Name"):
        if not one.value(name):
            spec.complain(one.line, f"{one.id} has no {name}", f"write '**{name}**: `…`'")
    for name in ("Scenario", "Assertions"):
        if name not in one.fields or not one.fields[name].items:
            spec.complain(one.line_of(name), f"{one.id} has no {name}")
    if CHECKLIST in spec.sections and not any(
        text.startswith(f"{one.id}:") or text == one.id for text, _, _ in spec.boxes
    ):
        line = spec.sections[CHECKLIST]
        spec.complain(line, f"{one.id} is missing in the checklist", f"write '- [ ] {one.id}: …'")


TEMPLATE = """# {title} Test Specification

**Component**: `{component}`
**Last Updated**: {date}
**Status**: Draft

## Overview

What {title} is for, in two sentences.

## Test Requirements

### R1: what must hold

**Fixture**: `fixtures/golden/{component}/what-must-hold.jsonl`
**Test File**: `tests/replay/test_{module}.py`
**Test Name**: `test_what_must_hold`

**Scenario**:
1. What is done first
2. What is done then

**Assertions**:
- What must be true afterwards

**Fixture Recording**:
```bash
offbook fixture record {component} what-must-hold
```

---

## Live Test (Authoritative)

**Script**: `scripts/live/{component}_live.py`
**Requirement**: it passes before {title} is called complete
**Timeout**: 30s
**Description**: plays all scenarios on the real {title}

**Execution**:
```bash
offbook live {component}
```

**Success Criteria**:
- What comes of every scenario is what its golden expects

---

## Coverage Checklist

- [ ] R1: what must hold
- [ ] Live test script
"""


def write_template(component: str, date: str) -> str:
    """A spec to begin with."""
    words = component.replace("-", " ").replace("_", " ")
    module = component.replace("-", "_")
    return TEMPLATE.format(title=words.capitalize(), component=component, date=date, module=module)
