"""The server as the evals run it, with the notes of each case in a new folder."""

import sys
from pathlib import Path

from offbook.mcp import McpServer

server = McpServer([sys.executable, str(Path(__file__).parents[1] / "notes_server.py"), "notes"])
