"""What the pytest plugin opens for tests that replay: goldens, guards, and who showed what."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from offbook.determinism.budget import budget
from offbook.determinism.guard import guarded
from offbook.errors import CheckFailed, UsageError
from offbook.runs.bridge import Bridge, in_loop
from offbook.runs.folder import make_folder, remove_folder
from offbook.runs.goldens.fixture import read_scenarios
from offbook.runs.goldens.outcomes import Outcome, Outcomes
from offbook.runs.goldens.project import Project
from offbook.runs.goldens.replay import Replayed, replay_all
from offbook.runs.goldens.validation import check_completeness, check_static

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable

    Work = Callable[[], Coroutine[Any, Any, list[Replayed]]]

__all__ = ["Category", "Golden", "Outcome", "Outcomes", "Project", "digest_goldens", "held"]


class Category(NamedTuple):
    """What a kind of test promises."""

    name: str
    seconds: float


CATEGORIES = {"unit": Category("unit", 0.1), "replay": Category("replay", 1.0)}


class Golden:
    """What the fixture `goldens` gives: replays, which fail when something is not as recorded."""

    def __init__(self, project: Project, tell: Callable[[str], None]) -> None:
        self._project = project
        self._tell = tell

    def replay(self, name: str) -> list[Replayed]:
        """Replay all scenarios of the golden `component/name`; raise what differs."""
        library = self._project.library
        scenarios = read_scenarios(library.find("golden", name))
        find = self._project.registry.find
        replayed = _run_apart(lambda: replay_all(scenarios, find))
        self._tell(name)
        told = [one.tell() for one in replayed if not one.ok]
        if told:
            raise CheckFailed("\n".join(told), hint=f"offbook fixture show {name}")
        return replayed


def _run_apart(work: Work) -> list[Replayed]:
    """Run this to its end: here, or in a thread when the test has an event loop of its own."""
    if not in_loop():
        return _run(work)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_run, work).result()


def _run(work: Work) -> list[Replayed]:
    bridge = Bridge()
    try:
        return bridge.run(work())
    finally:
        bridge.close()


@contextmanager
def held(
    category: Category, test: Path, allow: Iterable[Path], seconds: float | None = None
) -> Generator[None]:
    """Hold a test to what its kind promises; whatever it broke fails it, with the line."""
    own = make_folder()
    before = tempfile.tempdir
    tempfile.tempdir = str(own)
    try:
        with ExitStack() as stack:
            watch = stack.enter_context(budget(seconds or category.seconds, str(test)))
            guard = stack.enter_context(guarded(allow=[own, *allow]))
            yield
    finally:
        tempfile.tempdir = before
        remove_folder(own)
    if guard.broken:
        raise guard.broken[0]
    if watch.over:
        raise CheckFailed(
            f"a {category.name} test took {watch.spent:.2f} s, more than {watch.seconds:g} s",
            where=watch.line,
            hint="what waits or computes that long belongs into a test of another kind",
        )


def digest_goldens(project: Project) -> str:
    """The hash of all goldens: no test run may change it."""
    whole = sha256()
    for path in sorted((project.library.root / "golden").glob("*/*")):
        whole.update(path.name.encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()


def find_problems(project: Project, outcomes: Outcomes, *, whole: bool) -> list[str]:
    """What the specs of a project complain about after a run of its tests.

    Only a run of all tests can tell what is missing.
    """
    found = [str(problem) for problem in check_static(project)]
    if whole:
        found += [str(problem) for problem in check_completeness(project, outcomes)]
    return found


def open_project(root: Path) -> Project:
    """The project in this folder."""
    if not root.is_dir():
        raise UsageError("there is no such folder", where=str(root))
    return Project(root)
