"""The tools that a request offers, and what Anthropic would say against them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, cast

import msgspec

from offbook.errors import ModelError
from offbook.exchange.messages import JSON
from offbook.exchange.request import Tool

if TYPE_CHECKING:
    from collections.abc import Iterable

from offbook.exchange.dialects.anthropic.decode import complain

_KNOWN = {"cache_control", "description", "input_schema", "name", "strict", "type"}
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


@lru_cache(maxsize=64)
def read_tools(raw: bytes) -> tuple[tuple[Tool, ...], str]:
    """The tools offered, and what is wrong with them.

    Agents repeat them with every request, so they are read once.
    """
    try:
        listed = msgspec.json.decode(raw, type=list[JSON] | None)
    except msgspec.ValidationError as error:
        raise ModelError(f"tools.{complain(error)}", status=400) from error
    except RecursionError as error:
        raise ModelError(f"tools: {error}", status=400) from error
    tools = tuple(_read_tool(tool) for tool in listed or ())
    return tools, _doubt_tools(tools)


def _read_tool(tool: JSON) -> Tool:
    """A function; anything else keeps its options where a function has its schema."""
    kind = tool.get("type") or "custom"
    name = str(tool.get("name", kind))
    if kind != "custom":
        rest = {key: value for key, value in tool.items() if key not in {"name", "type"}}
        return Tool(name, "", rest, kind=kind)
    schema = tool.get("input_schema")
    return Tool(
        name,
        str(tool.get("description") or ""),
        cast("JSON", schema) if isinstance(schema, dict) else {},
        strict=tool.get("strict") is True,
        more={name: value for name, value in tool.items() if name not in _KNOWN},
    )


def _doubt_tools(tools: Iterable[Tool]) -> str:
    names: set[str] = set()
    for at, tool in enumerate(tools):
        if tool.kind != "function":
            continue
        if wrong := _doubt_tool(tool):
            return f"tools.{at}.custom.{wrong}"
        if tool.name in names:
            return "tools: Tool names must be unique."
        names.add(tool.name)
    return ""


def _doubt_tool(tool: Tool) -> str:
    """What is wrong with a function, if anything is."""
    if not _TOOL_NAME.fullmatch(tool.name):
        return "name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"
    if "type" not in tool.schema:
        return "input_schema.type: Field required"
    if tool.schema["type"] != "object":
        return "input_schema.type: Input should be 'object'"
    return ""


def write_tool(tool: Tool) -> JSON:
    """A tool, as Anthropic is told of it."""
    if tool.kind != "function":
        return {"type": tool.kind, "name": tool.name, **tool.schema}
    name = f"{tool.namespace}__{tool.name}" if tool.namespace else tool.name
    wire: JSON = {"name": name, "input_schema": tool.schema or {"type": "object"}, **tool.more}
    if tool.description:
        wire["description"] = tool.description
    return {**wire, "strict": True} if tool.strict else wire
