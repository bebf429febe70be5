"""One run of pytest in a forked process: the baseline with coverage, or the tests of a mutant.

A mutant is imported anew in its process, so that also constants, defaults and tables of a module
can be mutated. The parent has imported the third-party packages, which take most of the time.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Collection, Generator
from pathlib import Path
from typing import Any

import pytest

OPTIONS = [
    "-q", "--tb=no", "--no-header", "-p", "no:randomly", "-p", "no:cacheprovider",
    "-m", "not slow and not clients and not external",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",  # of packages that the parent imported
]  # fmt: skip
# The exit codes of a child. Those of pytest for a broken run (2, 3, 4) are no verdict.
PASSED, FAILED, NO_TESTS, NOT_IMPORTED = 0, 1, 5, 70


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
        self.failed: set[str] = set()
        self._coverage = coverage

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None]:
        self._coverage.switch_context(item.nodeid)
        started = time.monotonic()
        yield
        self.seconds[item.nodeid] = time.monotonic() - started
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


def enter(folder: Path, log: Path, *, seconds: int = 0) -> None:
    """Make this process one that tests the copy in a folder; its output goes to a file."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # some tests look at it
    os.setsid()  # so that the parent can end it with everything that it started
    if seconds:
        # Processor time: on a busy machine, a mutant has as much of it as on an idle one.
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, file in ((0, nothing), (1, output), (2, output)):
        os.dup2(file, number)
    os.chdir(folder)
    sys.path[:0] = [str(folder / "src"), str(folder)]
    os.environ["PYTHONPATH"] = str(folder / "src")
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


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
    lines = {
        source: {line: [c for c in contexts if c] for line, contexts in found.items()}
        for source, file in zip(sources, files, strict=True)
        if (found := data.contexts_by_lineno(file))
    }
    seconds = {name: spent for name, spent in plugin.seconds.items() if name not in plugin.failed}
    modules = [name for name, module in sys.modules.items() if _is_third_party(module)]
    content = {
        "lines": lines, "seconds": seconds, "failed": sorted(plugin.failed), "modules": modules
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
