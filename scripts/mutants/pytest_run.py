"""One run of pytest in a forked process: the baseline with coverage, or the tests of a mutant.

Most mutants change one function. A server imports the sources and collects the tests once; for
each mutant it forks, and the child replaces the code of the function. A mutant of a constant, a
default or a table is imported anew in its process, by a run of pytest of its own.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Collection, Generator
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, NamedTuple

import changed_code
import pytest

OPTIONS = [
    "-q", "--tb=no", "--no-header", "-p", "no:randomly", "-p", "no:cacheprovider",
    "-m", "not slow and not clients and not external",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",  # of packages that the parent imported
]  # fmt: skip
# The exit codes of a child. Those of pytest for a broken run (2, 3, 4) are no verdict.
PASSED, FAILED, NO_TESTS, NOT_IMPORTED = 0, 1, 5, 70


class Limit(NamedTuple):
    """How long a process may run; on a busy machine, the processor time is far less."""

    seconds: int
    processor_seconds: int


class _SameExamples:
    """Makes Hypothesis use the same examples each time, and stop at the first that fails."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        from hypothesis import HealthCheck, Phase, settings

        settings.register_profile(
            "mutants",
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.generate],
        )
        settings.load_profile("mutants")


class _Baseline:
    """Notes the lines and the seconds of each test that passes."""

    def __init__(self, coverage: Any) -> None:
        self.seconds: dict[str, float] = {}
        self.processor_seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self._coverage = coverage

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None]:
        self._coverage.switch_context(item.nodeid)
        started, used = time.monotonic(), _processor_seconds()
        yield
        self.seconds[item.nodeid] = time.monotonic() - started
        self.processor_seconds[item.nodeid] = _processor_seconds() - used
        self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:  # a skipped test proves nothing either
            self.failed.add(report.nodeid)


