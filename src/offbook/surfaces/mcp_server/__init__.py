"""The MCP server: serves the tools that the capabilities declare."""

from __future__ import annotations

from typing import Any

from offbook.capability import load
from offbook.errors import UsageError, did_you_mean
from offbook.surfaces.capabilities import load_capabilities


def all_tools() -> dict[str, Any]:
    """Return the MCP tools of all capabilities by name."""
    tools: dict[str, Any] = {}
    for capability in load_capabilities():
        if capability.mcp_tools:
            tools.update(load(capability.mcp_tools))
    return tools


def find_tool(name: str) -> Any:
    """Return the tool of this name."""
    tools = all_tools()
    if name not in tools:
        raise UsageError(f"unknown tool {name!r}", hint=did_you_mean(name, tools))
    return tools[name]


def describe_tools() -> list[dict[str, Any]]:
    """Return the descriptions of all tools, as `tools/list` reports them."""
    return [tool.describe() for tool in all_tools().values()]
