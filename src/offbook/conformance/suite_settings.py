"""The settings of a conformance suite: `conformance.toml` in its folder, and the command line.

timeout = 10
exclude = ["lib/*"]

[run]
py = "python {file}"
js = "node {file}"
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import msgspec

from offbook.errors import UsageError
from offbook.files import convert, parse_toml, read_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SETTINGS_FILE = "conformance.toml"
FILE = "{file}"
ANY = "*"  # the command for every extension
EXTENSION = re.compile(r"\.(\w+)=(.*)", re.DOTALL)


class SuiteSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Commands by extension, and limits.

    - `run`: the command of each extension, or of `*` for every file that has an expectation.
    - `timeout`: seconds before a case is killed, with all its processes.
    - `max_output`: bytes of output before a case is killed.
    - `exclude`: source files that are not cases, as patterns of paths in the suite.
    """

    run: dict[str, str] = {}
    timeout: float = 30.0
    max_output: int = 8 * 1024 * 1024
    exclude: list[str] = []

    def command(self, extension: str) -> list[str] | None:
        """Return the words of the command for an extension, or None."""
        text = self.run.get(extension, self.run.get(ANY))
        return None if text is None else shlex.split(text)


def read_suite_settings(folder: Path, run: Sequence[str] = ()) -> SuiteSettings:
    """Read the settings of a folder. Commands of the command line come first.

    `run` are commands, each for all files or for one extension: `.js=node {file}`.
    """
    path = folder / SETTINGS_FILE
    settings = SuiteSettings()
    if path.is_file():
        settings = convert(parse_toml(read_text(path), path), SuiteSettings, path=path)
    given = {
        match[1] if (match := EXTENSION.fullmatch(text)) else ANY: match[2] if match else text
        for text in run
    }
    # A command for all files replaces those of the settings.
    commands = given if ANY in given else {**settings.run, **given}
    if not commands:
        raise UsageError(
            "no command to run the cases with",
            where=str(folder),
            hint=f"--run 'python {FILE}', or a table [run] in {path}",
        )
    for extension, text in commands.items():
        where = "--run" if extension in given else f"{path}, run.{extension}"
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise UsageError(f"invalid command {text!r}: {error}", where=where) from error
        if not any(FILE in word for word in words):
            raise UsageError(
                f"the command {text!r} does not name the file",
                where=where,
                hint=f"write {FILE} where its path belongs: '{text} {FILE}'",
            )
    for name in ("timeout", "max_output"):
        if getattr(settings, name) <= 0:
            raise UsageError(f"{name} must be greater than 0", where=str(path))
    return msgspec.structs.replace(settings, run=commands)
