"""Test specs: Markdown files that list the requirements of a component and their tests.

    ### R1: The drawer opens

    **Fixture**: `fixtures/golden/till/open-drawer.jsonl`
    **Test File**: `tests/replay/test_till.py`
    **Test Name**: `test_the_drawer_opens`

`write_template` returns a complete spec to start from.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from offbook.errors import FormatError, did_you_mean
from offbook.files import read_text
from offbook.goldens.fixture_store import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SPEC_SUFFIX = ".test-spec.md"
# the status Complete requires that every checkbox is ticked: see check_completeness
STATUSES = ("Draft", "In Progress", "Complete")
TITLE = re.compile(r"# (.+) Test Specification$")
REQUIREMENT = re.compile(r"### (R\d+): (.+)$")
FIELD = re.compile(r"\*\*([^*]+)\*\*:\s*(.*)$")
CHECKBOX = re.compile(r"- \[([ xX])\] (.+)$")
LIST_ITEM = re.compile(r"(?:\d+\.|[-*]) +(\S.*)$")

HEADER, LIVE, CHECKLIST = "header", "Live Test (Authoritative)", "Coverage Checklist"
REQUIREMENTS, UNITS = "Test Requirements", "Unit Tests (Pure Logic)"
SECTIONS = ("Overview", REQUIREMENTS, LIVE, CHECKLIST)
OPTIONAL_SECTIONS = (UNITS, "Notes")
FIELDS = {
    HEADER: ("Component", "Last Updated", "Status"),
    REQUIREMENTS: (
        "Fixture", "Test File", "Test Name", "Scenario", "Assertions", "Fixture Recording",
    ),
    LIVE: ("Script", "Requirement", "Timeout", "Description", "Execution", "Success Criteria"),
    UNITS: ("Test File", "Requirements", "Note"),
}  # fmt: skip


class SpecField(NamedTuple):
    """The value of a field, its line, and the items of the list below it."""

    value: str
    line: int
    items: list[str]


class Checkbox(NamedTuple):
    """A line of the coverage checklist."""

    text: str
    ticked: bool
    line: int


class Requirement(msgspec.Struct):
    """A requirement of a component."""

    id: str
    name: str
    line: int
    fields: dict[str, SpecField] = {}

    def value(self, name: str) -> str:
        """Return the value of a field, or an empty string if it is missing."""
        field = self.fields.get(name)
        return field.value if field else ""

    def line_of(self, name: str) -> int:
        """Return the line of a field, or of the requirement if it is missing."""
        field = self.fields.get(name)
        return field.line if field else self.line


class Spec(msgspec.Struct):
    """A parsed test spec and the problems of its form."""

    path: Path
    titled: bool = False
    header: dict[str, SpecField] = {}
    sections: dict[str, int] = {}
    requirements: list[Requirement] = []
    live: dict[str, SpecField] = {}
    units: dict[str, SpecField] = {}
    checkboxes: list[Checkbox] = []
    problems: list[Problem] = []

    @property
    def component(self) -> str:
        """The component's name: the name of the file."""
        return self.path.name.removesuffix(SPEC_SUFFIX)

    @property
    def status(self) -> str:
        """The status in the header, or an empty string."""
        field = self.header.get("Status")
        return field.value if field else ""


def read_spec(path: Path) -> Spec:
    """Parse a spec and check its form. Problems are collected, not raised."""
    try:
        text = read_text(path)
    except FormatError as error:
        return Spec(path, problems=[Problem(path, 1, error.what, error.hint)])
    spec = _SpecParser(path).parse(text)
    spec.problems.extend(_check_form(spec))
    return spec


