"""The coverage of an agent over a run of pytest: `--offbook-coverage`.

Each trace is counted while it is written. A worker of pytest-xdist appends what one trace added to
a separate file, one line each: a worker that crashes loses nothing but its last trace.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from offbook.checks.agent_coverage import CoverageReader

OPTION = "--offbook-coverage"
FAIL_UNDER = "--offbook-coverage-fail-under"
AGENT = "--offbook-coverage-agent"
SHOWN = ""  # the value of the option without a file
WORKER_FOLDER = "offbook_coverage_folder"

OPTIONS: dict[str, dict[str, Any]] = {
    OPTION: {
        "nargs": "?",
        "const": SHOWN,
        "default": None,
        "metavar": "FILE.json",
        "help": "Show which tools, hooks, answers, hats, nodes and handoffs of the agents were"
        " used; with a file, write it as JSON as well.",
    },
    FAIL_UNDER: {
        "type": float,
        "default": None,
        "metavar": "PERCENT",
        "help": "Fail the run if fewer parts of the agents are covered. Implies"
        " --offbook-coverage.",
    },
    AGENT: {
        "default": "",
        "metavar": "NAME",
        "help": "Measure one of several agents. Implies --offbook-coverage.",
    },
}


def pytest_configure(config: pytest.Config) -> None:
    """Measure if the option is given."""
    file = config.getoption(OPTION)
    fail_under = config.getoption(FAIL_UNDER)
    agent = str(config.getoption(AGENT))
    if file is None and fail_under is None and not agent:
        return
    if file and not file.endswith(".json"):
        raise pytest.UsageError(
            f"{OPTION}: expected a .json file, got {file!r}; write {OPTION}=coverage.json,"
            f" or put the option last: pytest {file} {OPTION}"
        )
    if fail_under is not None and not 0 < fail_under <= 100:  # noqa: PLR2004 - a percentage
        raise pytest.UsageError(f"{FAIL_UNDER}: expected a number from 0 to 100, got {fail_under}")
    folder: str = getattr(config, "workerinput", {}).get(WORKER_FOLDER, "")
    path = config.invocation_params.dir / file if file else None
    worker = WorkerCoverage(Path(folder), agent) if folder else None
    plugin = worker or SuiteCoverage(path, fail_under, agent)
    config.pluginmanager.register(plugin, "offbook-coverage")


class SuiteCoverage:
    """Measures the traces of this process, adds those of the workers, and reports."""

    def __init__(self, path: Path | None, fail_under: float | None, agent: str) -> None:
        from offbook.checks.agent_coverage import AgentCoverage

        self._path = path
        self._agent = agent
        self._fail_under = fail_under
        self._coverage = AgentCoverage()
        self._folder: Path | None = None
        self._problems: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Read every trace that a test writes."""
        from offbook.trace.recorder import observe_traces

        with observe_traces(self._open_reader):
            return (yield)

    def _open_reader(self) -> CoverageReader:
        from offbook.checks.agent_coverage import CoverageReader

        return CoverageReader(self._coverage, self._agent)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Give a worker of pytest-xdist the folder for its parts."""
        from offbook.files import make_temp_folder

        if self._folder is None:
            self._folder = make_temp_folder()
        node.workerinput[WORKER_FOLDER] = str(self._folder)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Add the parts of the workers, write the file, and fail a run that covers too little."""
        if self._folder is not None:
            from offbook.checks.agent_coverage import add_parts
            from offbook.files import remove_temp_folder

            self._problems += add_parts(self._folder, self._coverage)
            remove_temp_folder(self._folder)
        if self._path is not None:
            import msgspec

            from offbook.files import write_report

            text = msgspec.json.format(msgspec.json.encode(self._coverage.as_json()), indent=2)
            self._problems += write_report(self._path, text.decode() + "\n", session)
        if session.exitstatus not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            return
        if self._agent and not self._coverage.traces:
            self._problems.append(f"no run has an agent {self._agent!r}")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif self._fail_under is not None:
            percent = self._coverage.percent
            if percent is None:
                self._problems.append(f"no data for {FAIL_UNDER}={self._fail_under:g}")
            elif percent < self._fail_under:
                self._problems.append(f"coverage {percent:.1f} % is under {self._fail_under:g} %")
            else:
                return
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the table."""
        terminalreporter.section("offbook coverage")
        for line in self._coverage.render():
            terminalreporter.write_line(line)
        for problem in self._problems:
            terminalreporter.write_line(f"offbook: {problem}", red=True)


class WorkerCoverage:
    """Measures the traces of a worker, and appends each to a file of the worker."""

    def __init__(self, folder: Path, agent: str) -> None:
        self._agent = agent
        self._file = os.open(
            folder / f"{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Read every trace that a test writes."""
        from offbook.trace.recorder import observe_traces

        with observe_traces(self._open_reader):
            return (yield)

    def _open_reader(self) -> CoverageReader:
        import msgspec

        from offbook.checks.agent_coverage import AgentCoverage, CoverageReader
        from offbook.trace.recorder import write_line

        file = self._file

        class PartReader(CoverageReader):
            def on_close(self) -> None:
                super().on_close()
                write_line(file, msgspec.json.encode(part) + b"\n")

        part = AgentCoverage()
        return PartReader(part, self._agent)


def run_pytest(words: list[str]) -> bool:
    """Run pytest in this process; return whether all tests passed."""
    return pytest.main(words) is pytest.ExitCode.OK
