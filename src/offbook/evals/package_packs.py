"""The packs that packages ship: found through entry points, and `[tool.offbook] evals`.

A distribution declares its packs in the group `offbook.evals`; the value is a package, and its
packs are the files `*.eval.toml` in it. A project lists its own in pyproject.toml:

    [tool.offbook]
    evals = ["evals/webhooks.toml"]
"""

from __future__ import annotations

from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from offbook.errors import FormatError, UsageError
from offbook.evals.pack_lines import parse_toml
from offbook.files import read_text

GROUP = "offbook.evals"
PATTERN = "*.eval.toml"


def find_package_packs(folder: Path | None = None) -> list[Path]:
    """Return the packs of the project and of all installed distributions; none is an error."""
    found = [*_project_packs(folder or Path()), *_installed_packs()]
    if not found:
        raise UsageError(
            "no package has eval packs",
            hint='list them in pyproject.toml: [tool.offbook] evals = ["…"]',
        )
    return found


def _project_packs(folder: Path) -> list[Path]:
    for parent in (folder.resolve(), *folder.resolve().parents):
        path = parent / "pyproject.toml"
        if path.is_file():
            break
    else:
        return []
    settings = parse_toml(read_text(path), path)
    listed = settings.get("tool", {}).get("offbook", {}).get("evals", [])
    packs = [path.parent / str(name) for name in listed]
    for pack in packs:
        if not pack.is_file():
            raise FormatError(f"[tool.offbook] evals names a missing file: {pack}", path=path)
    return packs


def _installed_packs() -> list[Path]:
    packs: list[Path] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        spec = find_spec(entry.module)
        places = list(spec.submodule_search_locations or ()) if spec is not None else []
        found = sorted(file for place in places for file in Path(place).rglob(PATTERN))
        if not found:
            where = f"the entry point {entry.name!r} of {GROUP}"
            raise UsageError(f"no {PATTERN} in {entry.module}", where=where)
        packs += found
    return packs
