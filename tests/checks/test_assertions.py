"""All assertions are evaluated, and none passes without data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from offbook.checks import RUN_ASSERTIONS, CheckContext, evaluate_all, parse_assertion
from offbook.errors import UsageError
from offbook.trace import Event, Trace


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
    make("tool.call", call_id="3", tool="save", input={"path": "/"}, step=3),
    make(
        "tool.result",
        call_id="3",
        tool="save",
        content=[],
        is_error=False,
        details=None,
        mocked=False,
        step=3,
    ),
    make("tool.call", call_id="4", tool="rm", input={"path": "/"}, step=4),
    make("tool.blocked", call_id="4", tool="rm", reason="no", step=4),
    make("model.request", exchange=1),
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
    ("model_calls", {"exact": 1}, "pass"),
    ("model_calls", {"min": 2}, "fail"),
    ("model_calls", {"max": 1, "agent": "triage"}, "no_data"),
    ("tool_sequence", {"tools": ["find", "find", "save"]}, "pass"),
    ("tool_sequence", {"tools": ["find", "find", "save", "rm"]}, "fail"),
    ("tool_sequence", {"tools": ["rm"], "mode": "superset"}, "fail"),
    (
        "tool_sequence",
        {"tools": [{"tool": "find", "input": {"id": 7}}], "mode": "in_order"},
        "pass",
    ),
    ("tool_sequence", {"tools": ["save", "find"], "mode": "in_order"}, "fail"),
    (
        "tool_sequence",
        {"tools": ["find", "find", {"tool": "save", "input": {"path": "^/$"}, "args": "pattern"}]},
        "pass",
    ),
    (
        "tool_sequence",
        {"tools": [{"tool": "find", "input": {}, "args": "exact"}, "find", "save"]},
        "fail",
    ),
    (
        "tool_sequence",
        {"tools": [{"tool": "find", "input": {}}, "find", "save"], "args": "exact"},
        "fail",
    ),
    ("tool_sequence", {"tools": ["find", "find", "save", "save"], "mode": "subset"}, "pass"),
    ("tool_sequence", {"tools": ["find"], "mode": "superset"}, "pass"),
    ("tool_sequence", {"tools": ["find"], "mode": "exact"}, "fail"),
    ("tool_sequence", {"tools": []}, "fail"),
    ("tool_sequence", {"tools": ["save", "find", "find"], "mode": "any_order"}, "pass"),
    ("tool_sequence", {"tools": [], "mode": "superset"}, "error"),
    ("tool_called", {"tool": "find", "input": {"id": 8}}, "fail"),
    ("tool_called", {"tool": "find", "min": 2}, "pass"),
    ("tool_called", {"tool": "find", "max": 1}, "fail"),
    ("tool_called", {"tool": "fnd"}, "fail"),
    ("tool_called", {"tool": "rm"}, "fail"),
    ("tool_called", {"tool": "rm", "min": 0, "max": 0}, "pass"),
    ("tool_never", {"tool": "write"}, "pass"),
    ("tool_never", {"tool": "rm"}, "fail"),
    ("tool_before", {"first": "find", "then": "save"}, "pass"),
    ("tool_before", {"first": "save", "then": "find"}, "fail"),
    ("tool_before", {"first": "find", "then": "rm"}, "fail"),
    ("tool_before", {"first": "rm", "then": "save"}, "fail"),
    ("tool_status", {"tool": "rm", "status": "blocked"}, "pass"),
    ("tool_status", {"tool": "find", "status": "retried"}, "pass"),
    ("tool_status", {"tool": "find", "status": "failed"}, "pass"),
    ("tool_status", {"tool": "find", "status": "blocked"}, "fail"),
]


@pytest.fixture
def context(tmp_path: Path) -> CheckContext:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("def main(): ...\n")
    (tmp_path / "raw.bin").write_bytes(b"\xff\xfe\x00")
    approved = tmp_path / ".offbook" / "approved.json"
    approved.parent.mkdir(parents=True)
    approved.write_text(r'{"files": {"src/main.py": "def main(): ...\n"}}')
    (tmp_path / ".agent").mkdir()
    (tmp_path / ".agent" / "scratchpad.md").write_text("## Completed\n")
    (tmp_path / "link").symlink_to("/etc")
    return CheckContext(RUN, tmp_path, approved.parent)


@pytest.mark.parametrize("kind, fields, status", CASES)
def test_each_assertion_has_the_expected_status(
    context: CheckContext, kind: str, fields: dict[str, Any], status: str
):
    [verdict] = evaluate_all([{"type": kind, **fields}], context)
    assert verdict.status == status, verdict
    assert status == "pass" or verdict.message


@pytest.mark.parametrize(
    "kind, field, fields",
    [
        ("stdout_contains", "pattern", {}),
        ("stderr_contains", "pattern", {}),
        ("file_contains", "pattern", {"path": "src/main.py"}),
        ("file_not_contains", "pattern", {"path": "src/main.py"}),
        ("scratchpad_contains", "pattern", {}),
        ("event_occurred", "payload_pattern", {"topic": "build.done"}),
        ("no_event", "topic", {}),
        ("event_count", "topic", {"max": 0}),
        ("tool_never", "tool", {}),
    ],
)
def test_an_empty_field_is_an_error_and_never_a_pass(
    context: CheckContext, kind: str, field: str, fields: dict[str, Any]
):
    [verdict] = evaluate_all([{"type": kind, field: "", **fields}], context)
    assert (verdict.status, f"`{field}` is empty" in verdict.message) == ("error", True)


def test_a_snapshot_of_no_files_has_no_data(context: CheckContext):
    assert context.snapshots is not None
    (context.snapshots / "empty.json").write_text('{"files": {}}')
    raw = {"type": "snapshot_matches", "snapshot_id": "empty", "include_patterns": ["*.nothing"]}
    [verdict] = evaluate_all([raw], context)
    assert (verdict.status, "has a file to compare" in verdict.message) == ("no_data", True)


def test_every_type_has_a_passing_and_a_failing_case():
    assert {kind for kind, _, status in CASES if status == "pass"} == set(RUN_ASSERTIONS)
    assert {kind for kind, _, status in CASES if status == "fail"} == set(RUN_ASSERTIONS)


@pytest.mark.parametrize("kind, fields, status", [c for c in CASES if c[2] != "error"])
def test_an_empty_trace_is_no_data_and_never_a_pass(kind: str, fields: dict[str, Any], status: str):
    [verdict] = evaluate_all([{"type": kind, **fields}], CheckContext([]))
    assert not verdict.holds
    assert verdict.status == "no_data"


def test_events_without_a_timestamp_have_no_duration(tmp_path: Path):
    (tmp_path / "events.jsonl").write_text('{"topic":"task.start"}\n{"topic":"build.done"}\n')
    context = CheckContext(Trace(tmp_path / "events.jsonl"))
    [verdict] = evaluate_all([{"type": "duration", "max_secs": 60}], context)
    assert verdict.status == "no_data"


def test_all_are_evaluated_although_one_fails_and_one_is_invalid(context: CheckContext):
    verdicts = evaluate_all(
        [
            {"type": "exit_code", "expected": 0},
            {"type": "exit_code", "expected": 3},
            {"type": "exit_cod", "expected": 0},
            "exit_code",
            {"type": "exit_code", "expected": 0},
        ],
        context,
    )
    assert [verdict.status for verdict in verdicts] == ["pass", "fail", "error", "error", "pass"]


@pytest.mark.parametrize(
    "raw, message",
    [
        ({"type": "event_ocurred", "topic": "x"}, "did you mean 'event_occurred'"),
        ({"type": "event_occurred", "topc": "x"}, "did you mean 'topic'"),
        (
            {"type": "event_occurred", "topic": "x", "payload_patern": "y"},
            "did you mean 'payload_pattern'",
        ),
        ({"expected": 0}, "needs a type"),
        ({"type": "exit_code", "expected": "zero"}, "expected an integer"),
    ],
)
def test_an_invalid_assertion_suggests_the_nearest_valid_one(raw: dict[str, Any], message: str):
    with pytest.raises(UsageError, match=message):
        parse_assertion(raw)


def test_a_failed_tool_sequence_shows_expected_and_actual_calls(context: CheckContext):
    tools = ["find", {"tool": "save", "input": {"path": "/tmp"}}]  # noqa: S108 - only a text
    [verdict] = evaluate_all([{"type": "tool_sequence", "tools": tools}], context)
    assert verdict.message.split("\n") == [
        "the tools that ran differ:",
        "  expected              | actual",
        '= find                  | find({"id":7})',
        '+                       | find({"id":7})',
        '≠ save({"path":"/tmp"}) | save({"path":"/"})',
        '    .path: expected "/tmp", got "/"',
    ]
    assert verdict.context["missing"] == ['save({"path":"/tmp"})']
    assert verdict.context["not run"] == ['rm({"path":"/"})']
    assert verdict.context["diff"] == verdict.message.split("\n")[1:]


def tool_call(number: int, tool: str, **arguments: Any) -> Event:
    return make("tool.call", tool=tool, input=arguments, call_id=str(number), step=0)


def tool_result(number: int, tool: str) -> Event:
    fields: dict[str, Any] = {
        "content": [],
        "is_error": False,
        "details": None,
        "mocked": False,
        "step": 0,
    }
    return make("tool.result", tool=tool, call_id=str(number), **fields)


WORK = [
    *(tool_call(1, "find", id=7), tool_result(1, "find")),
    *(tool_call(2, "refund", id=7), tool_result(2, "refund")),
    *(tool_call(3, "refund", id=8), tool_result(3, "refund")),
    *(iteration(1, "planner"), publish("task.start"), iteration(2, "critic"), publish("a.b")),
]
DIFFS: dict[str, tuple[dict[str, Any], str]] = {
    "with input": (
        {"type": "tool_called", "tool": "refund", "input": {"id": 9}},
        """refund({"id":9}) ran 0 times:
  expected         | actual
                   | find({"id":7})
