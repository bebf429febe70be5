"""The JSON schemas of the files that people write, for editors: `offbook doctor --schemas FOLDER`.

They are made from the structs and tables that read the files, so they cannot differ from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from offbook.capability import load
from offbook.files import write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DRAFT = "https://json-schema.org/draft/2020-12/schema"
CATALOG = "catalog.json"
Schema = dict[str, Any]


class FileKind(NamedTuple):
    """A kind of file: what it is, its usual names, and the function that makes its schema."""

    title: str
    names: tuple[str, ...]
    make: Callable[[], Schema]


def _struct(target: str) -> Schema:
    return msgspec.json.schema(load(f"offbook.{target}"))


def _playbook() -> Schema:
    from offbook.sources import loading

    schema = msgspec.json.schema(list[loading._ScriptEntry])  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the format of the file
    actions, entries = schema["$defs"]["_ActionEntry"], schema["$defs"]["_ScriptEntry"]
    # One word for each action, and none of the options of another.
    words = loading.WORDS
    file_names = {"params": "with"}
    foreign = {
        word: {file_names.get(o, o) for w in words if w != word for o in (w, *words[w])}
        for word in words
    }
    actions["oneOf"] = [
        {
            "required": [word],
            "properties": dict.fromkeys(sorted(foreign[word] - {*options}), False),
        }
        for word, options in words.items()
    ]
    entries["oneOf"] = [{"required": ["when"]}, {"required": ["role"]}]
    return schema


def _cassette() -> Schema:
    header = _struct("sources.cassette.format:CassetteHeader")
    item = _struct("sources.cassette.format:Interaction")
    schema = header | {"$defs": header["$defs"] | item["$defs"]}
    top = schema["$defs"]["CassetteHeader"]
    top["properties"]["interactions"] = {"type": "array", "items": {"$ref": "#/$defs/Interaction"}}
    # A message that is one text is written as `user: text`.
    short = {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1}
    for definition in item["$defs"].values():
        messages = definition.get("properties", {}).get("messages")
        if messages:
            _allow_items(messages, short)
    return schema


def _allow_items(schema: Schema, other: Schema) -> None:
    for part in (schema, *schema.get("anyOf", ())):
        if "items" in part:
            part["items"] = {"anyOf": [part["items"], other]}


def _mock_line() -> Schema:
    from offbook.sources.mocks.mock_file import MockHeader, MockLine

    schemas, definitions = msgspec.json.schema_components([MockHeader, MockLine])
    return {"anyOf": list(schemas), "$defs": definitions}


def _scenario() -> Schema:
    from offbook.checks.assertion import ASSERTIONS, assertion_class

    schema = _struct("workflows.scenario_cli:Scenario")
    scenario = schema["$defs"]["Scenario"]["properties"]
    scenario.pop("<places>")  # set by the reader
    kinds = {name: assertion_class(name) for name in ASSERTIONS}
    fields = {
        name: sorted({field.encode_name for field in msgspec.structs.fields(kind)} - {"type"})
        for name, kind in kinds.items()
    }
    scenario["assert"]["items"] = {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"enum": sorted(kinds)}},
        "allOf": [
            {
                "if": {"properties": {"type": {"const": name}}, "required": ["type"]},
                "then": {"propertyNames": {"enum": ["type", *names]}},
            }
            for name, names in sorted(fields.items())
        ],
    }
    return schema


def _steps() -> Schema:
    from offbook.patterns import steps

    step: Schema = {
        "type": "object",
        "oneOf": [
            {
                "required": [kind],
                "properties": dict.fromkeys((kind, *steps.FIELDS[kind], "skip"), True),
                "additionalProperties": False,
            }
            for kind in steps.KINDS
        ],
    }
    return {
        "type": "object",
        "required": ["pattern", "steps"],
        "additionalProperties": False,
        "properties": {
            "pattern": {"type": "string", "description": "the file of the pattern"},
            "state": {"type": "object"},
            "steps": {"type": "array", "items": step},
            **dict.fromkeys(steps.OPTIONS, True),
        },
    }


def _pack() -> Schema:
    render: Callable[[], str] = load("offbook.evals.builders:render_schema")
    return msgspec.json.decode(render(), type=dict[str, Any])


KINDS: dict[str, FileKind] = {
    "playbook": FileKind("a playbook", ("*.playbook.yaml", "*.playbook.json"), _playbook),
    "cassette": FileKind("a cassette", ("*.cassette.yaml", "cassettes/*.yaml"), _cassette),
    "mocks": FileKind("a line of a mock file", ("*.mocks.jsonl",), _mock_line),
    "scenario": FileKind("a scenario", ("*.scenario.yaml", "scenarios/*.yaml"), _scenario),
    "preset": FileKind(
        "a preset of a hat loop",
        ("presets/*.yaml",),
        lambda: _struct("workflows.presets:Preset"),
    ),
    "eval-pack": FileKind("an eval pack", ("*.eval.toml", "*.eval.json"), _pack),
    "context-manifest": FileKind(
        "a context manifest of evals",
        ("*.context.json",),
        lambda: _struct("evals.context_eval:ContextManifest"),
    ),
    "contract": FileKind(
        "contracts of events",
        ("*.contract.yaml", "contracts/*.yaml"),
        lambda: _struct("trace.event_contracts:ContractFile"),
    ),
    "mcp-server": FileKind(
        "a scripted MCP server",
        ("*.mcp.yaml", "*.mcp.json"),
        lambda: _struct("mcp.scripted_server:ServerFile"),
    ),
    "steps": FileKind("steps of a pattern", ("*.steps.yaml", "*.steps.json"), _steps),
}


def make_schema(name: str) -> Schema:
    """Return the schema of a kind of file."""
    kind = KINDS[name]
    return {"$schema": DRAFT, "title": f"Offbook: {kind.title}"} | kind.make()


def write_schemas(folder: Path) -> list[Path]:
    """Write all schemas into a folder, and the catalogue that maps file names to them."""
    contents: dict[str, Any] = {f"{name}.json": make_schema(name) for name in KINDS}
    contents[CATALOG] = {
        "version": 1,
        "schemas": [
            {
                "name": f"Offbook: {kind.title}",
                "description": f"Offbook: {kind.title}",
                "fileMatch": list(kind.names),
                "url": f"{name}.json",
            }
            for name, kind in KINDS.items()
        ],
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        text = msgspec.json.format(msgspec.json.encode(content), indent=2).decode()
        write_atomic(folder / name, text + "\n")
    return [folder / name for name in contents]
