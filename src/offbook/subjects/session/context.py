"""What tools, hooks and commands get to know of the session they run in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from offbook.exchange.source import ModelSource
    from offbook.subjects.session.ui import UI


class Context(msgspec.Struct, frozen=True):
    """The session, as an extension sees it.

    Whoever needs the model for itself, for a subagent say, asks `model`; in a playbook, a role
    answers.
    """

    cwd: Path
    ui: UI
    settings: Mapping[str, Any]
    model: ModelSource
    has_ui: bool = True