≠ refund({"id":9}) | refund({"id":7})
    .id: expected 9, got 7
                   | refund({"id":8})""",
    ),
    "at most once": (
        {"type": "tool_called", "tool": "refund", "max": 1},
        """refund ran 2 times:
  expected | actual
           | find({"id":7})
= refund   | refund({"id":7})
+          | refund({"id":8})""",
    ),
    "never called": (
        {"type": "tool_called", "tool": "refnd"},
        """'refnd' was never called; did you mean 'refund', 'find'?
  expected | actual
  … 1 more as expected
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
        """'find' ran before 'refund':
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
≠ refund: failed | refund({"id":8}): ok""",
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
        """'build.done' was not published after 'task.start':
  expected   | actual
= task.start | task.start
             | a.b
- build.done |""",
    ),
}


@pytest.mark.parametrize("raw, message", DIFFS.values(), ids=DIFFS)
def test_a_failed_assertion_shows_expected_and_actual_steps(raw: dict[str, Any], message: str):
    [verdict] = evaluate_all([raw], CheckContext(WORK))
    assert (verdict.status, verdict.message) == ("fail", message)
    assert verdict.context["diff"] == message.split("\n")[1:]


# `save` has no result: the agent was stopped, or it ended with this call.
UNKNOWN = [*(tool_call(1, "find"), tool_result(1, "find")), tool_call(2, "save")]


