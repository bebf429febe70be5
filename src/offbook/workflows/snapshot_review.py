"""The tool `review`: pending snapshots of workspaces and folders are accepted or rejected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from offbook.checks.pending_changes import (
    FileMove,
    PendingChange,
    Review,
    ReviewResult,
    pending_change,
)
from offbook.checks.snapshot import Snapshot, compare_snapshots
from offbook.errors import FormatError, UsageError, did_you_mean
from offbook.workflows.snapshots import PENDING_SUFFIX
from offbook.workflows.workspace import Workspaces

IGNORED_FOLDERS = {".git", ".venv", "node_modules"}


def list_pending(locations: Sequence[str] = ()) -> list[PendingChange]:
    """Return the pending snapshots of workspaces and folders; by default of this folder."""
    pending: list[PendingChange] = []
    for location in locations or (".",):
        folder = Path(location)
        if not folder.is_dir():
            try:
                folder = Workspaces().find(location).snapshots
            except UsageError as error:
                raise UsageError(
                    f"{location!r} is neither a folder nor a workspace",
                    hint=did_you_mean(location, Workspaces().ids()),
                ) from error
        for path in sorted(folder.rglob(f"*{PENDING_SUFFIX}")):
            if IGNORED_FOLDERS & set(path.parts):
                continue
            name = path.name.removesuffix(PENDING_SUFFIX)
            approved = path.with_name(f"{name}.json")
            before = _read_snapshot(approved) if approved.is_file() else Snapshot()
            difference = compare_snapshots(before, _read_snapshot(path))
            moves = [FileMove(str(path), str(approved))]
            pending.append(pending_change("snapshot", name, moves, difference))
    return pending


def review(
    locations: Sequence[str] = (), *, accept: Iterable[str] = (), reject: Iterable[str] = ()
) -> ReviewResult:
    """Accept and reject pending snapshots by name, by path, or `all`."""
    return Review(list_pending(locations)).decide(accept=accept, reject=reject)


def review_folder(folder: Path) -> Review:
    """Open a review of all pending snapshots below a folder."""
    return Review(list_pending([str(folder)]))


def _read_snapshot(path: Path) -> Snapshot:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Snapshot)
    except msgspec.MsgspecError as error:
        raise FormatError(f"not a snapshot: {error}", path=path) from error
