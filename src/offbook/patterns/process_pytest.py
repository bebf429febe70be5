"""The processes in which `offbook pattern test` runs tests.

It is a plugin of pytest, and a program that runs files of steps: a pattern and the modules that it
imports are loaded again for each run.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from offbook.cli_options import echo
from offbook.errors import OffbookError
from offbook.patterns.steps import run_steps_file
from offbook.runs.result_identity import watch_used_files
from offbook.runs.watched_tests import write_report

if TYPE_CHECKING:
    import pytest

# --- pytest


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
            echo(f"{path}: {step.name} {step.status.upper()}{detail}")
        failed = failed or not result.passed
    return int(failed)


if __name__ == "__main__":
    code, failure = 2, None
    with watch_used_files() as used_files:
        try:
            code = run_step_files([Path(name) for name in sys.argv[1:]])
        except OffbookError as raised:
            failure = raised
    write_report(used_files, failure)
    sys.exit(code)
