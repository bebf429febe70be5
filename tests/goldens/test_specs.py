"""Specs are parsed and checked; problems name the file and the line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.goldens import (
    Project,
    Spec,
    SpecResult,
    SpecResults,
    check_completeness,
    check_static,
    read_spec,
    render_table,
    tabulate,
    write_template,
)
from tests.goldens.sample_project import SPEC, make_project


def read(tmp_path: Path, text: str) -> Spec:
    path = tmp_path / "till.test-spec.md"
    path.write_text(text)
    return read_spec(path)


def test_spec_is_parsed(tmp_path: Path):
    spec = read(tmp_path, SPEC)
    (requirement,) = spec.requirements
    assert spec.problems == []
    assert (spec.component, spec.status) == ("till", "Complete")
    assert (requirement.id, requirement.name, requirement.line) == ("R1", "The drawer opens", 13)
    assert requirement.value("Fixture") == "fixtures/golden/till/open-drawer.jsonl"
    assert requirement.fields["Scenario"].items == ["Put coins in", "Open the drawer"]
    assert spec.live["Script"].value == "scripts/live/till_live.py"
    assert spec.checkboxes == [("R1: The drawer opens", True, 35), ("Live test script", True, 36)]


def test_template_has_no_problems(tmp_path: Path):
    spec = read(tmp_path, write_template("cash-till", "2026-01-01"))
    assert spec.problems == []
    assert spec.requirements[0].value("Test File") == "tests/replay/test_cash_till.py"


def test_code_blocks_are_not_parsed(tmp_path: Path):
    fenced = SPEC.replace("---\n", "```bash\n### R2: no\n**Nonsense**: x\n```\n")
    assert read(tmp_path, fenced).problems == []


def test_requirement_may_have_no_fixture(tmp_path: Path):
    line = "**Fixture**: `fixtures/golden/till/open-drawer.jsonl`\n"
    assert read(tmp_path, SPEC.replace(line, "")).problems == []


INVALID = {
    "no title": ("# Till Test Specification", "# Till", 1, "missing title"),
    "no status": ("**Status**: Complete\n", "", 1, "missing header field 'Status'"),
    "unknown status": ("Status**: Complete", "Status**: Compleet", 5, "did you mean 'Complete'"),
    "unknown field": ("**Fixture**", "**Fixtrue**", 15, "did you mean 'Fixture'"),
    "duplicate field": (
        "**Test File**",
        "**Fixture**: x\n**Test File**",
        16,
        "duplicate field 'Fixture'",
    ),
    "unknown section": ("## Overview", "## Overvue", 7, "did you mean 'Overview'"),
    "missing section": ("## Overview", "Overview", 1, "missing section 'Overview'"),
    "no requirement": ("### R1: The drawer opens", "", 11, "missing requirement R1"),
    "wrong number": ("### R1: The", "### R2: The", 13, "expected requirement R1, got R2"),
    "invalid heading": ("### R1: The", "### The", 13, "invalid requirement"),
    "no test name": ("**Test Name**: `test_the_drawer_opens`", "", 13, "R1: missing Test Name"),
    "no steps": ("1. Put coins in\n2. Open the drawer\n", "", 19, "R1: missing list of Scenario"),
    "no assertion": ("- The coins are counted\n", "", 23, "R1: missing list of Assertions"),
    "no script": ("**Script**: `scripts/live/till_live.py`\n", "", 28, "missing Script"),
    "no checkbox": ("- [x] R1: The drawer opens\n", "", 33, "R1 is not in the checklist"),
}


@pytest.mark.parametrize("before, after, line, message", INVALID.values(), ids=INVALID)
def test_invalid_form_is_reported_with_its_line(
    tmp_path: Path, before: str, after: str, line: int, message: str
):
    assert before in SPEC
    spec = read(tmp_path, SPEC.replace(before, after, 1))
    lines = [str(problem) for problem in spec.problems]
    assert any(each.startswith(f"{spec.path}:{line}: ") and message in each for each in lines), (
        lines
    )


@given(st.text())
def test_any_text_is_parsed_without_an_exception(
    tmp_path_factory: pytest.TempPathFactory, text: str
):
    path = tmp_path_factory.mktemp("spec") / "x.test-spec.md"
    path.write_text(text, encoding="utf-8", errors="replace")
    assert read_spec(path).problems


def problems(root: Path) -> list[str]:
    return [str(problem).replace(f"{root}/", "") for problem in check_static(Project(root))]


SPEC_FILE = "tests/specs/till.test-spec.md"
MISSING = {
    "fixture": ("fixtures/golden/till/open-drawer.jsonl", f"{SPEC_FILE}:15: R1: missing fixture"),
    "test": ("tests/replay/test_till.py", f"{SPEC_FILE}:16: R1: missing test file"),
    "live script": ("scripts/live/till_live.py", f"{SPEC_FILE}:30: missing live script"),
    "spec": (SPEC_FILE, f"{SPEC_FILE}:1: the component 'till' has no spec"),
}


@pytest.mark.parametrize("file, message", MISSING.values(), ids=MISSING)
def test_files_named_in_a_spec_must_exist(tmp_path: Path, file: str, message: str):
    root = make_project(tmp_path)
    assert problems(root) == []
    (root / file).unlink()
    assert any(problem.startswith(message) for problem in problems(root)), problems(root)


def test_syntax_error_of_a_test_file_is_reported_with_its_line(tmp_path: Path):
    root = make_project(tmp_path)
    (root / "tests/replay/test_till.py").write_text("x = 1\ndef f(:\n")
    assert any("tests/replay/test_till.py:2: syntax error" in p for p in problems(root))


def test_unknown_test_name_is_reported_with_a_suggestion(tmp_path: Path):
    root = make_project(tmp_path)
    (root / "tests/replay/test_till.py").write_text("def test_the_drawer_open(): pass\n")
    (problem,) = problems(root)
    assert problem.startswith(f"{SPEC_FILE}:17: R1: no test test_the_drawer_opens")
    assert "did you mean 'test_the_drawer_open'" in problem


def test_invalid_fixture_is_reported_at_its_requirement(tmp_path: Path):
    root = make_project(tmp_path)
    (root / "fixtures/golden/till/open-drawer.jsonl").write_text("{oops")
    assert any("R1: " in each and "open-drawer.jsonl:1" in each for each in problems(root))


def test_unit_test_file_must_exist(tmp_path: Path):
    root = make_project(tmp_path)
    units = "## Unit Tests (Pure Logic)\n\n**Test File**: `tests/unit/test_till.py`\n\n"
    spec = root / SPEC_FILE
    spec.write_text(SPEC.replace("## Coverage Checklist", f"{units}## Coverage Checklist"))
    (problem,) = problems(root)
    assert problem == f"{SPEC_FILE}:35: missing unit test file tests/unit/test_till.py"


def test_sidecar_without_fixture_is_reported(tmp_path: Path):
    root = make_project(tmp_path)
    (root / "fixtures/golden/till/gone.match.json").write_text("{}")
    sidecar = "fixtures/golden/till/gone.match.json"
    assert problems(root) == [f"{sidecar}:1: the fixture of this sidecar does not exist"]


def test_table_shows_requirements_and_states(tmp_path: Path):
    project = Project(make_project(tmp_path))
    results = SpecResults(tmp_path)
    assert "| did not run since its file changed |" in render_table(tabulate(project, results))
    passed = SpecResult("passed", ["till/open-drawer"])
    results.add("tests/replay/test_till.py", "test_the_drawer_opens[a]", passed)
    results.write()
    table = render_table(tabulate(project, SpecResults.read(tmp_path)))
    assert (
        "| till | R1: The drawer opens | till/open-drawer.jsonl "
        "| `tests/replay/test_till.py::test_the_drawer_opens` | passed |"
    ) in table


def test_result_is_dropped_when_its_file_changes(tmp_path: Path):
    project = Project(make_project(tmp_path))
    results = SpecResults(tmp_path)
    passed = SpecResult("passed", ["till/open-drawer"])
    results.add("tests/replay/test_till.py", "test_the_drawer_opens", passed)
    assert list(check_completeness(project, results)) == []
    (tmp_path / "tests/replay/test_till.py").write_text("# changed\n")
    whats = [problem.what for problem in check_completeness(project, results)]
    assert whats == [
        "R1: test did not run since its file changed",
        "no passing test replays this golden",
        "R1 is ticked, but its test did not pass",
    ]


def test_complete_spec_has_all_checkboxes_ticked(tmp_path: Path):
    project = Project(make_project(tmp_path))
    spec = project.spec_path("till")
    spec.write_text(SPEC.replace("- [x] Live", "- [ ] Live"))
    results = SpecResults(tmp_path)
    passed = SpecResult("passed", ["till/open-drawer"])
    results.add("tests/replay/test_till.py", "test_the_drawer_opens", passed)
    (problem,) = check_completeness(project, results)
    assert problem.what == "the spec is Complete, but 'Live test script' is not ticked"


def test_unreadable_results_are_ignored(tmp_path: Path):
    (tmp_path / ".offbook").mkdir()
    (tmp_path / ".offbook" / "outcomes.json").write_text("{oops")
    assert not SpecResults.read(tmp_path)
