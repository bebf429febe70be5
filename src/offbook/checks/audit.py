"""The audit of a transcript: a policy is a list of rules, and their findings are the result.

    policy = parse_audit_policy({
        "states": [{"step": "verify", "tools": [{"glob": "*checks*"}], "verifier": True}],
        "rules": [{"rule": "forbidden", "tools": [{"glob": "*force_push*"}]}, {"rule": "complete"}],
    })
    assert_audit(run.events, policy)

A rule is an assertion with a method `findings(transcript)`. `AUDIT_RULES` has the names of rules,
and `needs` of a rule the facts without which it has no data. A project adds its own by subclassing
`AuditRule`. The states of a policy say which events mean which step of the work. Several rules
use them: a step may be required, an approval, a verification, or an action that needs both.

A golden of Harn, which has the settings of a fixed list of rules, is read as a policy too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, cast

import msgspec

from offbook.checks.assertion import (
    AUDIT_RULES,
    Assertion,
    AssertionResult,
    parse_assertion,
)
from offbook.checks.context import CheckContext, NoData
from offbook.checks.golden_transcript import HARN_EVENTS, read_transcript
from offbook.errors import CheckFailed, FormatError, UsageError, counted
from offbook.files import convert, parse_document, read_text
from offbook.options import require_some
from offbook.trace.events import (
    AGENT_END,
    BUDGET_EXHAUSTED,
    FEEDBACK,
    HANDOFF,
    LOOP_STUCK,
    PLAN,
    REQUEST,
    RUN_END,
    STEP_PRE,
    TERMINATION,
    TOOL_CALL,
    TOOL_RESULT,
    Event,
    Verdict,
    VerdictStatus,
)
from offbook.trace.executions import ToolUse, read_executions
from offbook.trace.globs import Glob
from offbook.trace.query import Events

Severity = Literal["error", "warn", "info"]
TERMINAL = {AGENT_END, RUN_END, TERMINATION, HANDOFF, BUDGET_EXHAUSTED, LOOP_STUCK}
WAITS = {"sleep", "wait", "poll"}
# Words in the names of tools that change something, for a policy that names no such tools.
WRITES = {
    "apply", "approve", "close", "comment", "create", "delete", "deploy", "edit", "label", "merge",
    "post", "push", "rebase", "set", "update", "write",
}  # fmt: skip
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


class ToolPattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool by its `name`, or by a `glob` in which `*` matches any text; case is ignored."""

    name: str = ""
    glob: str = ""

    def __post_init__(self) -> None:
        if bool(self.name) == bool(self.glob):
            raise ValueError("expected either `name` or `glob`")

    def matches(self, tool: str) -> bool:
        """Return whether the name of a tool matches."""
        if self.name:
            return tool.lower() == self.name.lower()
        return Glob(self.glob.lower()).matches(tool.lower())


