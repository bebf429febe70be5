"""`pytest --offbook-html=FILE`: the rehearsals of all tests as one page.

The traces are copied to a temporary folder, which the workers of pytest-xdist share.
"""

from __future__ import annotations

import ast
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from offbook.viewer.html_page import PageTrace

TRACES_OPTION = "offbook_html_traces"  # set here, read by the plugin: the folder for the traces
OPTIONS: dict[str, dict[str, Any]] = {
    "--offbook-html": {
        "metavar": "FILE",
        "default": None,
        "help": "Write the rehearsals of all tests as one HTML page to FILE.",
    },
}


def pytest_configure(config: pytest.Config) -> None:
    """Register the hooks that write the page, in the process that has all reports."""
    target = config.getoption("--offbook-html")
    if not target:
        return
    workerinput: dict[str, Any] | None = getattr(config, "workerinput", None)
    if workerinput is not None:  # the controller of pytest-xdist has the folder and the page
        setattr(config.option, TRACES_OPTION, workerinput.get(TRACES_OPTION))
        return
    from offbook.files import make_temp_folder, remove_temp_folder

    folder = make_temp_folder()
    setattr(config.option, TRACES_OPTION, str(folder))
    config.add_cleanup(lambda: remove_temp_folder(folder))
    path = config.invocation_params.dir / str(target)
    config.pluginmanager.register(PageHooks(path, folder), "offbook-html")


class PageHooks:
    """Collects the outcome of each test, and writes the page at the end."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.folder = folder
        self.tests: dict[str, dict[str, Any]] = {}
        self._line = "no page was written: no test used the fixture offbook"

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Give the folder for the traces to a worker of pytest-xdist."""
        node.workerinput[TRACES_OPTION] = str(self.folder)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the outcome of a test, and the text of its first failure."""
        test = self.tests.setdefault(report.nodeid, {"outcome": report.outcome})
        if report.failed and test.get("message") is None:
            test |= {"outcome": "failed", "phase": report.when or "", "message": message_of(report)}
            test["frames"] = find_frames(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the page."""
        from offbook.errors import counted
        from offbook.files import write_report
        from offbook.viewer.html_page import render_page

        traces = [*read_test_traces(self.folder, self.tests)]
        if traces:
            page = render_page(traces, title=self.path.stem)
            failed = write_report(self.path, page, session)
            written = f"{self.path}: {counted(len(traces), 'trace')}"
            self._line = failed[0] if failed else written

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the page, or say that there is none: no test had a rehearsal."""
        terminalreporter.line(f"offbook: {self._line}")


def message_of(report: pytest.TestReport) -> str:
    """Return the message of the error that failed a test, or the end of the whole text."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return crash.message  # of the last error: those that caused it are in the terminal
    text = report.longreprtext
    errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    from offbook.secrets.masks import ending

    return "\n".join(errors) or ending(text, 2000)


# --- The traces of tests with their outcomes, and the frames of those that failed

LINES_BEFORE, LINES_AFTER = 8, 2  # of the line of a frame
MAX_FRAMES = 40
OFFBOOK_FOLDER = Path(__file__).parents[1]
HIDDEN_PACKAGES = {"_pytest", "pluggy", "pytest_offbook"}
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
TEXTS = (ast.Constant, ast.JoinedStr)


def folder_of_test(folder: Path, nodeid: str) -> Path:
    """Return the folder for the traces of one test, or of a file of tests."""
    return folder / blake2b(nodeid.encode(), digest_size=12).hexdigest()


def read_test_traces(folder: Path, tests: Mapping[str, Mapping[str, Any]]) -> Iterator[PageTrace]:
    """Yield the traces of tests below this folder, each with the outcome of its test."""
    from offbook.viewer.html_page import read_page_trace

    for nodeid, test in tests.items():
        for path in sorted(folder_of_test(folder, nodeid).glob("*.jsonl")):
            yield read_page_trace(path, nodeid)._replace(path="", about={"test": test})


def find_frames(report: pytest.TestReport) -> list[dict[str, Any]]:
    """Return the frames of a failure with their lines, from the test to the line that raised.

    The frames of a cause follow those of its error. Those of pytest and of Offbook are left out.
    """
    shown: Any = report.longrepr
    only = (getattr(shown, "reprtraceback", None), None, None)
    chain: list[Any] = getattr(shown, "chain", [only])
    places: list[Any] = []
    for traceback, *_ in reversed(chain):
        entries = getattr(traceback, "reprentries", ())
        places += [e.reprfileloc for e in entries if getattr(e, "reprfileloc", None)]
    if not places:  # `--tb=line` has the last one only
        places = [crash] if (crash := getattr(shown, "reprcrash", None)) else []
    if len(places) > MAX_FRAMES:  # a recursion
        places[MAX_FRAMES // 2 : -MAX_FRAMES // 2] = []
    read = [_read_frame(Path(place.path), place.lineno) for place in places]
    frames = [frame for frame in read if frame is not None]
    test = str(Path(report.location[0]))
    own = [frame for frame in frames if frame["path"] == test]
    for frame in (own or frames)[-1:]:
        frame["open"] = True
    return frames


def _read_frame(path: Path, line: int) -> dict[str, Any] | None:
    """Return the place of a frame with the lines around it, or None if it is not to be shown."""
    absolute = path.absolute()
    if absolute.is_relative_to(OFFBOOK_FOLDER) or HIDDEN_PACKAGES & {*path.parts}:
        return None
    from offbook.secrets import hide_secrets

    try:
        text = path.read_text(encoding="utf-8")
        lines = hide_secrets(text).splitlines()
    except (OSError, ValueError):
        return None
    first, last = max(1, line - LINES_BEFORE), line + LINES_AFTER
    names: list[str] = []
    with suppress(SyntaxError, ValueError, RecursionError):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, DEFINITIONS) and node.lineno <= line <= (node.end_lineno or 0):
                names.append(node.name)
                if not isinstance(node, ast.ClassDef):
                    first = max(first, min([node.lineno, *(d.lineno for d in node.decorator_list)]))
                    last = min(last, node.end_lineno or last)
            elif isinstance(node, TEXTS) and node.lineno < first <= (node.end_lineno or 0):
                first = min((node.end_lineno or 0) + 1, line)  # no end of a text without its start
    if "site-packages" in absolute.parts:
        path = Path(*absolute.parts[absolute.parts.index("site-packages") + 1 :])
    elif absolute.is_relative_to(Path.cwd()):
        path = absolute.relative_to(Path.cwd())
    function = ".".join(names)
    shown = lines[first - 1 : last]
    return {"path": str(path), "line": line, "function": function, "first": first, "lines": shown}
