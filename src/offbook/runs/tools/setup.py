"""`setup`: make a workspace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from offbook.checks.snapshot import capture
from offbook.errors import UsageError
from offbook.runs.tools.snapshot import INITIAL, store
from offbook.runs.workspace import Workspaces
from offbook.subjects.loop.config import read_preset


class SetUp(msgspec.Struct, frozen=True):
    """A workspace that was made."""

    workspace_path: str
    workspace_id: str
    created_files: list[str]


def setup(
    workspace_id: str,
    *,
    fixtures: Mapping[str, str] | None = None,
    config: Mapping[str, Any] | None = None,
    scratchpad: str | None = None,
) -> SetUp:
    """Make an isolated workspace with these files, this configuration and this scratchpad."""
    if not isinstance(cast("Any", config), Mapping | None):
        raise UsageError("config is an object", hint='{"event_loop": {"max_iterations": 3}}')
    read_preset(config)  # what is wrong with it is told here, and not when it runs
    workspaces = Workspaces()
    workspaces.sweep()
    workspace, files = workspaces.create(
        workspace_id, fixtures=fixtures, config=config, scratchpad=scratchpad
    )
    if files:
        store(workspace, INITIAL, capture(workspace.path))
    return SetUp(str(workspace.path), workspace_id, files)
