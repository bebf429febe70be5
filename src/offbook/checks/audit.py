"""The audit of a transcript: a policy is a list of rules, and their findings are the result.

    policy = parse_audit_policy({
        "states": [{"step": "verify", "tools": [{"glob": "*checks*"}], "verifier": True}],
        "rules": [{"rule": "forbidden", "tools": [{"glob": "*force_push*"}]}, {"rule": "complete"}],
    })
    assert_audit(run.events, policy)

A golden of Harn, which has the settings of a fixed list of rules, is read as a policy too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from offbook.checks.audit_rules import (
    RULES,
    ApprovalRule,
    AuditedTranscript,
    AuditFinding,
    AuditRule,
    AuditState,
    AuditTransition,
    BadWaitRule,
    BudgetRule,
    CompleteRule,
    ForbiddenRule,
    PlanApprovalRule,
    RepeatedReadRule,
    StepOrderRule,
    StructuredOutputRule,
    StuckRule,
    ToolPattern,
    VerificationRule,
    count_model_calls,
)
from offbook.checks.transcript_file import HARN_EVENTS, read_transcript
from offbook.errors import CheckFailed, FormatError, did_you_mean
from offbook.files import convert, parse_json, read_text
from offbook.trace.events import Event, Verdict, VerdictStatus
from offbook.trace.matching import MISSING
from offbook.trace.query import Events


class AuditPolicy(msgspec.Struct, frozen=True):
    """The rules of an audit, and the states that they use."""

    rules: tuple[AuditRule, ...]
    states: tuple[AuditState, ...] = ()
    scenario: str | None = None


class AuditResult(msgspec.Struct, frozen=True, rename={"passed": "pass"}):
    """The result of an audit. It passed if no finding is an error."""

    scenario: str | None
    session_ids: list[str]
    event_count: int
    model_call_count: int
    tool_call_count: int
    findings: list[AuditFinding]
    state_transitions: list[AuditTransition]
    passed: bool

    def verdicts(self) -> list[Verdict]:
        """Return the findings as verdicts, or one that passed."""
        status: dict[str, VerdictStatus] = {"error": "fail", "warn": "warn", "info": "pass"}
        found = [
            Verdict(f"audit {f.category}", status[f.severity], f.message) for f in self.findings
        ]
        return found or [Verdict("audit", "pass", actual=self.event_count)]


def audit_transcript(
    events: Iterable[Event] | Events | Path, policy: AuditPolicy | Mapping[str, Any]
) -> AuditResult:
    """Apply the rules of a policy to the events of a run, or to a trace file."""
    parsed = policy if isinstance(policy, AuditPolicy) else parse_audit_policy(policy)
    if isinstance(events, Path):
        events = read_transcript(events)
    transcript = AuditedTranscript(
        events.all if isinstance(events, Events) else events, parsed.states
    )
    if not transcript.events:
        raise CheckFailed("the transcript has no events, so there is nothing to audit")
    found = [finding for rule in parsed.rules for finding in rule.findings(transcript)]
    # In the order of the events; what is missing comes last.
    last = transcript.events[-1].seq + 1
    found.sort(key=lambda finding: max(finding.event_indices, default=last))
    sessions = [event.context.get("sessionId") for event in transcript.events]
    return AuditResult(
        parsed.scenario,
        [str(name) for name in dict.fromkeys(sessions) if name],
        len(transcript.events),
        count_model_calls(transcript.events),
        len(transcript.calls),
        found,
        [reached.transition for reached in transcript.reached],
        not any(finding.severity == "error" for finding in found),
    )


def assert_audit(
    events: Iterable[Event] | Events | Path, policy: AuditPolicy | Mapping[str, Any]
) -> AuditResult:
    """Fail if an audit finds an error; return the report."""
    report = audit_transcript(events, policy)
    if not report.passed:
        errors = [finding for finding in report.findings if finding.severity == "error"]
        raise CheckFailed(
            f"the audit found {len(errors)} error{'s' * (len(errors) != 1)}",
            hint="\n".join(f"  {finding}" for finding in report.findings),
        )
    return report


class _PolicyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rules: tuple[dict[str, Any], ...]
    states: tuple[AuditState, ...] = ()
    scenario: str | None = None


class _HarnGolden(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A golden of Harn: the settings of a fixed list of rules."""

    kind: str = msgspec.field(name="_type")
    scenario: str | None = None
    description: str = ""
    max_model_calls: int | None = None
    max_tool_calls: int | None = None
    max_repeat: int = 1
    require_approval_for: tuple[ToolPattern, ...] | None = None
    forbidden_actions: tuple[ToolPattern, ...] = ()
    state_steps: tuple[AuditState, ...] = ()
    expected_state_transitions: tuple[str, ...] = ()