class _SpecParser:
    """Parses a spec line by line."""

    def __init__(self, path: Path) -> None:
        self.spec = Spec(path)
        self.section = HEADER
        self.fields = self.spec.header  # receives the fields of the current section or requirement
        self.items: list[str] | None = None  # receives the list items of the last field

    def parse(self, text: str) -> Spec:
        fenced = False
        for number, raw_line in enumerate(text.split("\n"), start=1):
            line = raw_line.rstrip()
            if line.lstrip().startswith("```"):
                fenced = not fenced
            elif fenced:
                continue  # code blocks contain commands, not fields
            elif TITLE.match(line):
                self.spec.titled = True
            elif line.startswith("## "):
                self.open_section(number, line[3:].strip())
            elif line.startswith("### ") and self.section == REQUIREMENTS:
                self.open_requirement(number, line)
            elif match := FIELD.match(line):
                self.add_field(number, match[1], match[2])
            elif (match := CHECKBOX.match(line)) and self.section == CHECKLIST:
                self.spec.checkboxes.append(Checkbox(match[2], match[1] != " ", number))
            elif (match := LIST_ITEM.match(line)) and self.items is not None:
                self.items.append(match[1])
        return self.spec

    def open_section(self, number: int, name: str) -> None:
        known = SECTIONS + OPTIONAL_SECTIONS
        if name not in known:
            self.add_problem(number, f"unknown section {name!r}", did_you_mean(name, known))
        # opened even if unknown: its fields do not belong to the section before it
        self.section = name
        self.spec.sections[name] = number
        self.fields = {LIVE: self.spec.live, UNITS: self.spec.units}.get(name, {})
        self.items = None

    def open_requirement(self, number: int, line: str) -> None:
        match = REQUIREMENT.match(line)
        if match is None:
            self.add_problem(number, f"invalid requirement {line!r}", "write '### R1: name'")
            return
        expected = f"R{len(self.spec.requirements) + 1}"
        if match[1] != expected:  # numbers without gaps: a deleted requirement shows
            self.add_problem(number, f"expected requirement {expected}, got {match[1]}")
        requirement = Requirement(match[1], match[2], number)
        self.spec.requirements.append(requirement)
        self.fields = requirement.fields
        self.items = None

    def add_field(self, number: int, name: str, value: str) -> None:
        known = FIELDS.get(self.section)
        if known is None:
            return  # bold text in a section without fields
        if name not in known:
            self.add_problem(number, f"unknown field {name!r}", did_you_mean(name, known))
        if name in self.fields:
            self.add_problem(number, f"duplicate field {name!r}")
        # values are often written as code or in quotes
        self.items = []
        self.fields[name] = SpecField(value.strip().strip('`"'), number, self.items)

    def add_problem(self, line: int, what: str, hint: str = "") -> None:
        self.spec.problems.append(Problem(self.spec.path, line, what, hint))


def _check_form(spec: Spec) -> Iterator[Problem]:
    """Return the problems that can be found only when the whole spec is parsed."""
    path, sections = spec.path, spec.sections
    if not spec.titled:
        yield Problem(path, 1, "missing title", "write '# Name Test Specification'")
    for name in SECTIONS:
        if name not in sections:
            yield Problem(path, 1, f"missing section {name!r}", f"write '## {name}'")
    for name in FIELDS[HEADER]:
        if name not in spec.header:
            yield Problem(path, 1, f"missing header field {name!r}", f"write '**{name}**: …'")
    if spec.status and spec.status not in STATUSES:
        hint = did_you_mean(spec.status, STATUSES)
        line = spec.header["Status"].line
        yield Problem(path, line, f"unknown status {spec.status!r}", hint)
    if not spec.requirements:
        yield Problem(path, sections.get(REQUIREMENTS, 1), "missing requirement R1")
    checked = {box.text.partition(":")[0] for box in spec.checkboxes}
    for requirement in spec.requirements:
        key = requirement.id
        for name in ("Test File", "Test Name"):
            if not requirement.value(name):
                hint = f"write '**{name}**: `…`'"
                yield Problem(path, requirement.line, f"{key}: missing {name}", hint)
        for name in ("Scenario", "Assertions"):
            if name not in requirement.fields or not requirement.fields[name].items:
                yield Problem(path, requirement.line_of(name), f"{key}: missing list of {name}")
        if CHECKLIST in sections and key not in checked:
            hint = f"write '- [ ] {key}: …'"
            yield Problem(path, sections[CHECKLIST], f"{key} is not in the checklist", hint)
    if LIVE in sections and not spec.live.get("Script"):
        yield Problem(path, sections[LIVE], "missing Script of the live test")


TEMPLATE = """# {title} Test Specification

**Component**: `{component}`
**Last Updated**: {date}
**Status**: Draft

## Overview

Describe {title} in two sentences.

## Test Requirements

### R1: First behaviour

**Fixture**: `fixtures/golden/{component}/first-behaviour.jsonl`
**Test File**: `tests/replay/test_{module}.py`
**Test Name**: `test_first_behaviour`

**Scenario**:
1. The first step
2. The second step

**Assertions**:
- The expected result

**Fixture Recording**:
```bash
offbook golden record {component}/first-behaviour
```

---

## Live Test (Authoritative)

**Script**: `scripts/live/{component}_live.py`
**Requirement**: passes before {title} is complete
**Timeout**: 30s
**Description**: runs all scenarios on the real {title}

**Execution**:
```bash
offbook golden check --live {component}
```

**Success Criteria**:
- The result of every scenario is as its golden expects

---

## Coverage Checklist

- [ ] R1: First behaviour
- [ ] Live test script
"""


def write_template(component: str, date: str) -> str:
    """Return a new spec of a component."""
    return TEMPLATE.format(
        title=component.replace("-", " ").replace("_", " ").capitalize(),
        component=component,
        module=component.replace("-", "_"),
        date=date,
    )
