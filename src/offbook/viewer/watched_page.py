"""`offbook view --watch`: the page of tests that run again when a file that they used changes."""

from __future__ import annotations

import asyncio
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import UsageError
from offbook.files import find_own_files, make_temp_folder, remove_temp_folder
from offbook.runs.result_identity import digest_of
from offbook.runs.watched_tests import (
    PLUGIN,
    WatchedRun,
    WatchedTests,
    list_project_files,
    run_watched,
)
from offbook.viewer import watched_pytest
from offbook.viewer.html_page import PageTrace, encode_record, page_lines
from offbook.viewer.live_server import LiveFeed, LiveServer, ReviewDesk
from offbook.viewer.viewer_pytest import folder_of_test, read_test_traces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

POLL_SECONDS = 0.3
PATTERNS = ("test_*.py", "*_test.py")
NO_TESTS_COLLECTED = 5  # an exit code of pytest


class ResultsFeed(LiveFeed):
    """The lines of a page of tests. Each result replaces all lines before it."""

    def poll(self) -> None:
        """Read nothing: `show` has everything."""

    def show(self, traces: Iterable[PageTrace]) -> None:
        """Show these traces in place of those before."""
        first = len(self.lines)
        self.lines += [encode_record({"clear": True}), *page_lines(traces, self.path.name, [])]
        self.first = first


def find_test_files(paths: Sequence[Path]) -> list[Path]:
    """Return the test files of paths: files as they are, and those of folders."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_file():
            found[path] = None
        for pattern in PATTERNS:
            found |= dict.fromkeys(find_own_files(path, pattern))
    return list(found)


async def serve_tests(
    paths: Sequence[Path],
    desk: ReviewDesk,
    port: int,
    started: Callable[[LiveServer], None],
    announce: Callable[[Path, str], None],
) -> None:
    """Run the tests, serve their page, and run those again that a change affects, until cancelled.

    `started` gets the server when it serves, `announce` each test file before it runs, with the
    file that has changed.
    """
    for path in paths:
        if not path.exists():
            raise UsageError(f"no such file or folder: {path}", hint="name test files or folders")
    if not find_test_files(paths):
        names = ", ".join(map(str, paths))
        raise UsageError(f"no test files in {names}", hint=f"name one, or write {PATTERNS[0]}")
    root = make_temp_folder()
    feed = ResultsFeed(Path.cwd())
    server = LiveServer(feed, desk, port)
    tests = WatchedTests(lambda: find_test_files(paths), lambda file: _run(file, root))
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.run(lambda: started(server)))
            while True:
                if await asyncio.to_thread(tests.run_changed, announce):
                    feed.show([trace for file in tests.runs for trace in _read(file, root)])
                await asyncio.sleep(POLL_SECONDS)
    finally:
        remove_temp_folder(root)


def _run(file: Path, root: Path) -> WatchedRun:
    """Run a test file, and return the files that it used."""
    folder = folder_of_test(root, str(file.absolute()))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    digest = digest_of(file)
    words = ["-m", "pytest", "-q", "-p", PLUGIN, "-p", watched_pytest.__name__, str(file)]
    # The files that a worker of pytest-xdist uses are not known here.
    words += ["-n0"] if find_spec("xdist") else []
    code, report = run_watched(words, {watched_pytest.VARIABLE: str(folder)})
    files = {**report.files, str(file.absolute()): digest}
    if report.unknown:
        files = {**list_project_files(Path.cwd()), **files}
    return WatchedRun(0 if code == NO_TESTS_COLLECTED else code, files)


def _read(file: Path, root: Path) -> Iterable[PageTrace]:
    folder = folder_of_test(root, str(file.absolute()))
    outcomes = folder / watched_pytest.OUTCOMES
    if not outcomes.is_file():  # the process was killed
        return ()
    tests = msgspec.json.decode(outcomes.read_bytes(), type=dict[str, dict[str, Any]])
    return read_test_traces(folder, tests)
