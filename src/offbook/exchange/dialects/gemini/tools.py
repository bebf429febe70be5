"""The tools that a request offers, and what Gemini would say against them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Raw

from offbook.errors import ModelError
from offbook.exchange.arguments import RAW
from offbook.exchange.messages import JSON
from offbook.exchange.request import Tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

from offbook.exchange.dialects.gemini import forms

# Where a list is due, Google takes the one thing that would stand in it.
_Groups = dict[str, Raw] | list[dict[str, Raw]] | None
_Functions = forms.Function | list[forms.Function] | None

_TOOL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")


@lru_cache(maxsize=64)
def read_tools(raw: bytes) -> tuple[tuple[Tool, ...], str]:
    """The tools offered, and what is wrong with them.

    Agents repeat them with every request, so they are read once.
    """
    try:
        groups = msgspec.json.decode(raw, type=_Groups)
        listed = cast(
            "list[dict[str, Raw]]", [groups] if isinstance(groups, dict) else groups or []
        )
        tools = tuple(tool for group in listed for tool in _read_group(group))
    except (msgspec.ValidationError, RecursionError) as error:
        raise ModelError(f"Invalid value at 'tools': {error}", status=400) from error
    return tools, _doubt_tools(tools)


def _read_group(group: dict[str, Raw]) -> Iterator[Tool]:
    """Functions; anything else keeps its options where a function has its schema."""
    for kind, given in group.items():
        if kind not in {"functionDeclarations", "function_declarations"}:
            options = msgspec.json.decode(given, type=JSON | list[Any] | None)
            yield Tool(
                kind, "", {RAW: options} if isinstance(options, list) else options or {}, kind=kind
            )
            continue
        functions = msgspec.json.decode(given, type=_Functions)
        for one in [functions] if isinstance(functions, forms.Function) else functions or ():
            schema = one.parametersJsonSchema or one.parameters_json_schema
            parameters = schema or _lower(one.parameters or {})
            yield Tool(one.name, one.description or "", parameters, more=one.more)


def _doubt_tools(tools: Iterable[Tool]) -> str:
    names: set[str] = set()
    for at, tool in enumerate(tools):
        if tool.kind != "function":
            continue
        where = f"* GenerateContentRequest.tools[0].function_declarations[{at}]"
        if not _TOOL_NAME.fullmatch(tool.name):
            return (
                f"{where}.name: Invalid function name. Must start with a letter or an underscore."
                " Must be alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or"
                " dashes (-), with a maximum length of 128.\n"
            )
        if tool.schema and tool.schema.get("type") != "object":
            return f"{where}.parameters schema should be of type OBJECT.\n"
        if tool.name in names:
            return f"Duplicate function declaration found: {tool.name}"
        names.add(tool.name)
    return ""


def _lower(schema: Any) -> Any:
    """A schema whose types are written as JSON Schema writes them: `object`, not `OBJECT`."""
    if isinstance(schema, dict):
        return {
            key: value.lower() if key == "type" and isinstance(value, str) else _lower(value)
            for key, value in cast("JSON", schema).items()
        }
    return (
        [_lower(value) for value in cast("list[Any]", schema)]
        if isinstance(schema, list)
        else schema
    )


def write_tools(tools: Iterable[Tool]) -> list[JSON]:
    """The tools, as Google is told of them."""
    functions: list[JSON] = []
    others: list[JSON] = []
    for tool in tools:
        if tool.kind != "function":
            others.append({tool.kind: tool.schema.get(RAW, tool.schema)})
            continue
        name = f"{tool.namespace}__{tool.name}" if tool.namespace else tool.name
        function: JSON = {"name": name, "description": tool.description, **tool.more}
        functions.append(
            {**function, "parametersJsonSchema": tool.schema} if tool.schema else function
        )
    return [{"functionDeclarations": functions}, *others] if functions else others
