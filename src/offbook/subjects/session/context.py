"""What tools, hooks and commands get to know of the session they run in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from offbook.subjects.session.ui import UI


class Context(msgspec.Struct, frozen=True):
    """The session, as an extension sees it."""

    cwd: Path
    ui: UI
    settings: Mapping[str, Any]
    has_ui: bool = True
