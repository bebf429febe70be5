"""Writes packs: by a builder, a first one, one from existing traces and tests, and the schema.

pack = PackBuilder("shop")
pack.rubric("finished", [{"kind": "run-status", "expected": "completed"}])
pack.case("refund", run="runs/refund.json", rubrics=["finished"])
pack.write("evals/offbook.eval.toml")
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

import msgspec

from offbook.errors import FormatError, OffbookError, UsageError
from offbook.evals.context_eval import ContextManifest, ContextMode, ContextTask, with_ids
from offbook.evals.pack import EvalCase, FixtureRef, LadderSpec, Pack, Rubric
from offbook.evals.pack_file import normalize_keys
from offbook.evals.run_record import StoredRun, read_run_record, read_stored_trace
from offbook.files import (
    convert,
    copy_atomic,
    make_temp_folder,
    remove_temp_folder,
    require_new,
    write_atomic,
)
from offbook.options import require_some
from offbook.trace.recorder import COLLECT_TRACES


class PackBuilder:
    """Collects the parts of a pack; each is checked when it is added."""

    def __init__(self, pack_id: str, **fields: Any) -> None:
        given = {"version": 1, "id": pack_id, **fields}
        self._fields = normalize_keys(given, "$", _refuse)
        self._parts: dict[str, list[dict[str, Any]]] = {}
        convert(self._fields, Pack, path="PackBuilder")

    def fixture(self, fixture_id: str, kind: str, path: str = "", **fields: Any) -> PackBuilder:
        """Add a fixture."""
        value = {"id": fixture_id, "kind": kind, **({"path": path} if path else {}), **fields}
        return self._add("fixtures", value, FixtureRef)

    def rubric(
        self, rubric_id: str, assertions: Sequence[Mapping[str, Any]] = (), **fields: Any
    ) -> PackBuilder:
        """Add a rubric."""
        value: dict[str, Any] = {"id": rubric_id, **fields}
        if assertions:
            value["assertions"] = [dict(item) for item in assertions]
        return self._add("rubrics", value, Rubric)

    def case(self, case_id: str, **fields: Any) -> PackBuilder:
        """Add a case."""
        return self._add("cases", {"id": case_id, **fields}, EvalCase)

    def ladder(self, ladder_id: str, **fields: Any) -> PackBuilder:
        """Add a ladder."""
        return self._add("ladders", {"id": ladder_id, **fields}, LadderSpec)

    def _add(self, section: str, value: dict[str, Any], kind: type[Any]) -> PackBuilder:
        value = normalize_keys(value, f"$.{section}", _refuse)  # they may have dashes, as in files
        convert(value, kind, path=f"{section} {value['id']!r}")
        parts = self._parts.setdefault(section, [])
        if any(part["id"] == value["id"] for part in parts):
            raise UsageError(f"the id {value['id']!r} is defined twice in {section}")
        parts.append(value)
        return self

    def build(self) -> Pack:
        """Return the pack."""
        return convert(self.to_dict(), Pack, path="PackBuilder")

    def to_dict(self) -> dict[str, Any]:
        """Return the pack as plain values."""
        return {**self._fields, **self._parts}

    def render_toml(self) -> str:
        """Return the pack as TOML."""
        return "\n".join(_render_table(self.to_dict(), "")) + "\n"

    def write(self, path: Path | str) -> Path:
        """Write the pack to a TOML or JSON file."""
        path = Path(path)
        if path.suffix == ".json":
            text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"
        else:
            text = self.render_toml()
        write_atomic(path, text)
        return path


def _refuse(problem: str, at: str) -> NoReturn:
    raise UsageError(problem, where=at)


def build_context_manifest(
    manifest_id: str,
    tasks: Iterable[Mapping[str, Any]],
    modes: Iterable[Mapping[str, Any] | str],
    **fields: Any,
) -> ContextManifest:
    """Return a context manifest; a mode may be the name of its kind."""
    value: dict[str, Any] = {
        "id": manifest_id,
        "tasks": [convert(dict(task), ContextTask, path="tasks") for task in tasks],
        "modes": [
            ContextMode(id=mode, kind=mode)
            if isinstance(mode, str)
            else convert(dict(mode), ContextMode, path="modes")
            for mode in modes
        ],
        **fields,
    }
    return with_ids(ContextManifest(**value))


# --- TOML

INLINE_KEYS = {"expected", "input", "inline", "check"}  # values of any shape, on one line


def _render_table(table: Mapping[str, Any], prefix: str) -> list[str]:
    """Return the lines of a table: values first, then tables, then arrays of tables."""
    lines: list[str] = []
    tables: list[tuple[str, list[dict[str, Any]]]] = []
    for key, value in table.items():
        items = cast("list[Any]", value) if isinstance(value, list) else []
        name = f"{prefix}{_key(key)}"
        if items and all(isinstance(item, dict) for item in items):
            tables.append((f"[[{name}]]", items))
        elif isinstance(value, dict) and key not in INLINE_KEYS:
            tables.append((f"[{name}]", [cast("dict[str, Any]", value)]))
        else:
            lines.append(f"{_key(key)} = {_value(value)}")
    for header, items in tables:
        for item in items:
            lines += ["", header, *_render_table(item, f"{header.strip('[]')}.")]
    return lines


def _key(key: str) -> str:
    plain = key.replace("-", "").replace("_", "")
    return key if plain.isalnum() and key.isascii() else _text(key)


def _value(value: Any) -> str:
    """Return a value as TOML; texts are JSON strings, which TOML reads as well."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        inner = ", ".join(f"{_key(key)} = {_value(item)}" for key, item in fields.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value(item) for item in cast('list[Any]', value))}]"
    if value is None:
        raise UsageError("TOML has no null", hint="leave the key out, or write JSON")
    return _text(value)


