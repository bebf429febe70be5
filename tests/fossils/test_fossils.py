"""Files that version 0.1 wrote are still read: they are in this folder, as they were written."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.surfaces.conftest import Offbook, offbook_command

__all__ = ["offbook_command"]

FOSSILS = Path(__file__).parent
EXAMPLES = FOSSILS.parents[1] / "examples"
AGENT = """
import json, os, sys, urllib.request

TOOLS = [{"type": "function", "function": {"name": "refund", "parameters": {"type": "object"}}}]

def ask(messages):
    body = json.dumps({"model": "m", "messages": messages, "tools": TOOLS}).encode()
    headers = {"content-type": "application/json", "authorization": "Bearer none"}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as response:
        return json.load(response)["choices"][0]["message"]

messages = [{"role": "user", "content": sys.argv[1]}]
message = ask(messages)
while message.get("tool_calls"):
    messages.append(message)
    for call in message["tool_calls"]:
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": "refunded"})
    message = ask(messages)
print(message["content"])
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy the fossils into the working directory, with the agents that they need."""
    shutil.copytree(FOSSILS, tmp_path, dirs_exist_ok=True)
    shutil.copy(EXAMPLES / "evals" / "shop.py", tmp_path)
    (tmp_path / "agent.py").write_text(AGENT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "trace, shown",
    [
        ("session.trace.jsonl", 'call bash {"command":"echo hi"}'),
        ("drive.trace.jsonl", 'call refund {"number":7}'),
        ("run.trace.jsonl", 'call refund {"number":7}'),
        ("scenario.trace.jsonl", "builder"),
    ],
)
def test_a_trace_is_shown(offbook_command: Offbook, trace: str, shown: str):
    shown_trace = offbook_command("show", trace)
    assert (shown_trace.code, shown in shown_trace.out) == (0, True)


def test_a_trace_is_the_same_as_itself(offbook_command: Offbook):
    assert offbook_command("compare", "drive.trace.jsonl", "drive.trace.jsonl").code == 0


def test_a_trace_is_reported(offbook_command: Offbook):
    report = offbook_command("report", "scenario.trace.jsonl", "--format", "junit")
    assert "<testcase" in report.out


@pytest.mark.parametrize("script", ["refund.playbook.yaml", "refund.mocks.jsonl"])
def test_a_script_is_played(offbook_command: Offbook, script: str):
    command = [sys.executable, "agent.py", "Refund order 7"]
    assert offbook_command("run", "--playbook", script, "--", *command).code == 0


def test_a_cassette_is_replayed(offbook_command: Offbook):
    command = [sys.executable, "agent.py", "Refund order 7"]
    assert offbook_command("replay", "refund.cassette.yaml", "--", *command).code == 0


def test_a_cassette_is_shown(offbook_command: Offbook):
    assert offbook_command("show", "refund.cassette.yaml").code == 0


def test_a_golden_replays(offbook_command: Offbook):
    checked = offbook_command("golden", "--root", ".", "check")
    assert (checked.code, checked.out) == (0, "1 scenario replayed, 0 problems\n")


def test_a_scenario_passes(offbook_command: Offbook):
    played = offbook_command("scenario", "run", "flow.scenario.yaml", "--reports", "reports")
    assert (played.code, "1 passed, 0 failed" in played.out) == (0, True)


def test_an_eval_pack_passes(offbook_command: Offbook):
    assert offbook_command("eval", "run", "shop.eval.toml", "--output", "runs/after").code == 0


def test_an_eval_run_is_compared_with_a_new_one(offbook_command: Offbook):
    offbook_command("eval", "run", "shop.eval.toml", "--output", "runs/after")
    compared = offbook_command("eval", "compare", "runs/before", "runs/after")
    assert "1 case in both runs" in compared.out
