"""A process that is killed in the middle of a run leaves a trace to its last whole line."""

import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from offbook.trace.instrument import rebuild_requests
from offbook.trace.reader import read_trace

LONG = """
import os, sys
from offbook import call, say, session, when

def tell(event):
    os.write(1, b"%d\\n" % event.seq)

def endless(n):
    return when(f"Turn {n}", [call("bash", {"command": "x" * 500}), say("y" * 500)])

with session(mock_tools={"bash": "z" * 500}, trace=sys.argv[1]) as t:
    t.hub.subscribe(tell)
    t.run(*(endless(n) for n in range(2000)))
"""


def kill_after(place: Path, events: int) -> int:
    """Kill a long run once it has told so many events; the last number that was heard."""
    process = subprocess.Popen([sys.executable, "-c", LONG, place], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process, process.stdout as heard:
        for _ in islice(heard, events):
            pass
        process.send_signal(signal.SIGKILL)
        last = [int(line) for line in heard.read().splitlines()[:-1]]
    assert process.returncode == -signal.SIGKILL
    return max([events, *last])


@pytest.mark.parametrize("events", [1, 2, 17, 300])
def test_a_killed_run_leaves_every_event_that_was_told(tmp_path: Path, events: int):
    place = tmp_path / "t.jsonl"
    heard = kill_after(place, events)
    told, faults = read_trace(place)
    assert [event.seq for event in told] == list(range(1, len(told) + 1))
    assert len(told) >= heard
    assert all(fault.torn for fault in faults)
    assert all(event.event != "_meta.run_end" for event in told)
    for request in rebuild_requests(told):
        assert request.messages[0].text == "Turn 0"


def test_a_trace_that_is_cut_anywhere_in_its_last_line_is_shown_to_the_line_before(
    tmp_path: Path,
):
    place = tmp_path / "t.jsonl"
    kill_after(place, 20)
    lines = place.read_bytes().splitlines(keepends=True)[:20]
    place.write_bytes(b"".join(lines)[:-10])
    shown = subprocess.run(
        [sys.executable, "-m", "offbook", "show", place],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert shown.returncode == 0, shown.stderr
    assert "Turn 0" in shown.stdout
    assert f"{place}:20: the line is incomplete" in shown.stderr
    assert "in the middle" in shown.stdout
