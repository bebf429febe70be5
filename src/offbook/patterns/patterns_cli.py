"""The command `offbook pattern test`."""

from __future__ import annotations

import ast
import inspect
import os
import select
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from offbook.cli_options import echo, json_option, print_json
from offbook.errors import UsageError, name_some
from offbook.files import find_own_files, require_new, write_atomic
from offbook.options import require_some
from offbook.patterns.graph import Computed
from offbook.patterns.harness import create_harness
from offbook.patterns.runtime import Cell, Stream
from offbook.patterns.values import thaw
from offbook.runs.result_identity import digest_of
from offbook.runs.watched_tests import PLUGIN, WatchedRun, WatchedTests, run_watched

if TYPE_CHECKING:
    from offbook.patterns.definition import Pattern

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
    if scaffold:
        return write_scaffold(pattern)
    jobs = find_tests(pattern, test)
    if test is None and (left_out := find_left_out(pattern, jobs)):
        echo(f"offbook: not run: {name_some(left_out)}\n{LEFT_OUT_HINT}", err=True)
    tests = WatchedTests(lambda: jobs, partial(run_tests, name_filter=name_filter))
    tests.run_changed()  # all of them: none has run yet
    if watch:
        return _watch(tests)
    if as_json:
        print_json(
            [
                {
                    "pattern": str(job.pattern),
                    "tests": [str(path) for path in job.tests],
                    "passed": run.exit_code == 0,
                }
                for job, run in tests.runs.items()
            ]
        )
    return tests.exit_code


def _watch(tests: WatchedTests[PatternTest]) -> int:
    """Run the jobs whose files change, until the user quits."""

    def announce(_: PatternTest, changed: str) -> None:
        echo(f"offbook: {os.path.relpath(changed)} changed", err=True)

    echo(WATCHING, err=True)
    while True:
        if tests.run_changed(announce):
            echo(WATCHING, err=True)
        # Waiting for input and for the next look at the files is one thing.
        readable, _, _ = select.select([sys.stdin], [], [], POLL_SECONDS)
        if readable:
            line = sys.stdin.readline()
            if line.strip() == "q" or not line:
                return tests.exit_code


def write_scaffold(path: Path) -> int:
    """Write a first test next to a pattern file."""
    from offbook.patterns.definition import load_pattern

    file, _, name = path.name.partition(":")  # FILE.py:NAME selects one of several patterns
    target = path.with_name(f"test_{Path(file).stem}{f'_{name}' if name else ''}.py")
    write_atomic(require_new(target, "test"), scaffold_test(load_pattern(path), path.name))
    run = f"{path.with_name(file)} {target}" if name else path
    echo(f"wrote {target}; run it: offbook pattern test {run}")
    return 0


# ----------------------------------------------------------------------------------- running

NO_TESTS_COLLECTED = 5  # an exit code of pytest
PROCESS = "offbook.patterns.process_pytest"
NAMES = (
    *("test_{stem}.py", "{stem}_test.py"),
    *("{stem}.steps.yaml", "{stem}.steps.yml", "{stem}.steps.json"),
)
LEFT_OUT_HINT = "name a test as its pattern, or give both: offbook pattern test PATTERN TEST"


class PatternTest(msgspec.Struct, frozen=True):
    """A pattern and its tests."""

    pattern: Path
    tests: tuple[Path, ...]


