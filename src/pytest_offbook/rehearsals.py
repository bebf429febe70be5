"""The hooks around a test that uses the fixture; registered when the first one does."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from functools import wraps
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from offbook.surfaces import fixtures
from offbook.surfaces.fixtures import Offbook

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType

NAME = "offbook-rehearsals"
DEFAULT = Path(".offbook") / "traces"
OPENED = pytest.StashKey[Offbook]()
INSIDE = (str(Path(fixtures.__file__).parents[1]), str(Path(asyncio.__file__).parent))
ERRORS = "offbook.errors"


def watch_test(request: pytest.FixtureRequest) -> Offbook:
    """The rehearsals of a test, which end with it and are told when it fails."""
    plugins = request.config.pluginmanager
    watch = plugins.get_plugin(NAME)
    if watch is None:
        watch = Rehearsals(request.config)
        plugins.register(watch, NAME)
    return watch.open(request.node)


class Rehearsals:
    """Ends the rehearsals of each test with it, and shows and keeps the traces of what failed."""

    def __init__(self, config: pytest.Config) -> None:
        wanted = config.getoption("--offbook-traces") or config.getini("offbook_traces")
        self._all = wanted == "all"
        self._never = wanted == "never"
        self._own = not wanted or self._all or self._never
        self._root = config.rootpath
        self._folder = (
            self._root / DEFAULT if self._own else config.invocation_params.dir / str(wanted)
        )
        self._full = config.getoption("fulltrace")
        self._scratch = Path(tempfile.mkdtemp(prefix="offbook-traces-"))
        self._tests = 0
        self._recorded: set[Path] | None = set() if config.getoption("--offbook-record") else None
        config.add_cleanup(lambda: shutil.rmtree(self._scratch, ignore_errors=True))

    def open(self, item: pytest.Item) -> Offbook:
        """The rehearsals of this test."""
        self._tests += 1
        folder = self._scratch / str(self._tests)
        folder.mkdir()
        test = f"{item.path.stem}-{item.name}"
        opened = Offbook(folder, beside=item.path.parent, test=test, recorded=self._recorded)
        item.stash[OPENED] = opened
        return opened

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """End the rehearsals when the test function does: what is wrong with them fails it."""
        opened = item.stash.get(OPENED, None)
        if opened is None:
            return (yield)
        test: Callable[..., Any] | None = getattr(item, "obj", None)
        if iscoroutinefunction(test):
            item.obj = _ending(test, opened)  # pyright: ignore[reportAttributeAccessIssue] - a Function's
        try:
            answer = yield
        except BaseException as error:
            _note(error, opened.close(failed=True))
            if not self._full:
                _cut_inside(error)
            raise
        finally:
            if iscoroutinefunction(test):
                item.obj = test  # pyright: ignore[reportAttributeAccessIssue] - as above
        blame(opened.close())
        return answer

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Show the traces of a test that failed, and keep those that are wanted."""
        report = yield
        opened = item.stash.get(OPENED, None)
        if opened is None:
            return report
        if report.failed:
            told = [opened.tell() or "nothing was rehearsed", *self._keep(opened, item)]
            report.sections.append(("offbook trace", "\n".join(told)))
        elif self._all and report.when == "call":
            self._keep(opened, item)
        if report.when == "teardown":
            opened.clear()
        return report

    def _keep(self, opened: Offbook, item: pytest.Item) -> list[str]:
        """Keep the traces of a test, and say where."""
        if self._never:
            return []
        try:
            kept = opened.keep(self._folder, item.nodeid)
            if kept and self._own:
                _hide(self._folder.parent)
        except OSError as error:
            return [f"not kept: {error}"]
        return [f"kept: {_shorten(place, self._root)}" for place in kept]


def _ending(test: Callable[..., Any], opened: Offbook) -> Callable[..., Any]:
    """The same test, which ends its rehearsals in its own event loop."""

    @wraps(test)
    async def ended(*args: Any, **kwargs: Any) -> Any:
        try:
            answer = await test(*args, **kwargs)
        except BaseException as error:
            _note(error, await opened.leave())
            raise
        blame(await opened.leave())
        return answer

    return ended


def blame(troubles: list[Exception]) -> None:
    """Fail a test that went well until its rehearsals ended."""
    if not troubles:
        return
    first, *others = troubles
    _note(first, others)
    if type(first).__module__ == ERRORS and first.__cause__ is None:
        pytest.fail("\n".join([_name(first), *getattr(first, "__notes__", [])]), pytrace=False)
    raise first


def _note(error: BaseException, troubles: list[Exception]) -> None:
    """The test's own failure comes first; what else went wrong stands below it."""
    for trouble in troubles:
        error.add_note(f"also, when its rehearsals ended: {_name(trouble)}")


def _name(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _cut_inside(error: BaseException) -> None:
    """End the traceback of an Offbook error in the code of whoever called."""
    if type(error).__module__ != ERRORS:
        return
    outside: TracebackType | None = None
    frame = error.__traceback__
    while frame is not None:
        if not frame.tb_frame.f_code.co_filename.startswith(INSIDE):
            outside = frame
        frame = frame.tb_next
    if outside is not None:
        outside.tb_next = None


def _hide(folder: Path) -> None:
    """Keep the folder out of the repository."""
    ignore = folder / ".gitignore"
    if folder.is_dir() and not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")


def _shorten(place: Path, root: Path) -> str:
    return str(place.relative_to(root) if place.is_relative_to(root) else place)
