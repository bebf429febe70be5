"""A command is recorded with its output and its exit code."""

from __future__ import annotations

import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest

from offbook.errors import ModelError, UsageError
from offbook.exchange import Reply, Request
from offbook.exchange.dialects.provider_responses import interrupted_stream
from offbook.runs import MAX_OUTPUT, CommandResult, drive, record_command
from offbook.runs.commands import record_mocks
from offbook.sources import PROVIDERS, Live
from offbook.sources.cassette import Cassette, Recording, load_cassette
from offbook.sources.mocks import MockRecording
from offbook.sources.server import Server
from tests.sources.cassette.conversations import Counting, answer, ask


def run(command: list[str], function: Any, source: Any, folder: Path) -> CommandResult:
    folder.mkdir(exist_ok=True)
    home = dict(os.environ)
    return function(source, command, cwd=folder, echo=False, environment=home, deadline=300)[0]


ASKING = """
import json, os, urllib.request
body = json.dumps({"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]}).encode()
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
urllib.request.urlopen(urllib.request.Request(url, body, {"content-type": "application/json"}))
"""


@pytest.mark.parametrize(
    "printed, kept",
    [
        ("'hello'", "hello\n"),
        ("'x' * 70_000", "x" * MAX_OUTPUT + "\n… 4,465 more bytes\n"),
    ],
)
def test_the_command_is_recorded_with_its_output_and_its_exit_code(
    tmp_path: Path, printed: str, kept: str
):
    cassette = tmp_path / "one.yaml"
    command = [sys.executable, "-c", f"{ASKING}\nprint({printed}); raise SystemExit(3)"]
    result = run(command, record_command, Recording(Counting(), cassette), tmp_path)
    assert result.exit_code == 3
    recorded = load_cassette(cassette).header.metadata["command"]
    assert (recorded["exit_code"], recorded["output"]) == (3, kept)


@pytest.mark.parametrize("command", [[sys.executable, "-c", "pass"], ["no-such-command"]])
def test_a_command_without_requests_leaves_no_cassette(tmp_path: Path, command: list[str]):
    cassette = tmp_path / "one.yaml"
    with pytest.raises(UsageError, match=r"made no request|command not found"):
        run(command, record_command, Recording(Counting(), cassette), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("record", [record_command, record_mocks])
def test_a_command_without_a_complete_reply_changes_no_file(tmp_path: Path, record: Any):
    path = tmp_path / "one"
    path.write_text("recorded before")
    kind: Any = Recording if record is record_command else MockRecording
    recording = kind(Counting(interrupted_stream()), path, replace=True)
    command = [sys.executable, "-c", f"try:\n  exec({ASKING!r})\nexcept OSError: pass"]
    with pytest.raises(UsageError, match="before the reply was complete, so nothing was recorded"):
        record(recording, command, echo=False, environment=dict(os.environ), deadline=300)
    assert path.read_text() == "recorded before"


async def test_an_error_of_the_provider_is_recorded(tmp_path: Path):
    class Refusing:
        async def reply(self, _request: Request, /) -> Reply:
            raise ModelError("slow down", status=429, retry_after=3)

    with Server() as server:
        live = Live(server.mount(Refusing(), run="").openai, environment={})
        with Recording(live, tmp_path / "one.yaml") as recording:
            assert "429" in await answer(recording, ask("hi"))
    (item,) = load_cassette(tmp_path / "one.yaml")
    assert item.response.error is not None
    assert (item.response.error.status, item.response.error.retry_after) == (429, 3)


def ask_openai(prompt: str) -> str:
    """Return the answer to a prompt: an agent in this process, with urllib as its client."""
    message = {"role": "user", "content": prompt}
    body = msgspec.json.encode({"model": "gpt-5", "messages": [message]})
    url = "https://api.openai.com/v1/chat/completions"
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:  # noqa: S310 - as above
        return msgspec.json.decode(answer.read())["choices"][0]["message"]["content"]


def test_an_agent_in_this_process_is_recorded_without_a_server(tmp_path: Path):
    cassette = tmp_path / "one.yaml"
    model = Counting()
    with Server() as server:
        live = Live(server.mount(model, run="").openai, environment={})
        with Recording(live, cassette) as source, drive(ask_openai, source=source) as rehearsal:
            assert rehearsal.run("Hello").output == "answer 1"
    assert model.asked == 1
    replay = Cassette(cassette)
    with drive(ask_openai, source=replay) as rehearsal:
        assert rehearsal.run("Hello").output == "answer 1"
    assert replay.verdict().status == "pass"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", PROVIDERS)
async def test_each_provider_is_called_in_its_dialect(dialect: str, *, stream: bool):
    request = msgspec.structs.replace(ask("hi"), metadata={"dialect": dialect}, stream=stream)
    with Server() as server:
        endpoint = server.mount(Counting())
        place = endpoint.openai if dialect.startswith("openai") else endpoint.url
        reply = await Live({dialect: place}, environment={}).reply(request)
    assert reply.text == "answer 1"


async def test_an_unknown_dialect_is_rejected():
    request = msgspec.structs.replace(ask("hi"), metadata={"dialect": "gemni"})
    with pytest.raises(UsageError, match="supported: openai-chat"):
        await Live(environment={}).reply(request)
