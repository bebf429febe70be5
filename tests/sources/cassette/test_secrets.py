"""Secrets of every format, in every field that can contain one: none of them reaches the disk."""

from __future__ import annotations

import base64
from contextlib import suppress
from pathlib import Path

import pytest
from openai import AsyncOpenAI

from offbook.errors import ModelError, ReplayMismatch
from offbook.exchange import (
    History,
    Message,
    Reply,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    user,
)
from offbook.sources.cassette import Cassette, RecordedResponse, Recording, journal_path
from offbook.sources.cassette.maintenance import find_faults
from offbook.sources.server import Server
from offbook.trace import Hub, Recorder, TracedSource
from tests.planted_secrets import ENVIRONMENT, draw_values, plant
from tests.sources.cassette.conversations import Counting, ask


def all_files(folder: Path) -> list[Path]:
    """Return every file in a folder and its subfolders."""
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_no_secret_reaches_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    planted = plant("cassette")
    texts = [each.text for each in planted]
    unmarked = draw_values("cassette", len(ENVIRONMENT) + 1)
    bodies = [*(spelling for each in planted for spelling in each.spellings), *unmarked]
    for name, value in zip(ENVIRONMENT, unmarked, strict=False):
        monkeypatch.setenv(name, value)
    encoded = base64.b64encode(unmarked[0].encode()).decode()
    texts += [*unmarked[: len(ENVIRONMENT)], encoded, f"password: {unmarked[-1]}"]
    secret_text = "\n".join(texts)
    call = ToolCall(
        "toolu_01", "login", {"password": unmarked[-1], "note": secret_text, "deep": [texts]}
    )
    request = Request(
        History(
            [
                user(secret_text),
                Message("assistant", (Thinking(secret_text), call)),
                Message("tool", (ToolResult("toolu_01", (Text(secret_text),)),)),
            ]
        ),
        f"You know {secret_text}",
        (Tool("login", secret_text, {"description": secret_text}),),
        "gpt-5",
        {"extra": secret_text, "api_key": unmarked[-1], "response_format": {"name": secret_text}},
        {"authorization": f"Bearer {bodies[0]}", "note": secret_text},
    )
    split = tuple(secret_text[i : i + 7] for i in range(0, len(secret_text), 7))
    replies = (
        Reply((Text(secret_text), call), "tool_use", chunks=split),
        ModelError(f"wrong key: {secret_text}", status=401),
        Reply((Text(secret_text),)),
    )
    cassette, trace = tmp_path / "leaky.yaml", tmp_path / "trace.jsonl"
    hub = Hub()
    recorder = Recorder(trace, ts=0)
    hub.subscribe(recorder.record)
    messages: list[str] = []
    with Recording(Counting(*replies), cassette, task=secret_text) as recording:
        source = TracedSource(recording, hub, tools=True)
        for _ in replies:
            with suppress(ModelError):
                await source.reply(request)
        recording.record_output(
            secret_text, RecordedResponse(output=secret_text, exit_code=1), hat="shell"
        )
        journal = journal_path(cassette).read_bytes()
        recording.close({"command": {"argv": ["agent", *texts], "output": secret_text}})
    replay = Cassette(cassette, cursor=tmp_path / "cursor", hub=hub)
    for _ in replies:
        with suppress(ModelError):
            await TracedSource(replay, hub).reply(request)
    with pytest.raises(ReplayMismatch) as failed:
        replay.reply_to_prompt(f"{secret_text} and more", "shell")
    messages += [str(failed.value), replay.verdict().message]
    with pytest.raises(ReplayMismatch) as other:
        await Cassette(cassette).reply(ask(secret_text, system=secret_text))
    messages.append(str(other.value))
    recorder.close()
    written = [path.read_bytes() for path in all_files(tmp_path)]
    assert len(written) >= 3
    everything = b"\n".join([*written, journal, *(message.encode() for message in messages)])
    found = [
        everything[at - 60 : at + 60]
        for body in bodies
        if (at := everything.find(body.encode())) >= 0
    ]
    assert found == []
    assert encoded.rstrip("=").encode() not in everything
    assert b"[API_KEY]" in everything


async def test_a_mask_in_the_text_of_the_agent_is_kept(tmp_path: Path):
    path = tmp_path / "one.yaml"
    with Recording(Counting(Reply((Text("it says [API_KEY] here"),))), path) as recording:
        await recording.reply(ask("what is [API_KEY]?"))
    assert (await Cassette(path).reply(ask("what is [API_KEY]?"))).text == "it says [API_KEY] here"


async def test_what_a_recording_hides_passes_its_check(tmp_path: Path):
    path = tmp_path / "one.yaml"
    with Recording(Counting(Reply((Text("Your password:\nhunter2Xy9!"),))), path) as recording:
        await recording.reply(ask("Password:\nhunter2Xy9!"))
    assert b"hunter2Xy9!" not in path.read_bytes()
    assert find_faults(path) == []


PROGRAM = """import os

class Login:
    password: str
    api_key: str | None = None

    def __init__(self, password: str, token: str = "") -> None:
        self.password = password
        self.token = token or os.environ["SHOP_TOKEN"]
        self.url = f"postgres://shop:{password}@host/db?sslmode=require"

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "X-Commit": "4f2a9c1e8b7d6a5f4e3d2c1b"}
"""


async def test_source_code_about_secrets_is_replayed_unchanged(tmp_path: Path):
    path = tmp_path / "code.yaml"
    call = ToolCall("toolu_1", "Write", {"path": "risk-assessment-report.py", "content": PROGRAM})
    recorded = Reply((Text(f"```python\n{PROGRAM}```"), call), "tool_use")
    with Recording(Counting(recorded), path) as recording:
        await recording.reply(ask("Write it"))
    replayed = await Cassette(path).reply(ask("Write it"))
    assert replayed.blocks == recorded.blocks


async def test_a_mismatch_does_not_show_what_the_recording_hides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "one.yaml"
    monkeypatch.setenv("SHOP_PASSWORD", "correct horse battery")
    with Recording(Counting(), path) as recording:
        await recording.reply(ask("Log in with correct horse battery, then list the orders"))
    monkeypatch.delenv("SHOP_PASSWORD")
    with pytest.raises(ReplayMismatch) as failed:
        await Cassette(path).reply(ask("Log in with correct horse battery, then list the orders"))
    assert "correct horse battery" not in str(failed.value)
    assert "[API_KEY] was a secret in the recording" in str(failed.value)


async def test_a_key_that_a_client_sends_is_hidden_in_everything_it_asks(tmp_path: Path):
    trace = tmp_path / "trace.jsonl"
    key = "plain-looking-4711-key"
    hub = Hub()
    recorder = Recorder(trace, ts=0)
    hub.subscribe(recorder.record)
    with Server() as server:
        url = server.mount(Counting(), hub=hub).openai
        async with AsyncOpenAI(base_url=url, api_key=key) as client:
            await client.responses.create(model="gpt-5", input=f"Is {key} my key?")
    recorder.close()
    assert "Is [API_KEY] my key?" in trace.read_text()


def test_traces_and_cassettes_are_readable_by_their_owner_only(tmp_path: Path):
    Recorder(tmp_path / "trace.jsonl", ts=0).close()
    with Recording(Counting(), tmp_path / "one.yaml"):
        pass
    modes = {path.name: path.stat().st_mode & 0o777 for path in all_files(tmp_path)}
    assert modes == {"trace.jsonl": 0o600, "one.yaml": 0o600}
