"""Published agents, unchanged: each has a test that passes, and that every break of it fails.

The tests are in `published/`. They run in the homes that have the packages, by `./dev clients`,
behind a proxy that sees every connection until the process has ended.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.matrix.homes import HOMES
from tests.matrix.loopback_proxy import start_proxy
from tests.matrix.rows import WHOLE

PUBLISHED = Path(__file__).parent / "published"
AGENTS = sorted(PUBLISHED.glob("*/*_agent.py"))
HOME_NAMES = {"agents": "published", "adk": "adk"}  # the home of each folder
UNCHANGED = "unchanged"
NOT_ISOLATED = "bank or roulette or sql_gen or deepagents or builder"  # one for each target
# Keys without value, and tracing that is switched on, as in the shell of a developer.
ENVIRONMENT = {
    "OPENAI_API_KEY": "none",
    "GROQ_API_KEY": "none",
    "GEMINI_API_KEY": "none",
    "LANGSMITH_TRACING": "true",
    "LANGSMITH_API_KEY": "none",
}
EXPECTED_TARGETS = {
    "agents": {
        "api.openai.com:443",
        "api.groq.com:443",
        "generativelanguage.googleapis.com:443",
        "api.smith.langchain.com:443",  # tracing, from a thread
    },
    "adk": {"generativelanguage.googleapis.com:443"},
}

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(not WHOLE, reason="./dev clients runs the published agents"),
]


@dataclass(frozen=True)
class TestCase:
    """A test of an agent, or of a break: its failure, and the message that was expected."""

    __test__ = False  # not a test of pytest

    variant: str
    failure: str | None
    expected: str

    @property
    def fault(self) -> str | None:
        """Return the reason why this test proves nothing, or None."""
        if self.variant == UNCHANGED:
            return f"{self.variant}: {self.failure}" if self.failure is not None else None
        if self.failure is None:
            return f"{self.variant}: the test passes"
        if self.expected not in self.failure:
            return f"{self.variant}: {self.expected!r} is not in {self.failure!r}"
        return None


@dataclass(frozen=True)
class PublishedRun:
    """The tests of one folder, by file, and the targets that the proxy saw."""

    cases: dict[str, list[TestCase]]
    targets: list[str]
    output: str


RunFolder = Callable[..., PublishedRun]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Return a function that runs the tests of a folder in its home, once."""
    finished: dict[tuple[str, bool], PublishedRun] = {}

    def run(folder: str, *, isolated: bool = True) -> PublishedRun:
        if (folder, isolated) not in finished:
            scratch = tmp_path_factory.mktemp(folder)
            finished[folder, isolated] = _run_tests(folder, scratch, isolated=isolated)
        return finished[folder, isolated]

    return run


def _run_tests(folder: str, scratch: Path, *, isolated: bool) -> PublishedRun:
    home = HOMES[HOME_NAMES[folder]]
    if not home.ready:
        pytest.fail(home.describe_missing(), pytrace=False)
    report = scratch / "report.xml"
    command = [home.python, "-m", "pytest", "-q", "--tb=short", f"--junit-xml={report}"]
    command += ["-c", str(PUBLISHED / "pytest.ini"), str(PUBLISHED / folder)]
    if not isolated:
        command += ["--no-isolation", "-k", f"{UNCHANGED} and ({NOT_ISOLATED})"]
    with start_proxy() as proxy:
        environment = {**os.environ, **ENVIRONMENT, **proxy.environment}
        environment["PYTHONPATH"] = str(PUBLISHED)
        # The home has other plugins than this checkout.
        environment.pop("PYTEST_PLUGINS", None)
        environment.pop("PYTEST_DISABLE_PLUGIN_AUTOLOAD", None)
        completed = subprocess.run(
            command,
            cwd=scratch,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    output = completed.stdout + completed.stderr
    assert report.exists(), output
    return PublishedRun(_read_cases(report), proxy.targets, output)


def _read_cases(report: Path) -> dict[str, list[TestCase]]:
    problems: dict[tuple[str, str], list[str]] = {}
    expected: dict[tuple[str, str], str] = {}
    for element in ET.parse(report).iter("testcase"):  # noqa: S314 - written by our own run
        name, _, variant = element.attrib["name"].rstrip("]").partition("[")
        assert name.startswith("test_"), name
        key = element.attrib["classname"].rpartition(".")[2], variant
        # A test that fails in its teardown as well has two elements.
        found = problems.setdefault(key, [])
        found += [_read_message(child) for child in element if child.tag in {"failure", "error"}]
        if (message := element.find(".//property[@name='message']")) is not None:
            expected[key] = message.attrib["value"]
    cases: dict[str, list[TestCase]] = {}
    for (file, variant), found in problems.items():
        failure = "\n".join(found) if found else None
        case = TestCase(variant, failure, expected.get((file, variant), ""))
        cases.setdefault(file, []).append(case)
    return cases


def _read_message(problem: ET.Element) -> str:
    # pytest cuts the attribute `message` after some lines; the text has source lines as well.
    lines = (problem.text or "").splitlines()
    return "\n".join(line.removeprefix("E") for line in lines if line.startswith("E  "))


@pytest.mark.parametrize("agent", AGENTS, ids=lambda path: path.stem)
def test_the_test_passes_for_the_published_agent(agent: Path, run_folder: RunFolder):
    cases = run_folder(agent.parent.name).cases[agent.stem]
    unchanged = [case for case in cases if case.variant == UNCHANGED]
    assert unchanged
    assert [case.fault for case in unchanged if case.fault] == []


@pytest.mark.parametrize("agent", AGENTS, ids=lambda path: path.stem)
def test_every_break_of_the_agent_fails_with_a_message_that_names_it(
    agent: Path, run_folder: RunFolder
):
    cases = run_folder(agent.parent.name).cases[agent.stem]
    breaks = [case for case in cases if case.variant != UNCHANGED]
    assert len({case.variant for case in breaks}) >= 3
    assert all(case.expected for case in breaks)
    assert [case.fault for case in breaks if case.fault] == []


def test_every_agent_has_a_world_for_a_search():
    worlds = (PUBLISHED / "worlds").glob("*_world.py")
    names = {path.stem.removesuffix("_agent") for path in AGENTS}
    assert {path.stem.removesuffix("_world") for path in worlds} == names


@pytest.mark.parametrize("folder", HOME_NAMES)
def test_no_connection_is_tried_during_the_tests_or_after_them(folder: str, run_folder: RunFolder):
    run = run_folder(folder)
    assert run.cases
    assert run.targets == [], run.output


@pytest.mark.parametrize("folder", HOME_NAMES)
def test_the_proxy_sees_the_connections_of_tests_that_are_not_isolated(
    folder: str, run_folder: RunFolder
):
    run = run_folder(folder, isolated=False)
    assert EXPECTED_TARGETS[folder] <= set(run.targets), run.output