def _text(value: Any) -> str:
    # JSON may contain a delete character, TOML may not.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


SCHEMA_NAME = "eval-pack.schema.json"
FIRST_RUN = {
    "_type": "run_record",
    "id": "example",
    "status": "completed",
    "stages": [{"node_id": "run", "status": "completed", "outcome": "success"}],
    "usage": {"input_tokens": 3, "output_tokens": 4, "total_duration_ms": 12, "total_cost": 0.001},
    "output": "Hello!",
}
TRACES = "traces"


def write_first_pack(path: Path) -> list[Path]:
    """Write a pack with one case that passes, its run record, and the schema for editors."""
    builder = PackBuilder(path.parent.name if path.parent.name not in {"", "."} else "first-pack")
    builder.rubric("finished", [{"kind": "run-status", "expected": "completed"}])
    builder.rubric("answer", [{"path": "/output", "op": "contains", "expected": "Hello"}])
    builder.case(
        "greeting",
        run="runs/example.json",
        rubrics=["finished", "answer"],
        thresholds={"max_latency_ms": 500, "max_cost_usd": 0.01},
    )
    record = path.parent / "runs" / "example.json"
    require_new(path)
    require_new(record)
    encoded = msgspec.json.format(msgspec.json.encode(FIRST_RUN), indent=2) + b"\n"
    write_atomic(record, encoded)
    return [*_write_pack(builder, path), record]


def _write_pack(builder: PackBuilder, path: Path) -> list[Path]:
    if path.suffix != ".toml":
        raise UsageError(f"expected a .toml file, got {path.name!r}", where=str(path))
    schema = path.parent / SCHEMA_NAME
    write_atomic(schema, render_schema())
    write_atomic(path, f"#:schema ./{SCHEMA_NAME}\n{builder.render_toml()}")
    return [path, schema]


def render_schema() -> str:
    """Return the JSON schema of a pack; each key may be written with dashes."""
    schema: dict[str, Any] = msgspec.json.schema(Pack)
    for definition in schema["$defs"].values():
        properties: dict[str, Any] = definition.get("properties", {})
        for name in list(properties):
            if "_" in name.strip("_$"):
                properties[name.replace("_", "-")] = properties[name]
    case = schema["$defs"]["EvalCase"]["properties"]
    case |= {"run_path": case["run"], "fixture_path": case["fixture"], "type": case["kind"]}
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


# --- From what exists


def write_pack_from(sources: Iterable[Path], path: Path) -> list[Path]:
    """Write a pack with one case for each run record, trace, or rehearsal of a test file.

    Of a folder, all traces and run records are used.
    """
    require_new(path)
    builder = PackBuilder(path.parent.name or "evals")
    builder.rubric("completed", [{"kind": "run-status", "expected": "completed"}])
    builder.rubric("failed", [{"kind": "run-status", "expected": "failed"}])
    names: Counter[str] = Counter()
    for source in sources:
        files = _files_of(source)
        for file in _traces_of_tests(source, path.parent) if source.suffix == ".py" else files:
            key, stored = _read(file)
            name = re.sub(r"[^A-Za-z0-9_-]+", "-", file.stem.removesuffix(".run"))
            names[name] += 1
            name = f"{name}-{names[name]}" if names[name] > 1 else name
            _add_case(builder, name, key, os.path.relpath(file, path.parent), stored)
    require_some(names, "nothing to write a pack from", hint="name run records, traces or tests")
    return _write_pack(builder, path)


def _read(file: Path) -> tuple[str, StoredRun]:
    if file.suffix == ".jsonl":
        return "trace", read_stored_trace(file)
    if file.suffix == ".json":
        return "run", read_run_record(file)
    raise FormatError(
        f"unsupported file type {file.suffix!r}",
        path=file,
        hint="a trace is a .jsonl, a run record a .json, a test a .py file",
    )


def _files_of(source: Path) -> list[Path]:
    if not source.is_dir():
        return [source]
    files = (file for suffix in ("json", "jsonl") for file in source.rglob(f"*.{suffix}"))
    return sorted(file for file in files if file.is_file())


def _add_case(builder: PackBuilder, name: str, key: str, place: str, stored: StoredRun) -> None:
    record = stored.record
    rubrics = ["failed" if record.status == "failed" else "completed"]
    # The tools that the run called are the behaviour to keep.
    if tools := sorted({tool.tool_name for tool in record.tool_recordings}):
        rubric = f"tools-of-{name}"
        builder.rubric(rubric, [{"kind": "tool-called", "expected": tools}])
        rubrics.append(rubric)
    builder.case(name, rubrics=rubrics, **{key: place})


def _traces_of_tests(file: Path, folder: Path) -> list[Path]:
    """Run a test file, and return copies of the traces of its rehearsals."""
    collected = make_temp_folder()
    try:
        end = subprocess.run(  # noqa: S603 - the tests of the user
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)],
            env={**os.environ, COLLECT_TRACES: str(collected)},
            capture_output=True,
            text=True,
            check=False,
        )
        found = sorted(collected.glob("*.jsonl"))
        if end.returncode:
            raise OffbookError(f"the tests failed:\n{end.stdout[-1000:]}", where=str(file))
        require_some(found, "the tests have no rehearsals", where=file)
        return [
            copy_atomic(trace, folder / TRACES / f"{file.stem}-{number}.jsonl")
            for number, trace in enumerate(found, 1)
        ]
    finally:
        remove_temp_folder(collected)
