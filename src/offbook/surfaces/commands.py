"""The commands by heading, and the text of `offbook --help`, without other packages."""

from __future__ import annotations

import sys

from offbook.capability import CommandEntry


def _core(text: str, target: str) -> CommandEntry:
    return CommandEntry(text, f"offbook.surfaces.cli.{target}")


# The commands of the core. Capabilities declare theirs in their `CAPABILITY`.
COMMANDS = {
    "Start": {
        "demo": _core(
            "Run two examples: a test that passes, and one that fails.", "first_steps:demo"
        ),
        "doctor": _core("Check the environment and the project.", "first_steps:doctor"),
    },
    "Run": {
        "run": _core("Run a command against a scripted model.", "run:run"),
        "serve": _core("Serve a scripted model to any client.", "serving:serve"),
        "show": _core("Show a trace as a tree, or a cassette.", "traces:show"),
        "report": _core("Write the verdicts of traces as a report.", "traces:report"),
        "compare": _core("Compare two traces, or two folders of traces.", "traces:compare"),
        "review": _core("Accept or reject changes of expected files.", "traces:review"),
        "determinism": _core(
            "Run a target several times and report what differs.", "recording:determinism"
        ),
    },
    "Record and replay": {
        "record": _core(
            "Run a command with the real model and record a cassette.", "recording:record"
        ),
        "replay": _core("Run a command against a cassette.", "recording:replay"),
        "cassette": _core("Edit and verify cassettes.", "cassette:cassette"),
        "import": _core(
            "Convert a trace of another tool into a cassette or mocks.", "cassette:import_trace"
        ),
    },
    "Agents": {
        "mcp": _core("Serve the test tools to agents.", "serving:mcp"),
    },
}
USAGE = """\
Usage: offbook [OPTIONS] COMMAND [ARGS]...

  Test AI agents without the model.

Options:
  --version   Show the version and exit.
  -h, --help  Show this message and exit."""


def all_commands() -> dict[str, dict[str, CommandEntry]]:
    """Return every command under its heading: the core's, then those of each capability."""
    from offbook.surfaces.capabilities import load_capabilities

    groups = {heading: dict(entries) for heading, entries in COMMANDS.items()}
    for capability in load_capabilities():
        for name, entry in capability.commands.items():
            groups.setdefault(entry.heading or capability.heading, {})[name] = entry
    return groups


def render_help() -> str:
    """Return the help of `offbook`, as wide as the terminal."""
    columns = 80
    if sys.stdout.isatty():
        from shutil import get_terminal_size

        columns = max(get_terminal_size().columns, 20)
    width = min(columns, 80) - 2  # as in the help of each command
    lines = USAGE.split("\n")
    for heading, entries in all_commands().items():
        names = max(map(len, entries))
        commands = (f"  {name:{names}}  {entry.help}" for name, entry in entries.items())
        lines += ["", f"{heading}:", *commands]
    lines += ["", "  Begin with `offbook demo`."]
    return "\n".join(line if len(line) <= width else _wrap(line, width) for line in lines)


def _wrap(line: str, width: int) -> str:
    from textwrap import fill

    column = line.rfind("  ") + 2
    return fill(line, max(width, column + 10), subsequent_indent=" " * column)