@pytest.mark.parametrize(
    "raw, status",
    [
        ({"type": "tool_called", "tool": "save"}, "no_data"),
        ({"type": "tool_called", "tool": "save", "min": 2}, "fail"),
        ({"type": "tool_called", "tool": "find"}, "pass"),
        ({"type": "tool_called", "tool": "save", "min": 0, "max": 0}, "no_data"),
        ({"type": "tool_sequence", "tools": ["find", "save"]}, "no_data"),
        ({"type": "tool_sequence", "tools": ["find"]}, "no_data"),
        ({"type": "tool_sequence", "tools": ["find"], "mode": "superset"}, "pass"),
        ({"type": "tool_sequence", "tools": ["send"], "mode": "superset"}, "fail"),
        ({"type": "tool_before", "first": "find", "then": "save"}, "no_data"),
        ({"type": "tool_before", "first": "save", "then": "find"}, "fail"),
    ],
)
def test_whether_a_call_without_a_result_ran_is_unknown(raw: dict[str, Any], status: str):
    [verdict] = evaluate_all([raw], CheckContext(UNKNOWN))
    assert verdict.status == status
    if status == "no_data":
        assert "it is unknown whether 'save' ran: no result came back" in verdict.message


def test_all_tools_that_may_have_run_are_named():
    calls = [tool_call(1, "save"), tool_call(2, "find")]
    raw = {"type": "tool_sequence", "tools": ["find", "save"], "mode": "any_order"}
    [verdict] = evaluate_all([raw], CheckContext(calls))
    assert verdict.message == (
        "no data: it is unknown whether 'find', 'save' ran: no result came back"
    )


