"""Spans in a receiver that others wrote: Phoenix shows what the trace has.

It runs as a process on loopback, in its home, by `./dev clients`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from offbook import call, fail, say, session, when
from offbook.errors import ScriptUnfinished
from offbook.reports import export_spans
from offbook.runs import send_spans
from offbook.trace import Trace
from tests.matrix.homes import HOMES
from tests.matrix.rows import WHOLE

PHOENIX = HOMES["phoenix"]
STARTS_WITHIN = 900  # it imports 600 MB and migrates a database: on a busy machine, minutes
SHOWN_WITHIN = 60

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(not WHOLE, reason="./dev clients runs the receivers of spans"),
]


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a Phoenix that has just started."""
    assert PHOENIX.ready, PHOENIX.describe_missing()
    folder = tmp_path_factory.mktemp("phoenix")
    ports = free_port(), free_port()
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(ports[0]),
        "PHOENIX_GRPC_PORT": str(ports[1]),
        "PHOENIX_TELEMETRY_ENABLED": "false",
        # It fetches its documentation and a runtime from the network, which are not needed.
        "HTTPS_PROXY": "http://127.0.0.1:9",
    }
    url = f"http://127.0.0.1:{ports[0]}"
    log = folder / "phoenix.log"
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            [PHOENIX.python, "-m", "phoenix.server.main", "serve"],
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + STARTS_WITHIN
        while not answers(f"{url}/healthz"):
            assert process.poll() is None, log.read_text(encoding="utf-8")[-2000:]
            assert time.monotonic() < deadline, log.read_text(encoding="utf-8")[-2000:]
            time.sleep(0.5)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - on loopback
            return True
    except (urllib.error.URLError, OSError):
        return False


def received(url: str, count: int, trace_id: str) -> dict[str, dict[str, Any]]:
    """Return the spans of a trace by their name, once Phoenix shows all of them."""
    deadline = time.monotonic() + SHOWN_WITHIN
    while True:
        address = f"{url}/v1/projects/default/spans?limit=100"
        with urllib.request.urlopen(address) as response:  # noqa: S310 - on loopback
            listed = json.load(response)["data"]
        spans = [span for span in listed if span["context"]["trace_id"] == trace_id]
        if len(spans) >= count or time.monotonic() > deadline:
            assert len(spans) == count
            return {span["name"]: span for span in sorted(spans, key=lambda s: s["start_time"])}
        time.sleep(0.5)


def export(path: Path, url: str) -> tuple[int, str]:
    document = export_spans(Trace(path))
    return send_spans(document, url), document["resourceSpans"][0]["scopeSpans"][0]["spans"][0][
        "traceId"
    ]


def test_phoenix_shows_the_conversation_the_tools_and_the_tokens(phoenix: str, tmp_path: Path):
    path = tmp_path / "t.jsonl"
    with session(trace=path) as rehearsal:
        rehearsal.run(
            when("Greet me", [call("bash", {"command": "echo hi; exit 3"}), say("Done.")])
        )
    spans = received(phoenix, *export(path, phoenix))
    chat, tool = spans["chat offbook/playbook"], spans["execute_tool bash"]
    attributes = chat["attributes"]
    assert (chat["span_kind"], tool["span_kind"]) == ("LLM", "TOOL")
    assert spans["invoke_agent session"]["span_kind"] == "AGENT"
    assert chat["parent_id"] == spans["invoke_agent session"]["context"]["span_id"]
    # Its own attributes, which it made of ours: the last request has the whole conversation.
    assert attributes["llm.input_messages.1.message.content"] == "Greet me"
    assert attributes["llm.output_messages.0.message.content"] == "Done."
    assert attributes["llm.input_messages.3.message.role"] == "tool"
    assert attributes["llm.token_count.prompt"] > attributes["llm.token_count.completion"] > 0
    assert tool["attributes"]["tool.parameters.command"] == "echo hi; exit 3"
    assert tool["status_code"] == "ERROR"
    assert tool["attributes"]["output.value"].startswith("hi")


def test_phoenix_shows_the_errors_of_the_provider_and_of_the_run(phoenix: str, tmp_path: Path):
    path = tmp_path / "t.jsonl"
    with pytest.raises(ScriptUnfinished), session(trace=path) as rehearsal:
        rehearsal.run(when("Greet me", [fail("overloaded", status=529), say("never")]))
    spans = received(phoenix, *export(path, phoenix))
    chat, run = spans["chat offbook/playbook"], spans["invoke_agent session"]
    assert (chat["status_code"], run["status_code"]) == ("ERROR", "ERROR")
    assert "overloaded" in chat["status_message"]
    assert chat["attributes"]["http.response.status_code"] == 529
    assert "ScriptUnfinished" in run["status_message"]
