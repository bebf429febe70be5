"""A process that is killed during a run leaves a trace that is readable up to its last line."""

import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from offbook.trace import read_trace, rebuild_requests

LONG = """
import os, sys
from offbook import call, say, session, when

def report(event):
    os.write(1, b"%d\\n" % event.seq)

def endless(n):
    return when(f"Turn {n}", [call("bash", {"command": "x" * 500}), say("y" * 500)])

with session(mock_tools={"bash": "z" * 500}, trace=sys.argv[1]) as t:
    t.hub.subscribe(report)
    t.run(*(endless(n) for n in range(2000)))
"""


def kill_after(path: Path, events: int) -> int:
    """Kill a long run after this number of events; return the last number that it printed."""
    process = subprocess.Popen([sys.executable, "-c", LONG, path], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process, process.stdout as output:
        for _ in islice(output, events):
            pass
        process.send_signal(signal.SIGKILL)
        last = [int(line) for line in output.read().splitlines()[:-1]]
    assert process.returncode == -signal.SIGKILL
    return max([events, *last])


@pytest.mark.parametrize("events", [1, 2, 17, 300])
def test_a_killed_run_leaves_every_emitted_event(tmp_path: Path, events: int):
    path = tmp_path / "t.jsonl"
    last = kill_after(path, events)
    recorded, faults = read_trace(path)
    assert [event.seq for event in recorded] == list(range(1, len(recorded) + 1))
    assert len(recorded) >= last
    assert all(fault.torn for fault in faults)
    assert all(event.event != "_meta.run_end" for event in recorded)
    for request in rebuild_requests(recorded):
        assert request.messages[0].text == "Turn 0"


def test_a_trace_with_a_truncated_last_line_is_shown_up_to_the_line_before(
    tmp_path: Path,
):
    path = tmp_path / "t.jsonl"
    kill_after(path, 20)
    lines = path.read_bytes().splitlines(keepends=True)[:20]
    path.write_bytes(b"".join(lines)[:-10])
    shown = subprocess.run(
        [sys.executable, "-m", "offbook", "show", path],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert shown.returncode == 0, shown.stderr
    assert "Turn 0" in shown.stdout
    assert f"{path}:20: the line is incomplete" in shown.stderr
    assert "before the end of the run" in shown.stdout
