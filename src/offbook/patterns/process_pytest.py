"""The processes in which `offbook pattern test` runs tests. Each notes the files that it used.

It is a plugin of pytest, and a program that runs files of steps: a pattern and the modules that it
imports are loaded anew for each run.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from offbook.errors import OffbookError
from offbook.patterns.harness import run_steps_file
from offbook.runs.result_identity import UsedFiles, watch_used_files

if TYPE_CHECKING:
    import pytest

VARIABLE = "OFFBOOK_USED_FILES"


class ProcessReport(msgspec.Struct, frozen=True):
    """The files that a process used, with their digests, and an error that ended it."""

    files: dict[str, str] = {}
    error: str = ""
    where: str = ""
    hint: str = ""


def _write_report(used: UsedFiles, error: OffbookError | None = None) -> None:
    # What the tests wrote themselves is no reason to run them again.
    files = {
        path: digest
        for path, digest in used.digests.items()
        if path not in used.written and not os.path.isdir(path)  # noqa: PTH112 - a text
    }
    report = ProcessReport(files)
    if error is not None:
        report = ProcessReport(files, error.what, error.where, error.hint)
    Path(os.environ[VARIABLE]).write_bytes(msgspec.json.encode(report))


# --- pytest


def pytest_configure(config: pytest.Config) -> None:
    """Note the files until the end."""
    watching = ExitStack()
    used = watching.enter_context(watch_used_files())

    def finish() -> None:
        watching.close()
        _write_report(used)

    config.add_cleanup(finish)


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` that no other plugin runs."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


# --- Files of steps


def run_step_files(paths: list[Path]) -> int:
    """Run files of steps and print their results; return the exit code."""
    failed = False
    for path in paths:
        result = run_steps_file(path)
        for step in result.results:
            detail = f": {step.message}" if step.message else ""
            sys.stdout.write(f"{path}: {step.name} {step.status.upper()}{detail}\n")
        failed = failed or not result.passed
    return int(failed)


if __name__ == "__main__":
    code, failure = 2, None
    with watch_used_files() as used_files:
        try:
            code = run_step_files([Path(name) for name in sys.argv[1:]])
        except OffbookError as raised:
            failure = raised
    _write_report(used_files, failure)
    sys.exit(code)
