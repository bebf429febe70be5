"""The review of goldens: recordings that differ from them, and proposals of failed checks.

A recording is a scratch fixture. A check of requests or of a golden transcript proposes a file.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.checks.pending_changes import FileMove, PendingChange, Review, pending_change
from offbook.checks.proposed_files import SUFFIX, list_proposed
from offbook.checks.snapshot import Snapshot, compare_snapshots
from offbook.goldens.fixture_store import read_scenarios, sidecar_path
from offbook.goldens.golden_recording import check_promotion
from offbook.goldens.project import Project
from offbook.goldens.pytest_settings import find_pytest_settings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def readable_fixture(path: Path) -> str:
    """Return a fixture file as indented JSON, without the time and hash of its recording."""
    texts: list[str] = []
    for scenario in read_scenarios(path) if path.is_file() else ():
        shown: dict[str, Any] = msgspec.to_builtins(scenario.fixture)
        shown["description"] = shown.pop("metadata", {}).get("description", "")
        shown |= {"rule": rule} if (rule := msgspec.to_builtins(scenario.rule)) else {}
        texts.append(msgspec.json.format(msgspec.json.encode(shown), indent=2).decode() + "\n")
    return "".join(texts)


def list_pending_goldens(project: Project, names: Sequence[str] = ()) -> list[PendingChange]:
    """Return the recordings and proposals that would change a golden, all or the named ones."""
    store = project.fixtures
    proposed = list_proposed(project.root)
    pending = [change for change in proposed if not names or change.name in names]
    others = [name for name in names if all(name != change.name for change in proposed)]
    paths = [store.find("scratch", name) for name in others]
    paths = paths if names else store.paths("scratch")
    for scratch in paths:
        golden = store.fixture_path("golden", scratch.parent.name, scratch.stem)
        title = project.relative(golden)
        before = Snapshot({title: readable_fixture(golden)} if golden.is_file() else {})
        difference = compare_snapshots(before, Snapshot({title: readable_fixture(scratch)}))
        if difference.empty:
            continue
        # The sidecar first: the main file is the last one.
        files = ((sidecar_path(scratch), sidecar_path(golden)), (scratch, golden))
        moves = [FileMove(str(source), str(target)) for source, target in files]
        name = f"{scratch.parent.name}/{scratch.stem}"
        pending.append(pending_change("golden", name, moves, difference))
    return pending


def review_goldens(project: Project, names: Sequence[str] = ()) -> Review:
    """Open a review of goldens; of the recordings, only one that replays is accepted."""

    def check(change: PendingChange) -> None:
        if not change.path.endswith(SUFFIX):
            asyncio.run(check_promotion(project.fixtures, change.name, project.registry.find))

    return Review(list_pending_goldens(project, names), check)


def review_folder(folder: Path) -> Review:
    """Open a review of the goldens of the project in a folder."""
    settings = find_pytest_settings(folder.resolve())
    # a live script imports the project as its tests do
    sys.path[:0] = [path for path in map(str, settings.pythonpath) if path not in sys.path]
    return review_goldens(Project(settings.root))
