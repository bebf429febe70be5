"""Events of a session are written in groups, and no code of a test or an agent runs between."""

import json
from pathlib import Path

import pytest

from offbook import call, say, session, when
from offbook.trace import recorder
from tests.forked import run_python

PROGRAM = """
import os, sys
from offbook import call, say, session, when

def die(*args, **more):
    os._exit(7)

async def die_later(*args):
    import asyncio
    await asyncio.sleep(0)
    die()

def extension(api):
    @api.tool("note", "Note it.", {{}})
    def note(params, context):
        {tool}
    @api.tool("wait", "Wait.", {{}})
    async def wait(params, context):
        await die_later()
    {hook}

with session(extensions=[extension], trace="trace.jsonl") as rehearsal:
    rehearsal.run({script})
"""
SCRIPT = 'when("Go", [call("note", {}), say("Done.")])'
CASES = {
    "a tool": ({"tool": "die()"}, "tool.start"),
    "a tool that waits": ({"script": 'when("Go", [call("wait", {}), say("x")])'}, "tool.start"),
    "one of two tools": (
        {"script": 'when("Go", [[call("note", {}), call("wait", {})], say("Done.")])'},
        "tool.start",
    ),
    "a hook of a start": ({"hook": 'api.on("agent_start")(die)'}, "hook.agent_start"),
    "a hook before a tool": ({"hook": 'api.on("tool_call")(die)'}, "tool.call"),
    "a hook after a tool": ({"hook": 'api.on("tool_result")(die)'}, "tool.end"),
    "a command": (
        {"hook": 'api.command("end")(die)', "script": 'when("/end", [])'},
        "session.command",
    ),
    "a callback": (
        {"script": 'when("Go", [call("note", {}).then(die), say("Done.")])'},
        "model.request",
    ),
    "late parameters": ({"script": 'when("Go", [call("note", die), say("x")])'}, "model.request"),
    "a listener": ({"script": "subscribed(when('Go', [say('Hi.')]))"}, "agent.start"),
    "the test, after a run": ({"script": f"{SCRIPT}); die("}, "_meta.run_end"),
}


@pytest.mark.parametrize("parts, last", CASES.values(), ids=CASES)
def test_a_process_that_dies_in_other_code_has_written_all_events(
    tmp_path: Path, parts: dict[str, str], last: str
):
    texts = {"tool": 'return "noted"', "hook": "", "script": SCRIPT, **parts}
    program = PROGRAM.format(**texts)
    if "subscribed" in texts["script"]:
        listener = (
            "def subscribed(turn):\n"
            "    rehearsal.hub.subscribe(die, 'agent.start')\n"
            "    return turn\n\n"
        )
        program = program.replace("with session", f"{listener}with session")
    process = run_python("-c", program, cwd=tmp_path)
    assert process.returncode == 7, process.stderr
    lines = (tmp_path / "trace.jsonl").read_bytes().splitlines()
    events = [json.loads(line) for line in lines]
    assert events[-1]["event"] == last
    assert [event["seq"] for event in events[1:]] == list(range(1, len(events)))


def test_events_after_parallel_calls_are_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    groups: list[list[str]] = []
    write_line = recorder.write_line

    def write(file: int, lines: bytes) -> None:
        groups.append([json.loads(line)["event"] for line in lines.splitlines()])
        write_line(file, lines)

    monkeypatch.setattr(recorder, "write_line", write)
    calls = [call("bash", {"command": "ls"}), call("read", {"path": "a"})]
    with session(mock_tools={"bash": "a", "read": "b"}, trace=tmp_path / "t.jsonl") as rehearsal:
        rehearsal.run(when("Go", [calls, say("Done.")]))
    assert groups[-1] == [
        *("tool.result", "tool.result", "model.request", "model.reply"),
        *("agent.end", "check.verdict", "_meta.run_end"),
    ]
