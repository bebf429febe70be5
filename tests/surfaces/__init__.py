"""Tests of the command line and the MCP server."""
