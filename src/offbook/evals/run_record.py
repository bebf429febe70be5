"""Run records: what a run did, as a JSON file. A case reads a stored one, or one made of a trace.

All fields are optional and unknown ones are ignored: other tools write these files. Traces of
other tools (Claude Code, Codex, pi, OTLP) are read by the importers of the core. The files that
cases refer to are read and checked by the kind of their fixture. A record is compared with a replay
fixture, and with a baseline.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import msgspec

from offbook.checks.context import TotalCost
from offbook.errors import FormatError, counted
from offbook.evals.friction import FrictionEvent, normalize_words, parse_friction_events
from offbook.evals.pack import FixtureRef, LoadedPack
from offbook.files import convert, parse_json, read_text, require_file
from offbook.trace import events
from offbook.trace.events import Event, Verdict
from offbook.trace.executions import EXECUTION_EVENTS, ExecutionReader
from offbook.trace.reader import Trace, elapsed_seconds
from offbook.trace.redaction import VOLATILE_PATTERNS, Redaction, RedactionRules

RECORD_KEYS = {"status", "stages", "workflow_id", "usage", "hitl_questions", "replay_fixture"}


class RecordUsage(msgspec.Struct, frozen=True):
    """Tokens, time and cost of a run; a field is None if it was not recorded."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_duration_ms: float | None = None
    call_count: int | None = None
    total_cost: float | None = None
    models: list[str] = []
    cache_read_tokens: int | None = None  # a part of the input tokens, as the next one
    cache_write_tokens: int | None = None


class RecordArtifact(msgspec.Struct, frozen=True):
    """A result of a stage."""

    id: str = ""
    kind: str = ""


class RunStage(msgspec.Struct, frozen=True):
    """One stage of a run."""

    id: str = ""
    node_id: str = ""
    status: str = ""
    outcome: str = ""
    branch: str | None = None
    visible_text: str | None = None
    artifacts: list[RecordArtifact] = []


class ToolRecording(msgspec.Struct, frozen=True):
    """A tool call of a run."""

    tool_name: str = ""
    tool_use_id: str = ""
    args_hash: str = ""
    result: Any = None
    is_rejected: bool = False


class HitlQuestion(msgspec.Struct, frozen=True):
    """A question to the user."""

    request_id: str = ""
    prompt: str = ""
    agent: str = ""
    asked_at: str = ""


class StageExpectation(msgspec.Struct, frozen=True):
    """The expected end of a stage. Without a branch, the stage must have none."""

    node_id: str = ""
    expected_status: str = ""
    expected_outcome: str = ""
    expected_branch: str | None = None
    required_artifact_kinds: list[str] = []
    visible_text_contains: str | None = None


class QuestionRules(msgspec.Struct, frozen=True):
    """The question that an agent has to ask."""

    expected_question: str | None = None
    accepted_questions: list[str] = []
    required_terms: list[str] = []
    forbidden_terms: list[str] = []
    min_questions: int = 1
    max_questions: int | None = None

    def __post_init__(self) -> None:
        texts = [*self.accepted_questions, *self.required_terms, *self.forbidden_terms]
        for text in [*texts, self.expected_question] if self.expected_question else texts:
            if not normalize_words(text):  # it would be in every question
                raise ValueError(f"{text!r} has no letters and no digits to compare")


class ReplayExpectation(msgspec.Struct, frozen=True):
    """A replay fixture: the expected status and stages, or the expected question."""

    id: str = ""
    eval_kind: str | None = None
    clarifying_question: QuestionRules | None = None
    expected_status: str = ""
    stage_assertions: list[StageExpectation] = []


class RunRecord(msgspec.Struct, frozen=True):
    """The record of a run."""

    id: str = ""
    workflow_id: str = ""
    workflow_name: str = ""
    task: str = ""
    status: str = ""
    stages: list[RunStage] = []
    transitions: list[Any] = []
    checkpoints: list[Any] = []
    artifacts: list[RecordArtifact] = []
    usage: RecordUsage | None = None
    replay_fixture: ReplayExpectation | None = None
    observability: Any = None
    tool_recordings: list[ToolRecording] = []
    hitl_questions: list[HitlQuestion] = []
    output: Any = None


class StoredRun(msgspec.Struct, frozen=True):
    """A run record with the JSON that it was read from: assertions by path use that."""

    record: RunRecord
    raw: dict[str, Any]
    source: str = ""


