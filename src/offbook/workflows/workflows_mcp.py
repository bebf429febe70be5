"""The test tools as MCP tools: descriptions, schemas and calls.

The input schema of a tool is made from the signature of its function, so the two cannot differ.
`surfaces/mcp_server` serves the table `TOOLS`.
"""

from __future__ import annotations

import asyncio
import inspect as signatures
from collections.abc import Callable, Mapping
from typing import Any, Union, get_type_hints

import msgspec

from offbook.checks.assertion import RUN_ASSERTIONS, assertion_class
from offbook.checks.judge import Evaluation
from offbook.errors import OffbookError
from offbook.files import convert
from offbook.secrets import outgoing
from offbook.trace.reader import EventFilter
from offbook.trace.redaction import RedactionRules
from offbook.workflows.loop_tools import MockResponse, Progress
from offbook.workflows.presets import Preset
from offbook.workflows.tools import PARAMETERS, find_tool, tool_parameters
from offbook.workflows.tools import TOOLS as TOOL_NAMES

FUNCTIONS = {f"test_{name}": find_tool(name) for name in TOOL_NAMES}
READ_ONLY = {"test_compare", "test_coverage", "test_diff", "test_inspect"}
# These start a command or a client, which may do anything, and call its model if they are told to.
STARTS_AGENTS = {
    "test_benchmark",
    "test_chaos",
    "test_evaluate",
    "test_record",
    "test_replay",
    "test_run",
}
DESTRUCTIVE = {"test_cleanup", *STARTS_AGENTS}
# Values that work together: with them, the tools can be called one after another.
EXAMPLES: dict[str, Any] = {
    "workspace_id": "flow",
    "fixtures": {
        "src/main.py": "print()\n",
        "model.yaml": "- {when: Add error handling, do: [{say: LOOP_COMPLETE}]}\n",
    },
    "config": {
        "event_loop": {"starting_event": "task.start"},
        "hats": {
            "planner": {"triggers": ["task.start"], "publishes": ["build.task"]},
            "builder": {"triggers": ["build.task"], "publishes": ["build.done"]},
        },
    },
    "task": "Add error handling",
    "mock_responses": [
        {"hat": "planner", "output": '<event topic="build.task">Add try and except</event>'},
        {"hat": "builder", "output": '<event topic="build.done">Added</event>\nLOOP_COMPLETE'},
    ],
    "assertions": [
        {"type": "exit_code", "expected": 0},
        {"type": "hat_sequence", "hats": ["planner", "builder"]},
        {"type": "event_occurred", "topic": "build.done", "payload_pattern": "Added"},
        {"type": "file_exists", "path": "src/main.py"},
    ],
    "filter": {"topics": ["build.*"]},
    "test_name": "error handling",
    "snapshot_id": "after-build",
    "baseline": "initial",
    "after": "flow",
}
# Values of one tool, in place of those above.
TOOL_EXAMPLES: dict[str, dict[str, Any]] = {
    "test_chaos": {"playbook": "model.yaml", "faults": ["rate_limit@1"]},
}
# Types for the schema only: the tools parse these values themselves, with better errors.
SCHEMA_TYPES: dict[str, Any] = {
    "config": Preset,
    "fixtures": dict[str, str],
    "assertions": list[Union[tuple(map(assertion_class, RUN_ASSERTIONS))]],  # type: ignore[misc] # noqa: UP007 - made at run time
    "evaluations": list[Evaluation],
    "faults": list[str],
    "filter": EventFilter,
    "mock_responses": list[MockResponse],
    "redactions": RedactionRules,
}


class McpTool:
    """A function as an MCP tool."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self._function = function
        self._result_type = get_type_hints(function)["return"]
        self._arguments = _arguments_struct(name, function, {})
        # Two structs: the tool receives raw values, while the schema shows their fields.
        self._schema_struct = _arguments_struct(name, function, SCHEMA_TYPES)

    def describe(self) -> dict[str, Any]:
        """Return the description of the tool for `tools/list`."""
        description = {
            "name": self.name,
            "description": signatures.getdoc(self._function) or "",
            "inputSchema": _input_schema(self._schema_struct, TOOL_EXAMPLES.get(self.name, {})),
            "annotations": {
                "readOnlyHint": self.name in READ_ONLY,
                "destructiveHint": self.name in DESTRUCTIVE,
                "openWorldHint": self.name in STARTS_AGENTS,
            },
        }
        # `test_inspect` returns a dict of three formats and has no schema.
        if isinstance(self._result_type, type) and issubclass(self._result_type, msgspec.Struct):
            description["outputSchema"] = _json_schema(self._result_type)
        return description

    async def call(
        self, arguments: Mapping[str, Any], progress: Progress | None = None
    ) -> dict[str, Any]:
        """Return the result of `tools/call`; an error is a result, so the server goes on."""
        try:
            values = msgspec.structs.asdict(
                convert(dict(arguments), self._arguments, path=self.name)
            )
            if "progress" in signatures.signature(self._function).parameters:
                values["progress"] = progress
            if signatures.iscoroutinefunction(signatures.unwrap(self._function)):
                result = await self._function(**values)
            else:
                # In a thread: a snapshot of a large workspace must not block other calls.
                result = await asyncio.to_thread(self._function, **values)
            content = msgspec.to_builtins(result, enc_hook=repr)
        except OffbookError as error:
            return _text_result(str(error), is_error=True)
        except Exception as error:  # noqa: BLE001 - reported to the caller
            return _text_result(f"{type(error).__name__}: {error}", is_error=True)
        text = outgoing(msgspec.json.encode(content).decode())
        return _text_result(text) | {"structuredContent": msgspec.json.decode(text)}


def _arguments_struct(
    name: str, function: Callable[..., Any], types: Mapping[str, Any]
) -> type[msgspec.Struct]:
    """Return the parameters of a tool as a struct; `types` replace those that they have."""
    fields: list[Any] = []
    for key, (parameter, hint) in tool_parameters(function).items():
        default = () if parameter.default is parameter.empty else (parameter.default,)
        fields.append((key, types.get(key, hint), *default))
    return msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)


def _json_schema(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema with its root inline: clients do not follow a root `$ref`."""
    (root,), definitions = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    schema: dict[str, Any] = dict(definitions.pop(root["$ref"].rpartition("/")[2]))
    schema.pop("title", None)
    return schema | ({"$defs": definitions} if definitions else {})


def _input_schema(struct: type[msgspec.Struct], examples: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of the parameters, with their descriptions and examples."""
    schema = _json_schema(struct)
    for name, parameter in schema["properties"].items():
        # Optional means that it can be left out. Forms would turn "a list or null" into a text.
        if [*parameter.get("anyOf", ())][1:] == [{"type": "null"}]:
            parameter.update(parameter.pop("anyOf")[0])
        if parameter.get("default", ...) is None:
            del parameter["default"]
        if name in PARAMETERS:
            parameter["description"] = PARAMETERS[name]
        if name in EXAMPLES or name in examples:
            parameter["examples"] = [examples.get(name, EXAMPLES.get(name))]
    return schema


def _text_result(text: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": outgoing(text)}], "isError": is_error}


TOOLS = {name: McpTool(name, function) for name, function in FUNCTIONS.items()}
