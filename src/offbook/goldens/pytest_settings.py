"""The root folder and the import path of a project, as pytest determines them.

The commands use the same ones, so that they find the same fixtures and import the same modules.
"""

from __future__ import annotations

import shlex
import tomllib
from configparser import ConfigParser
from configparser import Error as IniError
from typing import TYPE_CHECKING, Any, NamedTuple

from offbook.errors import FormatError
from offbook.files import read_text

if TYPE_CHECKING:
    from pathlib import Path

# in the order in which pytest looks for them, with the keys of its table
SETTINGS_FILES = {
    "pytest.toml": ("pytest",),
    ".pytest.toml": ("pytest",),
    "pytest.ini": ("pytest",),
    ".pytest.ini": ("pytest",),
    "pyproject.toml": ("tool", "pytest"),
    "tox.ini": ("pytest",),
    "setup.cfg": ("tool:pytest",),
}


class PytestSettings(NamedTuple):
    """The root folder of pytest, and the folders of its setting `pythonpath`."""

    root: Path
    pythonpath: list[Path]


def find_pytest_settings(start: Path) -> PytestSettings:
    """Return the settings that `pytest` has when it is started in a folder."""
    folders = [start, *start.parents]
    for folder in folders:
        for name in SETTINGS_FILES:
            path = folder / name
            table = _read_table(path) if path.is_file() else None
            if table is not None:
                listed = table.get("pythonpath", [])
                names = shlex.split(listed) if isinstance(listed, str) else listed
                return PytestSettings(folder, [folder / str(entry) for entry in names])
    for name in ("pyproject.toml", "setup.py"):
        for folder in folders:
            if (folder / name).is_file():
                return PytestSettings(folder, [])
    return PytestSettings(start, [])


def _read_table(path: Path) -> dict[str, Any] | None:
    """Return the settings of pytest in a file, or None if it has none."""
    text = read_text(path)
    document: dict[str, Any]
    try:
        if path.suffix == ".toml":
            document = tomllib.loads(text)
        else:
            parser = ConfigParser(interpolation=None, strict=False)
            parser.read_string(text)
            document = {name: dict(parser[name]) for name in parser.sections()}
    except (tomllib.TOMLDecodeError, IniError) as error:
        raise FormatError(str(error), path=path) from error
    table: Any = document
    for key in SETTINGS_FILES[path.name]:
        table = table.get(key, {})
    if path.name == "pyproject.toml":
        table = table.get("ini_options", table)
    # files that are only for pytest count even if they are empty
    return table if table or path.name.lstrip(".").startswith("pytest.") else None
