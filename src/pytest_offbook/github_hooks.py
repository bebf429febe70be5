"""The hooks of `--offbook-github`: annotations and a step summary of the whole session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from offbook.surfaces.github_summary import make_case, publish_cases

if TYPE_CHECKING:
    from offbook.surfaces.github_summary import Case

TRACE_SECTION = "offbook trace"


class GitHubHooks:
    """Collects the results of the session, also those of the workers of pytest-xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self._root = config.rootpath
        self._cases: dict[str, Case] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the result of a test: of its call, or of the phase that failed."""
        if report.when == "call" or not report.passed:
            self._keep(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep a file that could not be collected."""
        if report.failed:
            self._keep(report)

    def _keep(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        file, line = self._location(report)
        status = report.outcome
        message = ""
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            message = crash.message if crash is not None else report.longreprtext
            # The end of the trace explains most failures.
            trees = [text for title, text in report.sections if title == TRACE_SECTION]
            message = "\n\n".join([message, *trees])
            status = "failed" if getattr(report, "when", "") == "call" else "error"
        elif report.skipped and isinstance(report.longrepr, tuple):
            message = str(report.longrepr[2])
        self._cases[report.nodeid] = make_case(report.nodeid, status, message, file, line)

    def _location(self, report: pytest.TestReport | pytest.CollectReport) -> tuple[str, int]:
        """Return the failing line, if it is in the project, else the line of the test."""
        crash = getattr(report.longrepr, "reprcrash", None)
        if report.failed and crash is not None:
            path = self._root / crash.path
            # An installed package below the project is not the user's code.
            if path.is_relative_to(self._root) and "site-packages" not in path.parts:
                return path.relative_to(self._root).as_posix(), crash.lineno
        file, line, _ = report.location or (report.fspath, None, "")
        return str(file), (line or 0) + 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the summary of the step, and print the annotations."""
        terminalreporter.ensure_newline()
        terminalreporter.write(publish_cases(self._cases.values()))
