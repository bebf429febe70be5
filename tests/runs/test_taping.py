"""A command is recorded with what it said and how it ended."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from offbook.errors import ModelError
from offbook.exchange.reply import Reply
from offbook.exchange.request import Request
from offbook.runs.taping import Done, record_command
from offbook.sources.cassette.journal import load
from offbook.sources.live import Live
from offbook.sources.recording import Recording
from offbook.sources.server.server import Server


def run(command: list[str], taping: Any, source: Any, folder: Path) -> Done:
    folder.mkdir(exist_ok=True)
    home = dict(os.environ)
    return taping(source, command, cwd=folder, echo=False, environment=home, deadline=60)[0]


def test_the_command_is_kept_with_its_output_and_how_it_ended(tmp_path: Path):
    cassette = tmp_path / "one.yaml"
    command = [sys.executable, "-c", "print('hello'); raise SystemExit(3)"]
    done = run(command, record_command, Recording(Live("http://127.0.0.1:9"), cassette), tmp_path)
    assert done.code == 3
    kept = load(cassette).header.metadata["command"]
    assert (kept["exit_code"], kept["output"]) == (3, "hello\n")


async def test_a_provider_that_refuses_is_recorded_so(tmp_path: Path):
    class Refusing:
        async def reply(self, _request: Request, /) -> Reply:
            raise ModelError("slow down", status=429, retry_after=3)

    from tests.sources.cassette.talks import answer, ask

    with Server() as server:
        live = Live(server.mount(Refusing(), run="").openai, environment={})
        with Recording(live, tmp_path / "one.yaml") as recording:
            assert "429" in await answer(recording, ask("hi"))
    (item,) = load(tmp_path / "one.yaml")
    assert item.response.error is not None
    assert (item.response.error.status, item.response.error.retry_after) == (429, 3)
