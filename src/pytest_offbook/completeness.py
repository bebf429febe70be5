"""Keeps what came of the tests, and tells at the end which requirements nobody showed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from offbook.surfaces.goldens import (
    Outcome,
    Outcomes,
    digest_goldens,
    find_problems,
    open_project,
)

if TYPE_CHECKING:
    from pathlib import Path

NAME = "offbook-completeness"
GOLDEN = "offbook-golden"


class Completeness:
    """Watches a test run of a project that has test specs."""

    def __init__(self, config: pytest.Config) -> None:
        self._project = open_project(config.rootpath)
        self._outcomes = Outcomes.read(config.rootpath)
        self._before = digest_goldens(self._project)
        self._whole = _runs_all(config)
        self._problems: list[str] = []
        self._ran = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what came of a test: its call, or what kept it from being called."""
        if report.when != "call" and report.passed:
            return
        file, _, test = report.nodeid.partition("::")
        goldens = [str(value) for name, value in report.user_properties if name == GOLDEN]
        self._outcomes.add(file, test, Outcome(report.outcome, goldens))
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
