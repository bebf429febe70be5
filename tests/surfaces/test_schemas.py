"""The schemas for editors accept the files that Offbook reads, and refuse a misspelt key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from offbook import Playbook, Recording, say, session, when
from offbook.files import parse_toml, parse_yaml
from offbook.surfaces import KINDS, make_schema
from tests.surfaces.conftest import Offbook

ROOT = Path(__file__).parents[2]
# The files of this repository that Offbook reads, by kind.
FILES = {
    "playbook": ["tests/fossils/*.playbook.yaml", "tests/one_playbook.yaml"],
    "cassette": ["tests/fossils/*.cassette.yaml", "examples/**/*.cassette.yaml"],
    "mocks": ["tests/fossils/*.mocks.jsonl"],
    "scenario": ["tests/fossils/*.scenario.yaml", "examples/scenarios/*.yaml"],
    "eval-pack": ["tests/fossils/*.eval.toml", "examples/evals/*.eval.toml"],
    "steps": ["examples/patterns/*.steps.yaml"],
}
# What the reader of the file refuses, too.
REFUSED: dict[str, list[Any]] = {
    "playbook": [
        [{"when": "Hi", "doo": []}],
        [{"when": "Hi", "do": [{"say": "a", "call": "b"}]}],
        [{"when": "Hi", "do": [{"say": "a", "with": {}}]}],
        [{"do": [{"say": "a"}]}],
        {"when": "Hi", "do": []},
    ],
    "cassette": [{"interactions": [{"requst": {}}]}, {"interactions": {}}],
    "mocks": [{"txt": "a"}],
    "scenario": [
        {"run": {"task": "a"}, "assert": [{"type": "exit_cod", "expected": 0}]},
        {"run": {"task": "a"}, "assert": [{"type": "exit_code", "expectd": 0}]},
        {"run": {"tsk": "a"}, "assert": []},
    ],
    "preset": [[]],
    "eval-pack": [{"cases": [{"idd": "a"}]}],
    "context-manifest": [[]],
    "contract": [{"evnts": {}}],
    "mcp-server": [{"mcp_server": "shop", "tols": {}}, {"tools": {}}],
    "steps": [
        {"pattern": "a.py", "steps": [{"send": "a", "too": 1}]},
        {"pattern": "a.py", "steps": [{"send": "a", "assert": "b"}]},
    ],
}


@pytest.fixture(scope="module")
def schemas() -> dict[str, dict[str, Any]]:
    return {name: make_schema(name) for name in KINDS}


def read_values(path: Path) -> Iterator[Any]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        yield from map(json.loads, text.splitlines())
    else:
        yield parse_toml(text, path) if path.suffix == ".toml" else parse_yaml(text, path)


@pytest.mark.parametrize("kind", FILES)
def test_the_files_of_this_repository_fit_their_schema(
    kind: str, schemas: dict[str, dict[str, Any]]
):
    files = [path for pattern in FILES[kind] for path in ROOT.glob(pattern)]
    assert files
    validator: Any = Draft202012Validator(schemas[kind])
    errors = [
        f"{path.name}: {error.json_path}: {error.message}"
        for path in files
        for value in read_values(path)
        for error in validator.iter_errors(value)
    ]
    assert errors == []


@pytest.mark.parametrize("kind", REFUSED)
def test_a_schema_refuses_what_the_reader_refuses(kind: str, schemas: dict[str, dict[str, Any]]):
    validator: Any = Draft202012Validator(schemas[kind])
    assert [value for value in REFUSED[kind] if validator.is_valid(value)] == []


def test_every_kind_of_file_is_tested_here():
    assert REFUSED.keys() == KINDS.keys()


def test_the_catalogue_names_every_schema_that_is_written(tmp_path: Path, offbook_command: Offbook):
    result = offbook_command("doctor", "--schemas", str(tmp_path / "schemas"))
    assert result.code == 0
    catalog = json.loads((tmp_path / "schemas/catalog.json").read_text())
    named = {entry["url"] for entry in catalog["schemas"]} | {"catalog.json"}
    assert named == {path.name for path in (tmp_path / "schemas").iterdir()}
    for entry in catalog["schemas"]:
        Draft202012Validator.check_schema(
            json.loads((tmp_path / "schemas" / entry["url"]).read_text())
        )


def test_a_new_cassette_selects_its_schema_where_the_schemas_are(
    tmp_path: Path, offbook_command: Offbook
):
    cassette = tmp_path / "tests" / "cassettes" / "go.yaml"
    cassette.parent.mkdir(parents=True)
    for recorded in (cassette, cassette.with_name("selected.yaml")):
        playbook = Playbook()
        playbook.load(when("Go", [say("Hi.")]))
        with Recording(playbook, recorded) as source, session(source=source) as rehearsal:
            rehearsal.run("Go")
        offbook_command("doctor", "--schemas", tmp_path / ".vscode" / "offbook")
    assert "yaml-language-server" not in cassette.read_text()
    line, *_ = cassette.with_name("selected.yaml").read_text().splitlines()
    schema = line.removeprefix("# yaml-language-server: $schema=")
    assert (cassette.parent / schema).resolve() == tmp_path / ".vscode/offbook/cassette.json"
