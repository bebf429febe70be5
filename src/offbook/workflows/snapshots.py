"""The tools `snapshot`, `diff` and `review`: the files of a workspace at two points in time.

    snapshot("flow", snapshot_id="before")
    …
    diff("flow", "before").changed_files

The assertion `snapshot_matches` compares a workspace with an approved snapshot. If it is missing or
different, the actual state is stored next to it as `NAME.pending.json`, and `review` accepts or
rejects it. In CI no pending snapshot is written and none can be accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from offbook.checks.assertion import parse_assertion
from offbook.checks.run_assertions import SnapshotMatches
from offbook.checks.snapshot import (
    SnapshotDiff,
    capture_snapshot,
    compare_snapshots,
    in_ci,
    redact_snapshot,
)
from offbook.errors import UsageError
from offbook.files import copy_atomic, write_atomic
from offbook.trace.redaction import Redaction
from offbook.workflows.workspace import CURRENT, NAME_PATTERN, Workspace, Workspaces

PENDING_SUFFIX = ".pending.json"


class SnapshotResult(msgspec.Struct, frozen=True):
    """A stored snapshot."""

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
    """Store the files of a workspace under a name, without secrets and redacted values."""
    workspace = Workspaces().find(workspace_id)
    name, number = snapshot_id or f"snap_{workspace.id}_001", 1
    while not snapshot_id and (workspace.snapshots / f"{name}.json").exists():
        number += 1
        name = f"snap_{workspace.id}_{number:03}"
    # Both would be ambiguous: `current` in a diff, `X.pending` as the proposal for X.
    if name == CURRENT or name.endswith(".pending") or not NAME_PATTERN.match(name):
        raise UsageError(
            f"invalid snapshot name {name!r}", hint="expected: letters, digits, '-', '_'"
        )
    redacted = redact_snapshot(
        capture_snapshot(workspace.path, include_patterns, exclude_patterns),
        Redaction(redactions, roots={"WORKSPACE": workspace.path}),
    )
    workspace.store_snapshot(name, redacted)
    size = sum(len(text.encode()) for text in redacted.files.values())
    return SnapshotResult(name, redacted.files, len(redacted.files), size)


def diff(
    workspace_id: str,
    baseline: str,
    *,
    compare_to: str = CURRENT,
    redactions: Mapping[str, Any] | None = None,
) -> SnapshotDiff:
    """Compare two snapshots; `initial` is the state after the setup, `current` the state now."""
    workspace = Workspaces().find(workspace_id)
    redaction = Redaction(redactions, roots={"WORKSPACE": workspace.path})
    before, after = (
        redact_snapshot(
            capture_snapshot(workspace.path) if name == CURRENT else workspace.load_snapshot(name),
            redaction,
        )
        for name in (baseline, compare_to)
    )
    return compare_snapshots(before, after)


def copy_approved(folder: Path, workspace: Workspace) -> None:
    """Copy the approved snapshots of a folder to the workspace."""
    for path in folder.glob("*.json"):
        if not path.name.endswith(PENDING_SUFFIX):
            copy_atomic(path, workspace.snapshots / path.name)


def copy_pending(assertions: Iterable[object], workspace: Workspace, folder: Path) -> None:
    """Copy pending snapshots next to the approved ones, and remove those that now match."""
    for assertion in map(parse_assertion, assertions):
        if not isinstance(assertion, SnapshotMatches):
            continue
        name = f"{assertion.snapshot_id}{PENDING_SUFFIX}"
        pending = workspace.snapshots / name
        if pending.is_file():
            copy_atomic(pending, folder / name)
        else:
            (folder / name).unlink(missing_ok=True)


def propose_snapshot(
    workspace: Workspace, assertion: SnapshotMatches, *, holds: bool
) -> Path | None:
    """Store the actual files as a pending snapshot, or remove it if the assertion holds."""
    path = workspace.snapshots / f"{assertion.snapshot_id}{PENDING_SUFFIX}"
    if in_ci():
        return None
    if holds:
        path.unlink(missing_ok=True)
        return None
    redaction = Redaction(assertion.redactions, roots={"WORKSPACE": workspace.path})
    actual = capture_snapshot(
        workspace.path, assertion.include_patterns, assertion.exclude_patterns
    )
    data = msgspec.json.encode(redact_snapshot(actual, redaction))
    write_atomic(path, msgspec.json.format(data))
    return path
