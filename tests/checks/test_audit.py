"""An audit applies the rules of a policy to a transcript."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from offbook import call, say, session, when
from offbook.checks import (
    AUDIT_RULES,
    DEFAULT_POLICY,
    PULL_REQUEST_POLICY,
    find_golden,
    read_transcript,
)
from offbook.errors import CheckFailed, FormatError, UsageError
from offbook.testing import (
    AuditedTranscript,
    AuditFinding,
    AuditPolicy,
    AuditRule,
    assert_audit,
    audit_transcript,
    parse_audit_policy,
    read_audit_policy,
)
from offbook.trace import Event
from tests.conftest import SHARED_DATA

HARN = SHARED_DATA / "harn"
CAPTAIN = HARN / "examples" / "personas" / "merge_captain"
SCENARIOS = ["bad_unsafe_merge", "force_with_lease_mismatch", "green_pr"]


def expected_report(name: str) -> dict[str, Any]:
    return json.loads((HARN / "expected" / "transcript_audit.json").read_text())[name]


@pytest.mark.external
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_transcript_of_harn_has_its_known_report(name: str):
    path = CAPTAIN / "transcripts" / f"{name}.jsonl"
    golden = find_golden(path)
    assert golden is not None
    report = audit_transcript(path, read_audit_policy(golden))
    assert msgspec.to_builtins(report, str_keys=True) == _with_tuples(expected_report(name))


def _with_tuples(report: dict[str, Any]) -> dict[str, Any]:
    for finding in report["findings"]:
        finding |= {key: tuple(finding[key]) for key in ("event_indices", "tools")}
    return report


@pytest.mark.external
def test_every_transcript_of_harn_is_tested():
    assert sorted(path.stem for path in (CAPTAIN / "transcripts").iterdir()) == SCENARIOS


@pytest.mark.external
def test_a_transcript_of_harn_without_a_golden_has_its_known_findings():
    path = CAPTAIN / "transcripts" / "green_pr.jsonl"
    expected = expected_report("green_pr(no golden)")
    assert msgspec.to_builtins(audit_transcript(path, PULL_REQUEST_POLICY)) == expected
    general = audit_transcript(path, DEFAULT_POLICY)
    assert (general.findings, general.passed) == (expected["findings"], expected["pass"])


Named = tuple[str, dict[str, Any]]
END: Named = ("agent.end", {})


def tool(name: str, **params: Any) -> Named:
    return "tool.call", {"tool": name, "input": params}


def plan(**fields: Any) -> Named:
    return "plan", {"plan": fields}


def events(*named: Named) -> list[Event]:
    return [Event(0, name, data, seq) for seq, (name, data) in enumerate(named)]


CHECKS = {"step": "verify", "tools": [{"glob": "*check*"}], "verifier": True, "required": True}
GATE = {"step": "approve", "events": ["feedback_injected"], "approval_gate": True}
MERGE = {"step": "merge", "tools": [{"name": "merge"}], "merge_action": True}
PLAN_STEP = {"step": "plan", "plan_fields": ["risk"], "events": ["plan"]}
FORCE = {"tools": [{"glob": "*force*"}]}

# rule, its settings, states, events -> the categories found and their events
FOUND: dict[
    str, tuple[str, dict[str, Any], list[Any], list[Named], list[tuple[str, list[int]]]]
] = {
    "a repeated read": (
        *("repeated_read", {}, []),
        [tool("read", a=1, b=2), ("tool.result", {}), tool("read", b=2, a=1)],
        [("repeated_read", [0, 2])],
    ),
    "a repeated read within its limit": (
        *("repeated_read", {"max": 2}, [], [tool("read"), tool("read")], []),
    ),
    "other arguments": ("repeated_read", {}, [], [tool("read", a=1), tool("read", a=2)], []),
    "another tool between": (
        *("repeated_read", {}, [], [tool("read"), tool("ls"), tool("read")], []),
    ),
    "a wait without a condition": (
        *("bad_wait", {}, [], [tool("sleep", seconds=5)], [("bad_wait", [0])]),
    ),
    "a wait for something": ("bad_wait", {}, [], [tool("wait", until="done")], []),
    "a word that begins like wait": ("bad_wait", {}, [], [tool("list_waiters")], []),
    "a word in camel case": ("bad_wait", {}, [], [tool("waitForCI")], [("bad_wait", [0])]),
    "a wait with a text as input": (
        *("bad_wait", {}, [], [("tool.call", {"tool": "wait", "input": "until"})]),
        [("bad_wait", [0])],
    ),
    "a forbidden tool": (
        *("forbidden", FORCE, [], [tool("git_FORCE_push")], [("forbidden_action", [0])]),
    ),
    "an allowed tool": ("forbidden", FORCE, [], [tool("git_push")], []),
    "an action without approval": (
        *("approval", {}, [GATE], [tool("merge_pr")], [("unsafe_attempted_action", [0])]),
    ),
    "a name that only contains such a word": (
        *("approval", {}, [], [tool("list_assets"), tool("find_postal_code")], []),
    ),
    "an action before the approval of its plan": (
        *("approval", {}, [], [plan(approval_required=True), tool("merge_pr"), ("handoff", {})]),
        [("unsafe_attempted_action", [1])],
    ),
    "an action after a gate": (
        *("approval", {}, [GATE], [("feedback_injected", {}), tool("merge_pr")], []),
    ),
    "an action after a confirmation": (
        *("approval", {}, [], [("ui.confirm", {"answer": True}), tool("merge_pr")], []),
    ),
    "an action after a refusal": (
        *("approval", {}, [], [("ui.confirm", {"answer": False}), tool("merge_pr")]),
        [("unsafe_attempted_action", [1])],
    ),
    "a result that does not fit": (
        *("structured_output", {}, []),
        [("tool.result", {"tool": "a", "error_category": "schema_validation"})],
        [("invalid_structured_output", [0])],
    ),
    "a plan that is a text": (
        *("structured_output", {}, [], [("plan", {"plan": "just do it"})]),
        [("invalid_structured_output", [0])],
    ),
    "a plan that is a structure": ("structured_output", {}, [], [plan(risk="low")], []),
    "a plan without its approval": (
        *(
            "plan_approval",
            {},
            [],
            [plan(approval_required=True), END],
            [("missing_approval", [0])],
        ),
    ),
    "a plan with its approval": (
        *("plan_approval", {}, [], [plan(approval_required=True), ("handoff", {})], []),
    ),
    "an action that was not verified": (
        *("verification", {}, [CHECKS, MERGE], [tool("merge", number=1)]),
        [("skipped_verification", [0])],
    ),
    "an action for which another was verified": (
        *("verification", {}, [CHECKS, MERGE]),
        [tool("checks", number=2), tool("merge", number=1)],
        [("skipped_verification", [1])],
    ),
    "an action that was verified": (
        *("verification", {}, [CHECKS, MERGE]),
        *([tool("checks", pr_number=1), tool("merge", number=1)], []),
    ),
    "a verification of everything": (
        *("verification", {}, [CHECKS, MERGE], [tool("checks"), tool("merge", number=1)], []),
    ),
    "no end": ("complete", {}, [], [tool("a")], [("incomplete_transcript", [])]),
    "an end": ("complete", {}, [], [tool("a"), END], []),
    "an end at a limit": ("complete", {}, [], [("agent.budget_exhausted", {})], []),
    "a missing step": ("steps", {}, [CHECKS], [END], [("missing_state_step", [])]),
    "a step of a persona": (*("steps", {}, [CHECKS], [("step.pre", {"step_name": "verify"})], []),),
    "steps in the wrong order": (
        *("steps", {}, [PLAN_STEP, GATE, MERGE], [tool("merge"), plan(risk="low")]),
        [("state_out_of_order", [1])],
    ),
    "neighbours in another order": (
        *("steps", {}, [PLAN_STEP, MERGE], [tool("merge"), plan(risk="low")], []),
    ),
    "another sequence": (
        *("steps", {"expected": ["plan", "merge"]}, [PLAN_STEP, MERGE], [tool("merge")]),
        [("state_sequence_mismatch", [])],
    ),
    "too many tools": (
        *("budget", {"max_tool_calls": 1}, [], [tool("a"), tool("b")]),
        [("non_minimal_tool_usage", [])],
    ),
    "too many requests": (
        *("budget", {"max_model_calls": 0}, [], [("model.request", {})]),
        [("extra_model_call", [])],
    ),
    "a budget that is kept": (
        *("budget", {"max_model_calls": 1, "max_tool_calls": 0}, [], [("model.request", {})], []),
    ),
    "an agent that was stopped": (
        *("stuck", {}, [], [("agent.loop_stuck", {})], [("extra_model_call", [0])]),
    ),
    "an agent that ended": ("stuck", {}, [], [END], []),
}


WARNINGS = {"bad_wait", "complete", "steps"}


@pytest.mark.parametrize("rule, settings, states, named, found", FOUND.values(), ids=FOUND)
def test_a_rule_finds(
    rule: str, settings: dict[str, Any], states: list[Any], named: list[Named], found: list[Any]
):
    # A rule that only warns is no policy by itself.
    rules = [{"rule": rule, **settings}]
    if rule in WARNINGS:
        rules.append({"rule": "budget", "max_tool_calls": 9})
        named = [*named, ("model.request", {})]
    policy = {"states": states, "rules": rules}
    report = audit_transcript(events(*named), policy)
    assert [(f.category, list(f.event_indices)) for f in report.findings] == found
    assert report.passed is not any(f.severity == "error" for f in report.findings)


def test_every_rule_has_a_transcript_that_it_finds_and_one_that_it_passes():
    results = {(case[0], bool(case[4])) for case in FOUND.values()}
    assert results == {(rule, found) for rule in AUDIT_RULES for found in (True, False)}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown rule": (
        {"rules": [{"rule": "complete"}, {"rule": "forbiden"}]},
        "unknown rule 'forbiden' (at $.rules[1])\ndid you mean 'forbidden'",
    ),
    "a rule without a name": ({"rules": [{"max": 1}]}, "an assertion needs a rule"),
    "an unknown setting": (
        {"rules": [{"rule": "repeated_read", "maxx": 2}]},
        "(at $.rules[0].maxx)\ndid you mean 'max'",
    ),
    "a missing setting": ({"rules": [{"rule": "forbidden"}]}, "missing key 'tools'"),
    "no rule": ({"rules": []}, "needs a rule"),
    "no forbidden tool": ({"rules": [{"rule": "forbidden", "tools": []}]}, "`tools` is empty"),
    "no tool that needs an approval": (
        {"rules": [{"rule": "approval", "tools": []}]},
        "`tools` is empty and would check nothing (at $.rules[0])",
    ),
    "a budget without a limit": ({"rules": [{"rule": "budget"}]}, "a budget needs a limit"),
    "a negative limit": ({"rules": [{"rule": "repeated_read", "max": -1}]}, "not be negative"),
    "steps without states": ({"rules": [{"rule": "steps"}]}, "the rule steps needs states"),
    "a verification without an action": (
        {"rules": [{"rule": "verification"}], "states": [CHECKS]},
        "the rule verification needs a state with merge_action",
    ),
    "rules that only warn": (
        {"rules": [{"rule": "complete"}, {"rule": "bad_wait"}]},
        "the audit could not fail: these rules only warn: complete, bad_wait",
    ),
    "an unknown key": ({"rules": [], "state": []}, "did you mean 'states'"),
    "a pattern with two forms": (
        {"rules": [{"rule": "forbidden", "tools": [{"name": "a", "glob": "b"}]}]},
        "either `name` or `glob`",
    ),
}


@pytest.mark.parametrize("policy, message", BAD.values(), ids=BAD)
def test_a_wrong_policy_is_refused_before_anything_is_read(policy: dict[str, Any], message: str):
    with pytest.raises(FormatError) as caught:
        audit_transcript(Path("no such trace"), policy)
    assert message in str(caught.value)


def test_forbidden_tools_of_a_run_without_tools_are_no_data():
    policy = {"rules": [{"rule": "forbidden", **FORCE}]}
    report = audit_transcript(events(END), policy)
    assert [(v.status, v.message) for v in report.verdicts()] == [
        ("no_data", "no data: no tool was called")
    ]
    with pytest.raises(CheckFailed, match="no data to audit\n  no data forbidden: no tool was"):
        assert_audit(events(END), policy)


def test_a_golden_of_harn_without_settings_has_the_rules_that_need_none():
    policy = parse_audit_policy({"_type": "merge_captain_golden", "require_approval_for": []})
    assert [rule.name for rule in policy.rules] == [
        *("stuck", "repeated_read", "bad_wait", "structured_output", "plan_approval", "complete")
    ]


def test_an_empty_transcript_is_no_pass():
    with pytest.raises(CheckFailed, match="nothing to audit"):
        audit_transcript([], DEFAULT_POLICY)


class NoWeekend(AuditRule, frozen=True):
    """A rule of a project."""

    name: ClassVar[str] = "no_weekend"
    day: str = "Sunday"

    def findings(self, transcript: AuditedTranscript) -> Iterator[AuditFinding]:
        if any(call.data["input"].get("day") == self.day for call in transcript.calls):
            yield AuditFinding("weekend", "error", f"nothing is deployed on a {self.day}")


def test_a_project_adds_its_own_rule():
    policy = AuditPolicy((NoWeekend(),))
    assert_audit(events(tool("deploy", day="Monday")), policy)
    with pytest.raises(CheckFailed) as caught:
        assert_audit(events(tool("deploy", day="Sunday")), policy)
    assert str(caught.value) == (
        "the audit found 1 error\n  error weekend: nothing is deployed on a Sunday"
    )


def test_the_events_of_a_run_are_audited(tmp_path: Path):
    script = when(
        "Go", [call("bash", {"command": "true"}), call("bash", {"command": "true"}), say("Done.")]
    )
    with session(mock_tools={"bash": "ok"}, trace=tmp_path / "trace.jsonl") as rehearsal:
        run = rehearsal.run(script)
        report = audit_transcript(run.events, DEFAULT_POLICY)
        assert [f.category for f in report.findings] == ["repeated_read"]
    assert audit_transcript(tmp_path / "trace.jsonl", DEFAULT_POLICY).tool_call_count == 2
    assert [v.status for v in report.verdicts()] == ["fail"]


def test_a_policy_file_is_yaml_or_json(tmp_path: Path):
    path = tmp_path / "policy.yaml"
    path.write_text("scenario: deploy\nrules:\n  - rule: budget\n    max_tool_calls: 3\n")
    assert read_audit_policy(path).scenario == "deploy"
    path.write_text("rules:\n  - rule: bugdet\n")
    with pytest.raises(UsageError, match=r"policy\.yaml: unknown rule 'bugdet'"):
        read_audit_policy(path)


def test_an_empty_transcript_file_is_refused(tmp_path: Path):
    path = tmp_path / "empty.jsonl"
    path.write_text("\n")
    with pytest.raises(FormatError, match="empty"):
        read_transcript(path)


def test_the_event_logs_of_a_folder_are_one_transcript_in_the_order_of_the_index(tmp_path: Path):
    line = '{{"index": {0}, "type": "tool_call", "tool_name": "t{0}", "emitted_at_ms": {0}}}\n'
    (tmp_path / "event_log-1.jsonl").write_text(line.format(1) + line.format(3))
    (tmp_path / "event_log-2.jsonl").write_text(line.format(2))
    assert [event.data["tool"] for event in read_transcript(tmp_path)] == ["t1", "t2", "t3"]


def test_a_folder_without_event_logs_is_refused(tmp_path: Path):
    with pytest.raises(FormatError, match="no event_log"):
        read_transcript(tmp_path)


def test_a_damaged_line_of_a_trace_is_refused(tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"ts": 1, "event": "agent.end"}\nnonsense\n{"ts": 2, "event": "plan"}\n')
    with pytest.raises(FormatError, match="corrupt") as caught:
        read_transcript(path)
    assert caught.value.line == 2


def test_an_event_without_a_time_gets_that_of_the_event_before_it(tmp_path: Path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"type": "plan", "emitted_at_ms": 1700000000000}\n{"type": "iteration_end"}\n')
    assert {event.ts for event in read_transcript(path)} == {1700000000000}


@pytest.mark.parametrize(
    "field, value, message",
    [
        ("emitted_at_ms", '"soon"', 'emitted_at_ms: expected a number, got "soon"'),
        ("emitted_at_ms", "1e30", "emitted_at_ms: expected a number, got"),
        ("emitted_at_ms", "true", "emitted_at_ms: expected a number, got true"),
        ("index", '"first"', 'index: expected a number, got "first"'),
    ],
)
def test_a_wrong_number_of_an_event_log_is_refused_with_its_line(
    tmp_path: Path, field: str, value: str, message: str
):
    path = tmp_path / "log.jsonl"
    path.write_text(f'{{"type": "plan"}}\n{{"type": "iteration_end", "{field}": {value}}}\n')
    with pytest.raises(FormatError, match=message) as caught:
        read_transcript(path)
    assert caught.value.line == 2


@pytest.mark.parametrize("field", ["emitted_at_ms", "index"])
def test_a_number_of_an_event_log_may_be_null(tmp_path: Path, field: str):
    path = tmp_path / "log.jsonl"
    line = '{"type": "plan", "index": 0, "emitted_at_ms": 5}\n'
    path.write_text(f'{line}{{"type": "iteration_end", "{field}": null}}\n')
    assert [(event.ts, event.seq) for event in read_transcript(path)] == [(5, 0), (5, 1)]


def test_a_golden_names_the_events_of_harn():
    raw = {"_type": "golden", "state_steps": [{"step": "end", "events": ["iteration_end"]}]}
    report = audit_transcript(events(END), parse_audit_policy(raw))
    assert [transition.step for transition in report.state_transitions] == ["end"]


def test_a_policy_can_be_parsed_alone():
    assert parse_audit_policy({"rules": [{"rule": "stuck"}]}).rules[0].name == "stuck"
