"""`diff`: what changed in a workspace between two moments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offbook.checks.snapshot import Difference, Snapshot, capture, compare, redact
from offbook.runs.tools.snapshot import CURRENT, load
from offbook.runs.workspace import Workspace, Workspaces
from offbook.trace.redaction import Redaction


def diff(
    workspace_id: str,
    baseline: str,
    *,
    compare_to: str = CURRENT,
    redactions: Mapping[str, Any] | None = None,
) -> Difference:
    """Compare two snapshots; `initial` is how the workspace was set up, `current` how it is."""
    workspace = Workspaces().find(workspace_id)
    redaction = Redaction(redactions, roots={"WORKSPACE": workspace.path})
    before, after = (_take(workspace, name) for name in (baseline, compare_to))
    return compare(redact(before, redaction), redact(after, redaction))


def _take(workspace: Workspace, name: str) -> Snapshot:
    return capture(workspace.path) if name == CURRENT else load(workspace, name)
