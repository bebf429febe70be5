"""`offbook compare`: exit codes, and JSON that a program can read."""

import json
from pathlib import Path

import pytest

from offbook import say, session, when
from tests.surfaces.conftest import Offbook


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """A folder with two equal traces and another one."""
    for name, answer in {"one": "Hi.", "same": "Hi.", "other": "Bye."}.items():
        with session(trace=tmp_path / f"{name}.jsonl") as rehearsal:
            rehearsal.run(when("Greet me", [say(answer)]))
    return tmp_path


@pytest.mark.parametrize("other, code", [("same", 0), ("other", 1), ("missing", 2)])
def test_the_exit_code_says_whether_traces_differ(
    other: str, code: int, traces: Path, offbook_command: Offbook
):
    paths = traces / "one.jsonl", traces / f"{other}.jsonl"
    assert offbook_command("compare", *paths).code == code


@pytest.mark.parametrize(
    "rules, other, code",
    [
        ('{"patterns": {"word": "[A-Za-z]+"}}', "other", 0),
        ('{"patterns": {"word": "[a-z]+"}}', "other", 1),
        ('{"paths": ["$..*"]}', "same", 0),
    ],
)
def test_redactions_replace_values_and_no_names_of_fields(
    rules: str, other: str, code: int, traces: Path, offbook_command: Offbook
):
    paths = traces / "one.jsonl", traces / f"{other}.jsonl"
    outcome = offbook_command("compare", *paths, "--redact", rules)
    assert outcome.code == code, outcome.err


@pytest.mark.parametrize(
    "rules, problem",
    [
        ('{"patterns": 5}', "--redact.patterns: expected a mapping, got an integer"),
        ('{"patterns": null}', "--redact.patterns: expected a mapping, got nothing"),
        ('{"paths": 5}', "--redact.paths: expected a list, got an integer"),
        ('{"presets": 5}', "--redact.presets: expected a list, got an integer"),
        ('{"pattern": {}}', "--redact.pattern: unknown key 'pattern'"),
        ('{"paths": ["$"]}', "a redaction path replaces whole events"),
    ],
)
def test_redactions_of_a_wrong_type_are_refused(
    rules: str, problem: str, traces: Path, offbook_command: Offbook
):
    trace = traces / "one.jsonl"
    outcome = offbook_command("compare", trace, trace, "--redact", rules)
    assert (outcome.code, problem in outcome.err) == (2, True), outcome.err


def test_json_has_the_first_divergence(traces: Path, offbook_command: Offbook):
    outcome = offbook_command("compare", traces / "one.jsonl", traces / "other.jsonl", "--json")
    (trace,) = json.loads(outcome.out)["traces"]
    row = trace["rows"][trace["first_divergence"]]
    assert (row["state"], row["kind"]) == ("changed", "answers")
    assert row["changes"] == [{"path": ".text", "before": "Hi.", "after": "Bye.", "missing": ""}]


def test_a_missing_trace_is_named(traces: Path, offbook_command: Offbook):
    outcome = offbook_command("compare", traces / "one.jsonl", traces / "nothing.jsonl")
    assert f"{traces / 'nothing.jsonl'}: no such trace" in outcome.err


def test_two_sets_of_runs_are_compared_trace_by_trace(tmp_path: Path, offbook_command: Offbook):
    answers = {"main": {"a": "Hi.", "b": "Hi."}, "branch": {"a": "Hi.", "b": "Bye.", "c": "Hi."}}
    for folder, traces in answers.items():
        for name, answer in traces.items():
            with session(trace=tmp_path / folder / f"{name}.jsonl") as rehearsal:
                rehearsal.run(when("Greet me", [say(answer)]))
    paths = tmp_path / "main", tmp_path / "branch"
    text, outcome = offbook_command("compare", *paths), offbook_command("compare", *paths, "--json")
    found = json.loads(outcome.out)
    assert (text.code, outcome.code) == (1, 1)
    assert "b.jsonl: 1 difference (1 in answers)" in text.out
    assert "c.jsonl" in text.out
    assert {one["name"]: one["same"] for one in found["traces"]} == {
        "a.jsonl": True,
        "b.jsonl": False,
    }
    assert (found["only_before"], found["only_after"]) == ([], ["c.jsonl"])
