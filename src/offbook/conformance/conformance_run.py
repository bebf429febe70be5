"""Running cases, as many at a time as there are jobs, and comparing their output."""

from __future__ import annotations

import selectors
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from offbook.checks.expected_files import diff_texts
from offbook.conformance.case_worker import CaseExit, receive_message, send_message
from offbook.conformance.cases import ERROR, EXPECTED, matches_error
from offbook.files import write_atomic

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from offbook.conformance.cases import ConformanceCase, SuiteSettings


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
        if case.problem and not (update and case.command):
            yield ConformanceResult(case.name, "failed", message=case.problem)
        else:
            runnable.append(case)
    endings = run_commands(runnable, jobs, settings.timeout, settings.max_output)
    for case, ended in endings:
        message, diff = compare(case, ended, settings)
        outcome: CaseOutcome = "failed" if message else "passed"
        if case.xfail:
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
