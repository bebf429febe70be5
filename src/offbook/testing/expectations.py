"""The expectations of the suites: rules with a message, and the search for leaked resources."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from unittest import SkipTest

from offbook.errors import CheckFailed

if TYPE_CHECKING:
    from collections.abc import Generator

ENDING_SECONDS = 5.0


def expect(ok: object, rule: str, got: object = "") -> None:
    """Fail with the rule and the actual value, unless `ok` is true."""
    if not ok:
        raise CheckFailed(f"{rule}{f', got {got!r}' if got != '' else ''}")


def skip(reason: str) -> NoReturn:
    """Skip a rule that does not apply; pytest and unittest report it as skipped."""
    raise SkipTest(reason)


@contextmanager
def no_leftovers() -> Generator[None]:
    """Fail if threads, processes, files or changed settings of this process remain."""
    # An empty folder for temporary files: whatever is in it afterwards was left behind.
    with tempfile.TemporaryDirectory(prefix="offbook-testing-") as folder, _use_temp(folder):
        before = _settings()
        threads, children = _threads(), _children()
        yield
        # A worker that was told to end, such as AnyIO's, may need a moment for it.
        for thread in threading.enumerate():
            if thread.name not in threads and not thread.daemon:
                thread.join(ENDING_SECONDS)
        expect(_threads() <= threads, "no thread must be left running", _threads() - threads)
        expect(_children() <= children, "no process must be left running", _children() - children)
        files = sorted(str(file.relative_to(folder)) for file in Path(folder).rglob("*"))
        expect(not files, "no temporary file must be left", files)
        for name, value in _settings().items():
            expect(value == before[name], f"{name} must be restored", value)


@contextmanager
def no_task_leaks() -> Generator[None]:
    """Fail if tasks that were started inside are still running at the end."""
    before = asyncio.all_tasks()
    yield
    running = [task.get_name() for task in asyncio.all_tasks() - before if not task.done()]
    expect(not running, "no task must be left running", running)


@contextmanager
def _use_temp(folder: str) -> Generator[None]:
    """Create all temporary files here, in this process and its children."""
    previous, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir, os.environ["TMPDIR"] = folder, folder
    try:
        yield
    finally:
        tempfile.tempdir = previous
        if variable is None:
            os.environ.pop("TMPDIR", None)
        else:
            os.environ["TMPDIR"] = variable


def _settings() -> dict[str, object]:
    return {
        "the working directory": Path.cwd(),
        "sys.path": list(sys.path),
        "the environment": dict(os.environ),
    }


def _threads() -> set[str]:
    # Daemon threads may belong to the interpreter or to a library; they end with the process.
    return {thread.name for thread in threading.enumerate() if not thread.daemon}


def _children() -> set[int]:
    # Linux only; on other systems leaked processes are not detected.
    files = Path("/proc/self/task").glob("*/children")
    return {int(pid) for file in files for pid in file.read_text().split()}
