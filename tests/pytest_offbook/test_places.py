"""A failure that Offbook raises around a test is shown at the test, not at a line of the plugin."""

from __future__ import annotations

import re

import pytest

from tests.forked import run_pytest

pytest_plugins = ["pytester"]

SETTINGS = """
[tool.pytest.ini_options]
asyncio_mode = "auto"
asyncio_default_fixture_loop_scope = "function"
offbook_categories = true
[tool.offbook.budget]
test = {requests = 3}
"""
# A hook of the project that waits for the test is no line of the failure either.
CONFTEST = """
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    return (yield)
"""
HEADER = """
import socket
import time
import pytest
from offbook import call, say, session, when
from offbook.patterns import create_harness

TWICE = when("Go", [call("bash", {"command": "true"}), say("Done.")])
OFTEN = when("Go", [call("bash", {"command": "true"})] * 4 + [say("Done.")])
"""
# The test of each failure, the error, and the line of it that is shown.
CASES = {
    "a limit of a marker": (
        """
@pytest.mark.filterwarnings("ignore")
@pytest.mark.offbook_budget(requests=1)
def test_it(offbook):
    offbook.session().run(TWICE)
""",
        "offbook_budget: requests 2 exceeds the maximum 1",
        "def test_it",
    ),
    "a limit of an async test": (
        """
@pytest.mark.offbook_budget(requests=1)
async def test_it(offbook):
    await offbook.session().run(TWICE)
""",
        "offbook_budget: requests 2 exceeds the maximum 1",
        "async def test_it",
    ),
    "a limit of a method": (
        """
class TestShop:
    pytestmark = pytest.mark.offbook_budget(requests=1)

    def test_it(self, offbook):
        offbook.session().run(TWICE)
""",
        "offbook_budget: requests 2 exceeds the maximum 1",
        "    def test_it",
    ),
    "a limit of the settings": (
        "def test_it(offbook):\n    offbook.session().run(OFTEN)\n",
        "[tool.offbook.budget] test: requests 5 exceeds the maximum 3",
        "def test_it",
    ),
    "a wrong marker": (
        "@pytest.mark.offbook_budget(1)\ndef test_it(offbook): pass\n",
        "offbook_budget takes names: requests=4",
        "def test_it",
    ),
    "the time of a category": (
        "@pytest.mark.unit(budget=0.01)\ndef test_it():\n    time.sleep(0.2)\n",
        "",
        "def test_it",
    ),
    "an answer of a fake program": (
        'def test_it(fake_cli):\n    fake_cli("claude", [{"output": "Done."}])\n',
        "never used: 1 of 1 answers",
        "def test_it",
    ),
    "a mock": (
        'def test_it(llm_mocks):\n    llm_mocks.add({"text": "hello"})\n',
        "never used",
        "def test_it",
    ),
    "a session that was never run": (
        "def test_it(offbook):\n    offbook.session()\n",
        "nothing was tested: session was opened and never run",
        "def test_it",
    ),
    "a run that was never awaited": (
        "async def test_it(offbook):\n    offbook.session().run(TWICE)\n",
        "a run was never awaited",
        "async def test_it",
    ),
    "a connection": (
        """
def test_it(offbook):
    offbook.session().run(TWICE)
    try:
        socket.create_connection(("192.0.2.1", 80), timeout=1)
    except OSError:
        pass
""",
        "a connection was refused",
        "def test_it",
    ),
    "a harness": (
        "def test_it():\n    create_harness()\n",
        "a harness was not disposed",
        "def test_it",
    ),
    # These have a line of the user, which stays.
    "a run in the test": (
        'def test_it(offbook):\n    offbook.session().run(when("Go", [call("nothing", {})]))\n',
        "",
        "    offbook.session",
    ),
    "a fixture of the user": (
        """
@pytest.fixture
def broken(offbook):
    offbook.session().run(when("Go", [call("nothing", {})]))

def test_it(broken): pass
""",
        "nothing",
        "    offbook.session",
    ),
}


def find_places(output: str) -> dict[str, set[str]]:
    """Return the lines that the report names, by case, without what follows the name of a test."""
    places: dict[str, set[str]] = {case: set() for case in CASES}
    for number, (case, (test, _, _)) in enumerate(CASES.items()):
        lines = (HEADER + test).splitlines()
        for place in re.findall(
            rf"^\S*test_{number}\.py:(\d+): (?:in )?[\w.]+(?::|$)", output, re.MULTILINE
        ):
            places[case].add(lines[int(place) - 1].partition("(")[0])
    return places


@pytest.mark.slow
@pytest.mark.parametrize("style", ["auto", "short"])
def test_the_place_of_a_failure_is_a_line_of_the_user(pytester: pytest.Pytester, style: str):
    (pytester.path / "pyproject.toml").write_text(SETTINGS)
    pytester.makeconftest(CONFTEST)
    for number, (test, _, _) in enumerate(CASES.values()):
        (pytester.path / f"test_{number}.py").write_text(HEADER + test)
    options = ("-q", "-p", "no:randomly", "-p", "no:cacheprovider", f"--tb={style}")
    output = run_pytest(pytester, *options).stdout.str()
    assert find_places(output) == {case: {line} for case, (_, _, line) in CASES.items()}
    assert [case for case, (_, error, _) in CASES.items() if error not in output] == []
    assert re.findall(r"\w+_pytest\.py|pytest_offbook/|(?<!\.)offbook/\w+/\w+\.py", output) == []
