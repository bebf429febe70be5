"""The snapshots of workspaces: store the files, compare them, propose and review changes.

snapshot("flow", snapshot_id="before")
diff("flow", "before").changed_files
review(["flow"], accept=["before"])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.checks.expected_files import (
    PendingChange,
    Review,
    ReviewResult,
    Snapshot,
    SnapshotDiff,
    capture_snapshot,
    compare_snapshots,
    in_ci,
    list_proposed,
    proposal_path,
    redact_snapshot,
    update_goldens,
)
from offbook.errors import OffbookError, UsageError, did_you_mean
from offbook.files import copy_atomic, read_document, resolve_within, write_atomic
from offbook.trace.redaction import Redaction
from offbook.workflows.workspace import CURRENT, NAME_PATTERN, Workspace, Workspaces

if TYPE_CHECKING:
    from offbook.checks.assertion import Assertion
    from offbook.checks.context import CheckContext
    from offbook.checks.run_assertions import SnapshotMatches
    from offbook.trace.events import Verdict


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
    if name == CURRENT or not NAME_PATTERN.match(name):
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
        copy_atomic(path, workspace.snapshots / path.name)


def check_approved(folder: Path, assertion: Assertion) -> None:
    """Raise a FormatError if the approved snapshot of an assertion is damaged.

    A run reads a copy of it: its error would have another path.
    """
    from offbook.checks.run_assertions import SnapshotMatches

    if isinstance(assertion, SnapshotMatches):
        path = resolve_within(folder, f"{assertion.snapshot_id}.json")
        if path.is_file():
            read_document(path, Snapshot)


def copy_pending(assertions: Iterable[object], workspace: Workspace, folder: Path) -> None:
    """Copy pending snapshots next to the approved ones, and remove those that now match.

    With `--offbook-update`, the approved ones are copied.
    """
    from offbook.checks.assertion import parse_assertion
    from offbook.checks.run_assertions import SnapshotMatches

    for assertion in map(parse_assertion, assertions):
        if not isinstance(assertion, SnapshotMatches):
            continue
        approved = workspace.snapshots / f"{assertion.snapshot_id}.json"
        if update_goldens.get() and approved.is_file():
            copy_atomic(approved, folder / approved.name)
        pending = proposal_path(approved)
        if pending.is_file():
            copy_atomic(pending, folder / pending.name)
        else:
            (folder / pending.name).unlink(missing_ok=True)


def propose_snapshot(
    workspace: Workspace, assertion: SnapshotMatches, *, holds: bool
) -> Path | None:
    """Store the actual files as a pending snapshot, or remove it if the assertion holds.

    With `--offbook-update`, they are stored as the approved snapshot.
    """
    approved = workspace.snapshots / f"{assertion.snapshot_id}.json"
    updates = bool(update_goldens.get())
    path = approved if updates else proposal_path(approved)
    if in_ci():
        return None
    if holds or updates:
        proposal_path(approved).unlink(missing_ok=True)
    if holds:
        return None
    redaction = Redaction(assertion.redactions, roots={"WORKSPACE": workspace.path})
    actual = capture_snapshot(
        workspace.path, assertion.include_patterns, assertion.exclude_patterns
    )
    data = msgspec.json.encode(redact_snapshot(actual, redaction))
    write_atomic(path, msgspec.json.format(data))
    return path


def add_proposal(
    workspace: Workspace, raw: object, verdict: Verdict, location: str, context: CheckContext
) -> Verdict:
    """Store the actual files of a failed snapshot assertion, for a review or as approved."""
    from offbook.checks.assertion import evaluate_all, parse_assertion
    from offbook.checks.run_assertions import SnapshotMatches

    try:
        assertion = parse_assertion(raw)
        if not isinstance(assertion, SnapshotMatches):
            return verdict
        if not NAME_PATTERN.match(assertion.snapshot_id):
            return verdict
        pending = propose_snapshot(workspace, assertion, holds=verdict.holds)
    except (OffbookError, OSError):
        return verdict  # the verdict has the same error
    if pending is None:
        return verdict
    if update_goldens.get():
        return evaluate_all([raw], context)[0]
    message = f"{verdict.message}\nfix: offbook review {location}"
    details = {**verdict.context, "pending": str(pending)}
    return msgspec.structs.replace(verdict, message=message, context=details)


# --- The review


def list_pending(locations: Sequence[str] = ()) -> list[PendingChange]:
    """Return the proposals in workspaces and folders; by default in this folder."""
    pending: list[PendingChange] = []
    for location in locations or (".",):
        found = list_proposed(Path(location)) if Path(location).is_dir() else find_pending(location)
        if found is None:
            raise UsageError(
                f"{location!r} is neither a folder nor a workspace",
                hint=did_you_mean(location, Workspaces().ids()),
            )
        pending += found
    return pending


def find_pending(location: str) -> list[PendingChange] | None:
    """Return the proposals in a workspace, for `offbook review ID`; None if it is not one."""
    if Path(location).is_dir() or location not in Workspaces().ids():
        return None
    return list_proposed(Workspaces().find(location).snapshots)


def review(
    locations: Sequence[str] = (), *, accept: Iterable[str] = (), reject: Iterable[str] = ()
) -> ReviewResult:
    """Accept and reject proposals in workspaces and folders by name, by path, or `all`."""
    return Review(list_pending(locations)).decide(accept=accept, reject=reject)
