"""Goldens in pytest: the fixture `goldens`, test categories, and spec coverage.

The plugin imports this module at every start, so everything else of Offbook is imported when a test
needs it. Without test specs and without the setting `offbook_categories` it changes nothing:
projects have their own markers called `unit`, `replay` or `live`.

    [tool.pytest.ini_options]
    offbook_categories = true
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from offbook.goldens.project import Goldens

CATEGORIES_SETTING = "offbook_categories"
MARKERS = {
    "unit(budget=0.1)": "no network, no process, only temporary files; fails after 0.1 s",
    "replay(budget=1.0)": "replays goldens; the same limits as unit; fails after 1 s",
    "live(needs=[])": "runs for real; skipped without --offbook-live and the variables in `needs`",
}
TIME_BUDGETS = {"unit": 0.1, "replay": 1.0}  # seconds
# a user property of the test report: it also reaches the controller of pytest-xdist
GOLDEN_PROPERTY = "offbook-golden"
# options that leave tests out, so that missing results prove nothing
SELECTIONS = ("keyword", "markexpr", "deselect", "lf", "ignore", "ignore_glob", "last_failed")


def add_options(parser: pytest.Parser) -> None:
    """Add the option for live tests and the setting for categories."""
    group = parser.getgroup("offbook", "test AI agents without the model")
    group.addoption("--offbook-live", action="store_true", help="Run the tests marked `live`.")
    parser.addini(
        CATEGORIES_SETTING,
        "Enforce the limits of tests marked `unit` and `replay`, and skip tests marked `live`.",
        type="bool",
        default=False,
    )


def configure(config: pytest.Config) -> None:
    """Enable the categories if the project opted in, and the coverage if it has specs."""
    if config.getini(CATEGORIES_SETTING):
        for marker, description in MARKERS.items():
            config.addinivalue_line("markers", f"{marker}: {description}")
        config.pluginmanager.register(Categories(), "offbook-categories")
    specs = (config.rootpath / "tests" / "specs").glob("*.test-spec.md")
    # a worker of pytest-xdist sees a part of the tests only
    if not hasattr(config, "workerinput") and any(specs):
        config.pluginmanager.register(SpecCoverage(config), "offbook-spec-coverage")


def goldens(request: pytest.FixtureRequest) -> Goldens:
    """Golden fixtures of the project: `goldens.replay("component/name")`."""
    from offbook.goldens.project import Goldens, Project

    def note_replay(name: str) -> None:
        request.node.user_properties.append((GOLDEN_PROPERTY, name))

    return Goldens(Project(request.config.rootpath), note_replay)


FIXTURES = {"goldens": goldens}


class Categories:
    """Enforces the limits of `unit` and `replay` tests, and skips `live` tests."""

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a live test without its credentials or without --offbook-live."""
        marker = item.get_closest_marker("live")
        if marker is None:
            return
        missing = [name for name in marker.kwargs.get("needs", ()) if not os.environ.get(name)]
        if missing:
            pytest.skip(f"live: {', '.join(missing)} is not set")
        if not item.config.getoption("--offbook-live"):
            pytest.skip("live: run it with --offbook-live")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Run a `unit` or `replay` test inside its limits."""
        marker = next(filter(None, map(item.get_closest_marker, TIME_BUDGETS)), None)
        if marker is None:
            return (yield)
        # the test may write to its own temporary folders, such as tmp_path
        factory: Any = getattr(item.config, "_tmp_path_factory", None)
        funcargs: dict[str, Any] = getattr(item, "funcargs", {})
        allowed = [
            value
            for value in funcargs.values()
            if factory and isinstance(value, Path) and value.is_relative_to(factory.getbasetemp())
        ]
        budget = marker.kwargs.get("budget") or TIME_BUDGETS[marker.name]
        with limit_test(marker.name, item.path, allowed, budget):
            return (yield)


@contextmanager
def limit_test(
    category: str, test_file: Path, allowed: Iterable[Path], seconds: float
) -> Generator[None]:
    """Forbid network, processes and files outside of `allowed`, and limit the time."""
    from offbook.determinism.guard import guard_replay, time_budget
    from offbook.errors import CheckFailed
    from offbook.files import make_temp_folder, remove_temp_folder

    folder = make_temp_folder()
    default = tempfile.tempdir
    tempfile.tempdir = str(folder)
    try:
        with ExitStack() as stack:
            stopwatch = stack.enter_context(time_budget(seconds, str(test_file)))
            guard = stack.enter_context(guard_replay(allow=[folder, *allowed]))
            yield
    finally:
        tempfile.tempdir = default
        remove_temp_folder(folder)
    # the test may have caught the error, but it still broke the limit
    if guard.violations:
        raise guard.violations[0]
    if stopwatch.over:
        raise CheckFailed(
            f"the {category} test took {stopwatch.spent:.2f} s, more than {stopwatch.seconds:g} s",
            where=stopwatch.line,
            hint=f"remove the marker, or set a longer time: @pytest.mark.{category}(budget=…)",
        )


class SpecCoverage:
    """Stores the test results of a project with test specs, and checks the specs at the end."""

    def __init__(self, config: pytest.Config) -> None:
        from offbook.goldens.project import Project
        from offbook.goldens.spec_validation import SpecResults

        self._project = Project(config.rootpath)
        self._results = SpecResults.read(config.rootpath)
        self._goldens_before = self._project.fixtures.digest()
        self._all_selected = config.args_source is not config.ArgsSource.ARGS and not any(
            config.getoption(name, None) for name in SELECTIONS
        )
        self._problems: list[str] = []
        self._tests = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store the result of a test's call, or of its setup if that did not pass."""
        from offbook.goldens.spec_validation import SpecResult

        if report.when != "call" and report.passed:
            return
        file, _, test = report.nodeid.partition("::")
        goldens = [str(value) for name, value in report.user_properties if name == GOLDEN_PROPERTY]
        self._results.add(file, test, SpecResult(report.outcome, goldens))
        self._tests += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a passing run if the specs have problems."""
        from offbook.goldens.spec_validation import check_completeness, check_static

        if self._project.fixtures.digest() != self._goldens_before:
            self._problems.append("a golden changed during the test run")
        if self._tests:
            self._results.write()
            self._problems += map(str, check_static(self._project))
            if self._all_selected and session.exitstatus == pytest.ExitCode.OK:
                self._problems += map(str, check_completeness(self._project, self._results))
        if self._problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the problems of the specs."""
        if self._problems:
            terminalreporter.section("test specs", red=True)
            root = terminalreporter.config.rootpath
            for problem in self._problems:
                terminalreporter.line(problem.replace(f"{root}/", ""))
