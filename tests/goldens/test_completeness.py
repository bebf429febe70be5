"""A complete test run fails if a requirement of a spec has no passing test."""

from pathlib import Path

import pytest

from tests.goldens.sample_project import PYTEST_INI, make_project

pytest_plugins = ["pytester"]

QUIET = ["-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess(*QUIET, *options)


@pytest.fixture
def project(pytester: pytest.Pytester) -> Path:
    """A project whose component has a spec, a golden, a test and a live script."""
    return make_project(pytester.path)


def test_complete_project_passes(project: Path, pytester: pytest.Pytester):
    result = run(pytester)
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.OK
    assert "test specs" not in result.stdout.str()


def test_complete_project_passes_under_xdist(project: Path, pytester: pytest.Pytester):
    result = pytester.runpytest_subprocess(*QUIET, "-n", "1")
    assert result.ret == pytest.ExitCode.OK
    assert (project / ".offbook" / "outcomes.json").is_file()


BROKEN = {
    "test without replay": (
        "def test_the_drawer_opens(): pass",
        "R1: test passed without replaying till/open-drawer",
    ),
    "skipped test": (
        "import pytest\ndef test_the_drawer_opens(): pytest.skip()",
        "R1: test skipped, not passed",
    ),
    "missing test": (
        "def test_something_else(): pass",
        "R1: no test test_the_drawer_opens in tests/replay/test_till.py",
    ),
    "test not collected": (
        "class Till:\n  def test_the_drawer_opens(self): pass",
        "R1: test did not run",
    ),
}


@pytest.mark.parametrize("code, message", BROKEN.values(), ids=BROKEN)
def test_requirement_without_passing_test_fails_the_run(
    project: Path, pytester: pytest.Pytester, code: str, message: str
):
    (project / "tests" / "replay" / "test_till.py").write_text(code)
    (project / "tests" / "test_other.py").write_text("def test_other(): pass\n")
    result = run(pytester)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert message in result.stdout.str()


def test_completeness_needs_a_run_of_all_tests(project: Path, pytester: pytest.Pytester):
    (project / "tests" / "test_other.py").write_text("def test_other(): pass\n")
    assert run(pytester, "-k", "other").ret == pytest.ExitCode.OK
    assert run(pytester, "tests/test_other.py").ret == pytest.ExitCode.OK


def test_unused_golden_fails_the_run(project: Path, pytester: pytest.Pytester):
    golden = project / "fixtures" / "golden" / "till"
    other = golden / "unused.jsonl"
    other.write_bytes((golden / "open-drawer.jsonl").read_bytes())
    result = run(pytester)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*unused.jsonl:1: no requirement names this golden*"])
    result.stdout.fnmatch_lines(["*unused.jsonl:1: no passing test replays this golden*"])


def test_golden_that_changes_during_the_run_fails_it(project: Path, pytester: pytest.Pytester):
    (project / "tests" / "test_changes_golden.py").write_text(
        "from pathlib import Path\n"
        "def test_it():\n"
        "    golden = Path(__file__).parents[1] / 'fixtures/golden/till/open-drawer.jsonl'\n"
        "    golden.write_bytes(golden.read_bytes() + b'\\n')\n"
    )
    result = run(pytester)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*a golden changed during the test run*"])


def test_difference_fails_the_test_with_file_and_line(project: Path, pytester: pytest.Pytester):
    golden = project / "fixtures" / "golden" / "till" / "open-drawer.jsonl"
    golden.write_text(golden.read_text().replace('"coins":3', '"coins":4'))
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*open-drawer.jsonl:1: till/open-drawer*"])
    result.stdout.fnmatch_lines(["*events?0?.event.coins: expected 4, got 3*"])


def test_async_test_may_replay(project: Path, pytester: pytest.Pytester):
    test = project / "tests" / "replay" / "test_till.py"
    test.write_text(test.read_text().replace("def test_", "async def test_"))
    (project / "pytest.ini").write_text(PYTEST_INI + "asyncio_mode = auto\n")
    run(pytester).assert_outcomes(passed=1)
