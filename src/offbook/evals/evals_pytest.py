"""Eval packs in pytest: with `--offbook-evals`, each case and each slice of a pack is one test."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import CheckFailed, OffbookError
from offbook.evals.pack import LoadedPack, SliceLimit
from offbook.evals.pack_file import read_pack
from offbook.evals.pack_run import AGREEMENTS, check_slice, run_case
from offbook.evals.run_directory import CaseResult, summarize_cases

OPTION = "--offbook-evals"
OPTIONS = {
    OPTION: {
        "action": "store_true",
        "default": False,
        "help": "Collect eval packs (*.eval.toml): one test for each case.",
    },
}
SUFFIX = ".eval.toml"


def pytest_configure(config: pytest.Config) -> None:
    """Collect packs if the option is given."""
    if config.getoption(OPTION):
        config.pluginmanager.register(PackCollector(config), "offbook-evals")


def _folder(config: pytest.Config) -> Path:
    return config.rootpath / ".offbook" / "pytest"


class PackCollector:
    """Finds the packs among the files of a run."""

    def __init__(self, config: pytest.Config) -> None:
        self._ran = False
        self._problem = ""
        if not hasattr(config, "workerinput"):
            # A judge may have changed: its agreement is measured once for each run.
            with suppress(NotADirectoryError):
                (_folder(config) / AGREEMENTS).unlink(missing_ok=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note that a case of a pack ran, also in a worker of pytest-xdist."""
        self._ran = self._ran or f"{SUFFIX}::" in report.nodeid

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run of whole folders without a pack: nothing was evaluated."""
        if hasattr(session.config, "workerinput") or self._ran or session.exitstatus:
            return
        if all(Path(argument).is_dir() for argument in session.config.args):
            self._problem = f"no data for --offbook-evals: no case of a file *{SUFFIX} ran"
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print why the run failed."""
        if self._problem:
            terminalreporter.write_line(f"offbook: {self._problem}", red=True)

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> Any:
        """Return the collector of a pack."""
        if file_path.name.endswith(SUFFIX):
            return PackFile.from_parent(parent, path=file_path)  # pyright: ignore[reportUnknownMemberType]
        return None


class PackFile(pytest.File):
    """An eval pack; its cases are the tests, and so are the limits of its slices."""

    def collect(self) -> Iterable[pytest.Item]:
        """Read the pack, and yield a test for each case, ladder and limit of slices."""
        try:
            loaded = read_pack(self.path)
        except OffbookError as error:
            raise self.CollectError(str(error)) from error  # shown without a traceback
        results = _PackResults(loaded, _folder(self.config))
        for number, case in enumerate(loaded.cases):
            yield PackCase.from_parent(self, name=case.id, results=results, number=number)  # pyright: ignore[reportUnknownMemberType]
        for limit in loaded.pack.slices:
            name = f"slice {limit.by}={limit.value}" if limit.value else f"slice {limit.by}"
            yield PackSlice.from_parent(self, name=name, results=results, limit=limit)  # pyright: ignore[reportUnknownMemberType]


class _PackResults:
    """The results of the cases of a pack. Each case runs once in a process.

    With pytest-xdist, a slice may be the test of another process than some of its cases: it runs
    them again.
    """

    def __init__(self, loaded: LoadedPack, folder: Path) -> None:
        self.loaded = loaded
        self._folder = folder
        self._results: dict[int, list[CaseResult]] = {}

    def of_case(self, number: int) -> list[CaseResult]:
        """Return the results of all trials of a case, as `offbook eval run` has them."""
        if number not in self._results:
            self._results[number] = run_case(self.loaded, number, self._folder)
        return self._results[number]


class PackTest(pytest.Item):
    """A test of a pack, by the results of its cases."""

    def __init__(self, *, results: _PackResults, **options: Any) -> None:
        super().__init__(**options)  # pyright: ignore[reportUnknownMemberType]
        self._results = results

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the reason only: the lines of Offbook do not help."""
        if isinstance(excinfo.value, OffbookError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the place of the case."""
        return self.path, None, self.name


class PackCase(PackTest):
    """One case: a failure of a lower severity is skipped with its reason."""

    def __init__(self, *, number: int, **options: Any) -> None:
        super().__init__(**options)
        self._number = number

    def runtest(self) -> None:
        """Evaluate all trials of the case."""
        results = self._results.of_case(self._number)
        failed = [result for result in results if result.status != "pass"]
        if not failed:
            return
        message = "; ".join(problem for result in failed for problem in result.problems)
        if failed[0].gated:
            pytest.skip(f"{failed[0].severity}: {message}")
        raise CheckFailed(f"{len(failed)} of {len(results)} trials failed: {message}")


class PackSlice(PackTest):
    """The lowest pass rate of slices: failures of cases of any severity count."""

    def __init__(self, *, limit: SliceLimit, **options: Any) -> None:
        super().__init__(**options)
        self._limit = limit

    def runtest(self) -> None:
        """Compare the pass rates of all cases with this key in their metadata."""
        cases = self._results.loaded.cases
        members = [n for n, case in enumerate(cases) if self._limit.by in case.metadata]
        results = [result for n in members for result in self._results.of_case(n)]
        if below := [*check_slice(self._limit, summarize_cases(results))]:
            raise CheckFailed("; ".join(below))