def parse_run_record(value: Any, path: Path | str) -> StoredRun:
    """Return a run record; a file of another kind is refused."""
    if not isinstance(value, dict):
        raise FormatError(
            f"expected a run record, got {type(value).__name__}", path=path, hint='{"status": …}'
        )
    raw = cast("dict[str, Any]", value)
    kind = raw.get("_type", "run_record")
    if kind == "replay_fixture" or not RECORD_KEYS & raw.keys():
        raise FormatError(
            f"not a run record: {kind if '_type' in raw else 'it has neither status nor stages'}",
            path=path,
        )
    return StoredRun(convert(raw, RunRecord, path=path), raw, str(path))


def read_run_record(path: Path) -> StoredRun:
    """Return the run record of a file."""
    return parse_run_record(parse_json(read_text(path), path), path)


def parse_replay_fixture(value: Any, path: Path | str) -> ReplayExpectation:
    """Return a replay fixture; a file of another kind is refused."""
    expected = {"expected_status", "stage_assertions", "clarifying_question"}
    if not isinstance(value, dict) or not expected & cast("dict[str, Any]", value).keys():
        raise FormatError("not a replay fixture: it has no expected_status", path=path)
    return convert(value, ReplayExpectation, path=path)


def record_from_trace(path: Path, name: str = "") -> StoredRun:
    """Return the run record of a trace: its status, usage, tool calls and questions."""
    trace = Trace(path)
    record = record_from_events(trace, name or path.stem)
    if not trace.total:
        raise FormatError("the trace has no events", path=path)
    raw: dict[str, Any] = msgspec.to_builtins(record)
    return StoredRun(record, raw, str(path))


def record_from_events(stream: Iterable[Event], name: str) -> RunRecord:
    """Return the run record of events; only the facts of the record are kept in memory."""
    tools = ExecutionReader()
    questions: list[HitlQuestion] = []
    models: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    first = last = None
    status, output, replies, has_usage = "", None, 0, False
    cost = TotalCost()
    for event in stream:
        if event.event == events.VERDICT:
            continue  # recorded after the run
        first, last = (event.ts if first is None else first), event.ts
        data = event.data
        if event.event in EXECUTION_EVENTS:
            tools.on_event(event)
        match event.event:
            case events.RUN_START:
                status = "running"
            case events.RUN_END:
                status = "completed" if data.get("ok") else "failed"
                output = data.get("output")
            case events.TERMINATION:
                status = "completed" if not data.get("exit_code") else "failed"
            case events.PROCESS_EXIT if not status or status == "running":
                status = "completed" if data.get("exit_code", data.get("code")) == 0 else "failed"
            case events.REQUEST:
                models[str(data.get("model") or "")] += 1
            case events.REPLY:
                replies += 1
                counts = cast("dict[str, int]", data.get("usage") or {})
                has_usage = has_usage or bool(counts)
                tokens.update(counts)
            case _ if event.event.startswith("ui.") and data.get("method") in ASKING:
                prompt = " ".join(str(arg) for arg in data.get("args", ()))
                questions.append(HitlQuestion(prompt=prompt))
            case _:
                pass
        cost.on_event(event)
    seconds = None if first is None or last is None else elapsed_seconds(first, last)
    usage = RecordUsage(
        tokens["input"] if has_usage else None,
        tokens["output"] if has_usage else None,
        None if seconds is None else seconds * 1000,
        replies,
        cost.dollars,
        sorted(filter(None, models)),
        tokens["cache_read"] if has_usage else None,
        tokens["cache_write"] if has_usage else None,
    )
    calls = [
        ToolRecording(use.tool, str(use.event.data.get("call_id", "")), hash_arguments(use.input))
        for use in tools.uses
        if use.counts
    ]
    return make_record(name, status, usage, output, calls, questions)


def make_record(
    name: str,
    status: str,
    usage: RecordUsage,
    output: Any,
    tools: Sequence[ToolRecording] = (),
    questions: Sequence[HitlQuestion] = (),
) -> RunRecord:
    """Return the record of a run that has one stage, whose visible text is its output."""
    text = output if isinstance(output, str) else None
    outcome = OUTCOMES.get(status, status)
    return RunRecord(
        id=name,
        status=status,
        stages=[RunStage(node_id="run", status=status, outcome=outcome, visible_text=text)],
        usage=usage,
        tool_recordings=[*tools],
        hitl_questions=[*questions],
        output=output,
    )


