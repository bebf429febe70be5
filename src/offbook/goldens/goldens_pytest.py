"""Goldens in pytest: the fixture `goldens`, test categories, and spec coverage.

Without test specs and without the setting `offbook_categories` it changes nothing: projects have
their own markers called `unit`, `replay` or `live`.

    [tool.pytest.ini_options]
    offbook_categories = true
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from contextlib import AbstractContextManager

    from offbook.goldens.project import Goldens, Project
    from offbook.goldens.replay_guard import ReplayGuard, Stopwatch

CATEGORIES_SETTING = "offbook_categories"
MARKERS = {
    "unit": "(budget=0.1): no network, no process, only temporary files; fails after 0.1 s",
    "replay": "(budget=1.0): replays goldens; the same limits as unit; fails after 1 s",
    "live": "(needs=[]): runs for real; skipped without --offbook-live and the variables `needs`",
}
MARKERS_SETTING = CATEGORIES_SETTING
TIME_BUDGETS = {"unit": 0.1, "replay": 1.0}  # seconds
# user properties of a test report: they also reach the controller of pytest-xdist
GOLDEN_PROPERTY = "offbook-golden"
UNCHECKED_PROPERTY = "offbook-not-checked"
LATE_PROBLEMS = "offbook-late-problems"
# options that leave tests out, so that missing results prove nothing
SELECTIONS = {
    "keyword": "-k",
    "markexpr": "-m",
    "deselect": "--deselect",
    "lf": "--last-failed",
    "last_failed": "--last-failed",
    "stepwise": "--stepwise",
    "ignore": "--ignore",
    "ignore_glob": "--ignore-glob",
}


OPTIONS = {
    "--offbook-live": {
        "action": "store_true",
        "default": False,
        "help": "Run the tests marked `live`.",
    },
    "--offbook-offline": {
        "action": "store_true",
        "default": False,
        "help": "Run in a network with loopback only, also for native code (Linux).",
    },
}
SETTINGS = {
    CATEGORIES_SETTING: {
        "help": "Enforce the limits of tests marked `unit` and `replay`, and skip tests marked"
        " `live`.",
        "type": "bool",
        "default": False,
    },
}
FILES = {"tests/specs/*.test-spec.md": ""}


def pytest_configure(config: pytest.Config) -> None:
    """Enable the categories if the project opted in, and the coverage if it has specs."""
    # a worker of pytest-xdist is in the network of the process that started it
    if config.getoption("--offbook-offline") and not hasattr(config, "workerinput"):
        from offbook.errors import UsageError
        from offbook.goldens.replay_guard import leave_network

        if config.getoption("--offbook-live"):
            raise pytest.UsageError("--offbook-live needs the network: omit --offbook-offline")
        try:
            leave_network()
        except UsageError as error:
            raise pytest.UsageError(f"--offbook-offline: {error}") from error
    if config.getini(CATEGORIES_SETTING):
        config.pluginmanager.register(Categories(), "offbook-categories")
    specs = (config.rootpath / "tests" / "specs").glob("*.test-spec.md")
    # a worker of pytest-xdist sees a part of the tests only
    if not hasattr(config, "workerinput") and any(specs):
        config.pluginmanager.register(SpecCoverage(config), "offbook-spec-coverage")


# --- The fixture

PROJECT_KEY: pytest.StashKey[Project] = pytest.StashKey()
GOLDENS_KEY: pytest.StashKey[Goldens] = pytest.StashKey()


def goldens(request: pytest.FixtureRequest) -> Goldens:
    """Golden fixtures of the project: `goldens.replay("component/name")`."""
    from offbook.goldens.project import Goldens, Project

    config, item = request.config, request.node
    if PROJECT_KEY not in config.stash:
        # one for all tests: it imports each live script once
        config.stash[PROJECT_KEY] = Project(config.rootpath)
        config.pluginmanager.register(ReplayHooks(), "offbook-replays")

    def note_replay(name: str) -> None:
        item.user_properties.append((GOLDEN_PROPERTY, name))

    def untimed() -> AbstractContextManager[None]:
        limits = item.stash.get(LIMITS_KEY, None)
        return limits.stopwatch.paused() if limits and limits.stopwatch else nullcontext()

    opened = item.stash[GOLDENS_KEY] = Goldens(config.stash[PROJECT_KEY], note_replay, untimed)
    return opened


FIXTURES = (goldens,)


class ReplayHooks:
    """Fails a test that swallowed a failed replay; registered by the first test that replays."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Raise the first failure again if the test passed."""
        result = yield
        opened = item.stash.get(GOLDENS_KEY, None)
        if opened is not None and opened.failures:
            raise opened.failures[0]
        return result


