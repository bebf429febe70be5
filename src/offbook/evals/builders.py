"""Builders for packs and context manifests, so that they need not be written by hand.

pack = PackBuilder("shop")
pack.rubric("finished", [{"kind": "run-status", "expected": "completed"}])
pack.case("refund", run="runs/refund.json", rubrics=["finished"])
pack.write("evals/offbook.eval.toml")
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from offbook.errors import UsageError
from offbook.evals.context_eval import ContextManifest, ContextMode, ContextTask, with_ids
from offbook.evals.pack import EvalCase, FixtureRef, LadderSpec, Pack, Rubric
from offbook.files import convert, write_atomic


class PackBuilder:
    """Collects the parts of a pack; each is checked when it is added."""

    def __init__(self, pack_id: str, **fields: Any) -> None:
        self._fields: dict[str, Any] = {"version": 1, "id": pack_id, **fields}
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