def hash_arguments(arguments: Any) -> str:
    """Return a hash of the arguments of a call, without what differs in each run."""
    text = msgspec.json.encode(arguments, enc_hook=repr, order="sorted").decode()
    return hashlib.sha256(_volatile().text(text).encode()).hexdigest()[:8]


@cache
def _volatile() -> Redaction:
    return Redaction(RedactionRules(patterns=VOLATILE_PATTERNS))


OUTCOMES = {"completed": "success", "failed": "error"}
ASKING = {"confirm", "select", "input", "ask", "editor", "question"}


def read_stored_trace(path: Path, trace_id: str | None = None) -> StoredRun:
    """Return the run record of a trace, of Offbook or of another tool."""
    if is_offbook_trace(path):
        return record_from_trace(path)
    from offbook.sources.importers.importer import read_trace  # most traces are our own

    exchanges = read_trace(path, trace_id=trace_id)
    replies = [exchange.reply for exchange in exchanges]
    calls = [call for reply in replies for call in reply.calls]
    text = next((reply.text for reply in reversed(replies) if reply.text), None)
    failed = any(exchange.error is not None or exchange.exit_code for exchange in exchanges[-1:])
    end = _last_result(path)
    failed = failed or bool(end.get("is_error")) or str(end.get("subtype")).startswith("error")
    cut = any(exchange.cut for exchange in exchanges)
    status = "failed" if failed else "running" if cut else "completed"
    tokens = _token_totals(end)
    if tokens is None and any(exchange.usage_known for exchange in exchanges):
        inputs = sum(reply.usage.input for reply in replies)
        tokens = inputs, sum(reply.usage.output for reply in replies)
    usage = RecordUsage(
        *(tokens or (None, None)),
        end.get("duration_ms"),
        len(exchanges),
        end.get("total_cost_usd"),
    )
    calls = [ToolRecording(call.name, call.id, hash_arguments(call.arguments)) for call in calls]
    record = make_record(str(end.get("session_id") or path.stem), status, usage, text, calls)
    return StoredRun(record, msgspec.to_builtins(record), str(path))