class AuditState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A step of the work, and the events that mean it was reached."""

    step: str
    tools: tuple[ToolPattern, ...] = ()
    plan_fields: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    required: bool = False
    approval_gate: bool = False
    verifier: bool = False
    merge_action: bool = False

    def trigger(self, event: Event, tool: str = "") -> str | None:
        """Return what reached this step: the name of a tool or of an event, or None.

        `tool` is the tool that ran, if the event is about one.
        """
        if tool:
            return tool if any(pattern.matches(tool) for pattern in self.tools) else None
        if event.event == STEP_PRE:  # a step of a persona with the same name
            return STEP_PRE if event.data.get("step_name") == self.step else None
        plan = event.data.get("plan") if event.event == PLAN else None
        if isinstance(plan, dict):
            fields = cast("dict[str, Any]", plan)
            present = [name for name in self.plan_fields if name in fields]
            # A gate that asks whether approval is required is passed if it is.
            if self.approval_gate and fields.get("approval_required") is not True:
                present = [name for name in present if name != "approval_required"]
            if present:
                return event.event
        return event.event if event.event in self.events else None


class AuditFinding(msgspec.Struct, frozen=True):
    """A finding of an audit: `event_indices` are the events that it is about."""

    category: str
    severity: Severity
    message: str
    event_indices: tuple[int, ...] = ()
    state_step: str | None = None
    tools: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f" (event {', '.join(map(str, self.event_indices))})" if self.event_indices else ""
        return f"{self.severity} {self.category}: {self.message}{where}"


class AuditTransition(msgspec.Struct, frozen=True):
    """A step of the work that an event reached."""

    step: str
    event_index: int
    triggered_by: str


class ReachedStep(NamedTuple):
    """A transition with its event and its step."""

    transition: AuditTransition
    event: Event
    state: AuditState


class AuditedTranscript(CheckContext):
    """The events of a run as rules read them.

    `calls` are the calls of the model, each with the input that its tool received, and the tools
    that ran without a call. An attempt counts: the call may have been blocked. A step is reached by
    a tool that ran; an action also by the attempt.
    """

    def __init__(self, events: Iterable[Event], states: Iterable[AuditState] = ()) -> None:
        self.events = list(events)
        super().__init__(self.events)
        self.states = tuple(states)
        uses = [(use, _to_call(use)) for use in read_executions(self.events).uses]
        self.calls = [call for _, call in uses]
        self.requests = self._named(REQUEST)
        self.plans = self._named(PLAN)
        self.ends = self._named(*TERMINAL)
        self.structures = self._named(TOOL_RESULT, PLAN)
        self.activity = [*self.requests, *self.calls]
        not_run = {id(call) for use, call in uses if not use.counts}
        others = [(event, "") for event in self.events if event.event != TOOL_CALL]
        events_and_tools = [*others, *((call, use.tool) for use, call in uses)]
        self.reached = [
            ReachedStep(AuditTransition(state.step, event.seq, trigger), event, state)
            for event, tool in sorted(events_and_tools, key=lambda pair: pair[0].seq)
            for state in self.states
            if (trigger := state.trigger(event, tool)) is not None
            and (state.merge_action or id(event) not in not_run)
        ]

    def _named(self, *names: str) -> list[Event]:
        return [event for event in self.events if event.event in names]

    def approved_before(self, index: int) -> bool:
        """Return whether an approval was given before an event."""
        gates = (r for r in self.reached if r.state.approval_gate)
        return any(r.event.seq < index for r in gates) or any(
            event.seq < index and is_approval(event) for event in self.events
        )


def _to_call(use: ToolUse) -> Event:
    """Return the event of a call with the input that the tool received."""
    data = {**use.event.data, "tool": use.tool}
    if use.execution is not None:
        data["input"] = use.input
    return msgspec.structs.replace(use.event, data=data)


def is_approval(event: Event) -> bool:
    """Return whether an event is the approval of a person: feedback, a handoff, a `confirm`."""
    if event.event == FEEDBACK:
        return "approv" in str(event.data.get("kind", "")).lower()
    return event.event == HANDOFF or (
        event.event == "ui.confirm" and event.data.get("answer") is True
    )


# --- Rules


class AuditRule(Assertion, frozen=True):
    """A rule of an audit. A subclass has fields for its settings, and yields findings.

    `needs` are lists of the transcript that must not be empty, else the rule has no data.
    """

    name: ClassVar[str] = ""
    # The flags of states without which it could find nothing; "step" is any state.
    needs_states: ClassVar[tuple[str, ...]] = ()

    def findings(self, transcript: AuditedTranscript) -> Iterator[AuditFinding]:
        """Yield what is wrong with a transcript."""
        raise NotImplementedError

    def can_fail(self, states: Iterable[AuditState]) -> bool:  # noqa: ARG002 - of a subclass
        """Return whether a finding can be an error, and not only a warning."""
        return True

    @property
    def title(self) -> str:
        """The name of the rule, as reports have it."""
        return f"audit {self.name}"

    def evaluate(self, context: CheckContext) -> AssertionResult:
        """Return whether the rule finds no error."""
        found = list(self.findings(cast("AuditedTranscript", context)))
        errors = [finding for finding in found if finding.severity == "error"]
        return AssertionResult(not errors, actual=found, message="; ".join(map(str, errors)))


class StuckRule(AuditRule, frozen=True):
    """The agent neither ran into a limit nor repeated itself until it was stopped."""

    name: ClassVar[str] = "stuck"
    needs: ClassVar[tuple[str, ...]] = ("ends",)

    def findings(self, transcript: AuditedTranscript) -> Iterator[AuditFinding]:
        for event in transcript.events:
            if event.event in {BUDGET_EXHAUSTED, LOOP_STUCK}:
                reason = "the budget was exhausted" if event.event == BUDGET_EXHAUSTED else "loop"
                message = f"the agent was stopped: {reason}"
                yield AuditFinding("extra_model_call", "error", message, (event.seq,))


class RepeatedReadRule(AuditRule, frozen=True):
    """No tool is called more than `max` times in a row with the same input."""

    name: ClassVar[str] = "repeated_read"
    needs: ClassVar[tuple[str, ...]] = ("calls",)
    max: int = 1

    def findings(self, transcript: AuditedTranscript) -> Iterator[AuditFinding]:
        runs: dict[str, list[Event]] = {}
        for call in transcript.calls:
            run = runs.setdefault(str(call.context.get("sessionId", "")), [])
            same = run and _call_key(run[-1]) == _call_key(call)
            run[:] = [*run, call] if same else [call]
            if len(run) > self.max:
                tool = str(call.data["tool"])
                message = f"tool `{tool}` called {len(run)} times consecutively with identical args"
                indices = tuple(event.seq for event in run)
                yield AuditFinding("repeated_read", "error", message, indices, tools=(tool,))
                run.clear()  # a long row is one finding for each time that it exceeds the limit


class BadWaitRule(AuditRule, frozen=True):
    """A tool that waits has a condition to wait for."""

    name: ClassVar[str] = "bad_wait"
    needs: ClassVar[tuple[str, ...]] = ("calls",)
    tools: tuple[ToolPattern, ...] | None = None  # None: those with such a word in their name
    conditions: tuple[str, ...] = ("until", "condition", "subscription_id")

    def can_fail(self, states: Iterable[AuditState]) -> bool:  # noqa: ARG002 - it only warns
        return False

    def findings(self, transcript: AuditedTranscript) -> Iterator[AuditFinding]:
        for call in _calls_of(transcript, self.tools, WAITS):
            given = call.data.get("input")
            if not isinstance(given, dict) or not any(name in given for name in self.conditions):
                yield _call_finding(call, "bad_wait", "waits without a condition", "warn")


class ApprovalRule(AuditRule, frozen=True):
    """These tools are called only after an approval."""

    name: ClassVar[str] = "approval"
    needs: ClassVar[tuple[str, ...]] = ("calls",)
    tools: tuple[ToolPattern, ...] | None = None  # None: those with such a word in their name

    def findings(self, transcript: AuditedTranscript) -> Iterator[AuditFinding]:
        for call in _calls_of(transcript, self.tools, WRITES):
            if not transcript.approved_before(call.seq):
                what = "requires prior approval gate, but none observed"
                yield _call_finding(call, "unsafe_attempted_action", what)


class ForbiddenRule(AuditRule, frozen=True):
    """These tools are never called."""

    tools: tuple[ToolPattern, ...]
    name: ClassVar[str] = "forbidden"
    needs: ClassVar[tuple[str, ...]] = ("calls",)

    def findings(self, transcript: AuditedTranscript) -> Iterator[AuditFinding]:
        for call in _calls_of(transcript, self.tools):
            yield _call_finding(call, "forbidden_action", "is forbidden")


class StructuredOutputRule(AuditRule, frozen=True):
    """No result fails its schema, and every plan is a structure."""

    name: ClassVar[str] = "structured_output"
    needs: ClassVar[tuple[str, ...]] = ("structures",)

    def findings(self, transcript: AuditedTranscript) -> Iterator[AuditFinding]:
        for event in transcript.events:
            category = event.data.get("error_category")
            tool = str(event.data.get("tool", ""))
            if event.event == TOOL_RESULT and category == "schema_validation":
                message = f"the result of `{tool}` does not fit its schema"
            elif event.event == PLAN and not isinstance(event.data.get("plan"), dict):
                message = "the plan is not an object"
            else:
                continue
            tools = (tool,) if tool else ()
            yield AuditFinding(
                "invalid_structured_output", "error", message, (event.seq,), tools=tools
            )


class PlanApprovalRule(AuditRule, frozen=True):
    """A plan that requires an approval is followed by one."""

    name: ClassVar[str] = "plan_approval"
    needs: ClassVar[tuple[str, ...]] = ("plans",)

    def findings(self, transcript: AuditedTranscript) -> Iterator[AuditFinding]:
        gates = [reached.event.seq for reached in transcript.reached if reached.state.approval_gate]
        given = [event.seq for event in transcript.events if is_approval(event)]
        for event in transcript.events:
            plan = event.data.get("plan") if event.event == PLAN else None
            required = isinstance(plan, dict) and plan.get("approval_required") is True  # pyright: ignore[reportUnknownMemberType] - any dict
            if required and not any(seq >= event.seq for seq in (*gates, *given)):
                message = "the plan requires an approval, and none followed"
                yield AuditFinding("missing_approval", "error", message, (event.seq,))


class VerificationRule(AuditRule, frozen=True):
    """An action is preceded by a verification of the same object.

    `scope` are the parameters that identify the object, such as the number of an order.
    """

    name: ClassVar[str] = "verification"
    needs: ClassVar[tuple[str, ...]] = ("reached",)
    needs_states: ClassVar[tuple[str, ...]] = ("merge_action",)
    scope: tuple[str, ...] = ("repo", "number", "pr_number")

    def findings(self, transcript: AuditedTranscript) -> Iterator[AuditFinding]:
        verified: set[str] = set()
        for reached in transcript.reached:
            state = reached.state
            key = "#".join(str(v) for v in self._values(reached.event))
            if state.verifier:
                verified.add(key)
            # A verification without parameters is one of everything.
            if state.merge_action and not {key, ""} & verified:
                message = f"merge action `{state.step}` reached without a preceding verifier step"
                index = reached.event.seq
                yield AuditFinding(
                    "skipped_verification", "error", message, (index,), state_step=state.step
                )

    def _values(self, event: Event) -> Iterator[Any]:
        given = event.data.get("input", event.data.get("plan"))
        if isinstance(given, dict):
            fields = cast("dict[str, Any]", given)
            yield from (fields[name] for name in self.scope if fields.get(name) is not None)


class CompleteRule(AuditRule, frozen=True):
    """The transcript has an end."""

    name: ClassVar[str] = "complete"

    def can_fail(self, states: Iterable[AuditState]) -> bool:  # noqa: ARG002 - it only warns
        return False

    def findings(self, transcript: AuditedTranscript) -> Iterator[AuditFinding]:
        if not transcript.ends:
            yield AuditFinding(
                "incomplete_transcript", "warn", "the transcript has no terminal event"
            )


class StepOrderRule(AuditRule, frozen=True):
    """The required steps are reached, in their order; `expected` is the exact list of all."""

    name: ClassVar[str] = "steps"
    needs_states: ClassVar[tuple[str, ...]] = ("step",)
    expected: tuple[str, ...] = ()

    def can_fail(self, states: Iterable[AuditState]) -> bool:
        return bool(self.expected) or any(state.required for state in states)

    def findings(self, transcript: AuditedTranscript) -> Iterator[AuditFinding]:
        transitions = [reached.transition for reached in transcript.reached]
        position = {state.step: at for at, state in enumerate(transcript.states)}
        names = [transition.step for transition in transitions]
        for state in transcript.states:
            if state.required and state.step not in names:
                message = f"required state step `{state.step}` was never reached"
                yield AuditFinding("missing_state_step", "error", message, state_step=state.step)
        latest = ""
        for index, transition in enumerate(transitions):
            step = transition.step
            # One step earlier is tolerated: two neighbours often begin together.
            if step not in names[:index] and latest and position[latest] >= position[step] + 2:
                message = f"state step `{step}` was first reached after `{latest}`"
                indices = (transition.event_index,)
                yield AuditFinding("state_out_of_order", "warn", message, indices, state_step=step)
            latest = max(latest or step, step, key=position.__getitem__)
        if self.expected and list(self.expected) != names:
            message = f"expected the steps {' → '.join(self.expected)}, got {' → '.join(names)}"
            yield AuditFinding("state_sequence_mismatch", "error", message)


class BudgetRule(AuditRule, frozen=True):
    """The numbers of calls stay within their limits."""

    name: ClassVar[str] = "budget"
    needs: ClassVar[tuple[str, ...]] = ("activity",)
    max_tool_calls: int | None = None
    max_model_calls: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_tool_calls is None and self.max_model_calls is None:
            raise ValueError("a budget needs a limit: max_tool_calls, max_model_calls")

    def findings(self, transcript: AuditedTranscript) -> Iterator[AuditFinding]:
        tools, models = len(transcript.calls), len(transcript.requests)
        if self.max_tool_calls is not None and tools > self.max_tool_calls:
            message = f"{tools} tool calls exceed the limit of {self.max_tool_calls}"
            yield AuditFinding("non_minimal_tool_usage", "error", message)
        if self.max_model_calls is not None and models > self.max_model_calls:
            message = f"{models} model calls exceed the limit of {self.max_model_calls}"
            yield AuditFinding("extra_model_call", "error", message)


def _calls_of(
    transcript: AuditedTranscript, tools: tuple[ToolPattern, ...] | None, words: set[str] = WRITES
) -> Iterator[Event]:
    """Yield the calls of these tools; if there is no list, of those named with one of the words."""
    for call in transcript.calls:
        tool = str(call.data.get("tool", ""))
        if tools is None:
            named = not words.isdisjoint(word.lower() for word in _WORD.findall(tool))
        else:
            named = any(pattern.matches(tool) for pattern in tools)
        if named:
            yield call


def _call_finding(
    call: Event, category: str, what: str, severity: Severity = "error"
) -> AuditFinding:
    tool = str(call.data["tool"])
    return AuditFinding(category, severity, f"tool `{tool}` {what}", (call.seq,), tools=(tool,))


def _call_key(call: Event) -> bytes:
    """Return the tool and its input, the same for inputs with another order of keys."""
    key = [call.data.get("tool"), call.data.get("input")]
    return msgspec.json.encode(key, order="deterministic", enc_hook=repr)


# --- Policies and results


class AuditPolicy(msgspec.Struct, frozen=True):
    """The rules of an audit, and the states that they use.

    `implied` are the rules that no person wrote: those may have no data.
    """

    rules: tuple[AuditRule, ...]
    states: tuple[AuditState, ...] = ()
    scenario: str | None = None
    implied: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_some(self.rules, "an audit policy needs a rule", hint="rules: [{rule: …}]")
        for rule in self.rules:
            for flag in rule.needs_states:
                if not any(getattr(state, flag) for state in self.states):
                    what = "states" if flag == "step" else f"a state with {flag}"
                    raise UsageError(f"the rule {rule.name} needs {what}, else it finds nothing")
        if not self.implied and not any(rule.can_fail(self.states) for rule in self.rules):
            names = ", ".join(rule.name for rule in self.rules)
            raise UsageError(
                f"the audit could not fail: these rules only warn: {names}",
                hint="add another rule; steps fail with `expected`, or a state that is required",
            )


class AuditResult(msgspec.Struct, frozen=True, omit_defaults=True, rename={"passed": "pass"}):
    """The result of an audit. It passed if no finding is an error, and each rule had data.

    `without_data` has the rules that had nothing to look at, with the reason.
    """

    scenario: str | None
    session_ids: list[str]
    event_count: int
    model_call_count: int
    tool_call_count: int
    findings: list[AuditFinding]
    state_transitions: list[AuditTransition]
    passed: bool
    without_data: dict[str, str] = {}

    def verdicts(self) -> list[Verdict]:
        """Return the findings as verdicts, or one that passed."""
        status: dict[str, VerdictStatus] = {"error": "fail", "warn": "warn", "info": "pass"}
        found = [
            Verdict(f"audit {f.category}", status[f.severity], f.message) for f in self.findings
        ]
        found += [
            Verdict(f"audit {rule}", "no_data", f"no data: {reason}")
            for rule, reason in self.without_data.items()
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
        raise CheckFailed("no data: the transcript has no events, so there is nothing to audit")
    found: list[AuditFinding] = []
    without_data: dict[str, str] = {}
    for rule in parsed.rules:
        try:
            for need in rule.needs:
                transcript.require(need)
            found += rule.findings(transcript)
        except NoData as reason:
            if rule.name not in parsed.implied:
                without_data[rule.name] = str(reason)
    # In the order of the events; what is missing comes last.
    last = transcript.events[-1].seq + 1
    found.sort(key=lambda finding: max(finding.event_indices, default=last))
    sessions = [event.context.get("sessionId") for event in transcript.events]
    return AuditResult(
        parsed.scenario,
        [str(name) for name in dict.fromkeys(sessions) if name],
        len(transcript.events),
        len(transcript.requests),
        len(transcript.calls),
        found,
        [reached.transition for reached in transcript.reached],
        not without_data and not any(finding.severity == "error" for finding in found),
        without_data,
    )


def assert_audit(
    events: Iterable[Event] | Events | Path, policy: AuditPolicy | Mapping[str, Any]
) -> AuditResult:
    """Fail if an audit finds an error; return the report."""
    report = audit_transcript(events, policy)
    if not report.passed:
        errors = [finding for finding in report.findings if finding.severity == "error"]
        lines = [f"  {finding}" for finding in report.findings]
        lines += [f"  no data {rule}: {reason}" for rule, reason in report.without_data.items()]
        what = f"the audit found {counted(len(errors), 'error')}" if errors else "no data to audit"
        raise CheckFailed(what, hint="\n".join(lines))
    return report


class _PolicyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rules: tuple[Any, ...]
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
        states = tuple(_rename_events(state) for state in golden.state_steps)
        limits = golden.max_tool_calls, golden.max_model_calls
        approval, forbidden = golden.require_approval_for, golden.forbidden_actions
        # In the order of Harn's findings; a rule without its settings would find nothing.
        rules: list[AuditRule] = [
            *(StuckRule(), RepeatedReadRule(golden.max_repeat), BadWaitRule()),
            *([ApprovalRule(approval)] if approval != () else []),
            *([ForbiddenRule(forbidden)] if forbidden else []),
            *(StructuredOutputRule(), PlanApprovalRule()),
            *([VerificationRule()] if any(state.merge_action for state in states) else []),
            CompleteRule(),
            *([StepOrderRule(golden.expected_state_transitions)] if states else []),
            *([BudgetRule(*limits)] if limits != (None, None) else []),
        ]
        stated = {"approval", "forbidden", "budget"}
        implied = tuple(rule.name for rule in rules if rule.name not in stated)
        return AuditPolicy(tuple(rules), states, golden.scenario, implied)
    file = convert(dict(raw), _PolicyFile, path=path)
    try:
        rules = [
            cast("AuditRule", parse_assertion(fields, f"$.rules[{index}]", AUDIT_RULES, "rule"))
            for index, fields in enumerate(file.rules)
        ]
        return AuditPolicy(tuple(rules), file.states, file.scenario)
    except UsageError as error:
        # The place in the rule becomes the place in the file.
        what = error.what.replace("(at $", f"(at {error.where}")
        if error.where and what == error.what:
            what = f"{what} (at {error.where})"
        raise FormatError(what, path=path, hint=error.hint) from error


def read_audit_policy(path: Path) -> AuditPolicy:
    """Return the policy in a JSON or YAML file."""
    value = parse_document(read_text(path), path)
    if not isinstance(value, dict):
        raise FormatError("an audit policy is an object with 'rules'", path=path)
    return parse_audit_policy(cast("dict[str, Any]", value), path)


_DEFAULTS = (StuckRule(), RepeatedReadRule(), BadWaitRule(), StructuredOutputRule(), CompleteRule())
DEFAULT_POLICY = AuditPolicy(_DEFAULTS, implied=tuple(rule.name for rule in _DEFAULTS))
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
