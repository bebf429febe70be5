"""`offbook conformance`: source files, each with an expectation in the same folder.

    sum.py            the source
    sum.expected      the exact standard output; the command succeeds
    divide.py
    divide.error      a part of the message; the command fails

A line of `.error` is a text, or a regular expression after `re:`. Of several lines, one has to be
found. A source that is known to fail says so in one of its first lines: `# @xfail: the reason`. The
settings of a suite have the command of each extension.

As many cases run at a time as there are jobs; their output is compared.
"""

from __future__ import annotations

import os
import re
import selectors
import shlex
import socket
import subprocess
import sys
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import click
import msgspec

from offbook.checks.expected_files import diff_texts, in_ci
from offbook.cli_options import FILE_PATH, FiniteFloat, ProgressLine, echo, json_option, print_json
from offbook.conformance.case_worker import CaseExit, receive_message, send_message
from offbook.errors import UsageError
from offbook.files import convert, parse_toml, read_text, require_folder, write_atomic
from offbook.options import Count, Seconds, require_some
from offbook.trace.matching import compile_check, compile_pattern

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence


EXPECTED, ERROR = ".expected", ".error"
REGEX = "re:"
XFAIL = re.compile(rb"@xfail\b:?[ \t]*(.*)")
XFAIL_LINES = 50
COMMENT_ENDS = ("*/", "-->", "*)", "--}}")


class ConformanceCase(msgspec.Struct, frozen=True):
    """A source file and its expectation; without one, the case fails."""

    name: str
    source: str
    command: tuple[str, ...]
    expected: bytes | None = None
    error: str | None = None
    xfail: str = ""
    problem: str = ""


def find_cases(
    folder: Path, settings: SuiteSettings, name_filter: str = ""
) -> list[ConformanceCase]:
    """Return the cases of a folder and its subfolders, sorted by name.

    The settings have the command of each extension. With one command for all, the extensions are
    those of the files that have an expectation.
    """
    require_folder(folder)
    check_filter(name_filter)
    sources, expectations = _list_files(folder, settings)
    refused = [
        f"{stem}{EXPECTED} and {stem.name}{ERROR}"
        for stem, suffixes in sorted(expectations.items())
        if len(suffixes) > 1
    ]
    if refused:
        raise UsageError(
            f"two expectations for one case: {', '.join(refused)}",
            hint="a case either succeeds or fails: remove one of the files",
        )
    cases: list[ConformanceCase] = []
    for path in sources:
        name = path.relative_to(folder).as_posix()
        if matches_filter(name_filter, name):
            suffix = next(iter(expectations.get(path.with_suffix(""), ())), "")
            cases.append(_read_case(path, name, suffix, settings))
    stems = {path.with_suffix("") for path in sources}
    for stem, (suffix, *_) in sorted(expectations.items()):
        name = f"{stem.relative_to(folder).as_posix()}{suffix}"
        if stem not in stems and matches_filter(name_filter, name):
            others = [path.suffix for path in stem.parent.glob(f"{escape(stem.name)}.*")]
            kinds = sorted({*others} - {EXPECTED, ERROR})
            problem = (
                f"no command for {', '.join(kinds)}: --run '{kinds[0]}=COMMAND {{file}}'"
                if kinds
                else "no source file for this expectation"
            )
            cases.append(ConformanceCase(name, str(stem) + suffix, (), problem=problem))
    return sorted(cases, key=lambda case: case.name)


def _list_files(folder: Path, settings: SuiteSettings) -> tuple[list[Path], dict[Path, list[str]]]:
    """Return the source files, and the kinds of expectations by their path without suffix."""
    files: list[Path] = []
    expectations: defaultdict[Path, list[str]] = defaultdict(list)
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if not path.is_file() or any(part.startswith(".") for part in relative.parts):
            continue
        if any(fnmatchcase(relative.as_posix(), pattern) for pattern in settings.exclude):
            continue
        if path.suffix in (EXPECTED, ERROR):
            expectations[path.with_suffix("")].append(path.suffix)
        else:
            files.append(path)
    extensions = {f".{name}" for name in settings.run}
    if "*" in settings.run:
        extensions |= {path.suffix for path in files if path.with_suffix("") in expectations}
    return [path for path in files if path.suffix in extensions], expectations


