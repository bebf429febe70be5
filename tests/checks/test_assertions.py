"""Assertions judge a run without a stop, and never pass on nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from offbook.checks.context import CheckContext
from offbook.checks.registry import ASSERTIONS, evaluate_all, parse_assertion
from offbook.errors import UsageError
from offbook.trace.events import Event
from offbook.trace.reader import Trace


def make(name: str, **data: Any) -> Event:
    return Event(1000, name, data)


def publish(topic: Any, payload: Any = "") -> Event:
    return make("bus.publish", topic=topic, payload=payload)


def iteration(n: int, hat: str) -> Event:
    return make("_meta.iteration", n=n, hat=hat, elapsed_ms=n)


RUN = [
    publish("task.start", "Go"),
    iteration(1, "planner"),
    publish("build.task", {"goal": "auth"}),
    iteration(2, "builder"),
    make("process.output", stream="stdout", text="Successfully completed\n"),
    make("process.output", stream="stderr", text="a warning\n"),
    publish("build.done", "tests: pass"),
    make("tool.call", call_id="1", tool="find", input={"id": 7}, step=1),
    make(
        "tool.result",
        call_id="1",
        tool="find",
        content=[],
        is_error=True,
        details=None,
        mocked=False,
        step=1,
    ),
    make("tool.call", call_id="2", tool="find", input={"id": 7}, step=2),
    make(
        "tool.result",
        call_id="2",
        tool="find",
        content=[],
        is_error=False,
        details=None,
        mocked=False,
        step=2,
    ),
    make("tool.call", call_id="3", tool="rm", input={"path": "/"}, step=3),
    make("tool.blocked", call_id="3", tool="rm", reason="no", step=3),
    make(
        "_meta.termination",
        reason="CompletionPromise",
        iterations=2,
        elapsed_secs=1.5,
        cost_usd=0.1,
    ),
]
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("exit_code", {"expected": 0}, "pass"),
    ("exit_code", {"expected": 1}, "fail"),
    ("termination_reason", {"expected": "CompletionPromise"}, "pass"),
    ("termination_reason", {"expected": "completed"}, "pass"),
    ("termination_reason", {"expected": "LOOP_COMPLETE"}, "pass"),
    ("termination_reason", {"expected": "max_iterations"}, "fail"),
    ("termination_reason", {"expected": "MaxIteration"}, "error"),
    ("iterations", {"exact": 2}, "pass"),
    ("iterations", {"min": 3}, "fail"),
    ("iterations", {}, "error"),
    ("iterations", {"min": 3, "max": 1}, "error"),
    ("file_exists", {"path": "src/main.py"}, "pass"),
    ("file_exists", {"path": "src/other.py"}, "fail"),
    ("file_exists", {"path": "../outside"}, "error"),
    ("file_exists", {"path": "link/passwd"}, "error"),
    ("file_contains", {"path": "src/main.py", "pattern": "def m.in"}, "pass"),
    ("file_contains", {"path": "src/main.py", "pattern": "class"}, "fail"),
    ("file_contains", {"path": "gone.py", "pattern": "x"}, "fail"),
    ("file_contains", {"path": "src", "pattern": "x"}, "fail"),
    ("file_contains", {"path": "raw.bin", "pattern": "x"}, "fail"),
    ("file_contains", {"path": "src/main.py", "pattern": "["}, "error"),
    ("file_not_contains", {"path": "src/main.py", "pattern": "TODO"}, "pass"),
    ("file_not_contains", {"path": "src/main.py", "pattern": "main"}, "fail"),
    ("file_not_contains", {"path": "gone.py", "pattern": "x"}, "fail"),
    ("scratchpad_contains", {"pattern": "Completed"}, "pass"),
    ("scratchpad_contains", {"pattern": "Blocked"}, "fail"),
    ("snapshot_matches", {"snapshot_id": "approved", "include_patterns": ["src/**"]}, "pass"),
    ("snapshot_matches", {"snapshot_id": "approved"}, "fail"),
    ("snapshot_matches", {"snapshot_id": "gone"}, "error"),
    ("snapshot_matches", {"snapshot_id": "../../gone"}, "error"),
    ("event_occurred", {"topic": "build.task"}, "pass"),
    ("event_occurred", {"topic": "build.task", "payload_pattern": '"goal":"auth"'}, "pass"),
    ("event_occurred", {"topic": "build.task", "payload_pattern": "other"}, "fail"),
    ("event_occurred", {"topic": "build.tsk"}, "fail"),
    ("event_sequence", {"topics": ["task.start", "build.done"]}, "pass"),
    ("event_sequence", {"topics": ["build.done", "task.start"]}, "fail"),
    ("event_sequence", {"topics": ["build.done", "build.done"]}, "fail"),
    ("event_sequence", {"topics": []}, "error"),
    ("event_count", {"topic": "build.*", "exact": 2}, "pass"),
    ("event_count", {"topic": "build.*", "max": 1}, "fail"),
    ("event_count", {"exact": 2}, "error"),
    ("no_event", {"topic": "build.blocked"}, "pass"),
    ("no_event", {"topic": "build.*"}, "fail"),
    ("duration", {"max_secs": 2}, "pass"),
    ("duration", {"max_secs": 1}, "fail"),
    ("hat_sequence", {"hats": ["planner", "builder"]}, "pass"),
    ("hat_sequence", {"hats": ["planner"]}, "fail"),
    ("hat_sequence", {"hats": []}, "error"),
    ("hat_transition", {"from": "planner", "to": "builder"}, "pass"),
    ("hat_transition", {"from": "builder", "to": "planner"}, "fail"),
    ("iteration_count", {"hat": "planner", "exact": 1}, "pass"),
    ("iteration_count", {"hat": "planner", "min": 2, "max": 5}, "fail"),
    ("stdout_contains", {"pattern": "Successfully.*"}, "pass"),
    ("stdout_contains", {"pattern": "Failed"}, "fail"),
    ("stderr_contains", {"pattern": "warning"}, "pass"),
    ("stderr_contains", {"pattern": "panic"}, "fail"),
    ("cost_within", {"max_dollars": 0.2}, "pass"),
    ("cost_within", {"max_dollars": 0.05}, "fail"),
    ("tool_sequence", {"tools": ["find", "find", "rm"]}, "pass"),
    (
        "tool_sequence",
        {"tools": [{"tool": "find", "input": {"id": 7}}], "mode": "in_order"},
        "pass",
    ),
    ("tool_sequence", {"tools": ["rm", "find"], "mode": "in_order"}, "fail"),
    (
        "tool_sequence",
        {"tools": ["find", "find", {"tool": "rm", "input": {"path": "^/$"}, "args": "pattern"}]},
        "pass",
    ),
    (
        "tool_sequence",
        {"tools": [{"tool": "find", "input": {}, "args": "exact"}, "find", "rm"]},
        "fail",
    ),
    (
        "tool_sequence",
        {"tools": [{"tool": "find", "input": {}}, "find", "rm"], "args": "exact"},
        "fail",
    ),
    ("tool_sequence", {"tools": ["find", "find", "rm", "rm"], "mode": "subset"}, "pass"),
    ("tool_sequence", {"tools": ["find"], "mode": "superset"}, "pass"),
    ("tool_sequence", {"tools": ["rm", "find", "find"], "mode": "any_order"}, "pass"),
    ("tool_sequence", {"tools": [], "mode": "superset"}, "error"),
    ("tool_called", {"tool": "find", "input": {"id": 8}}, "fail"),
    ("tool_called", {"tool": "find", "min": 2}, "pass"),
    ("tool_called", {"tool": "find", "max": 1}, "fail"),
    ("tool_called", {"tool": "fnd"}, "fail"),
    ("tool_never", {"tool": "write"}, "pass"),
    ("tool_never", {"tool": "rm"}, "fail"),
    ("tool_before", {"first": "find", "then": "rm"}, "pass"),
    ("tool_before", {"first": "rm", "then": "find"}, "fail"),
    ("tool_status", {"tool": "rm", "status": "blocked"}, "pass"),
    ("tool_status", {"tool": "find", "status": "retried"}, "pass"),
    ("tool_status", {"tool": "find", "status": "failed"}, "pass"),
    ("tool_status", {"tool": "find", "status": "blocked"}, "fail"),
]


@pytest.fixture
def evidence(tmp_path: Path) -> CheckContext:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("def main(): ...\n")
    (tmp_path / "raw.bin").write_bytes(b"\xff\xfe\x00")
    approved = tmp_path / ".offbook" / "snapshots" / "approved.json"
    approved.parent.mkdir(parents=True)
    approved.write_text(r'{"files": {"src/main.py": "def main(): ...\n"}}')
    (tmp_path / ".agent").mkdir()
    (tmp_path / ".agent" / "scratchpad.md").write_text("## Completed\n")
    (tmp_path / "link").symlink_to("/etc")
    return CheckContext(RUN, tmp_path)


@pytest.mark.parametrize("kind, fields, status", CASES)
def test_each_assertion_holds_or_not(
    evidence: CheckContext, kind: str, fields: dict[str, Any], status: str
):
    [verdict] = evaluate_all([{"type": kind, **fields}], evidence)
    assert verdict.status == status, verdict
    assert status == "pass" or verdict.message


def test_every_type_is_in_the_table_once_as_a_pass_and_once_as_a_failure():
    assert {kind for kind, _, status in CASES if status == "pass"} == set(ASSERTIONS)
    assert {kind for kind, _, status in CASES if status == "fail"} == set(ASSERTIONS)


@pytest.mark.parametrize("kind, fields, status", [c for c in CASES if c[2] != "error"])
def test_nothing_to_look_at_is_never_a_pass(kind: str, fields: dict[str, Any], status: str):
    [verdict] = evaluate_all([{"type": kind, **fields}], CheckContext([]))
    assert not verdict.holds
    assert verdict.status == "no_data"


def test_rows_without_a_time_do_not_tell_how_long_it_took(tmp_path: Path):
    (tmp_path / "events.jsonl").write_text('{"topic":"task.start"}\n{"topic":"build.done"}\n')
    evidence = CheckContext(Trace(tmp_path / "events.jsonl"))
    [verdict] = evaluate_all([{"type": "duration", "max_secs": 60}], evidence)
    assert verdict.status == "no_data"


def test_all_are_judged_although_one_fails_and_one_is_wrong(evidence: CheckContext):
    found = evaluate_all(
        [
            {"type": "exit_code", "expected": 0},
            {"type": "exit_code", "expected": 3},
            {"type": "exit_cod", "expected": 0},
            "exit_code",
            {"type": "exit_code", "expected": 0},
        ],
        evidence,
    )
    assert [verdict.status for verdict in found] == ["pass", "fail", "error", "error", "pass"]


@pytest.mark.parametrize(
    "raw, message",
    [
        ({"type": "event_ocurred", "topic": "x"}, "did you mean 'event_occurred'"),
        ({"type": "event_occurred", "topc": "x"}, "did you mean 'topic'"),
        ({"expected": 0}, "needs a type"),
        ({"type": "exit_code", "expected": "zero"}, "Expected `int`"),
    ],
)
def test_a_wrong_assertion_is_told_with_the_nearest_right_one(raw: dict[str, Any], message: str):
    with pytest.raises(UsageError, match=message):
        parse_assertion(raw)


def test_a_failed_sequence_of_tools_shows_both_sides(evidence: CheckContext):
    wanted = ["find", {"tool": "rm", "input": {"path": "/tmp"}}]  # noqa: S108 - only a text
    [verdict] = evaluate_all([{"type": "tool_sequence", "tools": wanted}], evidence)
    assert verdict.message.split("\n") == [
        "the calls differ:",
        "  expected            | actual",
        '= find                | find({"id":7})',
        '+                     | find({"id":7})',
        '≠ rm({"path":"/tmp"}) | rm({"path":"/"})',
        '    .path: expected "/tmp", got "/"',
    ]
    assert verdict.context["missing"] == ['rm({"path":"/tmp"})']
    assert verdict.context["diff"] == verdict.message.split("\n")[1:]


def called(number: int, tool: str, **given: Any) -> Event:
    return make("tool.call", tool=tool, input=given, call_id=str(number), step=0)


def answered(number: int, tool: str) -> Event:
    told: dict[str, Any] = {
        "content": [],
        "is_error": False,
        "details": None,
        "mocked": False,
        "step": 0,
    }
    return make("tool.result", tool=tool, call_id=str(number), **told)


WORK = [
    *(called(1, "find", id=7), answered(1, "find")),
    *(called(2, "refund", id=7), answered(2, "refund")),
    called(3, "refund", id=8),
    *(iteration(1, "planner"), publish("task.start"), iteration(2, "critic"), publish("a.b")),
]
DIFFS: dict[str, tuple[dict[str, Any], str]] = {
    "with input": (
        {"type": "tool_called", "tool": "refund", "input": {"id": 9}},
        """refund({"id":9}) was called 0 times:
  expected         | actual
                   | find({"id":7})
