"""The markers unit, replay and live keep what they promise."""

import re

import pytest

pytest_plugins = ["pytester"]

SCOPE = ["-o", "asyncio_default_fixture_loop_scope=function"]
QUIET = ["-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *SCOPE, "-rA"]

BROKEN = {
    "opens a socket": (
        "import socket\n    with socket.socket() as it: it.connect(('127.0.0.1', 9))",
        r"test_it\.py:6 in test_it: a test that only replays connected to the network",
    ),
    "writes a file": (
        "x = 1\n    open('left-behind.txt', 'w').close()",
        r"test_it\.py:6 in test_it: a test that only replays wrote the file .*left-behind\.txt",
    ),
    "starts a process": (
        "import subprocess\n    subprocess.run(['true'])",
        r"test_it\.py:6 in test_it: a test that only replays started a process",
    ),
    "sleeps": (
        "import time\n    time.sleep(0.3)",
        r"test_it\.py:6: a \w+ test took 0\.\d+ s, more than 0\.05 s",
    ),
    "swallows what it broke": (
        "try: open('left-behind.txt', 'w').close()\n    except BaseException: pass",
        r"test_it\.py:5 in test_it: a test that only replays wrote the file",
    ),
}

TEST = """
import pytest

@pytest.mark.{marker}(budget=0.05)
def test_it():
    {code}
"""


@pytest.mark.parametrize("marker", ["unit", "replay"])
@pytest.mark.parametrize("code, message", BROKEN.values(), ids=BROKEN)
def test_a_broken_promise_fails_with_its_line(
    pytester: pytest.Pytester, marker: str, code: str, message: str
):
    pytester.makepyfile(test_it=TEST.format(marker=marker, code=code))
    result = pytester.runpytest_inprocess(*QUIET)
    result.assert_outcomes(failed=1)
    assert re.search(message, result.stdout.str())
    assert not (pytester.path / "left-behind.txt").exists()


@pytest.mark.parametrize("code", [code for code, _ in BROKEN.values() if "sleep" not in code])
def test_without_the_marker_nobody_minds(pytester: pytest.Pytester, code: str):
    safe = code.replace("it.connect(('127.0.0.1', 9))", "pass")
    pytester.makepyfile(test_it=f"def test_it():\n    {safe}\n")
    pytester.runpytest_inprocess(*QUIET, "-Wignore").assert_outcomes(passed=1)


def test_its_own_temporary_folders_are_free_and_go_with_it(pytester: pytest.Pytester):
    pytester.makepyfile(
        test_it="""
        import pytest, tempfile
        from pathlib import Path
        MADE = []

        @pytest.mark.replay
        def test_it(tmp_path):
            (tmp_path / "a").write_text("x")
            with tempfile.NamedTemporaryFile("w", delete=False) as file:
                file.write("x")
            MADE.append(Path(file.name))
            assert MADE[0].exists()

        def test_gone():
            assert not MADE[0].exists()
            assert tempfile.tempdir != str(MADE[0].parent)
        """
    )
    pytester.runpytest_inprocess(*QUIET).assert_outcomes(passed=2)


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
def test_a_live_test_runs_only_when_asked_for_and_able(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    key: str,
    outcome: str,
    reason: str,
):
    monkeypatch.setenv("OFFBOOK_TEST_KEY", key)
    pytester.makepyfile(test_it=LIVE)
    result = pytester.runpytest_inprocess(*QUIET, *options)
    result.assert_outcomes(**{outcome: 1})
    assert reason in result.stdout.str()