def find_tests(pattern: Path, test: Path | None = None) -> list[PatternTest]:
    """Find the tests of a pattern, or of all patterns of a folder.

    The order: the given path, the folder `__tests__` next to the pattern, the same folder.
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
        files = [
            file
            for file in find_own_files(pattern, "*.py")
            if not file.name.startswith((".", "test_")) and not file.stem.endswith("_test")
        ]
        found = [PatternTest(file, tests) for file in files if (tests := _tests_beside(file))]
        left_out = find_left_out(pattern, found)
        hint = f"not run: {name_some(left_out)}\n{LEFT_OUT_HINT}" if left_out else ""
        what = "no pattern with tests in this folder"
        return require_some(found, what, where=pattern, hint=hint)
    tests = _tests_beside(pattern)
    own = pattern.with_name(f"test_{pattern.stem}.py")
    hint = f"write {own}, or generate it: offbook pattern test {pattern} --scaffold"
    require_some(tests, f"no tests for {pattern}", hint=hint)
    return [PatternTest(pattern, tests)]


def _tests_beside(pattern: Path) -> tuple[Path, ...]:
    for folder in (pattern.parent / "__tests__", pattern.parent):
        names = [folder / name.format(stem=pattern.stem) for name in NAMES]
        if found := tuple(path for path in names if path.is_file()):
            return found
    return ()


def find_left_out(pattern: Path, jobs: list[PatternTest]) -> list[Path]:
    """Return the files with the name of a test of a pattern, or of a folder, that do not run."""
    run = {path for job in jobs for path in job.tests}
    if pattern.is_dir():
        named = [path for name in NAMES for path in find_own_files(pattern, name.format(stem="*"))]
    else:
        named = [pattern.with_name(name.format(stem=pattern.stem)) for name in NAMES]
    return sorted(path for path in named if path not in run and path.is_file())


def run_tests(job: PatternTest, *, name_filter: str = "") -> WatchedRun:
    """Run the tests of a pattern."""
    python_tests = [path for path in job.tests if path.suffix == ".py"]
    steps = [path for path in job.tests if path.suffix != ".py"]
    exit_code = 0
    files = {str(path.resolve()): digest_of(path) for path in (job.pattern, *job.tests)}
    if python_tests:
        words = ["-m", "pytest", "-p", PLUGIN, "-p", PROCESS, *map(str, python_tests)]
        exit_code, report = run_watched([*words, *(["-k", name_filter] if name_filter else [])])
        files |= report.files
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
        if matching:
            code, report = run_watched(["-m", PROCESS, *map(str, matching)])
            exit_code = code or exit_code
            files |= report.files
            if report.error:
                raise UsageError(report.error, where=report.where, hint=report.hint)
    return WatchedRun(exit_code, files)


# ---------------------------------------------------------------------------------- scaffold

SAMPLES: dict[Any, Any] = {int: 1, float: 1.5, str: "text", bool: True, list: [], dict: {}}
MAX_EVENTS = 10  # events that are tried until a handler accepts one


class EventTrial(NamedTuple):
    """One event for a handler: the cells afterwards, and the error if there was one."""

    event: Any
    cells: dict[str, Any]
    error: Exception | None
    waits: bool


def scaffold_test(pattern: Pattern, file_name: str) -> str:
    """Return the text of a test file that passes as it is.

    The expected values are those that the pattern has now. They have to be read and corrected by
    someone who knows what the pattern should do.
    """
    name = pattern.name
    state = {
        key: SAMPLES.get(kind, SAMPLES.get(getattr(kind, "__origin__", None)))
        for key, kind in pattern.input_types().items()
        if pattern.parameters[key].default is pattern.parameters[key].empty
    }
    load = f'h.load("{file_name}", {state!r})' if state else f'h.load("{file_name}")'
    values, streams, problems = _observe(pattern, state)
    if problems:
        first = str(problems[0]).splitlines()[0]
        return _refuse(pattern, f"loading the pattern fails: {first}")
    lines = [
        f'"""Tests of the pattern {name}. Generated: check each expected value."""',
        "",
        "from offbook.patterns import create_harness",
        "",
        "",
        f"def test_{name}_starts_with_its_initial_state():",
        "    with create_harness() as h:",
        f"        {name} = {load}",
        "        h.settled()",
    ]
    lines += [f"        assert {name}.result.{key} == {value}" for key, value in values.items()]
    if not values:
        lines += [f"        assert list({name}.outputs) == {streams!r}"]
    for key in streams:
        trial = _try_events(pattern, state, key, list(values))
        event = "" if trial.event is None else repr(trial.event)
        lines += [
            "",
            "",
            f"def test_{name}_{key}():",
            f"    with create_harness({'' if trial.error is None else 'expect_errors=1'}) as h:",
            f"        {name} = {load}",
            f"        {name}.result.{key}.send({event})",
            f"        h.{'settled' if trial.waits else 'idle'}()",
        ]
        if trial.error is not None:
            lines.append("        # TODO: send an event that the handler accepts")
            lines.append(f"        assert isinstance(h.errors[0], {_base(trial.error)})")
            continue
        shown = {cell: text for cell, after in trial.cells.items() if (text := _literal(after))}
        lines += [
            f"        assert {name}.cells.{cell}.get() == {text}" for cell, text in shown.items()
        ]
        if not shown:
            lines.append("        assert h.errors == []")
    return "\n".join([*lines, ""])


def _refuse(pattern: Pattern, reason: str) -> str:
    from offbook.errors import UsageError

    raise UsageError(
        f"no test for the pattern {pattern.name}: {reason}",
        where=pattern.location,
        hint="give its inputs defaults with which it works",
    )


def _observe(
    pattern: Pattern, state: dict[str, Any]
) -> tuple[dict[str, str], list[str], list[Exception]]:
    """Return the values of the outputs as Python text, the names of the handlers, and errors."""
    values: dict[str, str] = {}
    streams: list[str] = []
    harness = create_harness()
    try:
        loaded = harness.load(pattern, state)
        harness.settled()
        for name in loaded.outputs:
            output = loaded.outputs[name]
            if isinstance(output, Stream):
                streams.append(name)
            elif isinstance(output, (Cell, Computed)):
                try:
                    text = _literal(output.get())
                except Exception:  # noqa: BLE001, S112 - a value that needs another state is left out
                    continue
                # A value that differs on the second look cannot be asserted.
                if text and not any(output.name in line for line in harness.runtime.unstable):
                    values[name] = text
        return values, streams, list(harness.errors)
    finally:
        harness.dispose(check=False)


def _try_events(
    pattern: Pattern, state: dict[str, Any], name: str, values: list[str]
) -> EventTrial:
    """Send events until the handler accepts one: none, an empty one, one with the missing keys."""
    trial = first = _send(pattern, state, name, values, None)
    sample: Any = "text"
    for _ in range(MAX_EVENTS):
        error = trial.error
        if error is None:
            return trial
        event: dict[str, Any] = {} if trial.event is None else trial.event
        if isinstance(error, KeyError) and trial.event is not None and error.args[0] not in event:
            event = {**event, error.args[0]: sample}
        elif trial.event is not None and sample == "text":
            sample = 1  # the handler needs a number
            event = dict.fromkeys(event, sample)
        elif trial.event is not None:
            break
        trial = _send(pattern, state, name, values, event)
    return first


def _send(
    pattern: Pattern, state: dict[str, Any], name: str, values: list[str], event: Any
) -> EventTrial:
    harness = create_harness()
    try:
        loaded = harness.load(pattern, state)
        stream = loaded.outputs[name]
        stream.send(event)
        harness.settled()
        cells = {key: loaded.cells[key].get() for key in loaded.cells}
        error = harness.errors[0] if harness.errors else None
        if error is None and event is not None:
            try:
                _ = [loaded.result[key] for key in values]
            except Exception as raised:  # noqa: BLE001 - accepted, but the next reader fails
                error = raised
        return EventTrial(event, cells, error, inspect.iscoroutinefunction(stream.function))
    finally:
        harness.dispose(check=False)


def _literal(value: Any) -> str:
    """Return a value as Python text, or nothing if it cannot be written so."""
    text = repr(thaw(value))
    try:
        return text if ast.literal_eval(text) == value else ""
    except (SyntaxError, ValueError):
        return ""  # an object, or NaN


def _base(error: Exception) -> str:
    """Return the name of the nearest built-in class of an error, which needs no import."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")
