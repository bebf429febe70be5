"""What a real client asks and is answered is recorded once, and replayed without anybody."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import ModelError
from offbook.exchange.messages import Text, ToolCall
from offbook.exchange.reply import Reply, Usage
from offbook.exchange.request import Request
from offbook.runs.taping import Done, record_command, replay_command
from offbook.sources.cassette.journal import load
from offbook.sources.cassette.replay import Replay
from offbook.sources.live import Live
from offbook.sources.recording import Recording
from offbook.sources.server.server import Server
from tests.runs.clients import CLIENTS

SCRIPT = Path(__file__).parent / "clients.py"
QUIET = {"PYTHONWARNINGS": "ignore", "PYDANTIC_AI_NO_UPDATE_CHECK": "1"}


class Upstream:
    """The real provider, for the purposes of these tests: looks up once, then says so."""

    def __init__(self) -> None:
        self.asked = 0

    async def reply(self, request: Request, /) -> Reply:
        self.asked += 1
        if request.tools and not any(message.results for message in request.messages):
            call = ToolCall(f"call_{self.asked}aB3", "find_order", {"id": 7})
            return Reply((Text("let me look"), call), "tool_use", Usage(20, 9))
        text = f"It is blue, {self.asked} times."
        return Reply((Text(text),), usage=Usage(10, 3), chunks=("It is ", "bl", text[8:]))


def run(command: list[str], taping: Any, source: Any, folder: Path) -> Done:
    folder.mkdir(exist_ok=True)
    home = {**os.environ, **QUIET}
    return taping(source, command, cwd=folder, echo=False, environment=home, deadline=60)[0]


def environment(endpoint: Any) -> dict[str, str]:
    return {**endpoint.variables, "OPENAI_API_KEY": "sk-proj-" + "abcdEFGH1234" * 3}


@pytest.mark.parametrize(
    "client, times",
    [("openai_chat", 1), *(pytest.param(c, 3, marks=pytest.mark.slow) for c in sorted(CLIENTS))],
)
def test_what_a_real_client_was_told_is_told_again(client: str, times: int, tmp_path: Path):
    command = [sys.executable, str(SCRIPT), client, "Refund order 7"]
    cassette = tmp_path / f"{client}.yaml"
    upstream = Upstream()
    with Server() as server:
        live = Live(environment=environment(server.mount(upstream, run="")))
        recorded = run(command, record_command, Recording(live, cassette), tmp_path / "here")
    asked = upstream.asked
    assert recorded.code == 0, recorded.output
    assert "It is " in recorded.output
    for at in range(times):
        replay = Replay(cassette)
        again = run(command, replay_command, replay, tmp_path / f"there{at}")
        assert replay.verdict().status == "pass", replay.verdict().message
        assert again.output == recorded.output
    assert recorded.output.endswith("refused: 0\n")
    assert upstream.asked == asked
    assert "abcdEFGH1234" not in cassette.read_text()


def test_a_stream_is_kept_with_its_pieces(tmp_path: Path):
    cassette = tmp_path / "stream.yaml"
    with Server() as server:
        live = Live(environment=environment(server.mount(Upstream(), run="")))
        command = [sys.executable, str(SCRIPT), "openai_stream", "hi"]
        run(command, record_command, Recording(live, cassette), tmp_path / "here")
    (item,) = load(cassette)
    assert item.request.stream
    assert [int(piece.split("@")[0]) for piece in item.response.chunks.split()] == [6, 2, 12]


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
