"""MCP: scripted servers for the agents under test, and servers as the subject of a test.

from offbook.mcp import mcp_server

shop = mcp_server("shop", tools={"find_order": "order 7: one lamp"})
drive(ClaudeCode(), mcp=[shop])
"""

from offbook.capability import Capability, lazy_names

CAPABILITY = Capability(heading="MCP")

# Lazy, because `offbook --help` and every start of pytest import this package.
# `__init__.pyi` lists the same names for type checkers.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {"scripted_server": "mcp_server", "server_subject": "McpServer"},
    "CAPABILITY",
    internal={"scripted_server": "ScriptedServer", "server_session": "ToolContext"},
)
