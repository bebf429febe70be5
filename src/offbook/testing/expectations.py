"""What a suite says when a promise is not kept."""

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


# --- What a suite says when a promise is not kept.


def expect(kept: object, promise: str, came: object = "") -> None:
    """Fail with the promise, and with what came instead."""
    if not kept:
        raise CheckFailed(f"{promise}{f', but got: {came!r}' if came != '' else ''}")


def skip(why: str) -> NoReturn:
    """Leave a promise out that this kind does not make; pytest shows it as skipped."""
    raise SkipTest(why)


# --- Sees what somebody leaves behind in this process: tasks, threads, processes, files, settings.


@contextmanager
def no_leftovers() -> Generator[None]:
    """Fail when there is more afterwards than there was before."""
    with tempfile.TemporaryDirectory(prefix="offbook-testing-") as folder, _temporary(folder):
        before = _settings()
        threads, children = _threads(), _children()
        yield
        expect(_threads() <= threads, "no thread is left running", _threads() - threads)
        expect(_children() <= children, "no process is left running", _children() - children)
        files = sorted(str(file.relative_to(folder)) for file in Path(folder).rglob("*"))
        expect(not files, "no temporary file is left", files)
        for name, value in _settings().items():
            expect(value == before[name], f"{name} is as it was", value)


@contextmanager
def no_task_leaks() -> Generator[None]:
    """Fail when tasks of the running event loop outlive what is done inside."""
    before = asyncio.all_tasks()
    yield
    left = [task.get_name() for task in asyncio.all_tasks() - before if not task.done()]
    expect(not left, "no task is left running", left)


@contextmanager
def _temporary(folder: str) -> Generator[None]:
    """Let all temporary files be made here, by this process and its children."""
    was, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir, os.environ["TMPDIR"] = folder, folder
    try:
        yield
    finally:
        tempfile.tempdir = was
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
    return {thread.name for thread in threading.enumerate() if not thread.daemon}


def _children() -> set[int]:
    """The processes that this one has started; none where the system does not tell."""
    found: set[int] = set()
    for file in Path("/proc/self/task").glob("*/children"):
        found.update(int(pid) for pid in file.read_text().split())
    return found
