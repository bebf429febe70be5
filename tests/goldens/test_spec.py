"""Specs: the template is read, and whatever is wrong is told with file and line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.goldens.project import Project
from offbook.goldens.spec_file import Spec, read_spec, write_template
from offbook.goldens.spec_validation import (
    SpecResult,
    SpecResults,
    check_completeness,
    check_static,
    show_table,
    tabulate,
)
from tests.goldens.projects import SPEC, make_project


def read(tmp_path: Path, text: str) -> Spec:
    path = tmp_path / "till.test-spec.md"
    path.write_text(text)
    return read_spec(path)


def test_a_spec_is_read(tmp_path: Path):
    spec = read(tmp_path, SPEC)
    (one,) = spec.requirements
    assert spec.problems == []
    assert (spec.component, spec.status) == ("till", "Complete")
    assert (one.id, one.name, one.line) == ("R1", "The drawer opens", 13)
    assert one.value("Fixture") == "fixtures/golden/till/open-drawer.jsonl"
    assert one.fields["Scenario"].items == ["Put coins in", "Open the drawer"]
    assert spec.live["Script"].value == "scripts/live/till_live.py"
    assert spec.boxes == [("R1: The drawer opens", True, 35), ("Live test script", True, 36)]


def test_the_template_is_a_good_spec(tmp_path: Path):
    spec = read(tmp_path, write_template("cash-till", "2026-01-01"))
    assert spec.problems == []
    assert spec.requirements[0].value("Test File") == "tests/replay/test_cash_till.py"


def test_what_stands_in_a_fence_is_not_read(tmp_path: Path):
    fenced = SPEC.replace("---\n", "```bash\n### R2: no\n**Nonsense**: x\n```\n")
    assert read(tmp_path, fenced).problems == []


def test_a_requirement_needs_no_fixture(tmp_path: Path):
    line = "**Fixture**: `fixtures/golden/till/open-drawer.jsonl`\n"
    assert read(tmp_path, SPEC.replace(line, "")).problems == []


WRONG = {
    "no title": ("# Till Test Specification", "# Till", 1, "the title is missing"),
    "no status": ("**Status**: Complete\n", "", 1, "Status is missing in the header"),
    "another status": ("Status**: Complete", "Status**: Compleet", 5, "did you mean 'Complete'"),
    "an unknown field": ("**Fixture**", "**Fixtrue**", 15, "did you mean 'Fixture'"),
    "a field twice": ("**Test File**", "**Fixture**: x\n**Test File**", 16, "stands here twice"),
    "an unknown section": ("## Overview", "## Overvue", 7, "did you mean 'Overview'"),
    "a missing section": ("## Overview", "Overview", 1, "the section 'Overview' is missing"),
    "no requirement": ("### R1: The drawer opens", "", 11, "there is no requirement"),
    "a wrong number": ("### R1: The", "### R2: The", 13, "R2 stands where R1 should"),
    "a bad heading": ("### R1: The", "### The", 13, "not a requirement"),
    "no test name": ("**Test Name**: `test_the_drawer_opens`", "", 13, "R1 has no Test Name"),
    "no steps": ("1. Put coins in\n2. Open the drawer\n", "", 19, "R1 has no Scenario"),
    "no assertion": ("- The coins are counted\n", "", 23, "R1 has no Assertions"),
    "no script": ("**Script**: `scripts/live/till_live.py`\n", "", 28, "has no Script"),
    "no box": ("- [x] R1: The drawer opens\n", "", 33, "R1 is missing in the checklist"),
}


@pytest.mark.parametrize("before, after, line, message", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told_with_its_line(
    tmp_path: Path, before: str, after: str, line: int, message: str
):
    assert before in SPEC
    spec = read(tmp_path, SPEC.replace(before, after, 1))
    told = [str(problem) for problem in spec.problems]
    assert any(one.startswith(f"{spec.path}:{line}: ") and message in one for one in told), told


@given(st.text())
def test_whatever_stands_in_a_file_is_read_without_a_crash(
    tmp_path_factory: pytest.TempPathFactory, text: str
):
    path = tmp_path_factory.mktemp("spec") / "x.test-spec.md"
    path.write_text(text, encoding="utf-8", errors="replace")
    assert read_spec(path).problems


def problems(root: Path) -> list[str]:
    return [str(problem).replace(f"{root}/", "") for problem in check_static(Project(root))]


SPEC_FILE = "tests/specs/till.test-spec.md"
MISSING = {
    "the fixture": ("fixtures/golden/till/open-drawer.jsonl", f"{SPEC_FILE}:15: R1: the fixture"),
    "the test": ("tests/replay/test_till.py", f"{SPEC_FILE}:16: R1: the test file"),
    "the live script": ("scripts/live/till_live.py", f"{SPEC_FILE}:30: the live script"),
    "the spec": (SPEC_FILE, f"{SPEC_FILE}:1: the component 'till' has no spec"),
}


@pytest.mark.parametrize("file, message", MISSING.values(), ids=MISSING)
def test_what_a_spec_names_must_be_there(tmp_path: Path, file: str, message: str):
    root = make_project(tmp_path)
    assert problems(root) == []
    (root / file).unlink()
    assert any(one.startswith(message) for one in problems(root)), problems(root)


def test_a_test_that_does_not_parse_is_told_with_its_line(tmp_path: Path):
    root = make_project(tmp_path)
    (root / "tests/replay/test_till.py").write_text("x = 1\ndef f(:\n")
    assert any("tests/replay/test_till.py:2: the test file does not" in p for p in problems(root))


def test_a_test_name_that_is_not_in_its_file_is_told_with_the_nearest(tmp_path: Path):
    root = make_project(tmp_path)
    (root / "tests/replay/test_till.py").write_text("def test_the_drawer_open(): pass\n")
    (found,) = problems(root)
    assert found.startswith(f"{SPEC_FILE}:17: R1: there is no test_the_drawer_opens")
    assert "did you mean 'test_the_drawer_open'" in found


def test_a_broken_fixture_is_told_at_the_requirement(tmp_path: Path):
    root = make_project(tmp_path)
    (root / "fixtures/golden/till/open-drawer.jsonl").write_text("{oops")
    assert any("R1: " in one and "open-drawer.jsonl:1" in one for one in problems(root))


def test_the_file_of_unit_tests_must_be_there(tmp_path: Path):
    root = make_project(tmp_path)
    units = "## Unit Tests (Pure Logic)\n\n**Test File**: `tests/unit/test_till.py`\n\n"
    spec = root / SPEC_FILE
    spec.write_text(SPEC.replace("## Coverage Checklist", f"{units}## Coverage Checklist"))
    (found,) = problems(root)
    assert found == f"{SPEC_FILE}:35: the unit test file tests/unit/test_till.py is missing"


def test_a_sidecar_without_its_fixture_is_told(tmp_path: Path):
    root = make_project(tmp_path)
    (root / "fixtures/golden/till/gone.match.json").write_text("{}")
    assert problems(root) == ["fixtures/golden/till/gone.match.json:1: its fixture is gone"]


def test_the_table_shows_each_requirement_and_what_came_of_it(tmp_path: Path):
    project = Project(make_project(tmp_path))
    outcomes = SpecResults(tmp_path)
    assert "| has not run since its file changed |" in show_table(tabulate(project, outcomes))
    told = SpecResult("passed", ["till/open-drawer"])
    outcomes.add("tests/replay/test_till.py", "test_the_drawer_opens[a]", told)
    outcomes.write()
    table = show_table(tabulate(project, SpecResults.read(tmp_path)))
    assert (
        "| till | R1: The drawer opens | till/open-drawer.jsonl "
        "| `tests/replay/test_till.py::test_the_drawer_opens` | passed |"
    ) in table


def test_an_outcome_is_forgotten_when_its_file_changes(tmp_path: Path):
    project = Project(make_project(tmp_path))
    outcomes = SpecResults(tmp_path)
    told = SpecResult("passed", ["till/open-drawer"])
    outcomes.add("tests/replay/test_till.py", "test_the_drawer_opens", told)
    assert list(check_completeness(project, outcomes)) == []
    (tmp_path / "tests/replay/test_till.py").write_text("# changed\n")
    found = [problem.what for problem in check_completeness(project, outcomes)]
    assert found == [
        "R1: its test has not run since its file changed",
        "no test that passed has replayed this golden",
        "R1 is ticked, but its test has not passed",
    ]


def test_a_complete_spec_has_every_box_ticked(tmp_path: Path):
    project = Project(make_project(tmp_path))
    spec = project.spec("till")
    spec.write_text(SPEC.replace("- [x] Live", "- [ ] Live"))
    outcomes = SpecResults(tmp_path)
    told = SpecResult("passed", ["till/open-drawer"])
    outcomes.add("tests/replay/test_till.py", "test_the_drawer_opens", told)
    (found,) = check_completeness(project, outcomes)
    assert found.what == "the spec is Complete, but 'Live test script' is not ticked"


def test_outcomes_that_cannot_be_read_are_none(tmp_path: Path):
    (tmp_path / ".offbook").mkdir()
    (tmp_path / ".offbook" / "outcomes.json").write_text("{oops")
    assert not SpecResults.read(tmp_path)
