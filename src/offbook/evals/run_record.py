"""Run records: what a run did, as a JSON file. A case reads a stored one, or one made of a trace.

All fields are optional and unknown ones are ignored: other tools write these files.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import FormatError
from offbook.files import convert, parse_json, read_text
from offbook.trace import events
from offbook.trace.reader import Trace, elapsed_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.trace.events import Event

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
    calls: list[ToolRecording] = []
    questions: list[HitlQuestion] = []
    models: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    first = last = None
    status, output, cost, replies, has_usage = "", None, None, 0, False
    for event in stream:
        if event.event == events.VERDICT:
            continue  # recorded after the run
        first, last = (event.ts if first is None else first), event.ts
        data = event.data
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
            case events.TOOL_CALL:
                calls.append(ToolRecording(str(data.get("tool")), str(data.get("call_id", ""))))
            case _ if event.event.startswith("ui.") and data.get("method") in ASKING:
                prompt = " ".join(str(arg) for arg in data.get("args", ()))
                questions.append(HitlQuestion(prompt=prompt))
            case _:
                pass
        for key in ("total_cost_usd", "cost_usd", "cost_dollars"):
            if isinstance(value := data.get(key), (int, float)):
                cost = (cost or 0) + value
    seconds = None if first is None or last is None else elapsed_seconds(first, last)
    usage = RecordUsage(
        tokens["input"] if has_usage else None,
        tokens["output"] if has_usage else None,
        None if seconds is None else seconds * 1000,
        replies,
        cost,
        sorted(filter(None, models)),
        tokens["cache_read"] if has_usage else None,
        tokens["cache_write"] if has_usage else None,
    )
    text = output if isinstance(output, str) else None
    stage = RunStage(node_id="run", status=status, outcome=OUTCOMES.get(status, status))
    return RunRecord(
        id=name,
        status=status,
        stages=[msgspec.structs.replace(stage, visible_text=text)],
        usage=usage,
        tool_recordings=calls,
        hitl_questions=questions,
        output=output,
    )


OUTCOMES = {"completed": "success", "failed": "error"}
ASKING = {"confirm", "select", "input", "ask", "editor", "question"}
