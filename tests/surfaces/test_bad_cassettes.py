"""Every command rejects an invalid cassette with its line and a fix, and does not change it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from offbook.sources.cassette import Recording
from offbook.sources.server import Server
from tests.sources.cassette.conversations import Counting
from tests.sources.cassette.test_cassette_file import BOMB, GOOD
from tests.surfaces.conftest import Offbook
from tests.surfaces.test_cassette_commands import run_offbook

WITH_REDACTIONS = GOOD.replace("interactions:", "redactions:\n  {}\ninteractions:")
INVALID = {
    "truncated": (GOOD[:140], 4, "missing key 'response'"),
    "hand-broken": (GOOD.replace("output: hi again", "output: [hi"), 18, "YAML"),
    "newer": (GOOD.replace("version: 1", "version: 99"), 2, "upgrade Offbook"),
    "alias bomb": (BOMB, 2, "write out the values of the aliases"),
    "wrong type": (GOOD.replace("sha256:bb", "7"), 13, "expected a text"),
    "number instead of text": (GOOD.replace("output: hi again", "output: 42"), 18, "in quotes"),
    "two responses": (
        GOOD.replace("output: hi again", "output: hi\n      error: {message: busy}"),
        17,
        "expected one of output, blocks and error, got output and error",
    ),
    "no response": (
        GOOD.replace("response:\n      output: hi again", "response: {}"),
        17,
        "got none",
    ),
    "no status of an error": (
        GOOD.replace("output: hi again", "error: {message: busy, status: 99999}"),
        18,
        "expected an integer <= 599",
    ),
    "an endless retry_after": (
        GOOD.replace("output: hi again", "error: {message: busy, retry_after: .inf}"),
        18,
        "expected a number",
    ),
    "NUL byte": (GOOD.replace("hi again", "hi\0again"), 18, "contains a NUL byte"),
    "duplicate id": (GOOD.replace("id: 2", "id: 1"), 11, "change one of them"),
    "invalid pattern": (
        WITH_REDACTIONS.format('patterns: {user: "user_["}'),
        4,
        "invalid pattern",
    ),
    "catastrophic pattern": (
        WITH_REDACTIONS.format('patterns: {word: "(a|aa)+$"}').replace("hello", "a" * 60 + "b"),
        4,
        "do not repeat a group that",
    ),
    "invalid path": (WITH_REDACTIONS.format('paths: ["$.["]'), 4, "paths look like"),
    "unknown preset": (WITH_REDACTIONS.format("presets: [codx]"), 4, "did you mean 'codex'"),
    "another file": ("name: flow\nrun: {}\n", None, "'interactions' is missing"),
}
COMMANDS = (
    "replay {} -- true",
    "record {} --append --upstream http://127.0.0.1:9 -- touch ran",
    "cassette edit {} --upgrade",
    "cassette edit {} --trim 1",
    "cassette edit {}",
)


@pytest.mark.parametrize("command", COMMANDS, ids=[text.replace(" {}", "") for text in COMMANDS])
@pytest.mark.parametrize("kind", INVALID)
def test_an_invalid_cassette_is_rejected_with_its_line_and_not_changed(
    kind: str,
    command: str,
    tmp_path: Path,
    offbook_command: Offbook,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("offbook.trace.matching.MAX_SECONDS", 0.05)
    monkeypatch.setenv("EDITOR", "true")
    text, line, message = INVALID[kind]
    path = tmp_path / "shop.yaml"
    path.write_text(text)
    if kind == "catastrophic pattern" and "upgrade" not in command:
        pytest.skip("patterns are matched only when a request arrives")
    result = offbook_command(*command.format("shop.yaml").split())
    assert result.code == 2, result.out + result.err
    location = "shop.yaml" if line is None else f"shop.yaml:{line}"
    assert result.err.startswith(f"offbook: {location}: "), result.err
    assert re.search(message, result.err), result.err
    assert path.read_text() == text
    assert [file.name for file in tmp_path.iterdir()] == ["shop.yaml"]


def test_a_catastrophic_pattern_during_a_replay_is_reported_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "shop.yaml"
    path.write_text(WITH_REDACTIONS.format('patterns: {word: "(a|aa)+$"}'))
    body = '{"model": "m", "messages": [{"role": "user", "content": "' + "a" * 60 + 'b"}]}'
    agent = (
        "import os, urllib.request as u\n"
        "url = os.environ['OPENAI_BASE_URL'] + '/chat/completions'\n"
        f"u.urlopen(u.Request(url, {body.encode()!r}, {{'content-type': 'application/json'}}))"
    )
    arguments = ["replay", "shop.yaml", "--", sys.executable, "-c", agent]
    result = run_offbook(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    message = "shop.yaml:4: redactions.patterns['word']: the pattern '(a|aa)+$' took longer"
    assert message in result.stderr


def test_a_second_recorder_in_another_process_is_rejected(tmp_path: Path):
    path = tmp_path / "shop.yaml"
    with Recording(Counting(), path), Server() as server:
        url = server.mount(Counting(), run="").openai
        arguments = ["record", str(path), "--upstream", url, "--", "touch", "ran"]
        result = run_offbook(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert "already being recorded by process" in result.stderr
    assert not (tmp_path / "ran").exists()
