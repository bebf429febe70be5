"""Writes packs: a first one, one from existing traces, run records and tests, and the schema."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from offbook.errors import FormatError, OffbookError, UsageError
from offbook.evals.builders import PackBuilder
from offbook.evals.imported_runs import read_stored_trace
from offbook.evals.pack import Pack
from offbook.evals.run_record import StoredRun, read_run_record
from offbook.files import copy_atomic, make_temp_folder, remove_temp_folder, write_atomic
from offbook.trace.recorder import COLLECT_TRACES

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
    _refuse_existing(path, record)
    encoded = msgspec.json.format(msgspec.json.encode(FIRST_RUN), indent=2) + b"\n"
    write_atomic(record, encoded)
    return [*_write_pack(builder, path), record]


def _refuse_existing(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise UsageError("the file exists already", where=str(path), hint="remove it first")


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
    _refuse_existing(path)
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
    if not names:
        raise UsageError("nothing to write a pack from", hint="name run records, traces or tests")
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
        if not found:
            raise UsageError("the tests have no rehearsals", where=str(file))
        return [
            copy_atomic(trace, folder / TRACES / f"{file.stem}-{number}.jsonl")
            for number, trace in enumerate(found, 1)
        ]
    finally:
        remove_temp_folder(collected)
