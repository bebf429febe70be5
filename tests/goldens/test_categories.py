"""The limits of tests marked `unit` and `replay`, and the conditions of `live` tests."""

import os
import re
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from tests.forked import run_pytest

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


PHASES = {
    "set-up": "open('left-behind.txt', 'w'); yield",
    "swallowed in the set-up": """
    try: open('left-behind.txt', 'w')
    except BaseException: pass
    yield""",
    "teardown": "yield; open('left-behind.txt', 'w')",
}


@pytest.mark.parametrize("code", PHASES.values(), ids=PHASES)
def test_violation_in_a_fixture_of_the_test_is_an_error(pytester: pytest.Pytester, code: str):
    pytester.makepyfile(
        test_it=f"""
import pytest

@pytest.fixture
def data():
    {code}

@pytest.mark.replay
def test_it(data):
    pass
"""
    )
    result = pytester.runpytest_inprocess(*ON)
    assert result.parseoutcomes()["errors"] == 1
    result.stdout.fnmatch_lines(["*test_it.py:* in data: a test that only replays wrote the file*"])
    assert not (pytester.path / "left-behind.txt").exists()


def test_violation_in_the_set_up_of_a_test_case_fails_it(pytester: pytest.Pytester):
    pytester.makepyfile(
        test_it="""
        import unittest
        import pytest

        @pytest.mark.unit
        class TestIt(unittest.TestCase):
            def setUp(self):
                open("left-behind.txt", "w")

            def test_it(self):
                pass
        """
    )
    result = pytester.runpytest_inprocess(*ON)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*in setUp: a test that only replays wrote the file*"])


def test_fixture_of_a_wider_scope_has_no_limits_and_is_named(pytester: pytest.Pytester):
    pytester.makepyfile(
        test_it="""
        import tempfile
        from pathlib import Path
        import pytest

        @pytest.fixture(scope="module")
        def shared():
            Path("shared.txt").write_text("x")
            yield Path(tempfile.mkdtemp(prefix="shared-"))
            Path("shared.txt").unlink()

        @pytest.mark.replay
        def test_it(shared):
            pass

        def test_folder_exists(shared):
            assert shared.is_dir()
            shared.rmdir()

        @pytest.mark.unit
        def test_last():
            pass
        """
    )
    result = pytester.runpytest_inprocess(*ON)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        ["not checked: the module fixture 'shared', because other tests may share it: it wrote *"]
    )


ALLOWED = {
    "tmp_path_factory": "def test_it(tmp_path_factory): tmp_path_factory.mktemp('x')",
    "pytester": """
def test_it(pytester):
    pytester.makepyfile(test_inner="def test_inner(tmp_path): (tmp_path / 'a').touch()")
    pytester.runpytest_inprocess("-p", "no:randomly").assert_outcomes(passed=1)
""",
    "the fixture offbook": """
from offbook import say, when
def test_it(offbook):
    offbook.session().run(when("Hi", [say("Hello.")]))
""",
    "capfd": "def test_it(capfd): print('x')",
    "invented time": """
import time
def test_it(monkeypatch):
    for name in ("time", "monotonic", "perf_counter"):
        monkeypatch.setattr(time, name, lambda: 1e9)
""",
    "database in memory": """
import sqlite3
def test_it(): sqlite3.connect("file::memory:?cache=shared", uri=True).close()
""",
}


@pytest.mark.parametrize("code", ALLOWED.values(), ids=ALLOWED)
def test_harmless_test_passes(pytester: pytest.Pytester, code: str):
    pytester.makeconftest("pytest_plugins = ['pytester']")
    pytester.makepyfile(
        test_it=f"import pytest\npytestmark = pytest.mark.replay(budget=20)\n{code}\n"
    )
    pytester.runpytest_inprocess(*ON).assert_outcomes(passed=1)


