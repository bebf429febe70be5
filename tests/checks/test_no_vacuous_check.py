"""Each check fails on some input, has no data of an empty run, and is refused if meaningless."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from offbook.checks import (
    ASSERTIONS,
    RULES,
    Budget,
    CheckContext,
    Spending,
    assertion_class,
    audit_transcript,
    evaluate_all,
    parse_assertion,
)
from offbook.errors import UsageError
from offbook.testing import parse_audit_policy
from offbook.trace import Event
from tests.checks.test_assertions import RUN

RECORD: dict[str, Any] = {
    "status": "failed",
    "output": {"text": "refused", "total": 7},
    "stages": [{"node_id": "plan", "status": "failed", "visible_text": "no plan"}],
    "tool_recordings": [{"tool_name": "bash"}],
    "hitl_questions": [{"prompt": "which branch?"}],
    "policy": {"side_effect_level": "network"},
}
Fields = dict[str, Any]


class Kind(NamedTuple):
    """The fields of a check that fails on the run above, and those that must be refused."""

    failing: Fields
    meaningless: list[Fields]


KINDS: dict[str, Kind] = {
    "exit_code": Kind({"expected": 1}, [{"expected": "0"}]),
    "termination_reason": Kind(
        {"expected": "max_iterations"}, [{"expected": ""}, {"expected": "MaxIteration"}]
    ),
    "iterations": Kind({"exact": 3}, [{}, {"min": 0}, {"max": -1}, {"min": 3, "max": 1}]),
    "duration": Kind({"max_secs": 1}, [{"max_secs": math.inf}, {"max_secs": math.nan}]),
    "cost_within": Kind({"max_dollars": 0.05}, [{"max_dollars": -1}, {"max_dollars": math.inf}]),
    "file_exists": Kind({"path": "gone"}, [{"path": ""}, {"path": "."}, {"path": "./"}]),
    "file_contains": Kind({"path": "a", "pattern": "other"}, [{"path": "a", "pattern": ""}]),
    "file_not_contains": Kind({"path": "a", "pattern": "text"}, [{"path": "a", "pattern": ""}]),
    "scratchpad_contains": Kind({"pattern": "x"}, [{"pattern": ""}, {"pattern": "["}]),
    "snapshot_matches": Kind({"snapshot_id": "old"}, [{"snapshot_id": ""}]),
    "event_occurred": Kind(
        {"topic": "build.tsk"}, [{"topic": ""}, {"topic": "a", "payload_pattern": ""}]
    ),
    "event_sequence": Kind({"topics": ["build.done", "task.start"]}, [{"topics": []}]),
    "event_count": Kind({"topic": "build.*", "max": 1}, [{"topic": "a"}, {"topic": "a", "min": 0}]),
    "no_event": Kind({"topic": "build.*"}, [{"topic": ""}]),
    "hat_sequence": Kind({"hats": ["planner"]}, [{"hats": []}]),
    "hat_transition": Kind({"from": "builder", "to": "planner"}, [{"from": "", "to": "a"}]),
    "iteration_count": Kind({"hat": "planner", "min": 2}, [{"hat": "planner"}]),
    "stdout_contains": Kind({"pattern": "Failed"}, [{"pattern": ""}]),
    "stderr_contains": Kind({"pattern": "panic"}, [{"pattern": ""}]),
    "tool_sequence": Kind({"tools": []}, [{"tools": [], "mode": "superset"}]),
    "tool_called": Kind(
        {"tool": "fnd"},
        [{"tool": ""}, {"tool": "a", "min": 0}, {"tool": "a", "min": 2, "max": 1}],
    ),
    "tool_never": Kind({"tool": "rm"}, [{"tool": ""}]),
    "tool_before": Kind({"first": "save", "then": "find"}, [{"first": "", "then": "a"}]),
    "tool_status": Kind({"tool": "find", "status": "blocked"}, [{"tool": "", "status": "ok"}]),
    "record_status": Kind({"expected": "completed"}, [{"expected": ""}]),
    "record_output": Kind(
        {"contains": "done"},
        [
            {},
            {"op": "ne"},
            {"contains": ""},
            {"contains": "a", "expected": "b"},
            {"contains": "a", "op": "eq"},
            {"op": "matches", "expected": ""},
            {"op": "matches", "expected": 1},
            {"op": "matches", "expected": "["},
            {"op": "in", "expected": []},
            {"op": "lt", "expected": math.inf},
            {"op": "exists", "expected": "yes"},
        ],
    ),
    "record_value": Kind(
        {"path": "/output/total", "op": "lt", "expected": 7},
        [{"path": "/a", "op": "ne"}, {"path": "output.total", "expected": 7}],
    ),
    "stage_status": Kind(
        {"stage": "plan", "expected": "completed"}, [{"stage": "", "expected": "completed"}]
    ),
    "stage_text": Kind({"contains": "ready"}, [{"contains": ""}]),
    "question_asked": Kind({"contains": "repository"}, [{"contains": ""}]),
    "recorded_tools": Kind({"expected": ["read"]}, [{"expected": []}, {"expected": ""}]),
    "no_recorded_tools": Kind({"expected": "bash"}, [{"expected": []}]),
    "side_effect_level": Kind({"expected": "none"}, [{"expected": "nothing"}]),
}


@pytest.fixture
def context(tmp_path: Path) -> CheckContext:
    (tmp_path / "a").write_text("a text")
    (tmp_path / ".agent").mkdir()
    (tmp_path / ".agent" / "scratchpad.md").write_text("## Completed\n")
    snapshots = tmp_path / ".offbook"
    snapshots.mkdir()
    (snapshots / "old.json").write_text('{"files": {"gone": "text"}}')
    return CheckContext(RUN, tmp_path, snapshots, RECORD)


def test_every_kind_is_in_the_table():
    assert list(KINDS) == list(ASSERTIONS)


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_fails_on_a_broken_run(name: str, context: CheckContext):
    [verdict] = evaluate_all([{"type": name, **KINDS[name].failing}], context)
    assert verdict.status == "fail"
    assert verdict.message


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("empty", [CheckContext([]), CheckContext(None)])
def test_each_kind_has_no_data_of_an_empty_run(name: str, empty: CheckContext):
    [verdict] = evaluate_all([{"type": name, **KINDS[name].failing}], empty)
    assert (verdict.status, verdict.message[:9]) == ("no_data", "no data: ")


@pytest.mark.parametrize(
    "name, fields", [(name, fields) for name, kind in KINDS.items() for fields in kind.meaningless]
)
def test_what_would_check_nothing_is_refused(name: str, fields: Fields):
    with pytest.raises(UsageError, match=rf"^playbook\.yaml: {name}"):
        parse_assertion({"type": name, **fields}, "playbook.yaml")


@pytest.mark.parametrize("name", KINDS)
def test_a_misspelt_name_or_field_is_refused_with_the_nearest_one(name: str):
    with pytest.raises(UsageError, match=f"did you mean '{name}'"):
        parse_assertion({"type": f"{name}x", **KINDS[name].failing})
    field = assertion_class(name).__struct_encode_fields__[0]
    with pytest.raises(UsageError, match=f"did you mean '{field}'"):
        parse_assertion({"type": name, **KINDS[name].failing, f"{field}x": 1})


def test_an_assertion_made_in_python_is_refused_as_well():
    kind: Any = assertion_class("stdout_contains")
    with pytest.raises(ValueError, match="`pattern` is empty and would check nothing"):
        kind("")


# --- Audit rules and budgets


@pytest.mark.parametrize("name", RULES)
def test_a_misspelt_rule_or_setting_is_refused_with_the_nearest_one(name: str):
    with pytest.raises(UsageError, match=f"did you mean '{name}'"):
        parse_audit_policy({"rules": [{"rule": f"{name}x"}]})
    for field in RULES[name].__struct_fields__:
        with pytest.raises(UsageError, match=f"did you mean '{field}'"):
            parse_audit_policy({"rules": [{"rule": name, f"{field}x": 1}]})


@pytest.mark.parametrize("name", RULES)
def test_a_rule_with_an_empty_list_or_a_negative_limit_is_refused(name: str):
    for field in msgspec.structs.fields(RULES[name]):
        value: Any = -1 if "max" in field.name else []
        if field.default in (value, ()):
            continue
        with pytest.raises(UsageError, match=f"`{field.name}` (is empty|must not be negative)"):
            parse_audit_policy({"rules": [{"rule": name, field.name: value}]})


def test_forbidden_tools_and_tool_never_have_no_data_of_the_same_run():
    events = [Event(0, "agent.end", {})]
    report = audit_transcript(events, {"rules": [{"rule": "forbidden", "tools": [{"name": "a"}]}]})
    never = evaluate_all([{"type": "tool_never", "tool": "a"}], CheckContext(events))
    assert [(v.status, v.message) for v in (*report.verdicts(), *never)] == [
        ("no_data", "no data: no tool was called")
    ] * 2


@pytest.mark.parametrize(
    "make, message",
    [
        (Budget, "a budget needs a limit"),
        (lambda: Budget(tokens=-1), "`tokens` must not be negative"),
        (lambda: Budget(cost_usd=math.inf), "`cost_usd` must be a finite number"),
        (lambda: Budget(seconds=math.nan), "`seconds` must be a finite number"),
    ],
)
def test_a_budget_that_limits_nothing_is_refused(make: Callable[[], Budget], message: str):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_budget_without_data_does_not_pass():
    assert [v.status for v in Budget(tokens=1).check(Spending())] == ["no_data"]
    assert [v.status for v in Budget(tokens=1).check(Spending(tokens=2))] == ["fail"]