class _Selection:
    """Keeps the named tests, the fastest first, and notes the first that fails."""

    def __init__(self, order: list[str]) -> None:
        self._order = {nodeid: place for place, nodeid in enumerate(order)}
        self.killer = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        kept = [item for item in items if item.nodeid in self._order]
        items[:] = sorted(kept, key=lambda item: self._order[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.killer:
            self.killer = report.nodeid


def enter(folder: Path, log: Path, *, limit: Limit | None = None) -> None:
    """Make this process one that tests the copy in a folder; its output goes to a file."""
    _separate(limit)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, file in ((0, nothing), (1, output), (2, output)):
        os.dup2(file, number)
    os.chdir(folder)
    sys.path[:0] = [str(folder / "src"), str(folder)]
    os.environ["PYTHONPATH"] = str(folder / "src")
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def _processor_seconds() -> float:
    """Return the processor time of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def _separate(limit: Limit | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # some tests look at it
    os.setsid()  # so that the parent can end it with everything that it started
    if limit is not None:
        seconds = limit.processor_seconds
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def wait(process: int, seconds: float) -> int:
    """Wait for a process and end what it started; return its exit code, or minus the signal."""
    deadline = time.monotonic() + seconds
    pause = 0.005
    try:
        while time.monotonic() < deadline:
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(pause)
            pause = min(pause * 1.5, 0.1)
        return -signal.SIGXCPU
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process, 0)


def run_baseline(tests: Collection[str], sources: Collection[str], report: Path) -> int:
    """Run the tests of a part; report the lines that each of them runs."""
    from coverage import Coverage

    files = [str(Path(source).resolve()) for source in sources]
    coverage = Coverage(data_file=None, include=files, config_file=False)
    plugin = _Baseline(coverage)
    sys.dont_write_bytecode = False  # all runs of mutants use it
    coverage.start()
    code = pytest.main([*OPTIONS, *tests], plugins=[plugin, _SameExamples()])
    coverage.stop()
    data = coverage.get_data()
    found = {
        source: data.contexts_by_lineno(file) for source, file in zip(sources, files, strict=True)
    }
    lines = {
        source: {line: [c for c in contexts if c] for line, contexts in of_lines.items()}
        for source, of_lines in found.items()
    }
    at_import = {
        source: [line for line, contexts in of_lines.items() if "" in contexts]
        for source, of_lines in found.items()
    }
    seconds = {name: spent for name, spent in plugin.seconds.items() if name not in plugin.failed}
    modules = [name for name, module in sys.modules.items() if _is_third_party(module)]
    content = {
        "lines": lines, "at_import": at_import, "seconds": seconds,
        "processor_seconds": plugin.processor_seconds,
        "failed": sorted(plugin.failed), "modules": modules,
    }  # fmt: skip
    report.write_text(json.dumps(content))
    return int(code)


def _is_third_party(module: object) -> bool:
    file = getattr(module, "__file__", None) or ""
    # pytest imports its plugins itself, in an order of its own.
    return "site-packages" in file and "pytest" not in file


def run_mutant(order: list[str], source: str, report: Path) -> int:
    """Run tests in this order until one fails; report which one it was."""
    selection = _Selection(order)
    sys.dont_write_bytecode = True
    files = sorted({nodeid.partition("::")[0] for nodeid in order})
    code = int(pytest.main([*OPTIONS, "-x", *files], plugins=[selection, _SameExamples()]))
    report.write_text(selection.killer)
    path = str(Path(source).resolve())
    loaded = any(getattr(module, "__file__", None) == path for module in [*sys.modules.values()])
    # A run that did not import the mutant says nothing about it.
    return code if loaded or code not in {PASSED, FAILED} else NOT_IMPORTED


class Server:
    """A process that has collected the tests of a part, and forks for each mutant."""

    def __init__(self) -> None:
        self._requests, self._answers = Pipe()
        self._process = 0

    def start(self, process: int) -> None:
        """Wait until a process that called `serve` has collected the tests: nothing is mutated."""
        self._process = process
        self._answers.close()
        self._requests.recv()

    def run(self, source: str | None, order: list[str], report: Path, limit: Limit) -> int | None:
        """Run tests on a mutated file, or on none; return the exit code.

        None is returned for a mutant that must be imported.
        """
        self._requests.send((source, order, report, limit))
        return self._requests.recv()

    def stop(self) -> None:
        """End the server and the mutant that it runs."""
        os.kill(self._process, signal.SIGTERM)
        os.waitpid(self._process, 0)

    def serve(self, tests: Collection[str], sources: Collection[str]) -> int:
        """Collect the tests, and answer requests until the process is ended."""
        self._requests.close()
        sys.dont_write_bytecode = True
        # SIGTERM ends it as Ctrl-C does: it ends its child, too.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        plugin = _Forks(self._answers, {source: Path(source).read_text() for source in sources})
        return int(pytest.main([*OPTIONS, *tests], plugins=[plugin, _SameExamples()]))


class _Forks:
    """In place of the tests, runs those of each mutant in a child."""

    def __init__(self, answers: Any, originals: dict[str, str]) -> None:
        self._answers = answers
        self._originals = originals
        self.killer = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        functions = changed_code.find_functions(Path(name) for name in self._originals)
        items = {item.nodeid: item for item in session.items}
        gc.collect()
        gc.freeze()
        self._answers.send(None)
        with contextlib.suppress(EOFError):
            while True:
                source, order, report, limit = self._answers.recv()
                changes = [] if source is None else self._compare(source)
                if changes is None or any(change.place not in functions for change in changes):
                    self._answers.send(None)
                    continue
                process = os.fork()
                if process == 0:
                    code = 71
                    try:
                        _separate(limit)
                        for change in changes:
                            for function in functions[change.place]:
                                function.__code__ = change.code
                        code = self._run([items[name] for name in order if name in items], report)
                    finally:
                        os._exit(code)  # nothing of the session is run twice
                self._answers.send(wait(process, limit.seconds))
        return True

    def _compare(self, source: str) -> list[changed_code.Change] | None:
        path = Path(source)
        return changed_code.compare(self._originals[source], path.read_text(), str(path.resolve()))

    def _run(self, items: list[pytest.Item], report: Path) -> int:
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.killer:
                break
        report.write_text(self.killer)
        return FAILED if self.killer else PASSED

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.killer:
            self.killer = report.nodeid
