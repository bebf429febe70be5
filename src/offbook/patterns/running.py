"""Finding and running the tests of patterns.

Every call runs them: a pattern may read any file, so nothing shows that a pass still holds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from offbook.errors import UsageError
from offbook.patterns.imported_pytest import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_TESTS_COLLECTED = 5  # an exit code of pytest
NAMES = ("test_{stem}.py", "{stem}_test.py", "{stem}.steps.yaml", "{stem}.steps.json")


class PatternTest(msgspec.Struct, frozen=True):
    """A pattern and its tests."""

    pattern: Path
    tests: tuple[Path, ...]


class Outcome(msgspec.Struct, frozen=True):
    """The end of a test run, and the files that it used."""

    exit_code: int
    files: tuple[str, ...] = ()


def find_tests(pattern: Path, test: Path | None = None) -> list[PatternTest]:
    """Find the tests of a pattern, or of all patterns of a folder.

    The order: the given path, the folder `__tests__` beside the pattern, the same folder.
    """
    root = Path.cwd().resolve()
    for path in (pattern, *([test] if test else [])):
        if not path.exists():
            raise UsageError("no such file", where=str(path))
        if not path.resolve().is_relative_to(root):
            raise UsageError(
                f"{path} is outside of the project {root}",
                hint="run the command in the folder that contains both",
            )
    if test is not None:
        return [PatternTest(pattern, (test,))]
    if pattern.is_dir():
        files = sorted(
            file
            for file in pattern.rglob("*.py")
            if not file.name.startswith("test_") and not file.stem.endswith("_test")
        )
        found = [PatternTest(file, tests) for file in files if (tests := _tests_beside(file))]
        if not found:
            raise UsageError("no pattern with tests in this folder", where=str(pattern))
        return found
    tests = _tests_beside(pattern)
    if not tests:
        raise UsageError(
            f"no tests for {pattern}",
            hint=f"write {pattern.with_name(f'test_{pattern.stem}.py')}, "
            f"or generate it: offbook pattern test {pattern} --scaffold",
        )
    return [PatternTest(pattern, tests)]


def _tests_beside(pattern: Path) -> tuple[Path, ...]:
    for folder in (pattern.parent / "__tests__", pattern.parent):
        names = [folder / name.format(stem=pattern.stem) for name in NAMES]
        if found := tuple(path for path in names if path.is_file()):
            return found
    return ()


def run_tests(job: PatternTest, *, name_filter: str = "") -> Outcome:
    """Run the tests of a pattern."""
    python_tests = [path for path in job.tests if path.suffix == ".py"]
    steps = [path for path in job.tests if path.suffix != ".py"]
    exit_code, files = 0, {str(path.resolve()) for path in (job.pattern, *job.tests)}
    if python_tests:
        exit_code, imported = _run_pytest(python_tests, name_filter)
        files |= set(imported)
    if steps:
        # A filter selects whole files of steps: a step alone has no meaning.
        matching = [path for path in steps if name_filter.lower() in path.name.lower()]
        if not matching and not python_tests:
            raise UsageError(
                f"no file of steps matches the filter {name_filter!r}",
                hint=f"a filter is a part of a name: {', '.join(path.name for path in steps)}",
            )
        if matching and exit_code == NO_TESTS_COLLECTED:
            exit_code = 0  # the filter selects steps only
        exit_code = _run_step_files(matching) or exit_code
    return Outcome(exit_code, tuple(sorted(files)))


def _run_pytest(tests: list[Path], name_filter: str) -> tuple[int, list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        listing = Path(folder) / "files.json"
        command = [sys.executable, "-m", "pytest", "-p", "offbook.patterns.imported_pytest"]
        command += [str(test) for test in tests]
        if name_filter:
            command += ["-k", name_filter]
        # pytest gets Ctrl-C from the terminal itself, and prints its summary.
        process = subprocess.Popen(  # noqa: S603 - pytest, without a shell
            command, env={**os.environ, VARIABLE: str(listing)}
        )
        try:
            code = process.wait()
        except BaseException:
            process.wait()
            raise
        imported: list[str] = (
            json.loads(listing.read_text(encoding="utf-8")) if listing.exists() else []
        )
    return code, imported


def _run_step_files(paths: Iterable[Path]) -> int:
    from offbook.patterns.harness import run_steps_file

    failed = False
    for path in paths:
        result = run_steps_file(path)
        for step in result.results:
            detail = f": {step.message}" if step.message else ""
            sys.stdout.write(f"{path}: {step.name} {step.status.upper()}{detail}\n")
        failed = failed or not result.passed
    return int(failed)