# --- Categories


def _check_marker(marker: pytest.Mark) -> None:
    """Refuse an argument that the marker would ignore, and a time that limits nothing."""
    name = "needs" if marker.name == "live" else "budget"
    unknown = [*map(repr, marker.args), *(key for key in marker.kwargs if key != name)]
    value = marker.kwargs.get(name, 1)
    if unknown:
        raise pytest.UsageError(f"{marker.name} takes {name}=, got {', '.join(unknown)}")
    if name == "needs" and isinstance(value, str):
        raise pytest.UsageError(f"live: needs is a list of variables, got {value!r}")
    if name == "budget" and not 0 < value < float("inf"):
        raise pytest.UsageError(f"{marker.name}: budget is a number of seconds, got {value!r}")


class Categories:
    """Enforces the limits of `unit` and `replay` tests, and skips `live` tests."""

    def __init__(self) -> None:
        self._outlived: list[CategoryLimits] = []
        self._unchecked: dict[str, None] = {}  # ordered, each text once
        self._problems: list[str] = []

    # not in a wrapper, whose skip would keep other plugins from their set-up
    @pytest.hookimpl(specname="pytest_runtest_setup")
    def pytest_skip_live_test(self, item: pytest.Item) -> None:
        """Skip a live test without its credentials or without --offbook-live."""
        for name in (*TIME_BUDGETS, "live"):
            if found := item.get_closest_marker(name):
                _check_marker(found)
        marker = item.get_closest_marker("live")
        if marker is None:
            return
        missing = [name for name in marker.kwargs.get("needs", ()) if not os.environ.get(name)]
        if missing:
            pytest.skip(f"live: {', '.join(missing)} is not set")
        if not item.config.getoption("--offbook-live"):
            pytest.skip("live: run it with --offbook-live")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Set up a `unit` or `replay` test inside its limits."""
        marker = next(filter(None, map(item.get_closest_marker, TIME_BUDGETS)), None)
        if marker is None:
            # a test that replays goldens has their limits even if its marker was forgotten
            uses_goldens = "goldens" in getattr(item, "fixturenames", ())
            if not uses_goldens or item.get_closest_marker("live"):
                return (yield)
        category = marker.name if marker else "replay"
        budget = TIME_BUDGETS[category]
        if marker is not None:
            budget = marker.kwargs.get("budget", budget)
        limits = item.stash[LIMITS_KEY] = CategoryLimits(item, category, budget)
        with limits.apply():
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """Set up a fixture of a wider scope without limits: it is not the work of one test."""
        item: pytest.Item | None = getattr(request, "_pyfuncitem", None)  # request.node is wider
        limits = item.stash.get(LIMITS_KEY, None) if item is not None else None
        if limits is None or fixturedef.scope == "function":
            return (yield)
        with limits.suspend(f"the {fixturedef.scope} fixture {fixturedef.argname!r}"):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Run a `unit` or `replay` test inside its limits."""
        limits = item.stash.get(LIMITS_KEY, None)
        if limits is None:
            return (yield)
        with limits.apply(), limits.measure():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Tear a `unit` or `replay` test down inside its limits."""
        limits = item.stash.get(LIMITS_KEY, None)
        if limits is None:
            return (yield)
        try:
            with limits.apply():
                return (yield)
        finally:
            item.user_properties += [(UNCHECKED_PROPERTY, text) for text in limits.close()]
            del item.stash[LIMITS_KEY]
            if limits.has_threads():
                self._outlived.append(limits)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect what the limits did not check."""
        if report.when == "teardown":
            self._unchecked |= {
                str(text): None
                for name, text in report.user_properties
                if name == UNCHECKED_PROPERTY
            }

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run in which a thread broke the limits after the end of its test."""
        for limits in self._outlived:
            for error in limits.new_violations():
                self._problems.append(f"{limits.test}: after its end, in a thread of it: {error}")
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:  # in a worker of pytest-xdist
            output[LATE_PROBLEMS] = self._problems
        if self._problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Collect the late violations of a worker of pytest-xdist."""
        # a worker that crashed has no output
        self._problems += getattr(node, "workeroutput", {}).get(LATE_PROBLEMS, [])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print late violations, and what was not checked."""
        if self._problems or self._unchecked:
            terminalreporter.section("test categories", red=bool(self._problems))
            for problem in self._problems:
                terminalreporter.line(problem)
            for text in self._unchecked:
                terminalreporter.line(f"not checked: {text}")


class CategoryLimits:
    """The limits of one test in all its phases: network, processes, files, and time in the test."""

    def __init__(self, item: pytest.Item, category: str, seconds: float) -> None:
        from threading import active_count

        from offbook.files import make_temp_folder

        self.test = item.nodeid
        self.stopwatch: Stopwatch | None = None
        self._category = category
        self._file = str(item.path)
        self._seconds = seconds
        self._threads = active_count()
        self._folder = make_temp_folder()
        self._default_folder = tempfile.tempdir
        self._allow = [self._folder]
        factory: Any = getattr(item.config, "_tmp_path_factory", None)
        if factory is not None:
            self._allow.append(factory.getbasetemp())
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            # Hypothesis stores the failing examples that it found
            folder = os.environ.get("HYPOTHESIS_STORAGE_DIRECTORY", ".hypothesis")
            self._allow.append(item.config.invocation_params.dir / folder)
        self._guards: list[ReplayGuard] = []
        self._reported = 0
        self._unchecked: list[str] = []
        self._offline = bool(item.config.getoption("--offbook-offline"))
        self._after_test = ExitStack()
        # pytest calls it after the fixtures of the test, and before those of a wider scope
        original = item.teardown

        def teardown() -> None:
            original()
            vars(item).pop("teardown", None)
            self._after_test.enter_context(self.suspend())

        item.teardown = teardown

    @contextmanager
    def apply(self) -> Generator[None]:
        """Enforce the limits in this block, which is one phase of the test."""
        from offbook.goldens.replay_guard import guard_replay

        tempfile.tempdir = str(self._folder)
        try:
            with guard_replay(allow=self._allow) as guard:
                self._guards.append(guard)
                yield
        except BaseException:
            self.new_violations()  # the error of the test comes first, and one is enough
            raise
        finally:
            self._after_test.close()
            tempfile.tempdir = self._default_folder
        # the test may have caught the error, but it still broke the limit
        for error in self.new_violations():
            raise error

    @contextmanager
    def suspend(self, owner: str = "") -> Generator[None]:
        """Enforce nothing in this block. What an owner did in it is noted as not checked."""
        folder, tempfile.tempdir = tempfile.tempdir, self._default_folder
        try:
            with self._guards[-1].paused() as permitted:
                yield
        finally:
            tempfile.tempdir = folder
        if owner and permitted:
            self._unchecked.append(f"{owner}, because other tests may share it: it {permitted[0]}")

    @contextmanager
    def measure(self) -> Generator[None]:
        """Limit the time of this block."""
        from offbook.errors import CheckFailed
        from offbook.goldens.replay_guard import time_budget

        with time_budget(self._seconds, self._file) as self.stopwatch:
            yield
        watch = self.stopwatch
        if watch.over:
            spent, budget = f"{watch.spent:.2f} s", f"{watch.seconds:g} s"
            raise CheckFailed(
                f"the {self._category} test took {spent}, more than {budget}",
                where=watch.line,
                hint="remove the marker, or set a longer time:"
                f" @pytest.mark.{self._category}(budget=…)",
            )

    def new_violations(self) -> list[Exception]:
        """Return the violations since the last call."""
        found = [error for guard in self._guards for error in guard.violations]
        new, self._reported = found[self._reported :], len(found)
        return [*new]

    def has_threads(self) -> bool:
        """Return whether a thread of the test may still run."""
        from threading import active_count

        return active_count() > self._threads

    def close(self) -> list[str]:
        """Remove the temporary folder, and return what was not checked."""
        from offbook.files import remove_temp_folder
        from offbook.goldens.replay_guard import native_libraries

        remove_temp_folder(self._folder)
        libraries = [] if self._offline else native_libraries()
        if libraries:
            self._unchecked.append(
                f"network access of {', '.join(libraries)}, because it is native code, which the"
                " limits of unit and replay tests cannot see; on Linux: pytest --offbook-offline"
            )
        return self._unchecked


LIMITS_KEY = pytest.StashKey[CategoryLimits]()


# --- Specs


class SpecCoverage:
    """Stores the test results of a project with test specs, and checks the specs at the end."""

    def __init__(self, config: pytest.Config) -> None:
        from offbook.goldens.project import Project
        from offbook.goldens.specs import SpecResults

        self._config = config
        self._project = Project(config.rootpath)
        self._results = SpecResults.read(config.rootpath)
        self._goldens_before = self._project.fixtures.digest()
        self._deselected = 0
        self._problems: list[str] = []
        self._unchecked: list[str] = []
        self._tests = 0

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Count the tests that an option or a plugin left out."""
        self._deselected += len(items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store the result of a test's call, or of its setup if that did not pass."""
        from offbook.goldens.specs import SpecResult

        if report.when != "call" and report.passed:
            return
        file, _, test = report.nodeid.partition("::")
        goldens = [str(value) for name, value in report.user_properties if name == GOLDEN_PROPERTY]
        self._results.add(file, test, SpecResult(report.outcome, goldens))
        self._tests += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a passing run if the specs have problems."""
        from offbook.errors import OffbookError

        try:
            self._check(passed=session.exitstatus == pytest.ExitCode.OK)
        except (OffbookError, OSError) as error:
            self._problems.append(str(error))
        if self._problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _check(self, *, passed: bool) -> None:
        from offbook.goldens.specs import (
            check_completeness,
            check_static,
            list_unchecked,
        )

        if self._project.fixtures.digest() != self._goldens_before:
            self._problems.append("a golden changed during the test run")
        if not self._tests:
            return
        self._problems += map(str, check_static(self._project))
        partial = "the run failed" if not passed else next(self._partial_reasons(), "")
        if partial:
            self._unchecked.append(f"whether every requirement has a test, because {partial}")
        else:
            self._problems += map(str, check_completeness(self._project, self._results))
            self._unchecked += list_unchecked(self._project, self._results)
            if not self._config.getini(CATEGORIES_SETTING):
                self._unchecked.append(
                    f"the limits of replay tests, because {CATEGORIES_SETTING} is not set"
                )
        try:
            self._results.write()
        except OSError as error:
            self._unchecked.append(
                f"`spec check --ran`, because the results are not stored: {error}"
            )

    def _partial_reasons(self) -> Iterator[str]:
        """Return the reasons why a part of the tests did not run."""
        from offbook.errors import counted
        from offbook.goldens.specs import read_spec

        config, root = self._config, self._project.root
        for option, flag in SELECTIONS.items():
            if config.getoption(option, None):
                yield f"{flag} selects a part of the tests"
        if self._deselected:
            yield f"{counted(self._deselected, 'test')} deselected"
        if config.args_source is config.ArgsSource.TESTPATHS:
            return
        start = config.invocation_params.dir
        folders = [(start / argument).resolve() for argument in config.args]
        specs = map(read_spec, self._project.spec_paths())
        files = [each.value("Test File") for spec in specs for each in spec.requirements]
        for name in ["tests", *files]:
            path = (root / name).resolve()
            if not any(path.is_relative_to(folder) for folder in folders):
                first, *others = config.args
                more = f" and {len(others)} more" if others else ""
                yield f"the run is limited to {first}{more}"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the problems of the specs, and what was not checked."""
        if self._problems or self._unchecked:
            terminalreporter.section("test specs", red=bool(self._problems))
            root = terminalreporter.config.rootpath
            for problem in self._problems:
                terminalreporter.line(problem.replace(f"{root}/", ""))
            for text in self._unchecked:
                terminalreporter.line(f"not checked: {text}")
