"""Packs are built in Python, and written from what exists."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import UsageError
from offbook.evals import (
    ContextManifest,
    PackBuilder,
    RunOptions,
    build_context_manifest,
    read_manifest,
    read_pack,
    render_schema,
    run_context_eval,
    run_pack,
    write_first_pack,
    write_pack_from,
)
from tests.evals.conftest import RUN

TEST_FILE = """
from offbook import call, say, session, when

def test_a_greeting():
    with session(mock_tools={"bash": "hi"}) as rehearsal:
        rehearsal.run(when("Greet me", [call("bash", {"command": "echo"}), say("Done.")]))
"""


@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_a_built_pack_is_read_as_it_was_built(tmp_path: Path, suffix: str):
    builder = PackBuilder("shop", name='A "quoted" name')
    builder.fixture("f", "run-record", inline=RUN)
    builder.rubric("r", [{"path": "/id", "expected": {"a": [1, "é"]}}])
    builder.case("c", run="f", rubrics=["r"], thresholds={"max_tokens": 9}, metadata={"a-b": 1})
    path = builder.write(tmp_path / f"pack.{suffix}")
    assert read_pack(path).pack == builder.build()


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    words, st.dictionaries(words, st.one_of(words, st.booleans(), st.integers(-9, 9)), max_size=3)
)
def test_any_text_survives_toml(name: str, metadata: dict[str, Any]):
    import tomllib

    builder = PackBuilder("p", name=name, metadata=metadata)
    assert tomllib.loads(builder.render_toml()) == builder.to_dict()


def test_a_wrong_field_is_refused_when_it_is_added():
    with pytest.raises(UsageError, match="did you mean 'rubrics'"):
        PackBuilder("p").case("c", run="x", rubric=["r"])


def test_an_id_is_added_once():
    with pytest.raises(UsageError, match="defined twice"):
        PackBuilder("p").case("c", run="x").case("c", run="x")


def test_a_context_manifest_is_built_and_run():
    task = {
        "id": "t",
        "objective": "Find the failing service",
        "artifacts": [{"id": "a", "kind": "note", "text": "payments-api fails"}],
        "expected": {"required_terms": ["payments-api"]},
    }
    manifest = build_context_manifest("m", [task], ["cold", "hud_pack"])
    assert isinstance(manifest, ContextManifest)
    runs = run_context_eval(manifest)["runs"]
    assert [run["passed"] for run in runs] == [False, True]


BAD_MANIFESTS: dict[str, tuple[dict[str, Any], str]] = {
    "two modes with one id": ({"modes": [{"id": "a"}, {"id": "a"}]}, "'a' is defined twice"),
    "no objective": ({"tasks": [{"id": "t", "objective": " "}]}, "has no objective"),
    "an objective that is missing": ({"tasks": [{"id": "t"}]}, "objective"),
    "no tasks": ({"tasks": []}, "has no tasks"),
    "an unknown strategy": ({"modes": [{"assemble_strategy": "recent"}]}, "'recency'"),
}


@pytest.mark.parametrize("name", BAD_MANIFESTS)
def test_a_bad_manifest_is_refused(tmp_path: Path, name: str):
    changes, message = BAD_MANIFESTS[name]
    value = {"tasks": [{"id": "t", "objective": "x"}], "modes": [{"id": "cold"}], **changes}
    path = tmp_path / "m.json"
    path.write_text(json.dumps(value))
    with pytest.raises(UsageError, match=message):
        read_manifest(path)


def test_the_first_pack_passes_and_fits_its_schema(tmp_path: Path):
    import tomllib

    path = tmp_path / "evals" / "offbook.eval.toml"
    write_first_pack(path)
    assert path.read_text().startswith("#:schema ./eval-pack.schema.json\n")
    value = tomllib.loads(path.read_text())
    validator = jsonschema.Draft202012Validator(json.loads(render_schema()))
    validator.validate(value)  # pyright: ignore[reportUnknownMemberType]
    assert run_pack([path], RunOptions(output=str(tmp_path / "out"))).summary.passed_gate


def test_an_existing_pack_is_not_overwritten(tmp_path: Path):
    path = tmp_path / "p.toml"
    path.write_text("")
    with pytest.raises(UsageError, match="exists already"):
        write_first_pack(path)


def test_a_pack_is_written_from_records_and_tests(tmp_path: Path):
    record = tmp_path / "refund.run.json"
    record.write_text(json.dumps(RUN))
    test = tmp_path / "test_greeting.py"
    test.write_text(TEST_FILE)
    path = tmp_path / "evals" / "offbook.eval.toml"
    write_pack_from([record, test], path)
    pack = read_pack(path).pack
    assert [case.id for case in pack.cases] == ["refund", "test_greeting-1"]
    assert run_pack([path], RunOptions(output=str(tmp_path / "out"))).summary.passed_gate


def test_a_pack_is_written_from_a_folder_and_equal_names_are_told_apart(tmp_path: Path):
    for folder in ("a", "b"):
        (tmp_path / "runs" / folder).mkdir(parents=True)
        (tmp_path / "runs" / folder / "refund.run.json").write_text(json.dumps(RUN))
    path = tmp_path / "offbook.eval.toml"
    write_pack_from([tmp_path / "runs"], path)
    assert [case.id for case in read_pack(path).pack.cases] == ["refund", "refund-2"]


def test_a_folder_without_runs_gives_no_pack(tmp_path: Path):
    with pytest.raises(UsageError, match="nothing to write a pack from"):
        write_pack_from([tmp_path], tmp_path / "offbook.eval.toml")
