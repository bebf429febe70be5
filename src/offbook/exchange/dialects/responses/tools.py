"""The tools that a request offers, and how a response repeats them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbook.exchange.request import Tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offbook.exchange.messages import JSON

ABOUT = "namespace_description"
_KNOWN = {"description", "format", "name", "parameters", "strict", "type"}


def read_tools(wired: Sequence[JSON], namespace: str = "", about: str = "") -> tuple[Tool, ...]:
    """The tools that are offered; those of a namespace say what that is about."""
    tools: list[Tool] = []
    for tool in wired:
        kind = str(tool.get("type", "function"))
        if kind == "namespace":
            told = str(tool.get("description") or "")
            tools += read_tools(tool.get("tools") or (), str(tool.get("name", "")), told)
        elif kind in {"function", "custom"}:
            schema = tool.get("parameters" if kind == "function" else "format")
            name, told = str(tool.get("name", "")), str(tool.get("description") or "")
            strict = tool.get("strict") is True
            more = {key: value for key, value in tool.items() if key not in _KNOWN}
            if about:
                more[ABOUT] = about
            tools.append(Tool(name, told, schema or {}, namespace, kind, strict, more))
        else:
            rest = {key: value for key, value in tool.items() if key != "type"}
            tools.append(Tool(kind, schema=rest, namespace=namespace, kind=kind))
    return tuple(tools)


def write_tools(tools: Sequence[Tool]) -> list[JSON]:
    """The tools, as they were offered."""
    wired: list[JSON] = []
    spaces: dict[str, list[JSON]] = {}
    for tool in tools:
        if tool.namespace and tool.namespace not in spaces:
            inside: list[JSON] = []
            spaces[tool.namespace] = inside
            wired.append(
                {
                    "type": "namespace",
                    "name": tool.namespace,
                    "description": tool.more.get(ABOUT, ""),
                    "tools": inside,
                }
            )
        spaces.get(tool.namespace, wired).append(_write_tool(tool))
    return wired


def _write_tool(tool: Tool) -> JSON:
    told: JSON = {"type": tool.kind, "name": tool.name, "description": tool.description}
    told.update((key, value) for key, value in tool.more.items() if key != ABOUT)
    if tool.kind == "function":
        return {**told, "parameters": tool.schema, "strict": tool.strict}
    if tool.kind == "custom":
        return {**told, "format": tool.schema} if tool.schema else told
    return {"type": tool.kind, **tool.schema}
