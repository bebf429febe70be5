"""Errors around a run are reported in plain text, and its session stays readable."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import OffbookError, UsageError
from offbook.trace import read_trace
from offbook.workflows import Workspaces, check, inspect, report, run, setup, snapshot
from tests.clients import is_alive
from tests.forked import forked_command, run_python
from tests.thorough import THOROUGH
from tests.waiting import wait_until

DONE = "LOOP_COMPLETE"


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that only this test and its processes see."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return Path(setup("t").workspace_path)


# ------------------------------------------------------------------------------- a huge payload


def file_sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.iterdir()}


HUGE = 100_000_000 if THOROUGH else 3_000_000


@pytest.mark.slow
async def test_a_huge_payload_is_recorded_checked_and_shortened(workspace: Path):
    huge = "x" * HUGE + " the end"
    output = f'<event topic="build.done">{huge}</event>\n{DONE}'
    ran = await run("t", "Go", mock_responses=[output])
    assert ran.termination_reason == "CompletionPromise"
    checked = check(
        "t",
        [
            {"type": "event_occurred", "topic": "build.done", "payload_pattern": "the end$"},
            {"type": "no_event", "topic": "build.done"},
        ],
    )
    assert [result.passed for result in checked.results] == [True, False]
    summary = inspect("t", filter={"topics": ["build.*"]})
    [record] = summary["records"]
    assert record["data"]["payload"].endswith("characters more")
    assert file_sizes(workspace.parent)["session.jsonl"] > 2 * HUGE
    report("t", "junit", "huge")
    assert max(file_sizes(workspace / "reports").values()) < 1_000_000


# --------------------------------------------------------------------------------- a full disk

LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
from offbook.surfaces.cli import main
main(sys.argv[1:])
"""


@pytest.fixture
def uncovered(tmp_path: Path, unwatched: dict[str, str]) -> dict[str, str]:
    """The environment of a process without coverage, whose files would count as well."""
    return {**unwatched, "TMPDIR": str(tmp_path)}


def test_a_full_disk_is_an_error_and_the_session_stays_readable(
    workspace: Path, uncovered: dict[str, str]
):
    words = [{"output": f"{number} {'x' * 3000}"} for number in range(8)] + [{"output": DONE}]
    command = ["workspace", "run", "t", "--task", "Go", "--max-iterations", "20"]
    ended = run_python(
        "-c", LIMITED, *command, "--mock-responses", json.dumps(words), env=uncovered
    )
    assert ended.returncode in {1, 2}
    assert "cannot write the trace: File too large" in ended.stderr
    assert "Traceback" not in ended.stderr
    events, faults = read_trace(workspace.parent / "session.jsonl")
    assert not faults  # the incomplete line was removed
    assert sum(event.event == "_meta.iteration" for event in events) >= 2
    summary = inspect("t", format="summary")
    assert summary["total_events"] == len(events)


