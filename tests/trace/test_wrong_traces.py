"""Traces, folders and contracts that cannot be read are refused with a message that names them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbook.checks import compare_paths, parse_transcript, read_audit_policy, render_comparison
from offbook.errors import FormatError, UsageError, signal_name
from offbook.files import read_text
from offbook.trace import Contracts, EventFilter, list_records, parse_pointer

TRACE = '{"ts": 1, "event": "agent:start", "data": {}}\n'
USAGE = '{"ts": 1, "event": "model.reply", "data": {"usage": {"input": "many"}}}\n'


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_trace_that_only_one_folder_has_is_listed(tmp_path: Path):
    files = {"a/1.jsonl": TRACE, "a/2.jsonl": TRACE, "b/1.jsonl": TRACE, "b/3.jsonl": TRACE}
    folder = write(tmp_path, files)
    lines = list(render_comparison(compare_paths(folder / "a", folder / "b")))
    assert f"- 2.jsonl: only in {folder / 'a'}" in lines
    assert f"+ 3.jsonl: only in {folder / 'b'}" in lines
    assert "1 trace compared, 0 differ" in lines


def test_folders_without_a_common_trace_are_not_compared(tmp_path: Path):
    folder = write(tmp_path, {"a/1.jsonl": TRACE, "b/2.jsonl": TRACE})
    with pytest.raises(UsageError, match="the folders have no trace in common"):
        compare_paths(folder / "a", folder / "b")


def test_a_usage_that_is_no_number_is_refused(tmp_path: Path):
    folder = write(tmp_path, {"a.jsonl": USAGE, "b.jsonl": TRACE})
    with pytest.raises(FormatError, match="the usage of a reply cannot be read"):
        compare_paths(folder / "a.jsonl", folder / "b.jsonl")


def test_an_audit_policy_is_an_object(tmp_path: Path):
    folder = write(tmp_path, {"policy.json": "[]"})
    with pytest.raises(FormatError, match="an audit policy is an object with 'rules'"):
        read_audit_policy(folder / "policy.json")


def test_a_line_of_a_transcript_has_a_type(tmp_path: Path):
    lines = json.dumps({"type": "run_started"}) + "\n" + json.dumps({"kind": "x"}) + "\n"
    with pytest.raises(FormatError, match="expected an object with a 'type'") as caught:
        parse_transcript(lines, tmp_path / "t.jsonl")
    assert caught.value.line == 2


def test_a_file_that_is_no_text_is_refused(tmp_path: Path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(FormatError, match="not a UTF-8 text: invalid start byte"):
        read_text(path)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: list_records([], EventFilter(), 0), "limit: expected an integer >= 1, got 0"),
        (lambda: parse_pointer(5), "a JSON pointer is a text, got int"),  # type: ignore[arg-type]
        (lambda: Contracts(events={"a": 5}), "a: expected a JSON schema or a type, got 5"),
    ],
)
def test_a_wrong_argument_is_named(call: Callable[[], Any], message: str):
    with pytest.raises(UsageError) as caught:
        call()
    assert message in str(caught.value)


@pytest.mark.parametrize("number, name", [(15, "SIGTERM"), (40, "signal 40")])
def test_a_signal_is_named_or_numbered(number: int, name: str):
    assert signal_name(number) == name
