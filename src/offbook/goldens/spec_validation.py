"""What came of the tests when they ran last: kept between runs, and only as long as it is true."""

from __future__ import annotations

import ast
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from offbook.errors import OffbookError, did_you_mean
from offbook.files import write_atomic
from offbook.goldens.fixture_store import read_scenarios
from offbook.goldens.golden_recording import find_complaints
from offbook.goldens.golden_replay import replay_all
from offbook.goldens.spec_file import Problem, Spec, read_spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from offbook.goldens.project import Project
    from offbook.goldens.spec_file import Requirement


# --- What came of the tests when they ran last: kept between runs, and only as long as it is true.

RESULTS_FILE = ".offbook/outcomes.json"


class SpecResult(msgspec.Struct, frozen=True):
    """What came of one test, and which goldens it replayed."""

    outcome: str
    goldens: list[str] = []


class FileResults(msgspec.Struct):
    """The tests of one file as it was then."""

    digest: str
    tests: dict[str, SpecResult] = {}


class SpecResults:
    """The outcomes of the tests of a project, by file and name."""

    __test__ = False  # for pytest, which would take it for a test

    def __init__(self, root: Path, files: dict[str, FileResults] | None = None) -> None:
        self._root = root
        self._files = files or {}

    @classmethod
    def read(cls, root: Path) -> SpecResults:
        """What is known; a file that cannot be read counts as nothing known."""
        try:
            kept = msgspec.json.decode(
                (root / RESULTS_FILE).read_bytes(), type=dict[str, FileResults]
            )
        except (OSError, msgspec.MsgspecError):
            kept = {}
        return cls(root, kept)

    def add(self, file: str, test: str, outcome: SpecResult) -> None:
        """Keep what came of a test; what was known of an older version of its file is dropped."""
        digest = self._digest(file)
        known = self._files.get(file)
        if known is None or known.digest != digest:
            known = self._files[file] = FileResults(digest, {})
        known.tests[test] = outcome

    def write(self) -> None:
        """Keep it for the next run."""
        folder = (self._root / RESULTS_FILE).parent
        ignore = folder / ".gitignore"
        if not ignore.exists():
            write_atomic(ignore, "*\n")
        write_atomic(self._root / RESULTS_FILE, msgspec.json.encode(self._files))

    def of(self, file: str, test: str) -> dict[str, SpecResult] | None:
        """What came of a test, for each of its parameters; nothing if its file changed since."""
        known = self._files.get(file)
        if known is None or known.digest != self._digest(file):
            return None
        return {
            name: outcome
            for name, outcome in known.tests.items()
            if name.partition("[")[0].rpartition("::")[2] == test
        }

    def used(self) -> set[str]:
        """The goldens that a passing test replayed."""
        passed: Iterable[SpecResult] = (
            outcome
            for file, known in self._files.items()
            if known.digest == self._digest(file)
            for outcome in known.tests.values()
            if outcome.outcome == "passed"
        )
        return {golden for outcome in passed for golden in outcome.goldens}

    def __bool__(self) -> bool:
        return bool(self._files)

    def _digest(self, file: str) -> str:
        try:
            return sha256((self._root / file).read_bytes()).hexdigest()
        except OSError:
            return ""


# --- Checks a project's specs in layers: what they name is there, and what they promise was shown.


def check_static(project: Project) -> Iterator[Problem]:
    """Layer one: specs follow the template; fixtures, tests and live scripts exist and parse."""
    paths = project.specs()
    specs = [read_spec(path) for path in paths]
    for spec in specs:
        yield from spec.problems
        for one in spec.requirements:
            yield from _check_fixture(project, spec, one)
            yield from _check_test(project, spec, one)
        yield from _check_scripts(project, spec)
    yield from _check_goldens(project, specs)


def _check_fixture(project: Project, spec: Spec, one: Requirement) -> Iterator[Problem]:
    name = one.value("Fixture")
    if not name:
        return
    line = one.line_of("Fixture")
    path = project.root / name
    if not path.is_file():
        known = [project.relative(path) for path in project.library.paths()]
        hint = did_you_mean(name, known)
        yield Problem(spec.path, line, f"{one.id}: the fixture {name} is missing", hint)
        return
    try:
        read_scenarios(path)
    except OffbookError as error:
        yield Problem(spec.path, line, f"{one.id}: {error}")


def _check_test(project: Project, spec: Spec, one: Requirement) -> Iterator[Problem]:
    file, test = one.value("Test File"), one.value("Test Name")
    if not file or not test:
        return
    path = project.root / file
    if not path.is_file():
        yield Problem(
            spec.path, one.line_of("Test File"), f"{one.id}: the test file {file} is missing"
        )
        return
    try:
        names = _tests_in(path)
    except SyntaxError as error:
        yield Problem(path, error.lineno or 1, f"the test file does not parse: {error.msg}")
        return
    if not (test in names if names is not None else test in path.read_text("utf-8")):
        hint = did_you_mean(test, names or ())
        line = one.line_of("Test Name")
        yield Problem(spec.path, line, f"{one.id}: there is no {test} in {file}", hint)