def test_a_call_that_was_refused_did_not_run():
    refused = tool_result(1, "find")
    refused.data["executed"] = False
    [verdict] = evaluate_all(
        [{"type": "tool_called", "tool": "find"}], CheckContext([tool_call(1, "find"), refused])
    )
    assert verdict.status == "fail"
    assert verdict.message.startswith("the model called 'find', but it did not run")


def test_the_input_of_a_call_is_the_one_that_the_tool_received():
    rewritten = make("hook.tool_call", call_id="1", tool="find", input={"id": 8})
    events = [tool_call(1, "find", id=7), rewritten, tool_result(1, "find")]
    for number, status in ((7, "fail"), (8, "pass")):
        raw = {"type": "tool_called", "tool": "find", "input": {"id": number}}
        [verdict] = evaluate_all([raw], CheckContext(events))
        assert verdict.status == status


def test_a_passing_assertion_has_no_diff():
    passing = [
        {"type": "tool_sequence", "tools": ["find", "refund", "refund"]},
        {"type": "tool_called", "tool": "find"},
        {"type": "hat_sequence", "hats": ["planner", "critic"]},
    ]
    for verdict in evaluate_all(passing, CheckContext(WORK)):
        assert (verdict.status, verdict.message) == ("pass", "")
        assert "diff" not in verdict.context


def test_a_failed_transition_lists_the_actual_transitions(context: CheckContext):
    [verdict] = evaluate_all([{"type": "hat_transition", "from": "a", "to": "b"}], context)
    assert verdict.context == {"transitions": ["planner -> builder"]}


def write_trace(events: list[Event], path: Path) -> Trace:
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    return Trace(path)


def test_a_trace_file_gives_the_same_verdicts_and_is_read_once(
    context: CheckContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assertions: list[dict[str, Any]] = [{"type": kind, **fields} for kind, fields, _ in CASES]
    trace = write_trace(RUN, tmp_path / ".agent" / "run.jsonl")
    readings: list[Path] = []
    select = Trace.select

    def count(self: Trace, *args: Any, **options: Any) -> Iterator[Event]:
        readings.append(self.path)
        return select(self, *args, **options)

    monkeypatch.setattr(Trace, "select", count)
    assert evaluate_all(
        assertions, CheckContext(trace, tmp_path, context.snapshots)
    ) == evaluate_all(assertions, context)
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
def test_malformed_events_do_not_break_an_assertion(
    tmp_path: Path, kind: str, fields: dict[str, Any], status: str
):
    if "path" in fields or kind in {"scratchpad_contains", "snapshot_matches"}:
        return
    [verdict] = evaluate_all([{"type": kind, **fields}], CheckContext(HOSTILE, tmp_path))
    passes = {"no_event", "event_count", "duration"}  # something was published, at once
    assert not verdict.holds or kind in passes, verdict


@pytest.mark.parametrize(
    "pattern, message", [("[", "invalid pattern"), ("(a|aa)+$", "took longer than")]
)
def test_an_invalid_or_slow_pattern_does_not_stop_other_assertions(
    context: CheckContext, monkeypatch: pytest.MonkeyPatch, pattern: str, message: str
):
    monkeypatch.setattr("offbook.trace.matching.MAX_SECONDS", 0.01)
    events = [publish("build.done", "a" * 60 + "!"), *RUN]
    assertion = {"type": "event_occurred", "topic": "build.done", "payload_pattern": pattern}
    verdicts = evaluate_all(
        [assertion, {"type": "exit_code", "expected": 0}], CheckContext(events, context.root)
    )
    assert [verdict.status for verdict in verdicts] == ["error", "pass"]
    assert message in verdicts[0].message


def test_a_tool_that_ran_without_a_call_has_its_place_in_the_sequence(tmp_path: Path):
    events: list[Event] = []
    for call_id, tool in (("1", "find"), ("", "wipe"), ("2", "save")):
        seen: dict[str, Any] = {"call_id": call_id, "tool": tool, "input": {}}
        if call_id:
            events += [make("model.reply", blocks=[]), make("tool.call", **seen, observed=True)]
        events += [make("tool.start", **seen), make("tool.end", **seen, ms=1, is_error=False)]
    asserted = parse_assertion({"type": "tool_sequence", "tools": ["find", "wipe", "save"]})
    (verdict,) = evaluate_all([asserted], CheckContext(events, tmp_path))
    assert verdict.status == "pass", verdict.message