def _read_case(path: Path, name: str, suffix: str, settings: SuiteSettings) -> ConformanceCase:
    words = settings.command(path.suffix.removeprefix(".")) or []
    command = tuple(word.replace("{file}", str(path)) for word in words)
    found = XFAIL.search(b"\n".join(path.read_bytes().split(b"\n", XFAIL_LINES)[:XFAIL_LINES]))
    reason = found[1].decode("utf-8", "replace").strip() if found else ""
    for end in COMMENT_ENDS:
        reason = reason.removesuffix(end).rstrip()
    if found and not reason:
        raise UsageError("@xfail has no reason", where=str(path), hint="# @xfail: the reason")
    case = ConformanceCase(name, str(path), command, xfail=reason)
    if not suffix:
        beside = f"{path.with_suffix(EXPECTED).name} or {path.with_suffix(ERROR).name}"
        return msgspec.structs.replace(case, problem=f"no expectation: write {beside}")
    target = path.with_suffix(suffix)
    if suffix == EXPECTED:
        return msgspec.structs.replace(case, expected=target.read_bytes())
    spec = target.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(spec.splitlines(), 1):
        if line.startswith(REGEX):  # an invalid one is refused before anything runs
            compile_check(line.removeprefix(REGEX).strip(), f"{target}:{number}")
    return msgspec.structs.replace(case, error=spec)


def matches_error(spec: str, actual: str) -> bool:
    """Return whether a message matches an `.error` file; an empty file matches every message.

    An invalid regular expression matches nothing.
    """
    lines = [line for line in spec.rstrip().split("\n") if line.strip()]
    return not lines or any(_contains(line, actual) for line in lines)


def _contains(line: str, actual: str) -> bool:
    if not line.startswith(REGEX):
        return line.rstrip("\r") in actual
    try:
        return compile_pattern(line.removeprefix(REGEX).strip()).search(actual) is not None
    except UsageError:
        return False


def matches_filter(name_filter: str, name: str) -> bool:
    """Return whether a filter selects a case: a part of its name, a glob, `re:…`, or `a|b`."""
    if name_filter.startswith(REGEX):
        return _contains(name_filter, name)
    # Of the special characters of fnmatch only `*` and `?`: names have brackets.
    return any(
        fnmatchcase(name, f"*{part.replace('[', '[[]')}*") for part in name_filter.split("|")
    )


def check_filter(name_filter: str) -> None:
    """Raise an error for a filter that is an invalid regular expression."""
    if name_filter.startswith(REGEX):
        compile_pattern(name_filter.removeprefix(REGEX).strip(), "--filter")


# --- Settings of a suite


SETTINGS_FILE = "conformance.toml"
FILE = "{file}"
ANY = "*"  # the command for every extension
EXTENSION = re.compile(r"\.(\w+)=(.*)", re.DOTALL)


class SuiteSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Commands by extension, and limits.

    - `run`: the command of each extension, or of `*` for every file that has an expectation.
    - `timeout`: seconds before a case is killed, with all its processes.
    - `max_output`: bytes of output before a case is killed.
    - `exclude`: source files that are not cases, as patterns of paths in the suite.
    """

    run: dict[str, str] = {}
    timeout: Seconds = 30.0
    max_output: Count = 8 * 1024 * 1024
    exclude: list[str] = []

    def command(self, extension: str) -> list[str] | None:
        """Return the words of the command for an extension, or None."""
        text = self.run.get(extension, self.run.get(ANY))
        return None if text is None else shlex.split(text)


def read_suite_settings(folder: Path, run: Sequence[str] = ()) -> SuiteSettings:
    """Read the settings of a folder. Commands of the command line come first.

    `run` are commands, each for all files or for one extension: `.js=node {file}`.
    """
    path = folder / SETTINGS_FILE
    settings = SuiteSettings()
    if path.is_file():
        settings = convert(parse_toml(read_text(path), path), SuiteSettings, path=path)
    given = {
        match[1] if (match := EXTENSION.fullmatch(text)) else ANY: match[2] if match else text
        for text in run
    }
    # A command for all files replaces those of the settings.
    commands = given if ANY in given else {**settings.run, **given}
    hint = f"--run 'python {FILE}', or a table [run] in {path}"
    require_some(commands, "no command to run the cases with", where=folder, hint=hint)
    for extension, text in commands.items():
        where = "--run" if extension in given else f"{path}, run.{extension}"
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise UsageError(f"invalid command {text!r}: {error}", where=where) from error
        if not any(FILE in word for word in words):
            raise UsageError(
                f"the command {text!r} does not name the file",
                where=where,
                hint=f"write {FILE} where its path belongs: '{text} {FILE}'",
            )
    return msgspec.structs.replace(settings, run=commands)


CaseOutcome = Literal["passed", "failed", "xfailed", "xpassed", "updated"]
MAX_TAIL = 10  # lines of stderr in a message


class ConformanceResult(msgspec.Struct, frozen=True):
    """The result of a case. `xpassed`, a known failure that passes, is a failure of the run."""

    name: str
    outcome: CaseOutcome
    millis: float = 0.0
    message: str = ""
    diff: tuple[str, ...] = ()
    leaked: int = 0

    @property
    def failed(self) -> bool:
        """True if the case fails the run."""
        return self.outcome in {"failed", "xpassed"}


def run_cases(
    cases: Sequence[ConformanceCase],
    settings: SuiteSettings,
    *,
    jobs: int = 1,
    update: bool = False,
) -> Generator[ConformanceResult]:
    """Run cases; yield each result when the case ends, in no particular order."""
    runnable: list[ConformanceCase] = []
    for case in cases:
        # An expectation is not written for a known failure either.
        if case.problem and not (update and case.command and not case.xfail):
            yield ConformanceResult(case.name, "failed", message=case.problem)
        else:
            runnable.append(case)
    endings = run_commands(runnable, jobs, settings.timeout, settings.max_output)
    for case, ended in endings:
        message, diff = compare(case, ended, settings)
        outcome: CaseOutcome = "failed" if message else "passed"
        if case.xfail and not ended.error:  # a command that did not start is not the known failure
            outcome = "xfailed" if message else "xpassed"
            text = f"it passes: remove @xfail ({case.xfail})"
            message, diff = (case.xfail, ()) if message else (text, ())
        elif message and update and (target := update_expectation(case, ended)):
            outcome, message, diff = "updated", f"wrote {target}", ()
        yield ConformanceResult(
            case.name, outcome, ended.seconds * 1000, message, diff, ended.leaked
        )


def compare(
    case: ConformanceCase, ended: CaseExit, settings: SuiteSettings
) -> tuple[str, tuple[str, ...]]:
    """Return the reason why a case fails, or an empty text, and the difference."""
    if limit := _exceeded_limit(ended, settings):
        return limit, ()
    if case.problem:
        return case.problem, ()
    stderr = ended.stderr.decode("utf-8", "replace")
    if case.error is not None:
        text = f"{stderr}\n{ended.stdout.decode('utf-8', 'replace')}"
        if ended.code == 0:
            return f"expected an error, got exit code 0: {_first_line(case.error)}", ()
        if matches_error(case.error, text):
            return "", ()
        return f"the error does not match: {_first_line(case.error)}", _tail(text)
    if ended.code != 0:
        return f"exit code {ended.code}", _tail(stderr)
    expected, actual = case.expected or b"", ended.stdout
    # Editors add a newline to the last line, programs may not.
    if expected.removesuffix(b"\n") == actual.removesuffix(b"\n"):
        return "", ()
    return "the output differs", _diff(expected, actual)


def _exceeded_limit(ended: CaseExit, settings: SuiteSettings) -> str:
    if ended.error:
        return ended.error
    if ended.timed_out:
        return f"killed after {settings.timeout:g} s"
    if ended.too_long:
        return f"killed after {settings.max_output:,} bytes of output"
    return ""


def _diff(expected: bytes, actual: bytes) -> tuple[str, ...]:
    # The trailing carriage return of a line is a difference that one has to see.
    before, after = (
        "".join(f"{repr(line)[1:-1]}\n" for line in data.decode("utf-8", "replace").split("\n"))
        for data in (expected, actual)
    )
    hunks = diff_texts(before, after).hunks
    return ("--- expected", "+++ actual", *(line for h in hunks for line in h.content.split("\n")))


def _tail(text: str) -> tuple[str, ...]:
    lines = text.strip().splitlines()
    return tuple(["…", *lines[-MAX_TAIL:]] if len(lines) > MAX_TAIL else lines)


def _first_line(spec: str) -> str:
    lines = spec.strip().splitlines() or ["any error"]
    return lines[0] if len(lines) == 1 else f"{lines[0]} (or {len(lines) - 1} more)"


def update_expectation(case: ConformanceCase, ended: CaseExit) -> Path | None:
    """Write the output of a case as its expectation; return the file, or None.

    The message of an `.error` file is written by a person, who knows which part of it matters, so
    an existing one is kept. A case that was killed by a limit has no result.
    """
    source = Path(case.source)
    if ended.timed_out or ended.too_long or ended.error or case.error is not None:
        return None
    if ended.code == 0:
        write_atomic(source.with_suffix(EXPECTED), ended.stdout)
        return source.with_suffix(EXPECTED)
    message = _tail(ended.stderr.decode("utf-8", "replace"))
    if case.expected is not None or not message:
        return None  # a program that worked and fails now keeps its expectation
    write_atomic(source.with_suffix(ERROR), f"{message[-1]}\n")
    return source.with_suffix(ERROR)


# --- Workers: as many cases at a time as there are jobs


WORKER_END = 10.0  # seconds for a worker to kill its case


class Worker(NamedTuple):
    """A process that runs cases, and the socket to it."""

    process: subprocess.Popen[bytes]
    channel: socket.socket

    def close(self) -> None:
        """End the worker, and with it the case that it runs."""
        self.channel.close()
        self.process.wait(WORKER_END)


def start_worker() -> Worker:
    """Start a worker in its own session, so that Ctrl-C does not interrupt it."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(  # noqa: S603 - our own module
            # -P: a file in the folder of the user must not replace a module.
            [sys.executable, "-P", "-m", "offbook.conformance.case_worker", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return Worker(process, ours)


def run_commands(
    cases: Iterable[ConformanceCase], jobs: int, timeout: float, max_output: int
) -> Generator[tuple[ConformanceCase, CaseExit]]:
    """Run the commands of cases; yield each case when it ends."""
    waiting = iter(cases)
    with ExitStack() as stack, selectors.DefaultSelector() as selector:

        def start_next(worker: Worker | None) -> None:
            case = next(waiting, None)
            if case is None:
                return
            if worker is None:
                worker = start_worker()
                stack.callback(worker.close)
            send_message(worker.channel, (list(case.command), timeout, max_output))
            selector.register(worker.channel, selectors.EVENT_READ, (worker, case))

        for _ in range(jobs):
            start_next(None)
        while selector.get_map():
            for key, _ in selector.select():
                worker, case = key.data
                selector.unregister(key.fileobj)
                message = receive_message(worker.channel)
                # The worker has the next case before the result of this one is looked at.
                start_next(worker if message is not None else None)
                if message is None:
                    yield (
                        case,
                        CaseExit(-1, b"", b"", 0.0, error="the process of the case was killed"),
                    )
                else:
                    yield case, CaseExit(*message)


MAX_DIFF = 12  # lines of a difference without -v
SLOWEST = 10
MARKS = {
    "passed": "PASS",
    "failed": "FAIL",
    "xfailed": "XFAIL",
    "xpassed": "XPASS",
    "updated": "WRITE",
}
EXAMPLE = """\b
Example:
  offbook conformance tests/ --run 'python {file}'
  offbook conformance tests/ --run '.js=node {file}' --filter 'parser|re:^errors/'
  offbook conformance tests/ --update

A source passes if its output is that of NAME.expected, or if it fails with a text of NAME.error.
Commands and limits can be settings: conformance.toml in the folder.

\b
Exit codes:
  0  every case passed, or failed as its @xfail says
  1  a case failed, has no expectation, or none was selected
  2  wrong usage
"""


@click.command(epilog=EXAMPLE)
@click.argument("folder", type=FILE_PATH, metavar="DIR")
@click.option(
    "--run", multiple=True, metavar="[.EXT=]COMMAND", help="Command; {file} is the source."
)
@click.option("--filter", "name_filter", default="", help="A part of a name, a glob, re:…, or a|b.")
@click.option("-v", "--verbose", is_flag=True, help="Show every case, and whole differences.")
@click.option("--timing", is_flag=True, help="Show the times, and the slowest cases.")
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Cases at a time; default: the number of CPUs."
)
@click.option(
    "--timeout",
    type=FiniteFloat(min=0, min_open=True),
    help="Seconds before a case is killed; default: 30.",
)
@click.option("--update", is_flag=True, help="Write the output as the new expectation.")
@click.option("--junit", type=FILE_PATH, help="Write a JUnit report to this file.")
@json_option
def conformance(  # noqa: PLR0913 - the options of the command
    folder: Path,
    *,
    run: tuple[str, ...],
    name_filter: str,
    verbose: bool,
    timing: bool,
    jobs: int | None,
    timeout: float | None,
    update: bool,
    junit: Path | None,
    as_json: bool,
) -> int:
    """Run a command on the source files of DIR and compare its output."""
    require_folder(folder)
    if update and in_ci():
        raise UsageError(
            "--update is refused in CI (the variable CI is set)",
            hint="update on your machine and commit the files",
        )
    settings = read_suite_settings(folder, run)
    if timeout is not None:
        settings = msgspec.structs.replace(settings, timeout=timeout)
    cases = find_cases(folder, settings, name_filter)
    if not cases:
        selected = f" for --filter {name_filter!r}" if name_filter else ""
        echo(f"no cases in {folder}{selected}: nothing was checked", err=True)
        return 1
    started = time.monotonic()
    progress = ProgressLine()
    results: list[ConformanceResult] = []
    try:
        for result in run_cases(cases, settings, jobs=jobs or os.cpu_count() or 1, update=update):
            results.append(result)
            progress.show(lambda: _count_cases(results, len(cases)))
            if not as_json and (verbose or result.outcome not in {"passed", "xfailed"}):
                progress.clear()
                echo(render(result, verbose=verbose, timing=timing or verbose))
    finally:
        progress.clear()
    results.sort(key=lambda result: result.name)
    seconds = time.monotonic() - started
    if junit is not None:
        _write_junit(junit, folder, results, seconds)
    if as_json:
        print_json(summarise(results, seconds))
    else:
        if timing:
            echo(render_timing(results))
        echo(render_summary(results, seconds))
    return int(any(result.failed for result in results))


