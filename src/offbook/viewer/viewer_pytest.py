"""`pytest --offbook-html=FILE`: the rehearsals of all tests as one page.

The traces are copied to a temporary folder, which the workers of pytest-xdist share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

TRACES_OPTION = "offbook_html_traces"  # set here, read by the plugin: the folder for the traces
OPTIONS: dict[str, dict[str, Any]] = {
    "--offbook-html": {
        "metavar": "FILE",
        "default": None,
        "help": "Write the rehearsals of all tests as one HTML page to FILE.",
    },
}


def pytest_configure(config: pytest.Config) -> None:
    """Register the hooks that write the page, in the process that has all reports."""
    target = config.getoption("--offbook-html")
    if not target:
        return
    workerinput: dict[str, Any] | None = getattr(config, "workerinput", None)
    if workerinput is not None:  # the controller of pytest-xdist has the folder and the page
        setattr(config.option, TRACES_OPTION, workerinput.get(TRACES_OPTION))
        return
    from offbook.files import make_temp_folder, remove_temp_folder

    folder = make_temp_folder()
    setattr(config.option, TRACES_OPTION, str(folder))
    config.add_cleanup(lambda: remove_temp_folder(folder))
    path = config.invocation_params.dir / str(target)
    config.pluginmanager.register(PageHooks(path, folder), "offbook-html")


class PageHooks:
    """Collects the outcome of each test, and writes the page at the end."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.folder = folder
        self.tests: dict[str, dict[str, Any]] = {}
        self._line = "no page was written: no test used the fixture offbook"

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Give the folder for the traces to a worker of pytest-xdist."""
        node.workerinput[TRACES_OPTION] = str(self.folder)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the outcome of a test, and the text of its first failure."""
        test = self.tests.setdefault(report.nodeid, {"outcome": report.outcome})
        if report.failed and test.get("message") is None:
            test |= {"outcome": "failed", "phase": report.when or "", "message": message_of(report)}
            from offbook.viewer.traces_pytest import find_frames

            test["frames"] = find_frames(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the page."""
        from offbook.errors import counted
        from offbook.files import write_report
        from offbook.viewer.html_page import render_page
        from offbook.viewer.traces_pytest import read_test_traces

        traces = [*read_test_traces(self.folder, self.tests)]
        if traces:
            page = render_page(traces, title=self.path.stem)
            failed = write_report(self.path, page, session)
            written = f"{self.path}: {counted(len(traces), 'trace')}"
            self._line = failed[0] if failed else written

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the page, or say that there is none: no test had a rehearsal."""
        terminalreporter.line(f"offbook: {self._line}")


def message_of(report: pytest.TestReport) -> str:
    """Return the message of the error that failed a test, or the end of the whole text."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return crash.message  # of the last error: those that caused it are in the terminal
    text = report.longreprtext
    errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return "\n".join(errors) or text[-2000:]
