"""Reads the output of a step as the runner of GitHub Actions does: which lines are commands."""

from __future__ import annotations

import re
from typing import NamedTuple

# The known ones; another word between colons is a text.
NAMES = {
    *("add-mask", "add-matcher", "add-path", "debug", "echo", "endgroup", "error", "group"),
    *("notice", "remove-matcher", "save-state", "set-env", "set-output", "stop-commands"),
    "warning",
}


class WorkflowCommand(NamedTuple):
    """A command of a step to the runner."""

    name: str
    properties: dict[str, str]
    message: str


def read_commands(output: str) -> list[WorkflowCommand]:
    """Return the commands in an output; after `stop-commands`, the runner ignores them."""
    commands: list[WorkflowCommand] = []
    stopped_by = ""
    for line in re.split(r"\r\n|\r|\n", output):
        command = _read_command(line, stopped_by)
        if command is None:
            continue
        if stopped_by:
            stopped_by = ""
        elif command.name == "stop-commands":
            stopped_by = command.message
        else:
            commands.append(command)
    return commands


def _read_command(line: str, stopped_by: str) -> WorkflowCommand | None:
    names = {stopped_by} if stopped_by else NAMES
    text = line.lstrip()
    if text.startswith("::") and (end := text.find("::", 2)) > 0:
        head, message = text[2:end], text[end + 2 :]
        separator, encoded = ",", {"%3A": ":", "%2C": ","}
    elif (start := text.find("##[")) >= 0 and (end := text.find("]", start)) > 0:
        # The old form, anywhere in a line.
        head, message = text[start + 3 : end], text[end + 1 :]
        separator, encoded = ";", {"%3B": ";", "%5D": "]"}
    else:
        return None
    name, _, rest = head.partition(" ")
    if name.lower() not in names and name not in names:
        return None
    pairs = [pair.split("=", 1) for pair in rest.strip().split(separator) if "=" in pair]
    properties = {key.strip(): _decode(value, encoded) for key, value in pairs}
    return WorkflowCommand(name, properties, _decode(message, {}))


def _decode(text: str, more: dict[str, str]) -> str:
    for code, char in {"%0D": "\r", "%0A": "\n", **more, "%25": "%"}.items():
        text = text.replace(code, char)
    return text