def _tests_in(path: Path) -> set[str] | None:
    """The test functions of a Python file; of another nothing can be told."""
    if path.suffix != ".py":
        return None
    tree = ast.parse(path.read_bytes(), str(path))
    functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return {function.name for function in functions}


def _check_scripts(project: Project, spec: Spec) -> Iterator[Problem]:
    units = spec.units.get("Test File")
    if units is not None and not (project.root / units.value).is_file():
        yield Problem(spec.path, units.line, f"the unit test file {units.value} is missing")
    script = spec.live.get("Script")
    if script is not None and not (project.root / script.value).is_file():
        yield Problem(spec.path, script.line, f"the live script {script.value} is missing")


def _check_goldens(project: Project, specs: list[Spec]) -> Iterator[Problem]:
    """Every golden is named by a requirement, and was recorded; every component has a spec."""
    named = {one.value("Fixture") for spec in specs for one in spec.requirements}
    known = {spec.component for spec in specs}
    for path in project.library.paths():
        if project.relative(path) not in named:
            yield Problem(path, 1, "no requirement names this golden")
        try:
            yield from (
                Problem(path, 1, complaint.what)
                for complaint in find_complaints(project.library, path)
            )
        except OffbookError as error:
            yield Problem(path, 1, str(error))
    for path in project.library.stray_sidecars():
        yield Problem(path, 1, "its fixture is gone")
    components = {path.parent.name for path in project.library.paths()}
    for name in sorted(components | set(project.registry.scripts())):
        if name not in known:
            hint = f"offbook spec new {name}"
            yield Problem(project.spec(name), 1, f"the component {name!r} has no spec", hint)


async def check_replay(project: Project) -> list[Problem]:
    """Layer two, for the fixtures: every golden replays as it was recorded."""
    scenarios = project.library.scenarios()
    replayed = await replay_all(scenarios, project.registry.find)
    return [
        Problem(one.scenario.path, one.scenario.line, difference)
        for one in replayed
        for difference in one.differences
    ]


def check_completeness(project: Project, outcomes: SpecResults) -> Iterator[Problem]:
    """Layer three: every requirement has a test that ran, passed and used its fixture."""
    for row in tabulate(project, outcomes):
        line = row.requirement.line
        if row.state != "passed":
            yield Problem(row.spec.path, line, f"{row.requirement.id}: its test {row.state}")
    used = outcomes.used()
    for path in project.library.paths():
        name = f"{path.parent.name}/{path.stem}"
        if name not in used:
            yield Problem(path, 1, "no test that passed has replayed this golden")
    for path in project.specs():
        yield from _check_boxes(read_spec(path), project, outcomes)


def _check_boxes(spec: Spec, project: Project, outcomes: SpecResults) -> Iterator[Problem]:
    passed = {row.requirement.id for row in _rows(spec, project, outcomes) if row.state == "passed"}
    for text, ticked, line in spec.boxes:
        name = text.partition(":")[0]
        required = any(one.id == name for one in spec.requirements)
        if ticked and required and name not in passed:
            yield Problem(spec.path, line, f"{name} is ticked, but its test has not passed")
        if not ticked and spec.status == "Complete":
            yield Problem(spec.path, line, f"the spec is Complete, but {name!r} is not ticked")


class CoverageRow(NamedTuple):
    """A requirement, and what its test shows of it."""

    spec: Spec
    requirement: Requirement
    state: str


def tabulate(project: Project, outcomes: SpecResults) -> list[CoverageRow]:
    """Every requirement of every spec, with what came of its test."""
    return [row for path in project.specs() for row in _rows(read_spec(path), project, outcomes)]


def _rows(spec: Spec, project: Project, outcomes: SpecResults) -> list[CoverageRow]:
    return [CoverageRow(spec, one, _judge(one, project, outcomes)) for one in spec.requirements]


def _judge(one: Requirement, project: Project, outcomes: SpecResults) -> str:
    found = outcomes.of(one.value("Test File"), one.value("Test Name"))
    if not found:
        return "has not run" if found is not None else "has not run since its file changed"
    bad = sorted({outcome.outcome for outcome in found.values()} - {"passed"})
    if bad:
        return f"{' and '.join(bad)}, not passed"
    fixture = one.value("Fixture")
    path = project.root / fixture
    golden = f"{path.parent.name}/{path.stem}"
    if fixture and not any(golden in outcome.goldens for outcome in found.values()):
        return f"passed without replaying {golden}"
    return "passed"


def show_table(rows: list[CoverageRow]) -> str:
    """The coverage of a project as a Markdown table."""
    lines = ["| component | requirement | fixture | test | state |", "|---|---|---|---|---|"]
    for row in rows:
        one = row.requirement
        fixture = one.value("Fixture").removeprefix("fixtures/golden/") or "none"
        test = f"{one.value('Test File')}::{one.value('Test Name')}"
        lines.append(
            f"| {row.spec.component} | {one.id}: {one.name} | {fixture} | `{test}` | {row.state} |"
        )
    return "\n".join(lines)