def _count_cases(results: list[ConformanceResult], total: int) -> str:
    failed = sum(result.failed for result in results)
    return f"{len(results)}/{total}{f', {failed} failed' if failed else ''}"


def render(result: ConformanceResult, *, verbose: bool, timing: bool) -> str:
    """Return a case with its result, and its difference."""
    seconds = f" ({result.millis:.0f} ms)" if timing else ""
    message = f": {result.message}" if result.message else ""
    lines = list(result.diff)
    if not verbose and len(lines) > MAX_DIFF:
        lines = [*lines[:MAX_DIFF], f"… {len(lines) - MAX_DIFF} more lines; -v shows all"]
    if result.leaked and verbose:
        lines.append(f"killed {result.leaked} processes that it left behind")
    return "\n  ".join([f"{MARKS[result.outcome]:5} {result.name}{seconds}{message}", *lines])


def render_summary(results: Iterable[ConformanceResult], seconds: float) -> str:
    """Return the number of cases by result."""
    counts = Counter(result.outcome for result in results)
    shown = {"passed": counts["passed"], "failed": counts["failed"] + counts["xpassed"]}
    shown |= {name: counts[name] for name in ("xfailed", "updated") if counts[name]}
    parts = [f"{number} {name}" for name, number in shown.items()]
    return f"{', '.join(parts)}, {counts.total()} total in {seconds:.1f} s"