≠ refund({"id":9}) | refund({"id":7})
    .id: expected 9, got 7
                   | refund({"id":8})""",
    ),
    "at most once": (
        {"type": "tool_called", "tool": "refund", "max": 1},
        """refund was called 2 times:
  expected | actual
           | find({"id":7})
= refund   | refund({"id":7})
+          | refund({"id":8})""",
    ),
    "never called": (
        {"type": "tool_called", "tool": "refnd"},
        """'refnd' was never called; did you mean 'refund', 'find'?
  expected | actual
  … 1 more, as they should be
           | refund({"id":7})
           | refund({"id":8})
- refnd    |""",
    ),
    "never": (
        {"type": "tool_never", "tool": "refund", "input": {"id": 8}},
        """'refund' was called:
  expected | actual
           | find({"id":7})
           | refund({"id":7})
+          | refund({"id":8})""",
    ),
    "before": (
        {"type": "tool_before", "first": "refund", "then": "find"},
        """'find' was called before 'refund':
  expected | actual
- refund   |
= find     | find
+          | refund
+          | refund""",
    ),
    "status": (
        {"type": "tool_status", "tool": "refund", "status": "failed"},
        """no call of 'refund' was failed:
  expected       | actual
≠ refund: failed | refund({"id":7}): ok
≠ refund: failed | refund({"id":8}): no result""",
    ),
    "hats": (
        {"type": "hat_sequence", "hats": ["planner", "builder"]},
        """the hats differ:
  expected | actual
