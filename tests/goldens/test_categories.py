"""The limits of tests marked `unit` and `replay`, and the conditions of `live` tests."""

import re

import pytest

pytest_plugins = ["pytester"]

OFF = [
    *("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-rA"),
    *("-o", "asyncio_default_fixture_loop_scope=function"),
]
ON = [*OFF, "-o", "offbook_categories=true"]

VIOLATIONS = {
    "socket": (
        "import socket\n    with socket.socket() as client: client.connect(('127.0.0.1', 9))",
        r"test_it\.py:6 in test_it: .*network",
    ),
    "file": (
        "x = 1\n    open('left-behind.txt', 'w').close()",
        r"test_it\.py:6 in test_it: .*left-behind\.txt",
    ),
    "process": (
        "import subprocess\n    subprocess.run(['true'])",
        r"test_it\.py:6 in test_it: .*process",
    ),
    "time": (
        "import time\n    time.sleep(0.3)",
        r"test_it\.py:6: the \w+ test took 0\.\d+ s, more than 0\.05 s",
    ),
    "caught": (
        "try: open('left-behind.txt', 'w').close()\n    except BaseException: pass",
        r"test_it\.py:5 in test_it: .*left-behind\.txt",
    ),
}

TEST = """
import pytest

@pytest.mark.{marker}(budget=0.05)
def test_it():
    {code}
"""


@pytest.mark.parametrize("marker", ["unit", "replay"])
@pytest.mark.parametrize("code, message", VIOLATIONS.values(), ids=VIOLATIONS)
def test_violation_fails_with_its_line(
    pytester: pytest.Pytester, marker: str, code: str, message: str
):
    pytester.makepyfile(test_it=TEST.format(marker=marker, code=code))
    result = pytester.runpytest_inprocess(*ON)
    result.assert_outcomes(failed=1)
    assert re.search(message, result.stdout.str())
    assert not (pytester.path / "left-behind.txt").exists()


@pytest.mark.parametrize("code", [code for code, _ in VIOLATIONS.values() if "sleep" not in code])
def test_unmarked_test_has_no_limits(pytester: pytest.Pytester, code: str):
    safe = code.replace("client.connect(('127.0.0.1', 9))", "pass")
    pytester.makepyfile(test_it=f"def test_it():\n    {safe}\n")
    pytester.runpytest_inprocess(*ON, "-Wignore").assert_outcomes(passed=1)


def test_temporary_folders_are_allowed_and_removed(pytester: pytest.Pytester):
    pytester.makepyfile(
        test_it="""
        import pytest, tempfile
        from pathlib import Path
        PATHS = []

        @pytest.mark.replay
        def test_it(tmp_path):
            (tmp_path / "a").write_text("x")
            with tempfile.NamedTemporaryFile("w", delete=False) as file:
                file.write("x")
            PATHS.append(Path(file.name))
            assert PATHS[0].exists()

        def test_removed():
            assert not PATHS[0].exists()
            assert tempfile.tempdir != str(PATHS[0].parent)
        """
    )
    pytester.runpytest_inprocess(*ON).assert_outcomes(passed=2)


LIVE = """
import pytest

@pytest.mark.live(needs=["OFFBOOK_TEST_KEY"])
def test_it():
    pass
"""


@pytest.mark.parametrize(
    "options, key, outcome, reason",
    [
        ([], "", "skipped", "live: OFFBOOK_TEST_KEY is not set"),
        (["--offbook-live"], "", "skipped", "live: OFFBOOK_TEST_KEY is not set"),
        ([], "k", "skipped", "live: run it with --offbook-live"),
        (["--offbook-live"], "k", "passed", ""),
    ],
)
def test_live_test_needs_the_option_and_its_variables(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    key: str,
    outcome: str,
    reason: str,
):
    monkeypatch.setenv("OFFBOOK_TEST_KEY", key)
    pytester.makepyfile(test_it=LIVE)
    result = pytester.runpytest_inprocess(*ON, *options)
    result.assert_outcomes(**{outcome: 1})
    assert reason in result.stdout.str()


FOREIGN_MARKERS = """
[pytest]
markers =
    unit: checks one class
    replay: reads recorded traffic and writes a report
    live: runs against the staging server
"""


def test_markers_of_a_project_without_the_setting_are_not_changed(pytester: pytest.Pytester):
    pytester.makeini(FOREIGN_MARKERS)
    pytester.makepyfile(
        test_it="""
        import subprocess, time
        import pytest

        @pytest.mark.unit
        def test_unit():
            subprocess.run(["true"], check=True)
            time.sleep(0.2)

        @pytest.mark.replay
        def test_replay():
            open("report.txt", "w").close()

        @pytest.mark.live
        def test_live():
            pass
        """
    )
    pytester.runpytest_inprocess(*OFF, "--strict-markers").assert_outcomes(passed=3)
    assert (pytester.path / "report.txt").exists()
    markers = pytester.runpytest_inprocess(*OFF, "--markers").stdout.str()
    assert "@pytest.mark.unit: checks one class" in markers
    assert "@pytest.mark.unit(budget" not in markers
