"""Edge cases of the test tools: limits, links, large and unusual files, bad input."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from offbook.checks import CheckContext, evaluate_all
from offbook.errors import UsageError
from offbook.files import parse_yaml, write_atomic
from offbook.trace import Event
from offbook.workflows import (
    check,
    cleanup,
    diff,
    inspect,
    read_scenario,
    report,
    run,
    run_scenario,
    setup,
    snapshot,
)
from tests.clients import is_alive
from tests.reports.test_formats import JUnitXml

DONE = [{"output": "LOOP_COMPLETE"}]


def tag(topic: str, payload: str = "") -> str:
    return f'<event topic="{topic}">{payload}</event>'


@pytest.fixture(autouse=True)
def isolated_workspaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)


@pytest.fixture
def workspace() -> Path:
    """A workspace."""
    return Path(setup("w", fixtures={"a.txt": "a\n"}).workspace_path)


def write_session(workspace: Path, rows: list[tuple[str, dict[str, Any]]]) -> Path:
    """Write a session with record event per second."""
    lines = [
        json.dumps({"ts": n * 1000, "event": name, "data": data})
        for n, (name, data) in enumerate(rows)
    ]
    path = workspace.parent / "session.jsonl"
    write_atomic(path, "\n".join(lines) + "\n")
    return path


def publish(topic: str, payload: Any = "") -> tuple[str, dict[str, Any]]:
    return "bus.publish", {"topic": topic, "payload": payload}


def iteration(n: int, hat: str = "a") -> tuple[str, dict[str, Any]]:
    return "_meta.iteration", {"n": n, "hat": hat}


# ------------------------------------------------------------------------------ running


async def test_responses_are_used_in_order_and_all_events_are_recorded(workspace: Path):
    outputs = [tag("task.note", str(n)) for n in range(2)] + ["LOOP_COMPLETE"]
    ran = await run("w", "Go", mock_responses=outputs)
    assert (ran.mock_responses_consumed, ran.mock_responses_remaining) == (3, 0)
    records = inspect("w", filter={"event_types": ["bus.publish"]})["records"]
    assert [record["data"]["payload"] for record in records] == ["Go", "0", "1"]


@pytest.mark.usefixtures("workspace")
async def test_unmatched_responses_are_reported_with_their_numbers():
    responses = [{"output": "a"}, {"output": "b", "trigger_pattern": "no"}, {"output": "c"}]
    ran = await run("w", "Go", mock_responses=[*responses[:2], {**responses[2], "hat": "other"}])
    assert "2 remaining, numbers 2, 3 (hat other)" in ran.error
    assert 'the prompt begins "## Task\nGo' in ran.error
    assert (ran.mock_responses_consumed, ran.mock_responses_remaining) == (1, 2)


async def test_a_promise_in_the_task_does_not_count(workspace: Path):
    ran = await run("w", "Say\nLOOP_COMPLETE", mock_responses=["no"] * 2, max_iterations=2)
    assert ran.termination_reason == "MaxIterations"


async def test_a_mocked_run_opens_no_connection(workspace: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*args: object) -> None:
        raise AssertionError(f"unexpected connection: {args}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    ran = await run("w", "Go", mock_responses=DONE)
    assert (ran.exit_code, ran.error) == (0, "")
    assert check("w", [{"type": "exit_code", "expected": 0}]).passed


async def test_at_the_time_limit_the_process_is_killed_and_its_output_kept(workspace: Path):
    code = "import os, time; print('my pid', os.getpid(), flush=True); time.sleep(600)"
    ran = await run(
        "w", "Go", backend="command", command=[sys.executable, "-c", code], max_runtime_secs=2
    )
    assert (ran.termination_reason, ran.exit_code) == ("MaxRuntime", 2)
    assert ran.stdout.startswith("my pid ")
    assert not is_alive(int(ran.stdout.split()[-1]))


async def test_a_daemon_with_a_cleared_environment_is_killed_and_reported(workspace: Path):
    daemon = "env -i setsid sh -c 'echo $$ > pid; exec sleep 600 > /dev/null 2>&1 < /dev/null' &"
    words = ["sh", "-c", f"{daemon} until test -s pid; do :; done; echo LOOP_COMPLETE"]
    ran = await run("w", "Go", backend="command", command=words)
    pid = int((workspace / "pid").read_text())
    assert ran.warnings == (f"the agent left processes running in iteration 1: {pid} (killed)",)
    assert not is_alive(pid)


async def test_a_promise_counts_whatever_the_exit_code_of_the_agent(workspace: Path):
    ran = await run(
        "w", "Go", backend="command", command=["sh", "-c", "echo LOOP_COMPLETE; exit 3"]
    )
    assert (ran.termination_reason, ran.exit_code) == ("CompletionPromise", 0)


async def test_an_agent_that_removes_its_workspace_is_an_error(workspace: Path, tmp_path: Path):
    words = ["sh", "-c", "rm -rf $PWD"]
    ran = await run("w", "Go", backend="command", command=words)
    assert ran.termination_reason == "WorkspaceGone"
    assert ran.error == "the agent removed the folder of the workspace"
    assert inspect("w", format="summary")["total_events"] > 0
    with pytest.raises(UsageError, match="files of the workspace 'w' were removed"):
        await run("w", "Go", backend="command", command=words)
    cleanup("w")
    setup("w")
    path = tmp_path / "record.yaml"
    path.write_text(
        "run:\n  task: Go\n  backend: command\n  command: [sh, -c, rm -rf $PWD]\n"
        "assert: [{type: exit_code, expected: 1}]\n"
    )
    result = await run_scenario(read_scenario(path), reports=tmp_path / "out")
    assert (result.passed, "removed the folder" in result.error) == (False, True)


async def test_each_attempt_has_a_new_workspace(tmp_path: Path):
    path = tmp_path / "record.yaml"
    log = tmp_path / "log"
    script = f"test -e mine && exit 9; touch mine; pwd >> {log}; test $(wc -l < {log}) -gt 1"
    path.write_text(
        "run:\n  task: Go\n  backend: command\n  max_iterations: 1\n"
        f"  command: [sh, -c, '{script} && echo LOOP_COMPLETE']\n"
        "assert: [{type: exit_code, expected: 0}]\nretry: {max_attempts: 2}\n"
    )
    result = await run_scenario(read_scenario(path), reports=tmp_path / "out")
    assert (result.passed, result.flaky, result.attempts) == (True, True, 2)
    assert len(set(log.read_text().split())) == 2


# ---------------------------------------------------------------------------- inspecting


def test_a_torn_last_line_is_reported_and_the_rest_is_read(workspace: Path):
    path = write_session(workspace, [publish("x.y", str(n)) for n in range(20)])
    write_atomic(path, path.read_bytes()[:-20])
    result = inspect("w")
    assert (len(result["records"]), result["truncated_tail"]) == (19, True)
    assert result["faults"][0]["line"] == 20
    assert check("w", [{"type": "event_count", "topic": "x.y", "exact": 19}]).passed


def test_a_limit_applies_to_records_not_to_counts(workspace: Path):
    write_session(workspace, [publish("x.y", str(n)) for n in range(50)])
    result = inspect("w", limit=10)
    assert [record["data"]["payload"] for record in result["records"]] == [
        str(n) for n in range(10)
    ]
    assert (result["total_matched"], result["truncated"]) == (50, True)
    assert not inspect("w", limit=50)["truncated"]


ROWS = [
    publish("start.it"),
    iteration(1),
    publish("record", {"n": 1}),
    iteration(2, "b"),
    publish("two", {"n": 2}),
    iteration(3),
    ("_meta.termination", {"reason": "MaxIterations"}),
]


@pytest.mark.parametrize(
    "wanted, topics",
    [
        ({"after_iteration": 1, "before_iteration": 3}, ["two"]),
        ({"before_iteration": 1}, ["start.it"]),
        ({"payload_pattern": r'"n":2'}, ["two"]),
        ({"topics": ["*.it"]}, ["start.it"]),
        ({"topics": ["*"]}, ["start.it", "record", "two"]),
    ],
)
def test_a_filter_selects_events(workspace: Path, wanted: dict[str, Any], topics: list[str]):
    write_session(workspace, ROWS)
    records = inspect("w", filter={"event_types": ["bus.publish"], **wanted})["records"]
    assert [record["data"]["topic"] for record in records] == topics


def test_a_timeline_has_every_iteration_and_its_duration(workspace: Path):
    write_session(workspace, ROWS)
    result = inspect("w", format="timeline")["timeline"]
    assert [(record["iteration"], record["hat"], record["topics"]) for record in result] == [
        (1, "a", ["record"]),
        (2, "b", ["two"]),
        (3, "a", []),
    ]
    assert [record["duration_ms"] for record in result] == [2000, 2000, 1000]


def test_an_invalid_filter_pattern_is_reported_with_its_field(workspace: Path):
    write_session(workspace, ROWS)
    with pytest.raises(UsageError, match=r"filter\.payload_pattern"):
        inspect("w", filter={"payload_pattern": "["})


# ----------------------------------------------------------------------------- asserting


async def test_a_pattern_that_runs_away_is_an_error_of_one_assertion(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("offbook.trace.matching.MAX_SECONDS", 0.1)
    await run("w", "Go", mock_responses=DONE)
    (workspace / "long.txt").write_text("a" * 100_000 + "!")
    checked = check(
        "w",
        [
            {"type": "file_contains", "path": "long.txt", "pattern": "(a|a|aa)+$"},
            {"type": "exit_code", "expected": 0},
        ],
    )
    assert [record.status for record in checked.results] == ["error", "pass"]


async def test_missing_binary_and_folder_have_different_messages(workspace: Path):
    await run("w", "Go", mock_responses=DONE)
    (workspace / "raw").write_bytes(b"\xff\xfe\x00")
    (workspace / "folder").mkdir()
    assertions = [
        {"type": kind, "path": path, "pattern": "x"}
        for path in ("gone", "raw", "folder")
        for kind in ("file_contains", "file_not_contains")
    ]
    results = check("w", assertions).results
    assert not any(record.passed for record in results)
    assert len({record.message for record in results}) == 3


async def test_a_failed_hat_sequence_shows_the_actual_one(workspace: Path):
    await run("w", "Go", mock_responses=[tag("build.task"), tag("build.done"), "LOOP_COMPLETE"])
    [result] = check("w", [{"type": "hat_sequence", "hats": ["planner", "builder"]}]).results
    assert (result.passed, result.actual) == (False, ["planner", "builder", "planner"])


KILLED = [Event(1, "process.exit", {"code": -15})]
LONG = [Event(0, "a", {}), Event(1500, "b", {})]


@pytest.mark.parametrize(
    "events, raw, status, actual",
    [
        (KILLED, {"type": "exit_code", "expected": -15}, "pass", -15),
        (KILLED, {"type": "exit_code", "expected": 0}, "fail", -15),
        (LONG, {"type": "duration", "max_secs": 0}, "fail", 1.5),
    ],
)
def test_signals_and_zero_limits_are_valid(
    events: list[Event], raw: dict[str, Any], status: str, actual: object
):
    [verdict] = evaluate_all([raw], CheckContext(events))
    assert (verdict.status, verdict.actual) == (status, actual)


def test_expected_and_actual_are_in_the_result_and_in_every_report(workspace: Path):
    call = {"tool": "refund", "input": {"id": 8}, "call_id": "1", "step": 0}
    returned: dict[str, Any] = {
        "tool": "refund",
        "call_id": "1",
        "content": [],
        "is_error": False,
        "step": 0,
    }
    write_session(workspace, [("tool.call", call), ("tool.result", returned)])
    wanted = [{"tool": "refund", "input": {"id": 7}}]
    [result] = check("w", [{"type": "tool_sequence", "tools": wanted}]).results
    rows = [
        "  expected         | actual",
        '≠ refund({"id":7}) | refund({"id":8})',
        "    .id: expected 7, got 8",
    ]
    assert result.message.split("\n") == ["the tools that ran differ:", *rows]
    assert result.context["diff"] == rows
    junit = JUnitXml.fromfile(report("w", "junit", "x").report_path)
    [case] = [case for suite in junit for case in suite]
    assert "\n".join(rows) in case.result[0].text
    ctrf = json.loads(Path(report("w", "ctrf", "x").report_path).read_bytes())
    assert "\n".join(rows) in ctrf["results"]["tests"][0]["message"]
    data = json.loads(Path(report("w", "json", "x").report_path).read_bytes())
    assert "\n".join(rows) in data["cases"][0]["message"]
    tap = parse_yaml(Path(report("w", "tap", "x").report_path).read_text().split("---")[1][:-6])
    assert "\n".join(rows) in tap["message"]


# ------------------------------------------------------------------- snapshots and reports


async def test_a_hard_link_is_not_read(workspace: Path, tmp_path: Path):
    await run("w", "Go", mock_responses=DONE)
    outside = tmp_path / "outside"
    outside.write_text("their words")
    os.link(outside, workspace / "hard")
    checked = check("w", [{"type": "file_contains", "path": "hard", "pattern": "words"}])
    assert (checked.results[0].status, checked.results[0].passed) == ("error", False)
    assert "hard link" in checked.results[0].message
    assert snapshot("w").files["hard"].startswith("hard link, 11 bytes, sha256 ")
    outside.write_text("other words")
    assert diff("w", "snap_w_001").changed_files == ["hard"]


async def test_a_report_is_not_written_through_a_link(workspace: Path, tmp_path: Path):
    await run("w", "Go", mock_responses=DONE)
    outside = tmp_path / "outside"
    outside.mkdir()
    (workspace / "link").symlink_to(outside)
    with pytest.raises(UsageError, match="leads out"):
        report("w", "junit", "x", output_path="link/x.xml")
    assert list(outside.iterdir()) == []


def test_each_kind_of_change_is_classified(workspace: Path):
    for name, text in (("old", "o\n"), ("same", "s\n"), ("ends", "a\r\nb\r\n"), ("empty", "")):
        (workspace / name).write_text(text, newline="")
    (workspace / "bytes").write_bytes(b"\x00\xff")
    snapshot("w", snapshot_id="before")
    (workspace / "old").rename(workspace / "renamed")
    (workspace / "same").chmod(0o755)
    (workspace / "ends").write_text("a\nb\n")
    (workspace / "bytes").write_bytes(b"\x00\xfe")
    (workspace / "more").touch()
    difference = diff("w", "before")
    assert difference.changed_files == ["bytes", "ends"]
    assert (difference.added_files, difference.deleted_files) == (["more", "renamed"], ["old"])
    counts = {
        name: (record.additions, record.deletions) for name, record in difference.diffs.items()
    }
    assert counts == {
        "bytes": (1, 1),
        "ends": (2, 2),
        "more": (0, 0),
        "renamed": (1, 0),
        "old": (0, 1),
    }


def test_huge_files_and_git_folders_are_not_in_a_snapshot(workspace: Path):
    with (workspace / "huge").open("wb") as file:
        os.truncate(file.fileno(), 100 * 1024 * 1024)
    (workspace / ".git").mkdir()
    (workspace / ".git" / "HEAD").write_text("ref: x\n")
    result = snapshot("w")
    assert sorted(result.files) == ["a.txt", "huge"]
    assert result.total_bytes < 200