= planner  | planner
+          | critic
- builder  |""",
    ),
    "events": (
        {"type": "event_sequence", "topics": ["task.start", "build.done"]},
        """'build.done' did not come after 'task.start':
  expected   | actual
= task.start | task.start
             | a.b
- build.done |""",
    ),
}


@pytest.mark.parametrize("raw, told", DIFFS.values(), ids=DIFFS)
def test_every_failed_trajectory_shows_both_sides(raw: dict[str, Any], told: str):
    [verdict] = evaluate_all([raw], CheckContext(WORK))
    assert (verdict.status, verdict.message) == ("fail", told)
    assert verdict.context["diff"] == told.split("\n")[1:]


def test_what_holds_has_nothing_to_show():
    holding = [
        {"type": "tool_sequence", "tools": ["find", "refund", "refund"]},
        {"type": "tool_called", "tool": "find"},
        {"type": "hat_sequence", "hats": ["planner", "critic"]},
    ]
    for verdict in evaluate_all(holding, CheckContext(WORK)):
        assert (verdict.status, verdict.message) == ("pass", "")
        assert "diff" not in verdict.context


def test_a_failed_transition_lists_those_there_were(evidence: CheckContext):
    [verdict] = evaluate_all([{"type": "hat_transition", "from": "a", "to": "b"}], evidence)
    assert verdict.context == {"transitions": ["planner -> builder"]}


def write(events: list[Event], path: Path) -> Trace:
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    return Trace(path)


def test_a_file_is_judged_as_its_events_are_and_read_once(
    evidence: CheckContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked: list[dict[str, Any]] = [{"type": kind, **fields} for kind, fields, _ in CASES]
    trace = write(RUN, tmp_path / ".agent" / "run.jsonl")
    readings: list[Path] = []
    pick = Trace.pick

    def count(self: Trace, *args: Any, **options: Any) -> Iterator[Event]:
        readings.append(self.path)
        return pick(self, *args, **options)

    monkeypatch.setattr(Trace, "pick", count)
    assert evaluate_all(asked, CheckContext(trace, tmp_path)) == evaluate_all(asked, evidence)
    assert readings == [trace.path]


HOSTILE = [
    make("bus.publish"),
    publish(7),
    make("_meta.iteration", n="one", hat=None),
    make("_meta.termination", reason=3, iterations="two", elapsed_secs=[], exit_code="0"),
    make("process.exit", code=None),
    make("process.output", text=7, stream=[]),
    make("ux.terminal.write", bytes=7),
    make("tool.call", tool=1),
    make("tool.result"),
    make("iteration.summary", cost_usd="much"),
]


@pytest.mark.parametrize("kind, fields, status", [c for c in CASES if c[2] != "error"])
def test_events_that_are_not_what_they_should_be_break_no_assertion(
    tmp_path: Path, kind: str, fields: dict[str, Any], status: str
):
    if "path" in fields or kind in {"scratchpad_contains", "snapshot_matches"}:
        return
    [verdict] = evaluate_all([{"type": kind, **fields}], CheckContext(HOSTILE, tmp_path))
    passes = {"no_event", "event_count", "duration"}  # something was published, at once
    assert not verdict.holds or kind in passes, verdict


@pytest.mark.parametrize(
    "pattern, told", [("[", "does not compile"), ("(a|aa)+$", "runs away: no answer within")]
)
def test_a_pattern_that_cannot_be_answered_stops_no_other_assertion(
    evidence: CheckContext, monkeypatch: pytest.MonkeyPatch, pattern: str, told: str
):
    monkeypatch.setattr("offbook.trace.text_patterns.SECONDS", 0.01)
    events = [publish("build.done", "a" * 60 + "!"), *RUN]
    wanted = {"type": "event_occurred", "topic": "build.done", "payload_pattern": pattern}
    found = evaluate_all(
        [wanted, {"type": "exit_code", "expected": 0}], CheckContext(events, evidence.root)
    )
    assert [verdict.status for verdict in found] == ["error", "pass"]
    assert told in found[0].message
