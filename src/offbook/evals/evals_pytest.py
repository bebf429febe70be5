"""Eval packs in pytest: with `--offbook-evals`, each case of a pack is one test.

The plugin imports this module at every start, so everything else is imported when it is needed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

OPTION = "--offbook-evals"
SUFFIX = ".eval.toml"


def add_options(parser: pytest.Parser) -> None:
    """Add the option that collects packs: installing Offbook alone changes nothing."""
    parser.getgroup("offbook").addoption(
        OPTION, action="store_true", help=f"Collect eval packs (*{SUFFIX}): one test for each case."
    )


def configure(config: pytest.Config) -> None:
    """Collect packs if the option is given."""
    if config.getoption(OPTION):
        config.pluginmanager.register(_PackCollector(), "offbook-evals")


MARKERS: tuple[str, ...] = ()
FIXTURES: dict[str, Any] = {}


class _PackCollector:
    """Finds the packs among the files of a run."""

    def __init__(self) -> None:
        self._ran = False
        self._problem = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note that a case of a pack ran, also in a worker of pytest-xdist."""
        self._ran = self._ran or f"{SUFFIX}::" in report.nodeid

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run of whole folders without a pack: nothing was evaluated."""
        if hasattr(session.config, "workerinput") or self._ran or session.exitstatus:
            return
        if all(os.path.isdir(argument) for argument in session.config.args):  # noqa: PTH112 - pathlib is slow to import
            self._problem = f"no data for {OPTION}: no case of a file *{SUFFIX} ran"
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
    """An eval pack; its cases are the tests."""

    def collect(self) -> Iterable[pytest.Item]:
        """Read the pack, and yield a test for each case and ladder."""
        from offbook.errors import OffbookError
        from offbook.evals.pack_file import read_pack

        try:
            loaded = read_pack(self.path)
        except OffbookError as error:
            raise self.CollectError(str(error)) from error  # shown without a traceback
        for number, case in enumerate([*loaded.pack.cases, *loaded.pack.ladders]):
            item = PackCase.from_parent(self, name=case.id, loaded=loaded, number=number)  # pyright: ignore[reportUnknownMemberType]
            yield item


class PackCase(pytest.Item):
    """One case: a failure of a lower severity is skipped with its reason."""

    def __init__(self, *, loaded: Any, number: int, **options: Any) -> None:
        super().__init__(**options)  # pyright: ignore[reportUnknownMemberType]
        self._loaded = loaded
        self._number = number

    def runtest(self) -> None:
        """Evaluate all trials of the case, as `offbook eval run` does."""
        from offbook.errors import CheckFailed
        from offbook.evals.pack_run import run_case

        folder = self.config.rootpath / ".offbook" / "pytest"
        results = run_case(self._loaded, self._number, folder)
        failed = [result for result in results if result.status != "pass"]
        if not failed:
            return
        message = "; ".join(problem for result in failed for problem in result.problems)
        if failed[0].gated:
            pytest.skip(f"{failed[0].severity}: {message}")
        raise CheckFailed(f"{len(failed)} of {len(results)} trials failed: {message}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the reason only: the lines of Offbook do not help."""
        from offbook.errors import OffbookError

        if isinstance(excinfo.value, OffbookError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the place of the case."""
        return self.path, None, self.name
