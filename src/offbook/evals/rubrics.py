"""Rubrics: the conditions of a case, evaluated on the evidence of a run.

To add a kind of assertion, write one function and its line in `ASSERTIONS`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from offbook.checks.assertion import evaluate_all
from offbook.checks.context import CheckContext, NoData
from offbook.errors import OffbookError
from offbook.evals.friction import Suggestion, check_suggestions, parse_expectation
from offbook.evals.pack import FRICTION_KINDS, PackAssertion, Rubric
from offbook.evals.run_record import RunRecord, StoredRun
from offbook.evals.thresholds import RunMetrics, check_thresholds
from offbook.secrets import excerpt
from offbook.trace.events import Verdict
from offbook.trace.reader import Trace
from offbook.trace.text_patterns import compile_pattern

MAX_SHOWN = 200
# From harmless to far-reaching: a run may have a lower level than expected.
SIDE_EFFECT_LEVELS = ("none", "read_only", "workspace_write", "process_exec", "network")


class Missing:
    """The value of a JSON Pointer that leads nowhere: it is not null."""

    def __repr__(self) -> str:
        return "nothing"


MISSING = Missing()


class Evidence(msgspec.Struct, frozen=True):
    """The data of a run: its record, its trace and folder, or suggestions."""

    run: StoredRun | None = None
    trace: Path | None = None
    folder: Path | None = None
    metrics: RunMetrics = RunMetrics()
    suggestions: Sequence[Suggestion] | None = None

    @property
    def record(self) -> RunRecord:
        """The record of the run; without one there is no data."""
        if self.run is None:
            raise NoData("the case has no run record")
        return self.run.record


def evaluate_rubric(rubric: Rubric, evidence: Evidence) -> list[Verdict]:
    """Return the verdicts of a rubric that needs no judge."""
    if (rubric.kind in FRICTION_KINDS) and evidence.suggestions is None:
        message = f"no data: the rubric {rubric.id!r} needs friction events"
        return [Verdict(rubric.id, "no_data", message)]
    verdicts = check_thresholds(rubric.thresholds, evidence.metrics, f"{rubric.id}: ")
    for item in rubric.assertions:
        kind = item.kind or "path"
        name = f"{rubric.id}: {kind}"
        try:
            verdict = ASSERTIONS[kind](item, evidence)
        except NoData as reason:
            verdict = Verdict(name, "no_data", f"no data: {reason}")
        except OffbookError as error:
            verdict = Verdict(name, "error", str(error))
        verdicts.append(msgspec.structs.replace(verdict, check=name))
    return verdicts


def _verdict(ok: bool, message: str, expected: Any = None, actual: Any = None) -> Verdict:  # noqa: FBT001 - the condition
    return Verdict("", "pass" if ok else "fail", "" if ok else message, expected, actual)


def _run_status(item: PackAssertion, evidence: Evidence) -> Verdict:
    actual = evidence.record.status
    message = f"run status mismatch: expected {item.expected}, got {actual or 'none'}"
    return _verdict(actual == item.expected, message, item.expected, actual)


def _stage_status(item: PackAssertion, evidence: Evidence) -> Verdict:
    for stage in evidence.record.stages:
        if stage.node_id == item.stage:
            message = (
                f"stage {item.stage} status mismatch: expected {item.expected}, got {stage.status}"
            )
            return _verdict(stage.status == item.expected, message, item.expected, stage.status)
    return _verdict(False, f"missing stage {item.stage}", item.expected)


def _visible_text(item: PackAssertion, evidence: Evidence) -> Verdict:
    stages = [s for s in evidence.record.stages if not item.stage or s.node_id == item.stage]
    if not stages:
        where = f"missing stage {item.stage}" if item.stage else "the run has no stages"
        return _verdict(False, where, item.contains)
    ok = any(item.contains in (stage.visible_text or "") for stage in stages)
    where = f"stage {item.stage}" if item.stage else "any stage"
    return _verdict(ok, f'visible text of {where} does not contain "{item.contains}"')


def _hitl_question(item: PackAssertion, evidence: Evidence) -> Verdict:
    prompts = [question.prompt for question in evidence.record.hitl_questions]
    ok = any(item.contains in prompt for prompt in prompts)
    message = f'no question to the user contains "{item.contains}"'
    return _verdict(ok, message, item.contains, prompts)


def _suggestion(item: PackAssertion, evidence: Evidence) -> Verdict:
    if evidence.suggestions is None:
        raise NoData("the case has no friction events")
    expected = parse_expectation(item.expected, item.contains, "expected")
    return check_suggestions(expected, evidence.suggestions)


def _called(evidence: Evidence) -> list[str]:
    return [tool.tool_name for tool in evidence.record.tool_recordings]


def _names(item: PackAssertion) -> list[str]:
    if isinstance(item.expected, list):
        return [str(name) for name in cast("list[Any]", item.expected)]
    return [str(item.expected)]


def _tool_called(item: PackAssertion, evidence: Evidence) -> Verdict:
    called = _called(evidence)
    missing = [name for name in _names(item) if name not in called]
    message = f"never called: {', '.join(missing)}; called: {', '.join(called) or 'no tool'}"
    return _verdict(not missing, message, _names(item), called)


def _tool_never(item: PackAssertion, evidence: Evidence) -> Verdict:
    called = _called(evidence)
    if not called:
        raise NoData("the run called no tool")
    forbidden = [name for name in _names(item) if name in called]
    return _verdict(not forbidden, f"called: {', '.join(forbidden)}", _names(item), called)


def _side_effect_level(item: PackAssertion, evidence: Evidence) -> Verdict:
    raw = {} if evidence.run is None else evidence.run.raw
    level = resolve_pointer(raw, "/policy/side_effect_level")
    if level is MISSING or level is None:
        raise NoData("the run record has no policy.side_effect_level")
    for name in (level, item.expected):
        if name not in SIDE_EFFECT_LEVELS:
            known = ", ".join(SIDE_EFFECT_LEVELS)
            return Verdict("", "error", f"unknown side effect level {name!r}; known: {known}")
    order = SIDE_EFFECT_LEVELS.index
    message = f"side effect level {level} exceeds {item.expected}"
    return _verdict(order(str(level)) <= order(item.expected), message, item.expected, level)


def _output(item: PackAssertion, evidence: Evidence) -> Verdict:
    actual = evidence.record.output
    if actual is None:
        raise NoData("the run has no output")
    if item.contains:
        text = actual if isinstance(actual, str) else json.dumps(actual)
        message = f'the output does not contain "{item.contains}": {excerpt(text, MAX_SHOWN)}'
        return _verdict(item.contains in text, message, item.contains, text)
    return compare(item.op, actual, item.expected, "output")


def _path(item: PackAssertion, evidence: Evidence) -> Verdict:
    if evidence.run is None:
        raise NoData("the case has no run record")
    pointer = item.path or ""
    actual = resolve_pointer(evidence.run.raw, pointer)
    expected = item.contains if item.contains and item.expected is None else item.expected
    operator = "contains" if item.contains and item.expected is None else item.op
    return compare(operator, actual, expected, pointer or "the record")


def _check(item: PackAssertion, evidence: Evidence) -> Verdict:
    if evidence.trace is None:
        raise NoData("the case has no trace")
    context = CheckContext(Trace(evidence.trace), root=evidence.folder)
    return evaluate_all([item.check], context)[0]


ASSERTIONS: dict[str, Callable[[PackAssertion, Evidence], Verdict]] = {
    "run-status": _run_status,
    "status": _run_status,
    "stage-status": _stage_status,
    "visible-text-contains": _visible_text,
    "hitl-question-contains": _hitl_question,
    "context-pack-suggestion": _suggestion,
    "suggestion": _suggestion,
    "tool-called": _tool_called,
    "tool-never": _tool_never,
    "side-effect-level": _side_effect_level,
    "output": _output,
    "path": _path,
    "check": _check,
}

# --- JSON Pointers and operators


def resolve_pointer(document: Any, pointer: str) -> Any:
    """Return the value at a JSON Pointer (RFC 6901), or MISSING, which is not null."""
    value = document
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = cast("dict[str, Any]", value)[key]
        elif (
            isinstance(value, list)
            and key.isdecimal()
            and int(key) < len(items := cast("list[Any]", value))
        ):
            value = items[int(key)]
        else:
            return MISSING
    return value


def _ordered(compare_values: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare_same_kind(actual: Any, expected: Any) -> bool:
        try:
            return compare_values(actual, expected)
        except TypeError:
            return False

    return compare_same_kind


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda actual, expected: actual == expected and _same_type(actual, expected),
    "ne": lambda actual, expected: not (actual == expected and _same_type(actual, expected)),
    "lt": _ordered(lambda actual, expected: actual < expected),
    "le": _ordered(lambda actual, expected: actual <= expected),
    "gt": _ordered(lambda actual, expected: actual > expected),
    "ge": _ordered(lambda actual, expected: actual >= expected),
    "in": _ordered(lambda actual, expected: actual in expected),
    "contains": _ordered(lambda actual, expected: expected in actual),
    "matches": lambda actual, expected: (
        isinstance(actual, str)
        and compile_pattern(str(expected), "expected").search(actual) is not None
    ),
}


def _same_type(actual: Any, expected: Any) -> bool:
    # In Python True == 1; in JSON it is not.
    return isinstance(actual, bool) is isinstance(expected, bool)


def compare(operator: str, actual: Any, expected: Any, name: str) -> Verdict:
    """Return the verdict of one comparison; a missing value passes only `exists = false`."""
    if operator == "exists":
        wanted = expected is not False
        return _verdict((actual is not MISSING) is wanted, f"{name} is {_shown(actual)}", wanted)
    if actual is MISSING:
        return _verdict(False, f"{name} is missing", expected)
    ok = OPERATORS[operator](actual, expected)
    if ok:
        return Verdict("", "pass", "", expected, actual)
    message = f"{name}: expected {operator} {_shown(expected)}, got {_shown(actual)}"
    return _verdict(ok, message, expected, actual)


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, Missing) else json.dumps(value, default=repr)
    return excerpt(text, MAX_SHOWN)
