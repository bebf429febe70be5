"""`cleanup`: remove a workspace."""

from __future__ import annotations

import msgspec

from offbook.runs.workspace import Workspaces


class CleanedUp(msgspec.Struct, frozen=True):
    """A workspace that is gone, and what was kept of it."""

    deleted: bool
    preserved_files: list[str]


def cleanup(workspace_id: str, *, preserve_session: bool = False) -> CleanedUp:
    """Remove a workspace, keeping its session where that is wanted."""
    kept = Workspaces().remove(workspace_id, preserve_session=preserve_session)
    return CleanedUp(deleted=True, preserved_files=kept)
