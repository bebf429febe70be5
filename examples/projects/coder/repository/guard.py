"""A hook of Claude Code: it refuses commands and edits that a coding agent must not make.

Claude Code starts it before each tool of .claude/settings.json, with the call as JSON on stdin.
The exit code 2 refuses the call, and stderr is what the model reads.
"""

import json
import re
import sys

COMMANDS = {
    r"\bgit\s+push\b": "a person pushes: say that the change is ready",
    r"\brm\s+-\w*r": "no folder is removed: remove the files by name",
}
FILES = {r"(^|/)migrations/": "a migration that has run is never edited: write a new one"}


def find_refusal(tool, values):
    """Return why a call is refused, or None."""
    rules, text = (COMMANDS, "command") if tool == "Bash" else (FILES, "file_path")
    for pattern, reason in rules.items():
        if re.search(pattern, str(values.get(text, ""))):
            return reason
    return None


if __name__ == "__main__":
    call = json.load(sys.stdin)
    if reason := find_refusal(call["tool_name"], call["tool_input"]):
        sys.stderr.write(reason)
        sys.exit(2)