def _rename_events(state: AuditState) -> AuditState:
    """Return a state whose events have their names in a trace."""
    events = tuple(HARN_EVENTS.get(name, f"harn.{name}") for name in state.events)
    return msgspec.structs.replace(state, events=events)


def parse_audit_policy(raw: Mapping[str, Any], path: Path | str = "") -> AuditPolicy:
    """Return the policy in a dict: `rules`, `states` and `scenario`, or a golden of Harn."""
    if "_type" in raw:
        golden = convert(dict(raw), _HarnGolden, path=path)
        return AuditPolicy(
            (
                StuckRule(),
                RepeatedReadRule(golden.max_repeat),
                BadWaitRule(),
                ApprovalRule(golden.require_approval_for),
                ForbiddenRule(golden.forbidden_actions),
                StructuredOutputRule(),
                PlanApprovalRule(),
                VerificationRule(),
                CompleteRule(),
                StepOrderRule(golden.expected_state_transitions),
                BudgetRule(golden.max_tool_calls, golden.max_model_calls),
            ),
            tuple(_rename_events(state) for state in golden.state_steps),
            golden.scenario,
        )
    file = convert(dict(raw), _PolicyFile, path=path)
    if not file.rules:
        raise FormatError("an audit policy needs a rule", path=path, hint="rules: [{rule: …}]")
    rules: list[AuditRule] = []
    for index, fields in enumerate(file.rules):
        name = fields.get("rule", MISSING)
        if name not in RULES:
            what = "a rule needs its name" if name is MISSING else f"unknown rule {name!r}"
            hint = did_you_mean(str(name), RULES)
            raise FormatError(f"{what} (at $.rules[{index}].rule)", path=path, hint=hint)
        settings = {key: value for key, value in fields.items() if key != "rule"}
        rules.append(convert(settings, RULES[name], path=path, at=f"$.rules[{index}]"))
    return AuditPolicy(tuple(rules), file.states, file.scenario)


def read_audit_policy(path: Path) -> AuditPolicy:
    """Return the policy in a JSON or YAML file."""
    text = read_text(path)
    if path.suffix == ".json":
        value = parse_json(text, path)
    else:
        from offbook.yaml_files import parse_yaml  # most policies are in Python or JSON

        value = parse_yaml(text, path)
    if not isinstance(value, dict):
        raise FormatError("an audit policy is an object with 'rules'", path=path)
    return parse_audit_policy(cast("dict[str, Any]", value), path)


DEFAULT_POLICY = AuditPolicy(
    (StuckRule(), RepeatedReadRule(), BadWaitRule(), StructuredOutputRule(), CompleteRule())
)
"""The rules that need no settings."""

PULL_REQUEST_POLICY = parse_audit_policy(
    {
        "_type": "merge_captain_golden",
        "state_steps": [
            {"step": "intake", "tools": [{"glob": "*pull_request*"}], "plan_fields": ["pr_number"]},
            {
                "step": "verify_checks",
                "tools": [{"glob": glob} for glob in ("*checks*", "*ci*", "*workflow_run*")],
                "verifier": True,
            },
            {"step": "decide_risk", "plan_fields": ["review_risk"]},
            {
                "step": "approve",
                "events": ["feedback_injected", "handoff"],
                "approval_gate": True,
            },
            {"step": "merge", "tools": [{"glob": "*merge_pull_request*"}], "merge_action": True},
        ],
    }
)
"""The rules of Harn for an agent that merges pull requests, where a transcript has no golden."""


def find_golden(path: Path) -> Path | None:
    """Return the golden of a transcript: in its folder, or in `goldens` there."""
    beside = path.with_name(f"{path.stem}.golden.json")
    if beside.is_file():
        return beside
    other = path.parent.parent / "goldens" / f"{path.stem}.json"
    return other if path.parent.name == "transcripts" and other.is_file() else None