def test_a_replay_test_may_run_a_session_where_multiprocessing_is_imported(
    pytester: pytest.Pytester,
):
    """A process of Offbook's own is started then, which ends those that an agent leaves running."""
    pytester.makepyfile(
        test_it="""
        import multiprocessing.popen_spawn_posix
        import pytest
        from offbook import say, when

        @pytest.mark.replay(budget=20)
        def test_it(offbook):
            offbook.session().run(when("Hi", [say("Hello.")]))
        """
    )
    run_pytest(pytester, *ON).assert_outcomes(passed=1)


def test_failing_hypothesis_test_shows_its_example(pytester: pytest.Pytester):
    pytester.makepyfile(
        test_it="""
        import pytest
        from hypothesis import given, strategies

        @pytest.mark.replay(budget=20)
        @given(strategies.integers())
        def test_it(number):
            assert number < 7
        """
    )
    result = run_pytest(pytester, "-p", "no:randomly", "-o", "offbook_categories=true")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*number=7*"])
    assert "only replays" not in result.stdout.str()


@pytest.mark.parametrize("workers", [(), ("-n", "1")])
def test_thread_that_breaks_the_limits_after_its_test_fails_the_run(
    pytester: pytest.Pytester, workers: tuple[str, ...]
):
    pytester.makepyfile(
        test_it="""
        import threading
        import pytest
        GO = threading.Event()

        def write():
            GO.wait()
            try: open("left-behind.txt", "w")
            except BaseException: pass

        THREAD = threading.Thread(target=write)

        @pytest.mark.replay
        def test_starts():
            THREAD.start()

        @pytest.mark.replay
        def test_innocent():
            GO.set()
            THREAD.join()
        """
    )
    run = partial(run_pytest, pytester) if workers else pytester.runpytest_inprocess
    result = run(*ON, *workers)
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["test_it.py::test_starts: after its end, in a thread of it: *left-behind.txt*"]
    )


def test_native_library_is_named_as_not_checked(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "pycurl", ModuleType("pycurl"))
    pytester.makepyfile(test_it=TEST.format(marker="unit", code="pass"))
    result = pytester.runpytest_inprocess(*ON)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["not checked: network access of *pycurl*native code*"])


OFFLINE = """
import os, socket

def test_network_has_loopback_only():
    assert os.readlink("/proc/self/ns/net") != os.environ["OUTER_NETWORK"]
    assert [name for _, name in socket.if_nameindex()] == ["lo"]

def test_loopback_works():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()

def test_user_is_the_same():
    assert str(os.getuid()) == os.environ["OUTER_USER"]
"""


@pytest.mark.parametrize("workers", [(), ("-n", "1")])
def test_offline_run_has_loopback_only(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
):
    monkeypatch.setenv("OUTER_NETWORK", str(Path("/proc/self/ns/net").readlink()))
    monkeypatch.setenv("OUTER_USER", str(os.getuid()))
    pytester.makepyfile(test_it=OFFLINE)
    result = pytester.runpytest_subprocess(*OFF, "--offbook-offline", *workers)
    if "cannot create a network namespace" in result.stderr.str():
        pytest.skip("this system permits no network namespaces")
    result.assert_outcomes(passed=3)


def test_offline_run_has_no_live_tests(pytester: pytest.Pytester):
    result = pytester.runpytest_subprocess(*OFF, "--offbook-offline", "--offbook-live")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--offbook-live needs the network: omit --offbook-offline*"])


def test_terminal_process_is_refused_before_it_is_forked(pytester: pytest.Pytester):
    pytester.makepyfile(
        test_it="""
        import os, pty
        import pytest
        PARENT = os.getpid()

        @pytest.mark.replay
        def test_it():
            try:
                pty.spawn(["true"])
            except BaseException:
                if os.getpid() != PARENT:
                    os._exit(0)
                raise

        def test_runs_once():
            with open("runs.txt", "a") as file:
                file.write("x")
        """
    )
    pytester.runpytest_inprocess(*ON).assert_outcomes(failed=1, passed=1)
    assert (pytester.path / "runs.txt").read_text() == "x"


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