def test_a_report_on_a_full_disk_leaves_the_previous_one(
    workspace: Path, uncovered: dict[str, str]
):
    answers = json.dumps([{"output": DONE}])
    for words in (
        ["run", "t", "--task", "Go", "--mock-responses", answers],
        ["assert", "t", json.dumps([{"type": "exit_code", "expected": 0}])],
        ["report", "t", "json"],
    ):
        assert run_python("-m", "offbook", "workspace", *words).returncode == 0
    whole = (workspace / "reports" / "json.json").read_bytes()
    tight = LIMITED.replace("20_000", "20")
    ended = subprocess.run(
        forked_command("-c", tight, "workspace", "report", "t", "json"),
        env=uncovered,
        capture_output=True,  # pipes: the limit is that of all files
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert "File too large" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert (workspace / "reports" / "json.json").read_bytes() == whole
    assert [path.name for path in (workspace / "reports").iterdir()] == ["json.json"]


# ---------------------------------------------------------------------- Ctrl-C, and all children

FAMILY = """
import os, signal, subprocess, sys, time
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if len(sys.argv) < 4:
    more = [sys.executable, __file__, *sys.argv[1:], "x"]
    subprocess.Popen(more, start_new_session=len(sys.argv) == 3)
with open(sys.argv[1], "a") as file:
    file.write(f"{os.getpid()}\\n")
time.sleep(600)
"""


def test_ctrl_c_stops_all_children_and_keeps_the_session(workspace: Path, tmp_path: Path):
    other = Path(setup("other", fixtures={"kept.txt": "kept"}).workspace_path)
    family, pids = tmp_path / "family.py", tmp_path / "pids"
    family.write_text(FAMILY)
    command = f"{sys.executable} {family} {pids}"
    words = ("workspace", "run", "t", "--task", "Go")
    running = subprocess.Popen(
        [sys.executable, "-m", "offbook", *words, "--command", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    unrelated = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 3)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=300)
        assert (running.returncode, err) == (130, b"offbook: interrupted\n")
        assert not [pid for pid in pids.read_text().split() if is_alive(int(pid))]
        assert is_alive(unrelated.pid)
    finally:
        unrelated.kill()
        unrelated.wait()
    summary = inspect("t", format="summary")
    assert "faults" not in summary
    assert summary["termination"][-1]["reason"] == "Interrupted"
    assert (other / "kept.txt").read_text() == "kept"
    assert Workspaces().ids() == ["other", "t"]


# ----------------------------------------------------------------------------- bad expressions


async def run_mock(**answer: Any) -> Any:
    ran = await run("t", "a" * 60 + "!", mock_responses=[{"output": DONE, **answer}])
    return ran.error


USES: dict[str, Callable[[str], Any]] = {
    "file_contains": lambda p: (
        check("t", [{"type": "file_contains", "path": "a.txt", "pattern": p}]).results[0].message
    ),
    "file_not_contains": lambda p: (
        check("t", [{"type": "file_not_contains", "path": "a.txt", "pattern": p}])
        .results[0]
        .message
    ),
    "stdout_contains": lambda p: (
        check("t", [{"type": "stdout_contains", "pattern": p}]).results[0].message
    ),
    "payload_pattern": lambda p: inspect("t", filter={"payload_pattern": p}),
    "redactions": lambda p: snapshot("t", redactions={"patterns": {"X": p}}),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize(
    "pattern, message", [("[", "invalid pattern"), ("(a|aa)+$", "took longer than")]
)
async def test_unusable_patterns_are_reported_quickly(
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    use: Callable[[str], Any],
    pattern: str,
    message: str,
):
    monkeypatch.setattr("offbook.trace.matching.MAX_SECONDS", 0.02)
    (workspace / "a.txt").write_text("a" * 60 + "!")
    await run_mock(output="a" * 60 + f"!\n{DONE}")
    try:
        output = str(use(pattern))
    except OffbookError as error:
        output = str(error)
    assert message in output


async def test_a_trigger_pattern_that_runs_away_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("offbook.trace.matching.MAX_SECONDS", 0.02)
    assert "took longer than" in await run_mock(trigger_pattern="(a|aa)+$")


async def test_an_invalid_trigger_pattern_is_rejected_before_the_run(workspace: Path):
    with pytest.raises(UsageError, match=r"mock_responses\[1\]\.trigger_pattern.*invalid pattern"):
        await run_mock(trigger_pattern="[")
    assert not (workspace.parent / "session.jsonl").exists()


# --------------------------------------------------------------------------- a workspace is gone


@pytest.mark.parametrize(
    "use",
    [
        lambda: check("t", [{"type": "exit_code", "expected": 0}]),
        lambda: inspect("t"),
        lambda: report("t", "junit", "x"),
        lambda: snapshot("t"),
    ],
    ids=["assert", "inspect", "report", "snapshot"],
)
def test_a_removed_workspace_is_reported_with_the_existing_ones(
    workspace: Path, use: Callable[[], Any]
):
    setup("other")
    workspace.parent.rename(workspace.parent.with_name(".gone"))
    with pytest.raises(UsageError, match="unknown workspace 't'") as caught:
        use()
    assert "available: other" in str(caught.value)
