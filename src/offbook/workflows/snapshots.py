"""`snapshot`: keep a workspace as it is now, to compare with later."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from offbook.checks.file_assertions import SnapshotMatches
from offbook.checks.snapshot import (
    SNAPSHOT_FOLDER,
    Snapshot,
    SnapshotDiff,
    capture_snapshot,
    compare_snapshots,
    redact_snapshot,
)
from offbook.errors import FormatError, UsageError, did_you_mean
from offbook.files import write_atomic
from offbook.trace.redaction import Redaction
from offbook.workflows.workspace import NAME_PATTERN, Workspace, Workspaces

# --- `snapshot`: keep a workspace as it is now, to compare with later.

INITIAL, CURRENT = "initial", "current"


class SnapshotResult(msgspec.Struct, frozen=True):
    """A snapshot that was taken."""

    snapshot_id: str
    files: dict[str, str]
    file_count: int
    total_bytes: int


def snapshot(
    workspace_id: str,
    *,
    snapshot_id: str | None = None,
    include_patterns: Sequence[str] = (),
    exclude_patterns: Sequence[str] = (),
    redactions: Mapping[str, Any] | None = None,
) -> SnapshotResult:
    """Keep the files of a workspace under a name; secrets are hidden, and what is redacted."""
    workspace = Workspaces().find(workspace_id)
    name = snapshot_id or _next_name(workspace)
    if name == CURRENT or name.endswith(".pending") or not NAME_PATTERN.match(name):
        raise UsageError(f"{name!r} is no name for a snapshot", hint="letters, digits, '-', '_'")
    taken = redact_snapshot(
        capture_snapshot(workspace.path, include_patterns, exclude_patterns),
        Redaction(redactions, roots={"WORKSPACE": workspace.path}),
    )
    store_snapshot(workspace, name, taken)
    size = sum(len(text.encode()) for text in taken.files.values())
    return SnapshotResult(name, taken.files, len(taken.files), size)


def store_snapshot(workspace: Workspace, name: str, taken: Snapshot) -> None:
    """Write a snapshot, whole or not at all."""
    place = workspace.place(f"{SNAPSHOT_FOLDER}/{name}.json")
    write_atomic(place, msgspec.json.format(msgspec.json.encode(taken)), durable=False)


def load_snapshot(workspace: Workspace, name: str) -> Snapshot:
    """A snapshot by its name; before anything was set up there was nothing."""
    if not NAME_PATTERN.match(name):
        raise UsageError(f"{name!r} is no name for a snapshot")
    place = workspace.place(f"{SNAPSHOT_FOLDER}/{name}.json")
    if place.is_file():
        return msgspec.json.decode(place.read_bytes(), type=Snapshot)
    if name == INITIAL:
        return Snapshot()
    there = [path.stem for path in place.parent.glob("*.json") if ".pending" not in path.name]
    hint = did_you_mean(name, [*there, INITIAL, CURRENT])
    raise UsageError(f"there is no snapshot {name!r}", where=workspace.id, hint=hint)


def _next_name(workspace: Workspace) -> str:
    number = 1
    while workspace.place(f"{SNAPSHOT_FOLDER}/snap_{workspace.id}_{number:03}.json").exists():
        number += 1
    return f"snap_{workspace.id}_{number:03}"


# --- `diff`: what changed in a workspace between two moments.


def diff(
    workspace_id: str,
    baseline: str,
    *,
    compare_to: str = CURRENT,
    redactions: Mapping[str, Any] | None = None,
) -> SnapshotDiff:
    """Compare two snapshots; `initial` is how the workspace was set up, `current` how it is."""
    workspace = Workspaces().find(workspace_id)
    redaction = Redaction(redactions, roots={"WORKSPACE": workspace.path})
    before, after = (_get_snapshot(workspace, name) for name in (baseline, compare_to))
    return compare_snapshots(redact_snapshot(before, redaction), redact_snapshot(after, redaction))


def _get_snapshot(workspace: Workspace, name: str) -> Snapshot:
    return capture_snapshot(workspace.path) if name == CURRENT else load_snapshot(workspace, name)


# --- `snapshot review`: what a run left where a snapshot was expected waits until somebody decides.

PENDING_SUFFIX = ".pending.json"
ALL = "all"
FALSE_WORDS = {"", "0", "false", "no"}


class PendingSnapshot(msgspec.Struct, frozen=True):
    """A snapshot that waits: its name, where it is, and how it differs from what was approved."""

    name: str
    path: str
    new: bool
    difference: SnapshotDiff


class ReviewResult(msgspec.Struct, frozen=True):
    """What became of those that waited."""

    accepted: list[str]
    rejected: list[str]
    left: list[str]


def in_ci() -> bool:
    """Whether nobody is there who could decide."""
    return os.environ.get("CI", "").lower() not in FALSE_WORDS


def propose_snapshot(
    workspace: Workspace, assertion: SnapshotMatches, *, holds: bool
) -> Path | None:
    """Let what is there wait for a decision, unless it is as expected already."""
    place = workspace.place(f"{SNAPSHOT_FOLDER}/{assertion.snapshot_id}{PENDING_SUFFIX}")
    if in_ci():
        return None
    if holds:
        place.unlink(missing_ok=True)
        return None
    redaction = Redaction(assertion.redactions, roots={"WORKSPACE": workspace.path})
    found = capture_snapshot(workspace.path, assertion.include_patterns, assertion.exclude_patterns)
    write_atomic(place, msgspec.json.format(msgspec.json.encode(redact_snapshot(found, redaction))))
    return place


def list_pending(places: Sequence[str] = ()) -> list[PendingSnapshot]:
    """Those that wait, in workspaces or folders; in this folder, if none is named."""
    found: list[PendingSnapshot] = []
    for place in places or (".",):
        folder = _find_folder(place)
        hidden = {".git", ".venv", "node_modules"}
        inside = (p for p in folder.rglob(f"*{PENDING_SUFFIX}") if not hidden & set(p.parts))
        found += [_describe_pending(path) for path in sorted(inside)]
    return found


def review(
    places: Sequence[str] = (), *, accept: Iterable[str] = (), reject: Iterable[str] = ()
) -> ReviewResult:
    """Decide about those that wait, by name, by path, or about `all`."""
    waiting = list_pending(places)
    accepted, rejected = _choose(waiting, accept), _choose(waiting, reject)
    if both := accepted & rejected:
        raise UsageError(f"{min(both)} cannot be accepted and rejected")
    for path in sorted(accepted):
        accept_snapshot(Path(path))
    for path in sorted(rejected):
        reject_snapshot(Path(path))
    left = [one.path for one in waiting if one.path not in accepted | rejected]
    return ReviewResult(sorted(accepted), sorted(rejected), left)


def accept_snapshot(path: Path) -> None:
    """Let it be the approved one from now on."""
    _refuse_ci()
    path.replace(_approved(path))


def reject_snapshot(path: Path) -> None:
    """Forget it."""
    _refuse_ci()
    path.unlink(missing_ok=True)


def _refuse_ci() -> None:
    if in_ci():
        raise UsageError("in CI no snapshot is approved", hint="review it where you work")


def _find_folder(place: str) -> Path:
    if Path(place).is_dir():
        return Path(place)
    try:
        return Workspaces().find(place).path / SNAPSHOT_FOLDER
    except UsageError as error:
        raise UsageError(
            f"{place!r} is no folder, and no workspace",
            hint=did_you_mean(place, Workspaces().ids()),
        ) from error


def _approved(path: Path) -> Path:
    return path.with_name(f"{path.name.removesuffix(PENDING_SUFFIX)}.json")


def _describe_pending(path: Path) -> PendingSnapshot:
    approved = _approved(path)
    before = _read_snapshot(approved) if approved.is_file() else Snapshot()
    name = path.name.removesuffix(PENDING_SUFFIX)
    return PendingSnapshot(
        name, str(path), not approved.is_file(), compare_snapshots(before, _read_snapshot(path))
    )


def _read_snapshot(path: Path) -> Snapshot:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Snapshot)
    except msgspec.MsgspecError as error:
        raise FormatError(f"this is no snapshot: {error}", path=path) from error


def _choose(waiting: Sequence[PendingSnapshot], words: Iterable[str]) -> set[str]:
    chosen: set[str] = set()
    for word in words:
        found = {one.path for one in waiting if word in {ALL, one.name, one.path}}
        if not found and word != ALL:
            names = [one.name for one in waiting]
            raise UsageError(f"no snapshot {word!r} waits", hint=did_you_mean(word, names))
        chosen |= found
    return chosen
