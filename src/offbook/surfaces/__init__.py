"""The surfaces: pytest, the command line and MCP."""
