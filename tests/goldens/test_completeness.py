"""A whole run of a project with specs tells which requirements nobody showed."""

from pathlib import Path

import pytest

from tests.goldens.projects import make_project

pytest_plugins = ["pytester"]

SCOPE = ["-o", "asyncio_default_fixture_loop_scope=function"]
QUIET = ["-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *SCOPE]


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess(*QUIET, *options)


@pytest.fixture
def project(pytester: pytest.Pytester) -> Path:
    """A project whose component has a spec, a golden, a test and a live script."""
    return make_project(pytester.path)


def test_a_complete_project_is_green(project: Path, pytester: pytest.Pytester):
    result = run(pytester)
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.OK
    assert "test specs" not in result.stdout.str()


def test_it_is_green_under_xdist_too(project: Path, pytester: pytest.Pytester):
    result = pytester.runpytest_subprocess(*QUIET, "-n", "1")
    assert result.ret == pytest.ExitCode.OK
    assert (project / ".offbook" / "outcomes.json").is_file()


BROKEN = {
    "a test that replays nothing": (
        "def test_the_drawer_opens(): pass",
        "R1: its test passed without replaying till/open-drawer",
    ),
    "a test that is skipped": (
        "import pytest\ndef test_the_drawer_opens(): pytest.skip()",
        "R1: its test skipped, not passed",
    ),
    "a test that is gone": (
        "def test_something_else(): pass",
        "R1: there is no test_the_drawer_opens in tests/replay/test_till.py",
    ),
    "a test that is not collected": (
        "class Till:\n  def test_the_drawer_opens(self): pass",
        "R1: its test has not run",
    ),
}


@pytest.mark.parametrize("code, message", BROKEN.values(), ids=BROKEN)
def test_a_requirement_that_nobody_showed_fails_the_run(
    project: Path, pytester: pytest.Pytester, code: str, message: str
):
    (project / "tests" / "replay" / "test_till.py").write_text(code)
    (project / "tests" / "test_other.py").write_text("def test_other(): pass\n")
    result = run(pytester)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert message in result.stdout.str()


def test_a_run_of_some_tests_claims_nothing_of_the_others(project: Path, pytester: pytest.Pytester):
    (project / "tests" / "test_other.py").write_text("def test_other(): pass\n")
    assert run(pytester, "-k", "other").ret == pytest.ExitCode.OK
    assert run(pytester, "tests/test_other.py").ret == pytest.ExitCode.OK


def test_a_golden_that_nobody_uses_fails_the_run(project: Path, pytester: pytest.Pytester):
    golden = project / "fixtures" / "golden" / "till"
    other = golden / "unused.jsonl"
    other.write_bytes((golden / "open-drawer.jsonl").read_bytes())
    result = run(pytester)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*unused.jsonl:1: no requirement names this golden*"])
    result.stdout.fnmatch_lines(["*unused.jsonl:1: no test that passed has replayed*"])


def test_a_golden_that_changes_while_tests_run_fails_the_run(
    project: Path, pytester: pytest.Pytester
):
    (project / "tests" / "test_vandal.py").write_text(
        "from pathlib import Path\n"
        "def test_it():\n"
        "    golden = Path(__file__).parents[1] / 'fixtures/golden/till/open-drawer.jsonl'\n"
        "    golden.write_bytes(golden.read_bytes() + b'\\n')\n"
    )
    result = run(pytester)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*a golden changed while the tests ran*"])


def test_a_golden_that_differs_fails_its_test_with_file_and_line(
    project: Path, pytester: pytest.Pytester
):
    golden = project / "fixtures" / "golden" / "till" / "open-drawer.jsonl"
    golden.write_text(golden.read_text().replace('"coins":3', '"coins":4'))
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*open-drawer.jsonl:1: till/open-drawer*"])
    result.stdout.fnmatch_lines(["*events?0?.event.coins: expected 4, got 3*"])


def test_an_async_test_may_replay_as_well(project: Path, pytester: pytest.Pytester):
    test = project / "tests" / "replay" / "test_till.py"
    test.write_text(test.read_text().replace("def test_", "async def test_"))
    pytester.makeini("[pytest]\nasyncio_mode = auto\n")
    run(pytester).assert_outcomes(passed=1)
