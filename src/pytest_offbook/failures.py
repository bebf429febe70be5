"""The reports of failed tests: short tracebacks, no secrets, and annotations for GitHub Actions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import groupby
from linecache import getlines
from pathlib import Path
from sysconfig import get_path
from types import FunctionType, TracebackType
from typing import TYPE_CHECKING, Any, cast

import pytest

from offbook.surfaces import capabilities

if TYPE_CHECKING:
    from offbook.surfaces.pytest_session import Case

# --- Short tracebacks of failed runs: the lines of the test and of the agent's own code

ERRORS_MODULE = "offbook.errors"
OFFBOOK_FOLDER = str(Path(capabilities.__file__).parents[1])
RUN_FILE = str(Path(OFFBOOK_FOLDER) / "runs" / "rehearsal.py")
OWN_FOLDERS = (OFFBOOK_FOLDER, str(Path(__file__).parent))
# Frames of these folders are removed from the tracebacks of runs.
INTERNAL_FOLDERS = (
    *OWN_FOLDERS,
    *(get_path(name) for name in ("stdlib", "purelib", "platlib")),
    "<frozen",
)


def show_user_lines(
    item: pytest.Item, raised: pytest.ExceptionInfo[BaseException]
) -> pytest.ExceptionInfo[BaseException]:
    """Return an error of a test without the internal frames of a run, or at its test."""
    error = raised.value
    if shows_all_frames(item.config) or isinstance(error, pytest.skip.Exception):
        return raised
    place = find_test_place(item, error)
    if place is None and any(_file(frame) == RUN_FILE for frame in _frames(error)):
        hide_internal_frames(error)
        place = error.__traceback__
    return raised if place is None else raised.from_exc_info((type(error), error, place))


def shows_all_frames(config: pytest.Config) -> bool:
    """Return whether the frames of Offbook are shown: with `--full-trace`, or by the setting."""
    return bool(config.getoption("fulltrace") or config.getini("offbook_full_tracebacks"))


def hide_internal_frames(error: BaseException) -> None:
    """Remove the frames of Offbook and of installed packages from an error of a run.

    What is left are the lines of the test, of the agent's own code, and the last one.
    """
    frames = _frames(error)
    files = [_file(frame) for frame in frames]
    own = type(error).__module__ == ERRORS_MODULE
    # An error that did not pass through a run is not ours to shorten.
    ours = own or any(file.startswith(OFFBOOK_FOLDER) for file in files)
    if ours and _has_user_line(frames):
        outside = zip(frames, files, strict=True)
        kept = [frame for frame, file in outside if not file.startswith(INTERNAL_FOLDERS)]
        # The last frame is the place where a library raised; one of Offbook itself says nothing.
        if frames[-1:] != kept[-1:] and not files[-1].startswith(OFFBOOK_FOLDER):
            kept.append(frames[-1])
        if kept:
            for frame, following in zip(kept, [*kept[1:], None], strict=True):
                frame.tb_next = following
            error.__traceback__ = kept[0]
    cause = error.__cause__ or error.__context__  # shown with it
    if own and type(cause).__module__ == ERRORS_MODULE:
        # The exit of a command is a consequence of the failure; its output is in the trace.
        error.__cause__ = None  # this hides the context, too
    elif cause is not None:
        hide_internal_frames(cause)


# --- Failures around a test: of a limit, a marker, a mock that was not used


def find_test_place(item: pytest.Item, error: BaseException) -> TracebackType | None:
    """Return the definition of a test as the place of an error, or None if the error has a better.

    A limit or an unused mock is found after the test function has returned: such a traceback has
    lines of pytest and of this plugin only. A line of a test, a fixture or an agent is better.
    """
    path, first, _ = item.reportinfo()
    frames = _frames(error)
    ours = frames and _file(frames[-1]).startswith(OWN_FOLDERS)
    if first is None or not ours or _has_user_line(frames):
        return None
    lines = enumerate(getlines(str(path))[first:], first + 1)
    line = next((n for n, text in lines if DEFINITION.match(text)), first + 1)
    code = _place.__code__.replace(
        co_filename=str(path), co_name=item.name, co_firstlineno=first + 1
    )
    return TracebackType(None, FunctionType(code, {})().gi_frame, NO_COLUMN, line)


def _has_user_line(frames: list[TracebackType]) -> bool:
    """Return whether code of the user ran in what pytest called last.

    A hook of a conftest.py that waits for the test was called before.
    """
    names = [str(frame.tb_frame.f_globals.get("__name__")) for frame in frames]
    last = max((n for n, name in enumerate(names) if name.startswith(PYTEST_MODULES)), default=-1)
    files = [_file(frame) for frame in frames[last + 1 :]]
    return any(not file.startswith(INTERNAL_FOLDERS) for file in files)


PYTEST_MODULES = ("_pytest.", "pluggy.")
DEFINITION = re.compile(r"\s*(async\s+)?def\s")
NO_COLUMN = -1


def _place() -> Iterator[None]:
    """Have a frame; its code gets the file and the line of a test."""
    yield


def _frames(error: BaseException) -> list[TracebackType]:
    frames: list[TracebackType] = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    return frames


def _file(frame: TracebackType) -> str:
    return frame.tb_frame.f_code.co_filename


# --- Secrets: CI keeps the reports, for instance as JUnit. Offbook's errors show no secret, but the
# errors in their chain are of any library.

MAX_DEPTH, MAX_ITEMS = 6, 100  # how far the values of variables are searched


class ReportMask:
    """Masks the secrets in the report of one failed test.

    pytest cuts the values that it shows (`'sk-ant-abc...xyz'`), and puts an `E` before each line of
    a message. So the secrets of the variables are looked for in their whole values, and messages
    are masked without their margin.
    """

    def __init__(self, error: BaseException | None) -> None:
        from offbook.surfaces.fixtures import find_secrets, hide_secrets

        self._hide = hide_secrets
        self._find = find_secrets
        self._error = error

    @cached_property
    def _secrets(self) -> set[str]:
        """The secrets in the variables of all frames."""
        found: set[str] = set()
        error = self._error
        while error is not None:
            for frame in _frames(error):
                for value in [*frame.tb_frame.f_locals.values()]:
                    for text in _texts(value):
                        found.update(self._find(text))
            error = error.__cause__ or error.__context__
        return found

    def mask_report(self, report: pytest.TestReport) -> None:
        """Mask the traceback, its chain and the captured output."""
        report.sections = [(name, self._mask(text)) for name, text in report.sections]
        shown: Any = report.longrepr
        if isinstance(shown, str):
            report.longrepr = self._mask(shown)
            return
        # A chain, one traceback, or what another plugin made.
        crash: Any = getattr(shown, "reprcrash", None)
        only = (getattr(shown, "reprtraceback", None), None, None)
        chain: list[Any] = getattr(shown, "chain", [only])
        for place in filter(None, [crash, *(location for _, location, _ in chain)]):
            place.message = self._mask(place.message)
        for traceback, _, _ in chain:
            for entry in getattr(traceback, "reprentries", ()):
                for part in filter(None, (entry, getattr(entry, "reprlocals", None))):
                    part.lines[:] = self._mask_lines(part.lines)
                arguments = getattr(entry, "reprfuncargs", None)
                if arguments is not None:
                    arguments.args = [(name, self._mask(text)) for name, text in arguments.args]

    def _mask_lines(self, lines: list[str]) -> Iterator[str]:
        for margin, group in groupby(lines, lambda line: "E   " * line.startswith("E   ")):
            text = self._mask("\n".join(line.removeprefix(margin) for line in group))
            yield from (margin + line for line in text.split("\n"))

    def _mask(self, text: str) -> str:
        text = self._hide(text)
        first, *others = text.split("...")
        for other in others:
            # pytest may have cut a secret here: mask what is left of it on both sides
            for secret in self._secrets:
                for length in range(len(secret), MIN_PART - 1, -1):
                    if first.endswith(secret[:length]):
                        first = f"{first[:-length]}[API_KEY]"
                        break
                for length in range(len(secret), MIN_PART - 1, -1):
                    if other.startswith(secret[-length:]):
                        other = f"[API_KEY]{other[length:]}"  # noqa: PLW2901 - joined below
                        break
            first = f"{first}...{other}"
        return first


MIN_PART = 4  # characters of a secret that are still worth hiding


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    """Yield the texts in the value of a variable, as pytest may show them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping) and depth < MAX_DEPTH:
        fields = cast("Mapping[object, object]", value)
        yield _repr(fields)  # a name and its value
        for item in [*fields.values()][:MAX_ITEMS]:
            yield from _texts(item, depth + 1)
    elif isinstance(value, (list, tuple, set, frozenset)) and depth < MAX_DEPTH:
        for item in [*cast("Iterable[object]", value)][:MAX_ITEMS]:
            yield from _texts(item, depth + 1)
    elif not isinstance(value, (int, float, type(None))):
        yield _repr(cast("object", value))


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - of any class of the user
        return ""


