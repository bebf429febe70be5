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


def test_json_has_the_first_divergence(traces: Path, offbook_command: Offbook):
    outcome = offbook_command("compare", traces / "one.jsonl", traces / "other.jsonl", "--json")
    (trace,) = json.loads(outcome.out)["traces"]
    row = trace["rows"][trace["first_divergence"]]
    assert (row["state"], row["kind"]) == ("changed", "answers")
    assert row["changes"] == [{"path": ".text", "before": "Hi.", "after": "Bye.", "missing": ""}]


def test_a_missing_trace_is_named(traces: Path, offbook_command: Offbook):
    outcome = offbook_command("compare", traces / "one.jsonl", traces / "nothing.jsonl")
    assert f"{traces / 'nothing.jsonl'}: trace not found" in outcome.err
