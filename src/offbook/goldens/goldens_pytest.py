"""What the pytest plugin opens for tests that replay: goldens, guards, and who showed what."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from offbook.determinism.guard import guard_replay, time_budget
from offbook.errors import CheckFailed, UsageError
from offbook.goldens.fixture_store import read_scenarios
from offbook.goldens.golden_replay import GoldenReplay, replay_all
from offbook.goldens.project import Project
from offbook.goldens.spec_validation import (
    SpecResult,
    SpecResults,
    check_completeness,
    check_static,
)
from offbook.runs.run_files import make_temp_folder, remove_temp_folder
from offbook.runs.sync_bridge import SyncBridge, in_event_loop

if TYPE_CHECKING:
    from collections.abc import Generator


# --- What the pytest plugin opens for tests that replay: goldens, guards, and who showed what.

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable

    Work = Callable[[], Coroutine[Any, Any, list[GoldenReplay]]]


class GuardedCategory(NamedTuple):
    """What a kind of test promises."""

    name: str
    seconds: float


CATEGORIES = {"unit": GuardedCategory("unit", 0.1), "replay": GuardedCategory("replay", 1.0)}


class Goldens:
    """What the fixture `goldens` gives: replays, which fail when something is not as recorded."""

    def __init__(self, project: Project, tell: Callable[[str], None]) -> None:
        self._project = project
        self._tell = tell

    def replay(self, name: str) -> list[GoldenReplay]:
        """Replay all scenarios of the golden `component/name`; raise what differs."""
        library = self._project.library
        scenarios = read_scenarios(library.find("golden", name))
        find = self._project.registry.find
        replayed = _run_apart(lambda: replay_all(scenarios, find))
        self._tell(name)
        told = [one.tell() for one in replayed if not one.ok]
        if told:
            raise CheckFailed("\n".join(told), hint=f"offbook fixture show {name}")
        return replayed


def _run_apart(work: Work) -> list[GoldenReplay]:
    """Run this to its end: here, or in a thread when the test has an event loop of its own."""
    if not in_event_loop():
        return _run(work)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_run, work).result()


def _run(work: Work) -> list[GoldenReplay]:
    bridge = SyncBridge()
    try:
        return bridge.run(work())
    finally:
        bridge.close()


@contextmanager
def guard_test(
    category: GuardedCategory, test: Path, allow: Iterable[Path], seconds: float | None = None
) -> Generator[None]:
    """Hold a test to what its kind promises; whatever it broke fails it, with the line."""
    own = make_temp_folder()
    before = tempfile.tempdir
    tempfile.tempdir = str(own)
    try:
        with ExitStack() as stack:
            watch = stack.enter_context(time_budget(seconds or category.seconds, str(test)))
            guard = stack.enter_context(guard_replay(allow=[own, *allow]))
            yield
    finally:
        tempfile.tempdir = before
        remove_temp_folder(own)
    if guard.violations:
        raise guard.violations[0]
    if watch.over:
        raise CheckFailed(
            f"a {category.name} test took {watch.spent:.2f} s, more than {watch.seconds:g} s",
            where=watch.line,
            hint="what waits or computes that long belongs into a test of another kind",
        )


def digest_goldens(project: Project) -> str:
    """The hash of all goldens: no test run may change it."""
    whole = sha256()
    for path in sorted((project.library.root / "golden").glob("*/*")):
        whole.update(path.name.encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()


def find_problems(project: Project, outcomes: SpecResults, *, whole: bool) -> list[str]:
    """What the specs of a project complain about after a run of its tests.

    Only a run of all tests can tell what is missing.
    """
    found = [str(problem) for problem in check_static(project)]
    if whole:
        found += [str(problem) for problem in check_completeness(project, outcomes)]
    return found


def open_project(root: Path) -> Project:
    """The project in this folder."""
    if not root.is_dir():
        raise UsageError("there is no such folder", where=str(root))
    return Project(root)


# --- Holds tests to the promises of their marker: `unit`, `replay` and `live`.

CATEGORIES_PLUGIN = "offbook-categories"


class Categories:
    """Guards `unit` and `replay` tests while they run; `live` ones run only when they can."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Hold a test to what it promises; what it broke fails it, though it went well."""
        marker = next(filter(None, map(item.get_closest_marker, CATEGORIES)), None)
        if marker is None:
            return (yield)
        funcargs: dict[str, Any] = getattr(item, "funcargs", {})
        allow = [value for value in funcargs.values() if isinstance(value, Path)]
        own = [path for path in allow if _is_temporary(path, item.config)]
        category = CATEGORIES[marker.name]
        with guard_test(category, item.path, own, marker.kwargs.get("budget")):
            return (yield)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a live test whose credentials are missing, or that nobody asked for."""
        marker = item.get_closest_marker("live")
        if marker is None:
            return
        missing = [name for name in marker.kwargs.get("needs", ()) if not os.environ.get(name)]
        if missing:
            pytest.skip(f"live: {', '.join(missing)} is not set")
        if not item.config.getoption("--offbook-live"):
            pytest.skip("live: run it with --offbook-live")


def _is_temporary(path: Path, config: pytest.Config) -> bool:
    """Whether pytest made this folder for the test."""
    factory: Any = getattr(config, "_tmp_path_factory", None)
    return factory is not None and path.is_relative_to(factory.getbasetemp())


# --- Keeps what came of the tests, and tells at the end which requirements nobody showed.

COMPLETENESS_PLUGIN = "offbook-completeness"
GOLDEN_PROPERTY = "offbook-golden"


class Completeness:
    """Watches a test run of a project that has test specs."""

    def __init__(self, config: pytest.Config) -> None:
        self._project = open_project(config.rootpath)
        self._outcomes = SpecResults.read(config.rootpath)
        self._before = digest_goldens(self._project)
        self._whole = _runs_all(config)
        self._problems: list[str] = []
        self._ran = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what came of a test: its call, or what kept it from being called."""
        if report.when != "call" and report.passed:
            return
        file, _, test = report.nodeid.partition("::")
        goldens = [str(value) for name, value in report.user_properties if name == GOLDEN_PROPERTY]
        self._outcomes.add(file, test, SpecResult(report.outcome, goldens))
        self._ran += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that went well, when the specs say that something is missing."""
        if digest_goldens(self._project) != self._before:
            self._problems.append("a golden changed while the tests ran: none may")
        if self._ran:
            self._outcomes.write()
            whole = self._whole and session.exitstatus == pytest.ExitCode.OK
            self._problems += find_problems(self._project, self._outcomes, whole=whole)
        if self._problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Tell what is missing."""
        if self._problems:
            terminalreporter.section("test specs", red=True)
            for problem in self._problems:
                terminalreporter.line(_shorten(problem, terminalreporter.config.rootpath))


def _runs_all(config: pytest.Config) -> bool:
    """Whether nothing was left out: only then can something be missing."""
    chosen = ("keyword", "markexpr", "deselect", "lf", "ignore", "ignore_glob", "last_failed")
    return config.args_source is not config.ArgsSource.ARGS and not any(
        config.getoption(name, None) for name in chosen
    )


def _shorten(problem: str, root: Path) -> str:
    return problem.replace(f"{root}/", "")
