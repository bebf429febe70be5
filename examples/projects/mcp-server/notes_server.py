"""An MCP server with the notes of a folder: python notes_server.py FOLDER.

A model chooses the names of notes, so a name is checked before it becomes a path.
"""

import re
import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("notes")
FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else "notes")


def find_path(name: str) -> Path:
    """Return the file of a note."""
    if not re.fullmatch(r"[a-z0-9-]{1,40}", name):
        raise ToolError(f"invalid name {name!r}: use up to 40 of a-z, 0-9 and -")
    return FOLDER / f"{name}.md"


@server.tool()
def list_notes() -> str:
    """List the names of all notes."""
    return "\n".join(sorted(path.stem for path in FOLDER.glob("*.md"))) or "no notes"


@server.tool()
def read_note(name: str) -> str:
    """Read a note."""
    path = find_path(name)
    if not path.exists():
        raise ToolError(f"there is no note {name!r}")
    return path.read_text(encoding="utf-8")


@server.tool()
def write_note(name: str, text: str) -> str:
    """Write a note. An existing note is never overwritten."""
    path = find_path(name)
    if path.exists():
        raise ToolError(f"there is a note {name!r}: choose another name")
    FOLDER.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="replace")
    return f"wrote {name}"


if __name__ == "__main__":
    server.run("stdio")