def json_lines(text: str) -> list[tuple[int, str]]:
    """Return the lines of JSONL that are not empty, with their numbers.

    Only a line feed ends a line: a text in JSON may have U+2028 or U+0085 in it.
    """
    return [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def is_offbook_trace(path: Path) -> bool:
    """Return whether a file has events of Offbook: with a time and a name."""
    first = next((line for _, line in json_lines(read_text(path))), "")
    try:
        value = msgspec.json.decode(first)
    except msgspec.DecodeError:
        return False  # a document of several lines, or an error that the importers explain
    return isinstance(value, dict) and {"ts", "event"} <= cast("dict[str, Any]", value).keys()


def _token_totals(end: dict[str, Any]) -> tuple[int, int] | None:
    """Return the input and output tokens of a whole run of Claude Code.

    The usage of its single messages is that of their beginning, with one output token.
    """
    usage = end.get("usage")
    if not isinstance(usage, dict):
        return None
    fields = cast("dict[str, Any]", usage)
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    counts = [fields.get(name) or 0 for name in (*names, "output_tokens")]
    if not all(isinstance(count, int) for count in counts):
        return None
    return sum(counts[:-1]), counts[-1]


def _last_result(path: Path) -> dict[str, Any]:
    """Return the summary with which Claude Code ends its output; empty without one."""
    last = next((line for _, line in reversed(json_lines(read_text(path)))), "")
    try:
        value = msgspec.json.decode(last, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}
    return value if value.get("type") == "result" else {}


# The kinds of fixtures that a key of a case accepts.
ROLES = {
    "run": ("run-record", "recorded-run"),
    "trace": ("trace", "jsonl-trace"),
    "friction_events": ("friction-events",),
    "fixture": ("replay-fixture",),
    "compare_to": ("run-record", "recorded-run", "trace"),
    "playbook": ("playbook",),
    "cassette": ("cassette",),
}


def check_fixture(loaded: LoadedPack, fixture: FixtureRef) -> None:
    """Raise an error if the content of a fixture does not fit its kind."""
    path = loaded.fixture_path(fixture) if fixture.path else loaded.path
    match fixture.kind:
        case "run-record" | "recorded-run":
            parse_run_record(*read_reference(loaded, fixture.id))
        case "replay-fixture":
            parse_replay_fixture(*read_reference(loaded, fixture.id))
        case "friction-events":
            parse_friction_events(*read_reference(loaded, fixture.id))
        case "jsonl-trace" | "trace":
            check_trace(_records(loaded, fixture), fixture, path)
        case "provider-events":
            _check_provider_events(_records(loaded, fixture), fixture, path)
        case "connector-payload":
            if not isinstance(read_reference(loaded, fixture.id)[0], (dict, list)):
                raise FormatError("a connector payload is an object or a list", path=path)
        case _:  # a cassette or a playbook
            from offbook.sources.loading import open_source  # few packs run subjects

            if not fixture.path:
                raise FormatError(f"the {fixture.kind} {fixture.id!r} needs a path", path=path)
            open_source(path)


def read_reference(loaded: LoadedPack, reference: str) -> tuple[Any, Path]:
    """Return the JSON value of a fixture or a file, and the file in which it is written."""
    fixture = loaded.fixtures.get(reference)
    if fixture is not None and fixture.inline is not None:
        return fixture.inline, loaded.path
    path = loaded.resolve(reference)
    return parse_json(read_text(path), path), path


def _records(loaded: LoadedPack, fixture: FixtureRef) -> list[dict[str, Any]]:
    """Return the objects of a JSONL file, a JSON list, or `{"events": […]}`."""
    path = loaded.path
    if fixture.inline is not None:
        value = fixture.inline
    else:
        path = loaded.fixture_path(fixture)
        text = read_text(path)
        if path.suffix == ".json":
            value = parse_json(text, path)
        else:
            value = [parse_json(line, path, number) for number, line in json_lines(text)]
    if isinstance(value, dict):
        value = cast("dict[str, Any]", value).get("events", [value])
    if not isinstance(value, list) or not value:
        raise FormatError(f"the fixture {fixture.id!r} has no records", path=path)
    for number, record in enumerate(cast("list[Any]", value), 1):
        if not isinstance(record, dict):
            raise FormatError(
                f"expected an object, got {type(record).__name__}", path=path, line=number
            )
    return cast("list[dict[str, Any]]", value)


def check_trace(records: list[dict[str, Any]], fixture: FixtureRef, path: Path) -> None:
    """Check the records of a trace: Offbook's own, or prompts with responses."""
    if fixture.trace_id and not any(r.get("trace_id") == fixture.trace_id for r in records):
        raise FormatError(f"no record has the trace_id {fixture.trace_id!r}", path=path)
    for number, record in enumerate(records, 1):
        if not {"event", "type", "prompt"} & record.keys():
            raise FormatError(
                "a record of a trace has an event, a type or a prompt", path=path, line=number
            )


def _check_provider_events(records: list[dict[str, Any]], fixture: FixtureRef, path: Path) -> None:
    """Check that the events are of the provider and the kind that the fixture names."""
    for wanted, keys in (
        (fixture.provider, ("provider",)),
        (fixture.event_kind, ("kind", "event_kind", "type", "event")),
    ):
        named = [record for record in records if any(key in record for key in keys)]
        found = [record for record in named if wanted in (record.get(key) for key in keys)]
        # Events without the field belong to the provider of the file.
        if wanted and named and not found:
            raise FormatError(f"no event has the {keys[0]} {wanted!r}", path=path)


# --- The data of a case


def load_run(loaded: LoadedPack, reference: str) -> StoredRun:
    """Return the run record that a case or a baseline refers to; a trace is converted to one."""
    fixture = loaded.fixtures.get(reference)
    if fixture is None or fixture.inline is None:
        path = loaded.resolve(reference)
        if path.suffix == ".jsonl" or (fixture is not None and fixture.kind == "trace"):
            return read_stored_trace(path)
    return parse_run_record(*read_reference(loaded, reference))


def load_replay_fixture(loaded: LoadedPack, reference: str) -> ReplayExpectation:
    """Return the replay fixture that a case refers to."""
    return parse_replay_fixture(*read_reference(loaded, reference))


def load_friction_events(loaded: LoadedPack, reference: str) -> list[FrictionEvent]:
    """Return the friction events that a case refers to."""
    return parse_friction_events(*read_reference(loaded, reference))


def trace_path(loaded: LoadedPack, reference: str) -> Path:
    """Return the file of the trace that a case refers to."""
    path = require_file(loaded.resolve(reference), "trace")
    _ = Trace(path)
    return path


# --- Comparison with a replay fixture, and with a baseline


QUESTION_KIND = "clarifying_question"


def check_replay(expected: ReplayExpectation, record: RunRecord) -> list[Verdict]:
    """Compare the status and the stages of a run with a replay fixture."""
    if expected.eval_kind == QUESTION_KIND:
        return check_question(expected, record)
    verdicts = [_equal("run status", expected.expected_status, record.status)]
    # Of stages with the same node, the last one counts: it ran after a retry.
    stages = {stage.node_id: stage for stage in record.stages}
    for item in expected.stage_assertions:
        stage = stages.get(item.node_id)
        name = f"stage {item.node_id}"
        if stage is None:
            verdicts.append(Verdict(name, "fail", f"missing stage {item.node_id}"))
            continue
        verdicts += [
            _equal(f"{name} status", item.expected_status, stage.status),
            _equal(f"{name} outcome", item.expected_outcome, stage.outcome),
            _equal(f"{name} branch", item.expected_branch, stage.branch),
        ]
        kinds = {artifact.kind for artifact in stage.artifacts}
        verdicts += [
            Verdict(f"{name} artifact {kind}", "pass")
            if kind in kinds
            else Verdict(f"{name} artifact", "fail", f"{name} missing artifact kind {kind}")
            for kind in item.required_artifact_kinds
        ]
        if (snippet := item.visible_text_contains) is not None:
            found = snippet in (stage.visible_text or "")
            message = f'{name} visible text does not contain expected snippet "{snippet}"'
            verdicts.append(judge_problem(f"{name} text", "" if found else message))
    return verdicts


def _equal(name: str, expected: Any, actual: Any) -> Verdict:
    shown = f"{name} mismatch: expected {_shown(expected)}, got {_shown(actual)}"
    return judge_problem(name, "" if expected == actual else shown, expected, actual)


def judge_problem(name: str, problem: str, expected: Any = None, actual: Any = None) -> Verdict:
    """Return the verdict of a check that passes if there is no problem."""
    return Verdict(name, "fail" if problem else "pass", problem, expected, actual)


def _shown(value: Any) -> str:
    return "none" if value is None else str(value) or '""'


# --- Clarifying questions


def check_question(expected: ReplayExpectation, record: RunRecord) -> list[Verdict]:
    """Check that the run asked the user as often and with such words as required."""
    rules = expected.clarifying_question or QuestionRules()
    verdicts = [_equal("run status", expected.expected_status, record.status)]
    prompts = [question.prompt for question in record.hitl_questions]
    # At least one question: an agent that asks nothing has not asked the right one.
    lowest = max(1, rules.min_questions)
    highest = max(1, 1 if rules.max_questions is None else rules.max_questions)
    count = len(prompts)
    problem = ""
    if count < lowest:
        problem = f"expected at least {lowest} clarifying question(s), got {count}"
    elif count > highest:
        problem = f"expected at most {highest} clarifying question(s), got {count}"
    verdicts.append(judge_problem("question count", problem))
    constrained = rules.expected_question or rules.accepted_questions
    if prompts and (constrained or rules.required_terms or rules.forbidden_terms):
        problems = [question_problem(rules, prompt) for prompt in prompts]
        # One question has to meet the rules, and none may have a forbidden term.
        forbidden = [problem for prompt in prompts if (problem := _forbidden(rules, prompt))]
        message = ""
        if all(problems):
            message = f"no question meets the requirements: {'; '.join(problems)}"
        elif forbidden:
            message = f"a question has a forbidden term: {'; '.join(forbidden)}"
        verdicts.append(judge_problem("question text", message, None, prompts))
    return verdicts


def question_problem(rules: QuestionRules, prompt: str) -> str:
    """Return why a question does not meet the rules; empty if it does."""
    text = normalize_words(prompt)
    quoted = f'"{prompt}"'
    if rules.expected_question and text != normalize_words(rules.expected_question):
        return f'{quoted} is not "{rules.expected_question}"'
    if rules.accepted_questions and text not in map(normalize_words, rules.accepted_questions):
        return f"{quoted} is not an accepted question"
    for term in rules.required_terms:
        if normalize_words(term) not in text:
            return f"{quoted} does not mention {term!r}"
    return _forbidden(rules, prompt)


def _forbidden(rules: QuestionRules, prompt: str) -> str:
    text = normalize_words(prompt)
    for term in rules.forbidden_terms:
        if normalize_words(term) in text:
            return f'"{prompt}" mentions {term!r}'
    return ""


# --- Baselines


class StageDiff(msgspec.Struct, frozen=True):
    """A stage that differs: `change` is added, removed or changed."""

    node_id: str
    change: str
    details: list[str] = []


class BaselineDiff(msgspec.Struct, frozen=True):
    """The differences between the record of a run (right) and its baseline (left)."""

    left_run_id: str
    right_run_id: str
    identical: bool
    status_changed: bool
    left_status: str
    right_status: str
    stage_diffs: list[StageDiff] = []
    tool_diffs: list[str] = []
    observability_diffs: list[str] = []
    transition_count_delta: int = 0
    artifact_count_delta: int = 0
    checkpoint_count_delta: int = 0


def compare_records(left: RunRecord, right: RunRecord) -> BaselineDiff:
    """Compare the structure of two runs: not their texts, times and ids."""
    stages = _stage_diffs(left, right)
    tools = _tool_diffs(left, right)
    observability = (
        []
        if left.observability == right.observability
        else ["the observability data of the runs differ"]
    )
    deltas = (
        len(right.transitions) - len(left.transitions),
        len(right.artifacts) - len(left.artifacts),
        len(right.checkpoints) - len(left.checkpoints),
    )
    changed = left.status != right.status
    identical = not (changed or stages or tools or observability or any(deltas))
    return BaselineDiff(
        left.id,
        right.id,
        identical,
        changed,
        left.status,
        right.status,
        stages,
        tools,
        observability,
        *deltas,
    )


def _stage_diffs(left: RunRecord, right: RunRecord) -> list[StageDiff]:
    before = {stage.node_id: stage for stage in left.stages}
    after = {stage.node_id: stage for stage in right.stages}
    diffs: list[StageDiff] = []
    for node in sorted({*before, *after}):
        if node not in after:
            diffs.append(StageDiff(node, "removed"))
        elif node not in before:
            diffs.append(StageDiff(node, "added"))
        else:
            one, other = before[node], after[node]
            details = [
                f"{name}: {_shown(getattr(one, name))} -> {_shown(getattr(other, name))}"
                for name in ("status", "outcome", "branch")
                if getattr(one, name) != getattr(other, name)
            ]
            if len(one.artifacts) != len(other.artifacts):
                details.append(f"artifacts: {len(one.artifacts)} -> {len(other.artifacts)}")
            if details:
                diffs.append(StageDiff(node, "changed", details))
    return diffs


def _tool_diffs(left: RunRecord, right: RunRecord) -> list[str]:
    """Compare the calls of two runs: how often each was made, and its results."""
    both = (*left.tool_recordings, *right.tool_recordings)
    # Where a record does not have the arguments of a tool, its calls are compared without them.
    unknown = {tool.tool_name for tool in both if not tool.args_hash}

    def by_call(record: RunRecord) -> dict[tuple[str, str, bool], list[bytes]]:
        results: dict[tuple[str, str, bool], list[bytes]] = {}
        for tool in record.tool_recordings:
            arguments = "" if tool.tool_name in unknown else tool.args_hash
            key = (tool.tool_name, arguments, tool.is_rejected)
            results.setdefault(key, []).append(msgspec.json.encode(tool.result, order="sorted"))
        return results

    before, after = by_call(left), by_call(right)
    diffs: list[str] = []
    for key in sorted({*before, *after}):
        name, arguments, rejected = key
        call = " ".join(filter(None, (name, arguments, "(rejected)" if rejected else "")))
        first, second = before.get(key, []), after.get(key, [])
        if not second:
            diffs.append(f"{call} was not called")
        elif not first:
            diffs.append(f"{call} was called in addition")
        elif len(first) != len(second):
            diffs.append(f"{call} was called {counted(len(second), 'time')}, expected {len(first)}")
        elif sorted(first) != sorted(second):
            diffs.append(f"{call} has another result")
    return diffs


def check_baseline(diff: BaselineDiff) -> Verdict:
    """Return the verdict of a comparison."""
    parts = (
        [f"status {_shown(diff.left_status)} -> {_shown(diff.right_status)}"]
        if diff.status_changed
        else []
    )
    parts += [
        f"stage {stage.node_id} {stage.change}" + "".join(f", {text}" for text in stage.details)
        for stage in diff.stage_diffs
    ]
    parts += [*diff.tool_diffs, *diff.observability_diffs]
    deltas = {
        "transitions": diff.transition_count_delta,
        "artifacts": diff.artifact_count_delta,
        "checkpoints": diff.checkpoint_count_delta,
    }
    parts += [f"{delta:+d} {name}" for name, delta in deltas.items() if delta]
    message = f"run differs from baseline {diff.left_run_id}: {'; '.join(parts)}"
    return judge_problem("baseline", "" if diff.identical else message)
