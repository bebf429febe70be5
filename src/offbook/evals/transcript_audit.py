"""The audit of a transcript: repeated calls, missing approvals, skipped verification, budgets.

A transcript is JSONL, one agent event a line. A golden names the steps that a good run takes, the
tools that need an approval, the forbidden ones and the budgets. Without a golden, general steps
and a guess by the names of tools are used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

import msgspec

from offbook.errors import FormatError
from offbook.files import convert, parse_json, read_text

PLAN = "plan"
PLAN_TYPES = {"plan": "plan", "orchestration_decision": "decision"}  # the type and its payload
END_TYPES = {"iteration_end", "budget_exhausted", "loop_stuck", "handoff"}
WAITING = re.compile(r"(?:^|_)(?:sleep|wait|poll)(?:_|$)")
WAIT_KEYS = {"until", "condition", "subscription_id"}
# Words in the name of a tool that changes something.
WRITING = {
    "apply", "approve", "close", "comment", "create", "delete", "edit", "label", "merge", "post",
    "push", "rebase", "set", "update", "write",
}  # fmt: skip
ANY_SCOPE = "*"


class NamePattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A name of a tool, or a glob with `*`; both ignore case."""

    name: str = ""
    glob: str = ""

    def matches(self, tool: str) -> bool:
        """Return whether a tool matches."""
        tool = tool.lower()
        if self.name:
            return tool == self.name.lower()
        # Only * is special: a bracket is a character like any other.
        return bool(self.glob) and fnmatchcase(tool, re.sub(r"([\[?])", r"[\1]", self.glob.lower()))


class StateStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A step that a run goes through, and the tools, plan fields or events that show it."""

    step: str
    tools: list[NamePattern] = []
    plan_fields: list[str] = []
    events: list[str] = []
    required: bool = False
    approval_gate: bool = False
    verifier: bool = False
    merge_action: bool = False


class Golden(msgspec.Struct, frozen=True):
    """What a good run does."""

    scenario: str | None = None
    max_model_calls: int | None = None
    max_tool_calls: int | None = None
    max_repeat: int = 1
    require_approval_for: list[NamePattern] | None = None
    forbidden_actions: list[NamePattern] = []
    state_steps: list[StateStep] = []
    expected_state_transitions: list[str] = []


def _globs(*patterns: str) -> list[NamePattern]:
    return [NamePattern(glob=pattern) for pattern in patterns]


DEFAULT_GOLDEN = Golden(
    state_steps=[
        StateStep("intake", _globs("*pull_request*"), ["pr_number"]),
        StateStep("verify_checks", _globs("*checks*", "*ci*", "*workflow_run*"), verifier=True),
        StateStep("decide_risk", plan_fields=["review_risk"]),
        StateStep("approve", events=["feedback_injected", "handoff"], approval_gate=True),
        StateStep("merge", _globs("*merge_pull_request*"), merge_action=True),
    ]
)


class Finding(msgspec.Struct, frozen=True):
    """A problem in a transcript."""

    category: str
    severity: str
    message: str
    event_indices: list[int] = []
    state_step: str | None = None
    tools: list[str] = []


class StateTransition(msgspec.Struct, frozen=True):
    """A step that a run took."""

    step: str
    event_index: int
    triggered_by: str


class AuditReport(msgspec.Struct, frozen=True):
    """The findings in a transcript; it passes without an error."""

    scenario: str | None
    session_ids: list[str]
    event_count: int
    model_call_count: int
    tool_call_count: int
    findings: list[Finding]
    state_transitions: list[StateTransition]
    passed: bool = msgspec.field(name="pass")
    looped: bool = False


TranscriptEvent = dict[str, Any]


def read_transcript(path: Path) -> list[TranscriptEvent]:
    """Return the events of a file, or of all `event_log*.jsonl` of a folder in their order."""
    files = sorted(path.glob("event_log*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise FormatError("no event_log*.jsonl in this folder", path=path)
    events: list[TranscriptEvent] = []
    for file in files:
        for number, line in enumerate(read_text(file).splitlines(), 1):
            if not line.strip():
                continue
            event = parse_json(line, file, number)
            if not isinstance(event, dict) or "type" not in event:
                raise FormatError("expected an event with a type", path=file, line=number)
            events.append(cast("TranscriptEvent", event))
    if not events:
        raise FormatError("the transcript has no events", path=path)
    return sorted(events, key=lambda event: event.get("index", 0)) if len(files) > 1 else events


def find_golden(path: Path) -> Path | None:
    """Return the golden of a transcript: beside it, or in the folder `goldens`."""
    beside = path.with_name(f"{path.stem}.golden.json")
    if beside.is_file():
        return beside
    other = path.parent.parent / "goldens" / f"{path.stem}.json"
    return other if path.parent.name == "transcripts" and other.is_file() else None


def read_golden(path: Path) -> Golden:
    """Return the golden of a file."""
    text = read_text(path)
    return convert(parse_json(text, path), Golden, path=path, text=text)


def audit(events: Sequence[TranscriptEvent], golden: Golden | None = None) -> AuditReport:
    """Return the findings in a transcript."""
    return _Audit(golden or DEFAULT_GOLDEN).run(events)


class _Audit:
    """The state of one audit."""

    def __init__(self, golden: Golden) -> None:
        self.golden = golden
        self.findings: list[Finding] = []
        self.transitions: list[StateTransition] = []
        self.repeats: dict[str, tuple[str, list[int]]] = {}
        self.approved = False
        self.open_plan: int | None = None  # a plan that waits for its approval
        self.verified: set[str] = set()
        self.tool_calls = self.model_calls = 0
        self.looped = self.ended = False

    def run(self, events: Sequence[TranscriptEvent]) -> AuditReport:
        sessions: dict[str, None] = {}
        for position, event in enumerate(events):
            index = int(event.get("index", position))
            if session := event.get("session_id"):
                sessions[str(session)] = None
            self._visit(event, index)
        self._check_end(events)
        passed = not any(finding.severity == "error" for finding in self.findings)
        return AuditReport(
            self.golden.scenario,
            list(sessions),
            len(events),
            self.model_calls,
            self.tool_calls,
            self.findings,
            self.transitions,
            passed,
            self.looped,
        )

    def _find(self, category: str, message: str, index: Iterable[int] = (), **more: Any) -> None:
        severity = more.pop("severity", "error")
        self.findings.append(Finding(category, severity, message, list(index), **more))

    def _visit(self, event: TranscriptEvent, index: int) -> None:
        kind = str(event["type"])
        self.ended = self.ended or kind in END_TYPES
        match kind:
            case "iteration_start":
                self.model_calls += 1
            case "tool_call":
                self.tool_calls += 1
                self._visit_call(event, index)
                return
            case "tool_call_update":
                self._visit_update(event, index)
            case "budget_exhausted":
                self._find("extra_model_call", "the budget of the agent was exhausted", [index])
            case "loop_stuck":
                self.looped = True
                self._find("extra_model_call", "the agent loop was stuck", [index])
            case "handoff":
                self._approve()
            case "feedback_injected" if "approv" in str(event.get("kind", "")).lower():
                self._approve()
            case _ if kind in PLAN_TYPES:
                self._visit_plan(event.get(PLAN_TYPES[kind], event.get(PLAN)), index)
                return
            case _:
                pass
        self._enter_steps([s for s in self.golden.state_steps if kind in s.events], kind, index)

    def _approve(self) -> None:
        self.approved, self.open_plan = True, None

    def _visit_call(self, event: TranscriptEvent, index: int) -> None:
        tool = str(event.get("tool_name", ""))
        arguments = event.get("raw_input")
        self._check_repeat(str(event.get("session_id", "")), tool, arguments, index)
        keys = set(cast("dict[str, Any]", arguments if isinstance(arguments, dict) else {}))
        if WAITING.search(tool.lower()) and not keys & WAIT_KEYS:
            message = f"tool `{tool}` waits without a condition"
            self._find("bad_wait", message, [index], severity="warn", tools=[tool])
        if any(pattern.matches(tool) for pattern in self.golden.forbidden_actions):
            message = f"tool `{tool}` is forbidden"
            self._find("forbidden_action", message, [index], tools=[tool])
        if self._needs_approval(tool) and not self.approved and self.open_plan is None:
            message = f"tool `{tool}` requires prior approval gate, but none observed"
            self._find("unsafe_attempted_action", message, [index], tools=[tool])
        steps = [s for s in self.golden.state_steps if any(p.matches(tool) for p in s.tools)]
        self._enter_steps(steps, tool, index, scope_of(arguments))

    def _needs_approval(self, tool: str) -> bool:
        listed = self.golden.require_approval_for
        if listed is not None:
            return any(pattern.matches(tool) for pattern in listed)
        return bool(WRITING & set(re.split(r"[^a-z]+", tool.lower())))

    def _check_repeat(self, session: str, tool: str, arguments: Any, index: int) -> None:
        call = f"{tool} {json.dumps(arguments, sort_keys=True)}"
        last, indices = self.repeats.get(session, ("", []))
        indices = [*indices, index] if last == call else [index]
        if len(indices) > self.golden.max_repeat:
            count = len(indices)
            message = f"tool `{tool}` called {count} times consecutively with identical args"
            self._find("repeated_read", message, indices, tools=[tool])
            indices = []
        self.repeats[session] = (call, indices)

    def _visit_update(self, event: TranscriptEvent, index: int) -> None:
        if event.get("status") == "failed" and event.get("error_category") == "schema_validation":
            tool = str(event.get("tool_name", ""))
            message = f"tool `{tool}` was called with an invalid input"
            self._find("invalid_structured_output", message, [index], tools=[tool])

    def _visit_plan(self, plan: Any, index: int) -> None:
        if not isinstance(plan, dict):
            self._find("invalid_structured_output", "the plan is not an object", [index])
            return
        fields = cast("dict[str, Any]", plan)
        if fields.get("approval_required") is True and not self.approved:
            self.open_plan = index

        def shows(step: StateStep) -> bool:
            present = [f for f in step.plan_fields if fields.get(f) is not None]
            if step.approval_gate and present == ["approval_required"]:
                return fields["approval_required"] is True
            return bool(present) or (not step.plan_fields and PLAN in step.events)

        steps = [step for step in self.golden.state_steps if shows(step)]
        self._enter_steps(steps, PLAN, index, scope_of(fields))

    def _enter_steps(
        self, steps: Sequence[StateStep], trigger: str, index: int, scope: str = ANY_SCOPE
    ) -> None:
        for step in steps:
            self.transitions.append(StateTransition(step.step, index, trigger))
            if step.approval_gate:
                self._approve()
            if step.verifier:
                self.verified.add(scope)
            if step.merge_action and not {scope, ANY_SCOPE} & self.verified:
                message = f"merge action `{step.step}` reached without a preceding verifier step"
                self._find("skipped_verification", message, [index], state_step=step.step)

    def _check_end(self, events: Sequence[TranscriptEvent]) -> None:
        golden = self.golden
        if self.open_plan is not None:
            message = "the plan required an approval, and none was asked for"
            self._find("missing_approval", message, [self.open_plan])
        if not self.ended:
            last = int(events[-1].get("index", len(events) - 1))
            message = "the transcript has no end"
            self._find("incomplete_transcript", message, [last], severity="warn")
        seen = [transition.step for transition in self.transitions]
        order = [step.step for step in golden.state_steps]
        for step in golden.state_steps:
            if step.required and step.step not in seen:
                message = f"required state step `{step.step}` was never reached"
                self._find("missing_state_step", message, state_step=step.step)
        furthest = 0
        for step in dict.fromkeys(seen):
            position = order.index(step)
            if position + 1 < furthest:
                message = f"state step `{step}` was reached after `{order[furthest]}`"
                self._find("state_out_of_order", message, severity="warn", state_step=step)
            furthest = max(furthest, position)
        expected = golden.expected_state_transitions
        if expected and seen != expected:
            message = f"state transitions {' → '.join(seen)}, expected {' → '.join(expected)}"
            self._find("state_sequence_mismatch", message)
        for limit, count, category, noun in (
            (golden.max_tool_calls, self.tool_calls, "non_minimal_tool_usage", "tool"),
            (golden.max_model_calls, self.model_calls, "extra_model_call", "model"),
        ):
            if limit is not None and count > limit:
                self._find(category, f"{count} {noun} calls, expected at most {limit}")


def scope_of(arguments: Any) -> str:
    """Return `repo#number` of a call or plan; `*` if it names neither."""
    if not isinstance(arguments, dict):
        return ANY_SCOPE
    fields = cast("dict[str, Any]", arguments)
    number = fields.get("pr_number", fields.get("number"))
    if fields.get("repo") is None and number is None:
        return ANY_SCOPE
    return f"{fields.get('repo', '')}#{number if number is not None else ''}"