# --- `--offbook-github`: annotations and a step summary of the whole session

TRACE_SECTION = "offbook trace"
CHANGE_PROPERTY = "offbook.change"
SHOWN_CHANGES = 20


class GitHubHooks:
    """Collects the results of the session, also those of the workers of pytest-xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self._root = config.rootpath
        self._cases: dict[str, Case] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the result of a test: of its call, or of the phase that failed."""
        if report.when == "call" or not report.passed:
            self._keep(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep a file that could not be collected."""
        if report.failed:
            self._keep(report)

    def _keep(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        from offbook.surfaces.pytest_session import make_case

        file, line = self._location(report)
        status = report.outcome
        message = ""
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            message = crash.message if crash is not None else report.longreprtext
            # The end of the trace explains most failures.
            trees = [text for title, text in report.sections if title == TRACE_SECTION]
            message = "\n\n".join([message, *trees])
            status = "failed" if getattr(report, "when", "") == "call" else "error"
        elif report.skipped and isinstance(report.longrepr, tuple):
            message = str(report.longrepr[2])
        self._cases[report.nodeid] = make_case(report.nodeid, status, message, file, line)

    def _location(self, report: pytest.TestReport | pytest.CollectReport) -> tuple[str, int]:
        """Return the failing line, if it is in the project, else the line of the test."""
        crash = getattr(report.longrepr, "reprcrash", None)
        if report.failed and crash is not None:
            path = self._root / crash.path
            # An installed package below the project is not the user's code.
            if path.is_relative_to(self._root) and "site-packages" not in path.parts:
                return path.relative_to(self._root).as_posix(), crash.lineno
        file, line, _ = report.location or (report.fspath, None, "")
        return str(file), (line or 0) + 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the summary of the step, and print the annotations."""
        from offbook.surfaces.pytest_session import publish_cases

        terminalreporter.ensure_newline()
        terminalreporter.write(publish_cases(self._cases.values()))


def report_changes(terminal: pytest.TerminalReporter, changed: list[tuple[str, str]]) -> None:
    """Write a line for each change by an agent: its test passed, and a reader should know it."""
    terminal.section("changed by the agent")
    for test, text in changed[:SHOWN_CHANGES]:
        terminal.line(f"{test}: {text}")
    if len(changed) > SHOWN_CHANGES:
        terminal.line(f"… and {len(changed) - SHOWN_CHANGES} more")
