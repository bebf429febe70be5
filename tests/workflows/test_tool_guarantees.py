"""What the test tools promise at their edges: limits, links, floods, strange files, bad input."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from offbook.checks.context import CheckContext
from offbook.checks.registry import evaluate_all
from offbook.errors import RunError, UsageError
from offbook.files import write_atomic
from offbook.trace.events import Event
from offbook.workflows.loop_run import run
from offbook.workflows.scenario import read_scenario
from offbook.workflows.scenario_runner import run_scenario
from offbook.workflows.snapshots import diff, snapshot
from offbook.workflows.tools import check, inspect, report, setup
from offbook.yaml_files import parse_yaml
from tests.clients import is_alive
from tests.reports.test_formats import JUnitXml

DONE = [{"output": "LOOP_COMPLETE"}]


def tag(topic: str, payload: str = "") -> str:
    return f'<event topic="{topic}">{payload}</event>'


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)


@pytest.fixture
def place() -> Path:
    """A workspace."""
    return Path(setup("w", fixtures={"a.txt": "a\n"}).workspace_path)


def write_session(place: Path, rows: list[tuple[str, dict[str, Any]]]) -> Path:
    """A session of our own making, a second an event."""
    lines = [
        json.dumps({"ts": n * 1000, "event": name, "data": data})
        for n, (name, data) in enumerate(rows)
    ]
    path = place / "session.jsonl"
    write_atomic(path, "\n".join(lines) + "\n")
    return path


def publish(topic: str, payload: Any = "") -> tuple[str, dict[str, Any]]:
    return "bus.publish", {"topic": topic, "payload": payload}


def iteration(n: int, hat: str = "a") -> tuple[str, dict[str, Any]]:
    return "_meta.iteration", {"n": n, "hat": hat}


# ------------------------------------------------------------------------------ running


async def test_answers_are_used_in_their_order_and_all_events_are_kept(place: Path):
    said = [tag("task.note", str(n)) for n in range(2)] + ["LOOP_COMPLETE"]
    ran = await run("w", "Go", mock_responses=said)
    assert (ran.mock_responses_consumed, ran.mock_responses_remaining) == (3, 0)
    found = inspect("w", filter={"event_types": ["bus.publish"]})["records"]
    assert [one["data"]["payload"] for one in found] == ["Go", "0", "1"]


@pytest.mark.usefixtures("place")
async def test_what_fits_nobody_is_told_by_its_own_number():
    responses = [{"output": "a"}, {"output": "b", "trigger_pattern": "no"}, {"output": "c"}]
    ran = await run("w", "Go", mock_responses=[*responses[:2], {**responses[2], "hat": "nobody"}])
    assert "2 left, numbers 2, 3 (hat nobody)" in ran.error
    assert 'the prompt begins "## Task\nGo' in ran.error
    assert (ran.mock_responses_consumed, ran.mock_responses_remaining) == (1, 2)


async def test_a_promise_in_the_task_is_none(place: Path):
    ran = await run("w", "Say\nLOOP_COMPLETE", mock_responses=["no"] * 2, max_iterations=2)
    assert ran.termination_reason == "MaxIterations"


async def test_scripted_answers_reach_for_no_network(place: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*args: object) -> None:
        raise AssertionError(f"somebody wants to connect: {args}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    ran = await run("w", "Go", mock_responses=DONE)
    assert (ran.exit_code, ran.error) == (0, "")
    assert check("w", [{"type": "exit_code", "expected": 0}]).passed


async def test_at_the_limit_the_process_is_gone_and_its_words_are_kept(place: Path):
    code = "import os, time; print('my pid', os.getpid(), flush=True); time.sleep(600)"
    ran = await run(
        "w", "Go", backend="command", command=[sys.executable, "-c", code], max_runtime_secs=2
    )
    assert (ran.termination_reason, ran.exit_code) == ("MaxRuntime", 2)
    assert ran.stdout.startswith("my pid ")
    assert not is_alive(int(ran.stdout.split()[-1]))


async def test_a_workspace_that_its_agent_removes_is_an_error_and_no_crash(
    place: Path, tmp_path: Path
):
    words = ["sh", "-c", "rm -rf $PWD"]
    with pytest.raises(RunError, match="w: the workspace was removed while the loop ran"):
        await run("w", "Go", backend="command", command=words)
    path = tmp_path / "one.yaml"
    path.write_text(
        "run:\n  task: Go\n  backend: command\n  command: [sh, -c, rm -rf $PWD]\n"
        "assert: [{type: exit_code, expected: 1}]\n"
    )
    played = await run_scenario(read_scenario(path), reports=tmp_path / "out")
    assert (played.passed, "was removed while the loop ran" in played.error) == (False, True)


async def test_each_try_has_a_fresh_workspace(tmp_path: Path):
    path = tmp_path / "one.yaml"
    log = tmp_path / "log"
    script = f"test -e mine && exit 9; touch mine; pwd >> {log}; test $(wc -l < {log}) -gt 1"
    path.write_text(
        "run:\n  task: Go\n  backend: command\n  max_iterations: 1\n"
        f"  command: [sh, -c, '{script} && echo LOOP_COMPLETE']\n"
        "assert: [{type: exit_code, expected: 0}]\nretry: {max_attempts: 2}\n"
    )
    played = await run_scenario(read_scenario(path), reports=tmp_path / "out")
    assert (played.passed, played.flaky, played.attempts) == (True, True, 2)
    assert len(set(log.read_text().split())) == 2


# ---------------------------------------------------------------------------- inspecting


def test_a_torn_last_line_is_told_and_all_before_it_is_read(place: Path):
    path = write_session(place, [publish("x.y", str(n)) for n in range(20)])
    write_atomic(path, path.read_bytes()[:-20])
    told = inspect("w")
    assert (len(told["records"]), told["truncated_tail"]) == (19, True)
    assert told["faults"][0]["line"] == 20
    assert check("w", [{"type": "event_count", "topic": "x.y", "exact": 19}]).passed


def test_a_limit_bounds_what_is_shown_and_not_what_is_counted(place: Path):
    write_session(place, [publish("x.y", str(n)) for n in range(50)])
    told = inspect("w", limit=10)
    assert [one["data"]["payload"] for one in told["records"]] == [str(n) for n in range(10)]
    assert (told["total_matched"], told["truncated"]) == (50, True)
    assert not inspect("w", limit=50)["truncated"]


ROWS = [
    publish("start.it"),
    iteration(1),
    publish("one", {"n": 1}),
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
        ({"topics": ["*"]}, ["start.it", "one", "two"]),
    ],
)
def test_a_filter_chooses_events(place: Path, wanted: dict[str, Any], topics: list[str]):
    write_session(place, ROWS)
    records = inspect("w", filter={"event_types": ["bus.publish"], **wanted})["records"]
    assert [one["data"]["topic"] for one in records] == topics


def test_a_timeline_has_every_iteration_and_its_time(place: Path):
    write_session(place, ROWS)
    told = inspect("w", format="timeline")["timeline"]
    assert [(one["iteration"], one["hat"], one["topics"]) for one in told] == [
        (1, "a", ["one"]),
        (2, "b", ["two"]),
        (3, "a", []),
    ]
    assert [one["duration_ms"] for one in told] == [2000, 2000, 1000]


def test_a_pattern_that_is_none_is_named(place: Path):
    write_session(place, ROWS)
    with pytest.raises(UsageError, match=r"filter\.payload_pattern"):
        inspect("w", filter={"payload_pattern": "["})


# ----------------------------------------------------------------------------- asserting


async def test_a_pattern_that_runs_away_is_an_error_and_stops_nobody(place: Path):
    await run("w", "Go", mock_responses=DONE)
    (place / "long.txt").write_text("a" * 100_000 + "!")
    checked = check(
        "w",
        [
            {"type": "file_contains", "path": "long.txt", "pattern": "(a|a|aa)+$"},
            {"type": "exit_code", "expected": 0},
        ],
    )
    assert [one.status for one in checked.results] == ["error", "pass"]


async def test_what_is_wrong_with_a_file_is_told_apart(place: Path):
    await run("w", "Go", mock_responses=DONE)
    (place / "raw").write_bytes(b"\xff\xfe\x00")
    (place / "folder").mkdir()
    asked = [
        {"type": kind, "path": path, "pattern": "x"}
        for path in ("gone", "raw", "folder")
        for kind in ("file_contains", "file_not_contains")
    ]
    results = check("w", asked).results
    assert not any(one.passed for one in results)
    assert len({one.message for one in results}) == 3


async def test_a_longer_sequence_of_hats_is_shown(place: Path):
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
def test_signals_and_zeros_have_a_meaning(
    events: list[Event], raw: dict[str, Any], status: str, actual: object
):
    [verdict] = evaluate_all([raw], CheckContext(events))
    assert (verdict.status, verdict.actual) == (status, actual)


def test_both_sides_of_a_failure_are_in_the_answer_and_in_every_report(place: Path):
    call = {"tool": "refund", "input": {"id": 8}, "call_id": "1", "step": 0}
    write_session(place, [("tool.call", call)])
    wanted = [{"tool": "refund", "input": {"id": 7}}]
    [result] = check("w", [{"type": "tool_sequence", "tools": wanted}]).results
    rows = [
        "  expected         | actual",
        '≠ refund({"id":7}) | refund({"id":8})',
        "    .id: expected 7, got 8",
    ]
    assert result.message.split("\n") == ["the calls differ:", *rows]
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


async def test_a_hard_link_gives_nothing_away(place: Path, tmp_path: Path):
    await run("w", "Go", mock_responses=DONE)
    outside = tmp_path / "outside"
    outside.write_text("their words")
    os.link(outside, place / "hard")
    checked = check("w", [{"type": "file_contains", "path": "hard", "pattern": "words"}])
    assert (checked.results[0].status, checked.results[0].passed) == ("error", False)
    assert "hard link" in checked.results[0].message
    assert snapshot("w").files["hard"].startswith("hard link, 11 bytes, sha256 ")
    outside.write_text("other words")
    assert diff("w", "snap_w_001").changed_files == ["hard"]


async def test_no_report_leaves_through_a_link(place: Path, tmp_path: Path):
    await run("w", "Go", mock_responses=DONE)
    outside = tmp_path / "outside"
    outside.mkdir()
    (place / "link").symlink_to(outside)
    with pytest.raises(UsageError, match="leads out"):
        report("w", "junit", "x", output_path="link/x.xml")
    assert list(outside.iterdir()) == []


def test_every_kind_of_change_is_told_as_what_it_is(place: Path):
    for name, text in (("old", "o\n"), ("same", "s\n"), ("ends", "a\r\nb\r\n"), ("empty", "")):
        (place / name).write_text(text, newline="")
    (place / "bytes").write_bytes(b"\x00\xff")
    snapshot("w", snapshot_id="before")
    (place / "old").rename(place / "renamed")
    (place / "same").chmod(0o755)
    (place / "ends").write_text("a\nb\n")
    (place / "bytes").write_bytes(b"\x00\xfe")
    (place / "more").touch()
    found = diff("w", "before")
    assert found.changed_files == ["bytes", "ends"]
    assert (found.added_files, found.deleted_files) == (["more", "renamed"], ["old"])
    counts = {name: (one.additions, one.deletions) for name, one in found.diffs.items()}
    assert counts == {
        "bytes": (1, 1),
        "ends": (2, 2),
        "more": (0, 0),
        "renamed": (1, 0),
        "old": (0, 1),
    }


def test_a_huge_file_and_a_repository_do_not_flood_a_snapshot(place: Path):
    with (place / "huge").open("wb") as file:
        os.truncate(file.fileno(), 100 * 1024 * 1024)
    (place / ".git").mkdir()
    (place / ".git" / "HEAD").write_text("ref: x\n")
    taken = snapshot("w")
    assert sorted(taken.files) == ["a.txt", "huge"]
    assert taken.total_bytes < 200
