"""Tests that run again when a file that they used changes.

`run_watched` runs Python in a process that reports the files that it used; with `PLUGIN`, pytest
does. `WatchedTests` runs jobs, and again those of which a file has changed: the files of a pattern
in `offbook pattern test --watch`, the test files in `offbook view --watch`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from offbook.runs.result_identity import IMPORTABLE, UsedFiles, digest_of, find_change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from offbook.errors import OffbookError

PLUGIN = "offbook.runs.used_files_pytest"  # of pytest
VARIABLE = "OFFBOOK_USED_FILES"
KEPT = {".pytest_cache", ".offbook"}
MAX_FILES = 5000  # of a project whose tests start programs
Job = TypeVar("Job")


class WatchedRun(msgspec.Struct, frozen=True):
    """The end of a test run, and the files that it used with their digests."""

    exit_code: int
    files: Mapping[str, str] = {}


class WatchedTests(Generic[Job]):
    """Jobs and their last runs."""

    def __init__(
        self, find_jobs: Callable[[], Iterable[Job]], run: Callable[[Job], WatchedRun]
    ) -> None:
        self._find_jobs = find_jobs
        self._run = run
        self.runs: dict[Job, WatchedRun] = {}

    @property
    def exit_code(self) -> int:
        """1 if a job has failed in its last run."""
        return int(any(run.exit_code for run in self.runs.values()))

    def run_changed(self, on_start: Callable[[Job, str], None] | None = None) -> list[Job]:
        """Run each job that is new or of which a file has changed, and return those jobs.

        `on_start` gets a job and its changed file. The digests are of the start of a run: a file
        that changes during it is a change.
        """
        jobs = list(self._find_jobs())
        for gone in self.runs.keys() - set(jobs):
            del self.runs[gone]
        started: list[Job] = []
        for job in jobs:
            changed = find_change(self.runs[job].files) if job in self.runs else ""
            if changed or job not in self.runs:
                if on_start is not None:
                    on_start(job, changed)
                self.runs[job] = self._run(job)
                started.append(job)
        return started


# --- The process of a job


class ProcessReport(msgspec.Struct, frozen=True):
    """The files that a process used, with their digests, and an error that ended it.

    `unknown` says why the process may have used other files, too.
    """

    files: dict[str, str] = {}
    unknown: str = ""
    error: str = ""
    where: str = ""
    hint: str = ""


def run_watched(words: list[str], variables: Mapping[str, str] = {}) -> tuple[int, ProcessReport]:
    """Run Python with these words and environment variables; return its exit code and report."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        # It gets Ctrl-C from the terminal itself; pytest prints its summary then.
        process = subprocess.Popen(  # noqa: S603 - Python, without a shell
            [sys.executable, *words], env={**os.environ, **variables, VARIABLE: str(file)}
        )
        try:
            code = process.wait()
        except BaseException:
            process.wait()
            raise
        if not file.exists():
            return code or 1, ProcessReport()
        return code, msgspec.json.decode(file.read_bytes(), type=ProcessReport)


def write_report(used: UsedFiles, error: OffbookError | None = None) -> None:
    """Write the report of this process."""
    # What tests write is no reason to run them again, nor is what pytest and Offbook keep of runs.
    files = {
        path: digest
        for path, digest in used.digests.items()
        if path not in used.written
        and not os.path.isdir(path)  # noqa: PTH112 - a text
        and not path.endswith(IMPORTABLE)
        and KEPT.isdisjoint(Path(path).parts)
    }
    report = ProcessReport(files, used.unknown)
    if error is not None:
        report = ProcessReport(files, used.unknown, error.what, error.where, error.hint)
    Path(os.environ[VARIABLE]).write_bytes(msgspec.json.encode(report))


# --- The files of a project


def list_project_files(folder: Path) -> dict[str, str]:
    """Return the files of a project with their digests, for tests that start other programs.

    Hidden files, installed packages and what Python compiles are left out.
    """
    found: dict[str, str] = {}
    for root, folders, names in os.walk(folder):
        if "pyvenv.cfg" in names:
            folders.clear()
            continue
        skipped = {"node_modules", "__pycache__"}
        folders[:] = sorted(n for n in folders if n not in skipped and not n.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                path = os.path.join(root, name)  # noqa: PTH118 - a text
                found[path] = digest_of(path)
        if len(found) > MAX_FILES:
            break
    return found
