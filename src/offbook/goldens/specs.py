"""Test specs: Markdown files that list the requirements of a component and their tests.

    ### R1: The drawer opens

    **Fixture**: `fixtures/golden/till/open-drawer.jsonl`
    **Test File**: `tests/replay/test_till.py`
    **Test Name**: `test_the_drawer_opens`

`write_template` returns a complete spec to start from. The specs of a project are validated in
three layers:

1. `check_static`: specs have the right form, and the files and tests that they name exist.
2. `check_replay`: every golden replays as recorded.
3. `check_completeness`: every requirement has a test that ran, passed and replayed its fixture.
"""

from __future__ import annotations

import ast
import re
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from offbook.errors import FormatError, OffbookError, did_you_mean
from offbook.files import read_text, write_atomic
from offbook.goldens.fixture_store import Problem, read_scenarios
from offbook.goldens.golden_replay import replay_all
from offbook.goldens.live_scripts import find_problems
from offbook.goldens.project import SPEC_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from offbook.goldens.project import Project

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


# --- The results of tests, and the validation by them


RESULTS_FILE = ".offbook/outcomes.json"  # of one machine, so git ignores it


class SpecResult(msgspec.Struct, frozen=True):
    """The outcome of one test, and the goldens that it replayed."""

    outcome: str
    goldens: list[str] = []


class TestFileResults(msgspec.Struct):
    """The results of one test file, valid while its content has this digest."""

    digest: str
    tests: dict[str, SpecResult] = {}


class SpecResults:
    """The results of a project's last test runs, by file and test name.

    They are stored between runs, and results of a test file that changed since are dropped.
    """

    def __init__(self, root: Path, files: dict[str, TestFileResults] | None = None) -> None:
        self._root = root
        self._files = files or {}

    @classmethod
    def read(cls, root: Path) -> SpecResults:
        """Read the stored results. A file that is missing or unreadable has none."""
        try:
            content = (root / RESULTS_FILE).read_bytes()
            files = msgspec.json.decode(content, type=dict[str, TestFileResults])
        except (OSError, msgspec.MsgspecError):
            files = {}  # the next test run writes it again
        return cls(root, files)

    def write(self) -> None:
        """Store the results for the next run."""
        path = self._root / RESULTS_FILE
        ignore = path.with_name(".gitignore")
        if not ignore.exists():
            write_atomic(ignore, "*\n")
        write_atomic(path, msgspec.json.encode(self._files))

    def add(self, file: str, test: str, result: SpecResult) -> None:
        """Add the result of a test."""
        digest = self._digest(file)
        results = self._files.get(file)
        # results of an older version of the file say nothing about this one
        if results is None or results.digest != digest:
            results = self._files[file] = TestFileResults(digest)
        results.tests[test] = result

    def find(self, file: str, test: str) -> dict[str, SpecResult] | None:
        """Return the results of a test for each of its parameters, or None if its file changed."""
        results = self._files.get(file)
        if results is None or results.digest != self._digest(file):
            return None
        return {
            name: result
            for name, result in results.tests.items()
            # TestTill::test_it[a] is a result of test_it
            if name.partition("[")[0].rpartition("::")[2] == test
        }

    def live_outcomes(self, script: str) -> list[str]:
        """Return the outcomes of the scenarios of a live script that ran, if it did not change."""
        results = self._files.get(script)
        if results is None or results.digest != self._digest(script):
            return []
        outcomes = [result.outcome for result in results.tests.values()]
        return [outcome for outcome in outcomes if outcome != "skipped"]

    def replayed_goldens(self) -> set[str]:
        """Return the goldens that a passing test replayed."""
        return {
            golden
            for file, results in self._files.items()
            if results.digest == self._digest(file)
            for result in results.tests.values()
            if result.outcome == "passed"
            for golden in result.goldens
        }

    def __bool__(self) -> bool:
        return bool(self._files)

    def _digest(self, file: str) -> str:
        try:
            return sha256((self._root / file).read_bytes()).hexdigest()
        except OSError:
            return ""  # equal to no digest of a file


class CoverageRow(NamedTuple):
    """A requirement and the state of its test: `passed`, or the reason why not."""

    spec: Spec
    requirement: Requirement
    state: str


def check_static(project: Project) -> Iterator[Problem]:
    """Check that specs follow the template and that fixtures, tests and live scripts exist."""
    specs = [read_spec(path) for path in project.spec_paths()]
    for spec in specs:
        yield from spec.problems
        for requirement in spec.requirements:
            yield from _check_requirement(project, spec, requirement)
        for field, label in (
            (spec.units.get("Test File"), "unit test file"),
            (spec.live.get("Script"), "live script"),
        ):
            if field is not None and not (project.root / field.value).is_file():
                yield Problem(spec.path, field.line, f"missing {label} {field.value}")

    # the other direction: every golden and every component has a spec that names it
    named = {each.value("Fixture") for spec in specs for each in spec.requirements}
    goldens = project.fixtures.paths()
    for path in goldens:
        if project.relative(path) not in named:
            yield Problem(path, 1, "no requirement names this golden")
        try:
            yield from find_problems(project.fixtures, path, project.registry)
        except OffbookError as error:  # the problems of other files are reported as well
            yield Problem(path, 1, str(error))
    yield from project.fixtures.misplaced()
    for path in project.fixtures.orphan_sidecars():
        yield Problem(path, 1, "the fixture of this sidecar does not exist")
    components = {path.parent.name for path in goldens} | set(project.registry.script_names())
    for name in sorted(components - {spec.component for spec in specs}):
        hint = f"offbook golden spec --new {name}"
        yield Problem(project.spec_path(name), 1, f"the component {name!r} has no spec", hint)


