"""Keeps texts of traces from being workflow commands of GitHub Actions.

The runner reads the output of a step: a line that begins with `::`, after spaces, or contains `##[`
is a command to it. A model or a tool could print one. In Actions, a space goes into such a text.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Generator

_COMMAND = re.compile(r"(?:(?:^|(?<=[\r\n]))\s*:(?=:))|##(?=\[)")
_LINE_END = re.compile(r"[\r\n]")


def in_github_actions() -> bool:
    """Return whether this process is a step of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def neutralize(text: str) -> str:
    """Return a text of which no line is a workflow command."""
    return _COMMAND.sub(lambda found: f"{found[0]} ", text)


class NeutralStream:
    """A text stream that writes no workflow commands but those of `write_commands`."""

    def __init__(self, stream: TextIO) -> None:
        self.commands = stream
        self._line = ""  # the present line until now, as far as it can begin a command

    def write(self, text: str) -> int:
        """Write a text; a command may also be in parts of several calls."""
        joined = self._line + text
        self.commands.write(neutralize(joined)[len(self._line) :])
        line = _LINE_END.split(joined)[-1]
        # Of a line with text in it, only its last characters can begin a command.
        self._line = line if line.strip() in {"", ":"} else f"x{line[-2:]}"
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.commands, name)


def write_commands(text: str, stream: TextIO) -> None:
    """Write workflow commands of our own."""
    (stream.commands if isinstance(stream, NeutralStream) else stream).write(text)


@contextmanager
def neutral_output() -> Generator[None]:
    """In GitHub Actions, write no workflow commands to the output that the runner reads."""
    before = sys.stdout, sys.stderr
    if in_github_actions():
        sys.stdout, sys.stderr = (
            stream if _is_file(stream) else cast("TextIO", NeutralStream(stream))
            for stream in before
        )
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _is_file(stream: TextIO) -> bool:
    """Return whether a stream is redirected to a file, which gets its content unchanged."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # without a file descriptor
        return False
