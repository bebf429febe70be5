"""`snapshot`: keep a workspace as it is now, to compare with later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from offbook.checks.snapshot import FOLDER, Snapshot, capture, redact
from offbook.errors import UsageError, nearest
from offbook.files import write_whole
from offbook.runs.workspace import ID, Workspace, Workspaces
from offbook.trace.redaction import Redaction

INITIAL, CURRENT = "initial", "current"


class Taken(msgspec.Struct, frozen=True):
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
) -> Taken:
    """Keep the files of a workspace under a name; secrets are hidden, and what is redacted."""
    workspace = Workspaces().find(workspace_id)
    name = snapshot_id or _next_name(workspace)
    if name == CURRENT or name.endswith(".pending") or not ID.match(name):
        raise UsageError(f"{name!r} is no name for a snapshot", hint="letters, digits, '-', '_'")
    taken = redact(
        capture(workspace.path, include_patterns, exclude_patterns),
        Redaction(redactions, roots={"WORKSPACE": workspace.path}),
    )
    store(workspace, name, taken)
    size = sum(len(text.encode()) for text in taken.files.values())
    return Taken(name, taken.files, len(taken.files), size)


def store(workspace: Workspace, name: str, taken: Snapshot) -> None:
    """Write a snapshot, whole or not at all."""
    place = workspace.place(f"{FOLDER}/{name}.json")
    write_whole(place, msgspec.json.format(msgspec.json.encode(taken)), lasting=False)


def load(workspace: Workspace, name: str) -> Snapshot:
    """A snapshot by its name; before anything was set up there was nothing."""
    if not ID.match(name):
        raise UsageError(f"{name!r} is no name for a snapshot")
    place = workspace.place(f"{FOLDER}/{name}.json")
    if place.is_file():
        return msgspec.json.decode(place.read_bytes(), type=Snapshot)
    if name == INITIAL:
        return Snapshot()
    there = [path.stem for path in place.parent.glob("*.json") if ".pending" not in path.name]
    hint = nearest(name, [*there, INITIAL, CURRENT])
    raise UsageError(f"there is no snapshot {name!r}", where=workspace.id, hint=hint)


def _next_name(workspace: Workspace) -> str:
    number = 1
    while workspace.place(f"{FOLDER}/snap_{workspace.id}_{number:03}.json").exists():
        number += 1
    return f"snap_{workspace.id}_{number:03}"