def _check_requirement(project: Project, spec: Spec, requirement: Requirement) -> Iterator[Problem]:
    """Check that the fixture and the test of a requirement exist and parse."""
    fixture = requirement.value("Fixture")
    if fixture:
        line = requirement.line_of("Fixture")
        if (project.root / fixture).is_file():
            try:
                read_scenarios(project.root / fixture)
            except OffbookError as error:
                yield Problem(spec.path, line, f"{requirement.id}: {error}")
        else:
            known = [project.relative(path) for path in project.fixtures.paths()]
            hint = did_you_mean(fixture, known)
            yield Problem(spec.path, line, f"{requirement.id}: missing fixture {fixture}", hint)
        component = (project.root / fixture).parent.name
        if component != spec.component:
            what = f"{requirement.id}: the fixture is one of the component {component!r}"
            yield Problem(spec.path, line, what, f"record one of {spec.component!r}")

    file, test = requirement.value("Test File"), requirement.value("Test Name")
    if not file or not test:
        return  # a problem of the form, reported by read_spec
    path = project.root / file
    if not path.is_file():
        line = requirement.line_of("Test File")
        yield Problem(spec.path, line, f"{requirement.id}: missing test file {file}")
        return
    line = requirement.line_of("Test Name")
    if path.suffix != ".py":
        # a test of another language: only a text search is possible
        if test not in path.read_text("utf-8", errors="replace"):
            yield Problem(spec.path, line, f"{requirement.id}: no test {test} in {file}")
        return
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:  # ValueError: a NUL byte
        line = getattr(error, "lineno", None) or 1
        yield Problem(path, line, f"syntax error in the test file: {error}")
        return
    names = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    if test not in names:
        hint = did_you_mean(test, names)
        yield Problem(spec.path, line, f"{requirement.id}: no test {test} in {file}", hint)


async def check_replay(project: Project) -> list[Problem]:
    """Replay every golden and return the differences."""
    replays = await replay_all(project.fixtures.scenarios(), project.registry.find)
    return [
        Problem(replay.scenario.path, replay.scenario.line, difference)
        for replay in replays
        for difference in replay.differences
    ]


def check_completeness(project: Project, results: SpecResults) -> Iterator[Problem]:
    """Check the results of a complete test run against the specs."""
    rows = tabulate(project, results)
    for row in rows:
        if row.state != "passed":
            requirement = row.requirement
            what = f"{requirement.id}: test {row.state}"
            yield Problem(row.spec.path, requirement.line, what)
    # a golden that no test uses is dead weight, or its test is missing
    replayed = results.replayed_goldens()
    for path in project.fixtures.paths():
        if f"{path.parent.name}/{path.stem}" not in replayed:
            yield Problem(path, 1, "no passing test replays this golden")

    passed = {(row.spec.path, row.requirement.id) for row in rows if row.state == "passed"}
    for spec in map(read_spec, project.spec_paths()):
        script = spec.live.get("Script")
        if script is not None and "failed" in results.live_outcomes(script.value):
            hint = f"offbook golden check --live {spec.component}"
            yield Problem(spec.path, script.line, "the live test failed when it last ran", hint)
        required = {requirement.id for requirement in spec.requirements}
        for box in spec.checkboxes:
            name = box.text.partition(":")[0]
            if box.ticked and name in required and (spec.path, name) not in passed:
                yield Problem(spec.path, box.line, f"{name} is ticked, but its test did not pass")
            if not box.ticked and spec.status == "Complete":
                what = f"the spec is Complete, but {name!r} is not ticked"
                yield Problem(spec.path, box.line, what)


def list_unchecked(project: Project, results: SpecResults) -> Iterator[str]:
    """Return what the results of a complete test run do not show, each with the reason."""
    for spec in map(read_spec, project.spec_paths()):
        for requirement in spec.requirements:
            if not requirement.value("Fixture"):
                yield (
                    f"what the test of {spec.component} {requirement.id} shows,"
                    " because the requirement has no fixture"
                )
        script = spec.live["Script"].value if "Script" in spec.live else ""
        if spec.status == "Complete" and script and not results.live_outcomes(script):
            yield (
                f"{spec.component} for real, because `offbook golden check --live {spec.component}`"
                f" did not run here since {script} changed"
            )


def tabulate(project: Project, results: SpecResults) -> list[CoverageRow]:
    """Return every requirement of every spec with the state of its test."""
    return [
        CoverageRow(spec, requirement, _test_state(project, requirement, results))
        for spec in map(read_spec, project.spec_paths())
        for requirement in spec.requirements
    ]


def _test_state(project: Project, requirement: Requirement, results: SpecResults) -> str:
    found = results.find(requirement.value("Test File"), requirement.value("Test Name"))
    if found is None:
        return "did not run since its file changed"
    if not found:
        return "did not run"
    outcomes = sorted({result.outcome for result in found.values()} - {"passed"})
    if outcomes:
        return f"{' and '.join(outcomes)}, not passed"
    fixture = requirement.value("Fixture")
    path = project.root / fixture
    golden = f"{path.parent.name}/{path.stem}"
    # a test may pass without the fixture: then it does not show the requirement
    if fixture and not any(golden in result.goldens for result in found.values()):
        return f"passed without replaying {golden}"
    return "passed"


def render_table(rows: list[CoverageRow]) -> str:
    """Return the coverage of a project as a Markdown table."""
    lines = ["| component | requirement | fixture | test | state |", "|---|---|---|---|---|"]
    for spec, requirement, state in rows:
        fixture = requirement.value("Fixture").removeprefix("fixtures/golden/") or "none"
        test = f"{requirement.value('Test File')}::{requirement.value('Test Name')}"
        name = f"{requirement.id}: {requirement.name}"
        lines.append(f"| {spec.component} | {name} | {fixture} | `{test}` | {state} |")
    return "\n".join(lines)