def render_timing(results: list[ConformanceResult]) -> str:
    """Return the average, percentiles and the slowest cases."""
    times = sorted(result.millis for result in results)
    lines = [f"average {sum(times) / len(times):.0f} ms"]
    lines += [
        f"p{p} {times[min(len(times) * p // 100, len(times) - 1)]:.0f} ms" for p in (50, 95, 99)
    ]
    slowest = sorted(results, key=lambda result: -result.millis)[:SLOWEST]
    rows = [f"{result.millis:8.0f} ms  {result.name}" for result in slowest]
    return "\n".join([", ".join(lines), "slowest:", *rows])


def summarise(results: list[ConformanceResult], seconds: float) -> dict[str, object]:
    """Return the results for scripts. The names of the keys do not change."""
    counts = Counter(result.outcome for result in results)
    return {
        "ok": not any(result.failed for result in results),
        "summary": {
            **{name: counts[name] for name in MARKS},
            "total": len(results),
            "seconds": round(seconds, 3),
        },
        "results": [
            {**msgspec.to_builtins(result), "millis": round(result.millis, 3)} for result in results
        ],
    }


def _write_junit(
    path: Path, folder: Path, results: list[ConformanceResult], seconds: float
) -> None:
    from offbook.reports.report import Case, CaseStatus, JUnitReport, Suite, portable_name
    from offbook.secrets import hide_secrets

    def status(result: ConformanceResult) -> CaseStatus:
        if result.outcome == "xfailed":
            return "skipped"
        return "failed" if result.failed else "passed"

    cases = [
        Case(
            portable_name(result.name),
            status(result),
            millis=round(result.millis),
            message=hide_secrets("\n".join([result.message, *result.diff])),
            kind=result.outcome,
        )
        for result in results
    ]
    suite = Suite(portable_name(str(folder)), tuple(cases), 0, round(seconds * 1000))
    write_atomic(path, JUnitReport().render(suite))
