"""A complete test run fails if a requirement of a spec has no passing test."""

from collections.abc import Callable
from pathlib import Path

import pytest

from offbook.goldens import SpecResult, SpecResults
from tests.forked import run_pytest
from tests.goldens.sample_project import PYTEST_INI, make_project

pytest_plugins = ["pytester"]

QUIET = ["-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess(*QUIET, *options)


@pytest.fixture
def project(pytester: pytest.Pytester) -> Path:
    """A project whose component has a spec, a golden, a test and a live script."""
    return make_project(pytester.path)


def store_live_result(project: Path, outcome: str) -> None:
    """Store the outcome of `offbook golden check --live`."""
    results = SpecResults.read(project)
    results.add("scripts/live/till_live.py", "open-drawer", SpecResult(outcome))
    results.write()


@pytest.mark.parametrize("args", [(), ("tests",), (".",)])
def test_complete_project_passes(project: Path, pytester: pytest.Pytester, args: tuple[str, ...]):
    store_live_result(project, "passed")
    result = run(pytester, *args)
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.OK
    assert "test specs" not in result.stdout.str()


def test_complete_project_passes_under_xdist(project: Path, pytester: pytest.Pytester):
    result = run_pytest(pytester, *QUIET, "-n", "1")
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


@pytest.mark.parametrize("args", [(), ("tests",), (".",)])
@pytest.mark.parametrize("code, message", BROKEN.values(), ids=BROKEN)
def test_requirement_without_passing_test_fails_the_run(
    project: Path, pytester: pytest.Pytester, code: str, message: str, args: tuple[str, ...]
):
    (project / "tests" / "replay" / "test_till.py").write_text(code)
    (project / "tests" / "test_other.py").write_text("def test_other(): pass\n")
    result = run(pytester, *args)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert message in result.stdout.str()


@pytest.mark.parametrize(
    "args, reason",
    [
        (("-k", "other"), "-k selects a part of the tests"),
        (("tests/test_other.py",), "the run is limited to tests/test_other.py"),
        (("tests/test_other.py::test_other",), "the run is limited to tests/test_other.py::"),
        (("-p", "leaves_out"), "1 test deselected"),
        (("tests", "-x", "-o", "python_functions=fails"), "the run failed"),
    ],
)
def test_run_of_a_part_of_the_tests_says_that_completeness_is_not_checked(
    project: Path, pytester: pytest.Pytester, args: tuple[str, ...], reason: str
):
    (project / "tests" / "test_other.py").write_text(
        "def test_other(): pass\ndef fails(): assert 0\n"
    )
    pytester.makepyfile(
        leaves_out="""
        def pytest_collection_modifyitems(config, items):
            config.hook.pytest_deselected(items=[items.pop()])
        """
    )
    pytester.syspathinsert()
    result = run(pytester, *args)
    assert (result.ret == pytest.ExitCode.OK) == (reason != "the run failed")
    assert f"not checked: whether every requirement has a test, because {reason}" in (
        result.stdout.str()
    )


@pytest.mark.parametrize(
    "name, message",
    [
        ("till/open-drawer", "*events?0?.event.coins: expected 4, got 3*"),
        ("till/open-draw", "*no golden fixture 'till/open-draw'*"),
    ],
)
def test_failed_replay_that_the_test_swallows_fails_it(
    project: Path, pytester: pytest.Pytester, name: str, message: str
):
    golden = project / "fixtures" / "golden" / "till" / "open-drawer.jsonl"
    golden.write_text(golden.read_text().replace('"coins":3', '"coins":4'))
    (project / "tests" / "replay" / "test_till.py").write_text(
        "def test_the_drawer_opens(goldens):\n"
        f"    try: goldens.replay('{name}')\n"
        "    except BaseException: pass\n"
    )
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([message])


def change(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_complete_spec_whose_live_test_never_ran_is_not_checked(
    project: Path, pytester: pytest.Pytester
):
    text = "not checked: till for real, because `offbook golden check --live till` did not run here"
    assert text in run(pytester).stdout.str()
    store_live_result(project, "skipped")
    assert text in run(pytester).stdout.str()
    store_live_result(project, "passed")
    assert text not in run(pytester).stdout.str()
    change(project / "scripts" / "live" / "till_live.py", '"""The scen', '"""All the scen')
    assert text in run(pytester).stdout.str()


def test_live_test_that_failed_fails_the_run(project: Path, pytester: pytest.Pytester):
    store_live_result(project, "failed")
    result = run(pytester)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "till.test-spec.md:30: the live test failed when it last ran" in result.stdout.str()


def test_requirement_without_fixture_is_not_checked(project: Path, pytester: pytest.Pytester):
    spec = project / "tests" / "specs" / "till.test-spec.md"
    change(
        spec,
        "---\n",
        "### R2: It is quiet\n\n"
        "**Test File**: `tests/test_quiet.py`\n**Test Name**: `test_quiet`\n\n"
        "**Scenario**:\n1. Wait\n\n**Assertions**:\n- No sound\n\n---\n",
    )
    change(spec, "- [x] Live", "- [x] R2: It is quiet\n- [x] Live")
    (project / "tests" / "test_quiet.py").write_text("def test_quiet(): pass\n")
    result = run(pytester)
    assert result.ret == pytest.ExitCode.OK
    text = "not checked: what the test of till R2 shows, because the requirement has no fixture"
    assert text in result.stdout.str()


def test_limits_without_the_setting_are_named_as_not_checked(
    project: Path, pytester: pytest.Pytester
):
    text = "not checked: the limits of replay tests, because offbook_categories is not set"
    assert text not in run(pytester).stdout.str()
    assert text in run(pytester, "-o", "offbook_categories=false").stdout.str()


def test_requirement_with_the_golden_of_another_component_fails_the_run(
    project: Path, pytester: pytest.Pytester
):
    golden = project / "fixtures" / "golden"
    (golden / "till").rename(golden / "safe")
    (project / "scripts" / "live" / "safe_live.py").write_text(
        (project / "scripts" / "live" / "till_live.py").read_text()
    )
    change(project / "tests" / "specs" / "till.test-spec.md", "golden/till", "golden/safe")
    change(project / "tests" / "replay" / "test_till.py", "till/open", "safe/open")
    result = run(pytester)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    output = result.stdout.str()
    assert "till.test-spec.md:15: R1: the fixture is one of the component 'safe'" in output
    assert "safe/open-drawer.jsonl:1: recorded from the component 'till'" in output


def test_test_that_replays_goldens_has_limits_without_a_marker(
    project: Path, pytester: pytest.Pytester
):
    (project / "tests" / "replay" / "test_till.py").write_text(
        "def test_the_drawer_opens(goldens):\n"
        "    goldens.replay('till/open-drawer')\n"
        "    open('left-behind.txt', 'w')\n"
    )
    result = run(pytester)
    result.assert_outcomes(failed=1)
    assert "a test that only replays wrote the file" in result.stdout.str()


def test_live_script_is_imported_once_and_its_import_is_not_the_time_of_a_test(
    project: Path, pytester: pytest.Pytester
):
    script = project / "scripts" / "live" / "till_live.py"
    script.write_text(
        "import threading\nprint('RUNS')\nthreading.Event().wait(3)\n" + script.read_text()
    )
    (project / "tests" / "replay" / "test_till.py").write_text(
        "import pytest\n"
        "@pytest.mark.replay(budget=2.5)\n"
        "@pytest.mark.parametrize('number', [1, 2])\n"
        "def test_the_drawer_opens(goldens, number):\n"
        "    goldens.replay('till/open-drawer')\n"
    )
    result = run(pytester, "-s")
    result.assert_outcomes(passed=2)
    assert result.stdout.str().count("RUNS") == 1


def nest(project: Path) -> None:
    golden = project / "fixtures" / "golden" / "till"
    (golden / "more").mkdir()
    (golden / "open-drawer.jsonl").rename(golden / "more" / "open-drawer.jsonl")


UNUSUAL: dict[str, tuple[Callable[[Path], object], str]] = {
    "nested goldens": (nest, "more/open-drawer.jsonl:1: no test can replay this golden"),
    "spec that is not UTF-8": (
        lambda project: (project / "tests/specs/till.test-spec.md").write_bytes(b"# Till \xff"),
        "till.test-spec.md:1: not a UTF-8 text",
    ),
    "test file with a NUL byte": (
        lambda project: (
            change(project / "tests/specs/till.test-spec.md", "replay/test_till.py", "nul.py")
            or (project / "tests/nul.py").write_bytes(b"x = 1\0")
        ),
        "tests/nul.py:1: syntax error in the test file",
    ),
    "results that cannot be written": (
        lambda project: (project / ".offbook").write_text(""),
        "not checked: `spec check --ran`, because the results are not stored",
    ),
}


@pytest.mark.parametrize("damage, message", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_project_is_reported_without_a_crash(
    project: Path, pytester: pytest.Pytester, damage: Callable[[Path], object], message: str
):
    damage(project)
    (project / "tests" / "test_other.py").write_text("def test_other(): pass\n")
    result = run(pytester)
    assert result.ret in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}
    assert message in result.stdout.str()
    assert "INTERNALERROR" not in result.stdout.str()


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
