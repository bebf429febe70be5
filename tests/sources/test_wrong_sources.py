"""A source that cannot be used is refused with a message that names the mistake."""

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import FormatError, OffbookError, RunError, UsageError
from offbook.exchange import History, Request, user
from offbook.sources import Live, read_script
from offbook.sources.cassette import load_cassette, read_cassette_bytes
from offbook.sources.importers import read_trace
from offbook.sources.mocks import MockRecording, Mocks
from offbook.sources.playbook import Playbook, fail


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    "content, message",
    [
        ("version: 99\nnew_key: 1\ninteractions: []\n", "unsupported cassette version 99"),
        (b"version: 1\ninteractions:\n- \xff\n", "invalid UTF-8: invalid start byte"),
    ],
)
def test_a_cassette_that_cannot_be_read_says_why(
    content: str | bytes, message: str, tmp_path: Path
):
    with pytest.raises(FormatError, match=message):
        load_cassette(write(tmp_path, "c.yaml", content))


def test_a_missing_cassette_is_found_by_a_similar_name(tmp_path: Path):
    write(tmp_path, "refund.yaml", "")
    with pytest.raises(FormatError, match="no such cassette") as caught:
        read_cassette_bytes(tmp_path / "refunds.yaml")
    assert "refund.yaml" in caught.value.hint


@pytest.mark.parametrize(
    "line, message",
    [
        ({"error": {"category": "rate_limt"}}, "unknown error category 'rate_limt'"),
        ({"blocks": [{"type": "tool_cal"}]}, "unknown block type 'tool_cal'"),
        ({"text": "a", "stream_chunks": ["b"]}, "stream_chunks do not add up to text"),
    ],
)
def test_a_wrong_mock_is_named(line: dict[str, Any], message: str, tmp_path: Path):
    with pytest.raises(OffbookError, match=message):
        Mocks(write(tmp_path, "m.jsonl", json.dumps(line)))


def test_a_recording_overwrites_no_mocks(tmp_path: Path):
    with pytest.raises(UsageError, match="the file already exists"):
        MockRecording(Playbook(), write(tmp_path, "m.jsonl", ""))


@pytest.mark.parametrize(
    "record, message",
    [
        ({"ts": 1, "event": "ux.terminal.write", "data": {"bytes": "!"}}, "invalid base64"),
        ({"ts": 1, "event": "ux.terminal.write"}, "the record has no data"),
    ],
)
def test_a_broken_session_of_ralph_is_refused(record: dict[str, Any], message: str, tmp_path: Path):
    with pytest.raises(FormatError, match=message):
        read_trace(write(tmp_path, "session.jsonl", json.dumps(record)), kind="ralph")


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: fail("x", category=1), "expected a string: fail\\(category=1\\)"),  # type: ignore[arg-type]
        (lambda: fail(1), "fail\\(\\) takes a message and a status, not int and"),  # type: ignore[arg-type]
        (lambda: fail("x", status=200), "fail\\(status=200\\) is not an error status"),
    ],
)
def test_a_wrong_argument_of_fail_is_named(make: Callable[[], Any], message: str):
    with pytest.raises(OffbookError, match=message):
        make()


def test_an_exception_of_a_script_file_is_reported_with_the_file(tmp_path: Path):
    path = write(tmp_path, "script.py", "playbook = 1 / 0")
    with pytest.raises(FormatError, match="it raised ZeroDivisionError: division by zero"):
        read_script(path)


def test_a_provider_without_a_key_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(UsageError, match=r"missing API key for https://api\.openai\.com") as caught:
        asyncio.run(Live().reply(Request(History([user("hi")]))))
    assert "set OPENAI_API_KEY" in caught.value.hint


def test_a_provider_that_cannot_be_reached_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(RunError, match=f"cannot connect to {url}"):
        asyncio.run(Live(f"{url}/v1").reply(Request(History([user("hi")]))))
