"""The command `offbook pattern test`."""

from __future__ import annotations

import select
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from offbook.cli_options import json_option, print_json
from offbook.errors import UsageError
from offbook.files import write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.patterns.running import Outcome, PatternTest

POLL_SECONDS = 0.3
WATCHING = "offbook: watching for changes; q and Enter quits"
EXAMPLE = """\b
Example:
  offbook pattern test counter.py --scaffold
  offbook pattern test counter.py
  offbook pattern test counter.py tests/test_counter.py --filter increment
  offbook pattern test patterns/ --watch

\b
Exit codes:
  0  every test passed
  1  a test failed
  2  wrong usage, or a file that cannot be read
"""


@click.group(epilog=EXAMPLE)
def pattern() -> None:
    """Test reactive patterns."""


@pattern.command("test", epilog=EXAMPLE)
@click.argument("pattern", type=click.Path(path_type=Path), metavar="PATTERN")
@click.argument("test", type=click.Path(path_type=Path), required=False)
@click.option("--watch", is_flag=True, help="Run again when a file changes; quit with q.")
@click.option("--filter", "name_filter", default="", help="Run only tests whose names match.")
@click.option("--scaffold", is_flag=True, help="Write a first test for the pattern.")
@json_option
def test_command(
    pattern: Path,
    test: Path | None,
    *,
    watch: bool,
    name_filter: str,
    scaffold: bool,
    as_json: bool,
) -> int:
    """Run the tests of a pattern file, or of all patterns of a folder.

    Without TEST, they are searched in the folder of the pattern and in __tests__ there.
    """
    from offbook.patterns.running import find_tests, run_tests

    if scaffold:
        return write_scaffold(pattern)
    jobs = find_tests(pattern, test)
    started = time.time_ns()
    outcomes = [run_tests(job, name_filter=name_filter) for job in jobs]
    if watch:
        return _watch(jobs, outcomes, name_filter, started)
    if as_json:
        print_json(
            [
                {
                    "pattern": str(job.pattern),
                    "tests": [str(path) for path in job.tests],
                    "passed": outcome.exit_code == 0,
                }
                for job, outcome in zip(jobs, outcomes, strict=True)
            ]
        )
    return int(any(outcome.exit_code for outcome in outcomes))


def _watch(jobs: list[PatternTest], outcomes: list[Outcome], name_filter: str, started: int) -> int:
    """Run the jobs whose files change, until the user quits."""
    from offbook.patterns.running import run_tests

    # A file that was changed during its run has to run again.
    states = [
        {file: at if at <= started else -1 for file, at in _modified(outcome.files).items()}
        for outcome in outcomes
    ]
    codes = [outcome.exit_code for outcome in outcomes]
    click.echo(WATCHING, err=True)
    while True:
        for number, job in enumerate(jobs):
            state = _modified(states[number])
            if state == states[number]:
                continue
            click.echo(f"offbook: {job.pattern} changed", err=True)
            outcome = run_tests(job, name_filter=name_filter)
            codes[number] = outcome.exit_code
            states[number] = {**_modified(outcome.files), **state}
            click.echo(WATCHING, err=True)
        # Waiting for input and for the next look at the files is one thing.
        readable, _, _ = select.select([sys.stdin], [], [], POLL_SECONDS)
        if readable:
            line = sys.stdin.readline()
            if line.strip() == "q" or not line:
                return int(any(codes))


def _modified(files: Iterable[str]) -> dict[str, int]:
    """Return the time of the last change of each file; 0 for a file that is missing."""
    times: dict[str, int] = {}
    for file in files:
        try:
            times[file] = Path(file).stat().st_mtime_ns
        except OSError:
            times[file] = 0
    return times


def write_scaffold(path: Path) -> int:
    """Write a first test next to a pattern file."""
    from offbook.patterns.definition import load_pattern
    from offbook.patterns.scaffold import scaffold_test

    file, _, name = path.name.partition(":")  # FILE.py:NAME selects one of several patterns
    target = path.with_name(f"test_{Path(file).stem}{f'_{name}' if name else ''}.py")
    if target.exists():
        raise UsageError("the test exists already", where=str(target), hint="remove it first")
    write_atomic(target, scaffold_test(load_pattern(path), path.name))
    run = f"{path.with_name(file)} {target}" if name else path
    click.echo(f"wrote {target}; run it: offbook pattern test {run}")
    return 0
