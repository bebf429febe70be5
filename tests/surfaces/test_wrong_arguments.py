"""A wrong argument of a command ends with exit code 2 and a message that names it."""

import shlex
import sys
from pathlib import Path

import pytest

from tests.surfaces.conftest import Offbook

USAGE_ERROR = 2


@pytest.mark.parametrize(
    "command, message",
    [
        ("show .", ".: no cassettes found"),
        ("show none.yaml", "none.yaml: no such cassette"),
        ("compare a b", "a: no such trace"),
        ("report none --format coverage", "none: cannot read the trace: No such file or directory"),
        ("eval compare a b", "no run 'a' in .offbook/evals"),
        ("eval new pack.json", "pack.json: expected a .toml file, got 'pack.json'"),
        ("eval run", "no eval pack given"),
        ("eval run pack.json --report htlm", "unknown report 'htlm'"),
        ("eval list --sql 'select 1'", "queries need the package duckdb"),
        ("explore", "expected an agent or a world and a prompt, or a prompt and a command"),
        (
            "report none.jsonl --format otlp",
            "none.jsonl: cannot read the trace: No such file or directory",
        ),
        ("golden spec", "no specs to check"),
        ("lint none", "none: no such file or folder"),
        ("pattern test none.py", "none.py: no such file"),
        ("pattern test alone.py", "no tests for alone.py"),
        ("record x.yaml", "missing command to record"),
        ("record x.yaml --price gpt-5 -- true", "invalid --price 'gpt-5'"),
        ("replay x.yaml", "missing command to replay"),
        ("replay x.yaml --max-age 3 -- true", "invalid --max-age '3'"),
        ("replay x.yaml --wire -- true", "--wire has no effect without --trace"),
        ("report empty.jsonl --format tap --to http://x", "--to sends spans"),
        ("show empty.jsonl 2", "only a cassette has interactions with a number"),
        ("report empty.jsonl --format jnuit", "unknown report format 'jnuit'"),
        ("scenario run none.yaml", "none.yaml: cannot be read: No such file or directory"),
        ("scenario run x.yaml --json --events -", "--json and --events - both write to stdout"),
        ("run --otlp nope -- true", "invalid address of a collector: 'nope'"),
        ("run --otlp http://[ -- true", "invalid address of a collector: 'http://['"),
        ("bench broken.yaml", "the command exited with 2, so it was not measured"),
        ("serve none.yaml", "none.yaml: cannot be read: No such file or directory"),
        ("view", "missing TRACE or RUN_DIR"),
        ("view --live a b", "--live follows one trace or folder"),
        ("view a --compare b c", "--compare takes one trace and another one"),
        ("view none.jsonl", "no such file or folder: none.jsonl"),
    ],
)
def test_a_wrong_argument_is_named(
    command: str,
    message: str,
    offbook_command: Offbook,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    (tmp_path / "alone.py").touch()
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "broken.yaml").write_text("name: [")
    outcome = offbook_command(*shlex.split(command))
    assert outcome.code == USAGE_ERROR
    assert message in outcome.err.splitlines()[0]
