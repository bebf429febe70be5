"""Tests of the MCP capability."""
