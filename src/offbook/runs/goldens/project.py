"""Where a project keeps its fixtures, specs and live scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbook.runs.goldens.library import Library
from offbook.runs.goldens.registry import Registry
from offbook.runs.goldens.spec import SUFFIX

if TYPE_CHECKING:
    from pathlib import Path

FIXTURES, SPECS, LIVE = "fixtures", "tests/specs", "scripts/live"


class Project:
    """A project by its root folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.library = Library(root / FIXTURES)
        self.registry = Registry(root / LIVE)

    def specs(self) -> list[Path]:
        """The test specs, in order."""
        return sorted((self.root / SPECS).glob(f"*{SUFFIX}"))

    def spec(self, component: str) -> Path:
        """Where the spec of a component stands, or would."""
        return self.root / SPECS / f"{component}{SUFFIX}"

    def relative(self, path: Path) -> str:
        """A path as people write it."""
        return (
            path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)
        )


def find_root(start: Path) -> Path:
    """The project that a folder belongs to: the nearest that has fixtures or specs, or itself."""
    for folder in (start, *start.parents):
        if (folder / FIXTURES).is_dir() or (folder / SPECS).is_dir():
            return folder
        if (folder / "pyproject.toml").is_file() or (folder / ".git").exists():
            return folder
    return start
