"""Assertions on a run record: a JSON file with what a run did, of Offbook or of another tool.

Eval packs use them by names of their own (`run-status`, `path`, …).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Literal, cast

import msgspec
from msgspec import UNSET, UnsetType

from offbook.checks.assertion import Assertion, AssertionResult
from offbook.checks.context import CheckContext, NoData
from offbook.errors import did_you_mean, require_known
from offbook.exchange.model import compile_validator
from offbook.secrets import excerpt
from offbook.trace.matching import (
    MISSING,
    compile_check,
    compile_pattern,
    parse_pointer,
    render_value,
    resolve_pointer,
    values_equal,
)

MAX_SHOWN = 200
# From harmless to far-reaching: a run may have a lower level than expected.
SIDE_EFFECT_LEVELS = ("none", "read_only", "workspace_write", "process_exec", "network")
Level = Literal["none", "read_only", "workspace_write", "process_exec", "network"]
Operator = Literal[
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "in",
    "contains",
    "not-contains",
    "matches",
    "not-matches",
    "exists",
    "is-json",
]


class RecordAssertion(Assertion, frozen=True):
    """An assertion that reads a run record."""

    reads: ClassVar[str] = "record"

    def items(self, context: CheckContext, key: str) -> list[dict[str, Any]]:
        """Return a list of the record; an absent one is empty."""
        return context.require("record").get(key) or []


# --- The status, the stages and the questions


class RecordStatus(RecordAssertion, frozen=True, tag="record_status"):
    """The run ended with this status."""

    expected: str
    title_fields: ClassVar[tuple[str, ...]] = ("expected",)

    def evaluate(self, context: CheckContext) -> AssertionResult:
        actual = context.require("record").get("status") or ""
        message = f"run status mismatch: expected {self.expected}, got {actual or 'none'}"
        return AssertionResult(actual == self.expected, self.expected, actual, message)


class StageStatus(RecordAssertion, frozen=True, tag="stage_status"):
    """The stage ended with this status."""

    stage: str
    expected: str
    title_fields: ClassVar[tuple[str, ...]] = ("stage", "expected")

    def evaluate(self, context: CheckContext) -> AssertionResult:
        stages = self.items(context, "stages")
        for stage in stages:
            if stage.get("node_id") == self.stage:
                actual = stage.get("status") or ""
                message = f"stage {self.stage} status mismatch: expected {self.expected}"
                return AssertionResult(
                    actual == self.expected, self.expected, actual, f"{message}, got {actual}"
                )
        similar = did_you_mean(self.stage, [str(stage.get("node_id")) for stage in stages])
        return AssertionResult(
            False, self.expected, message=f"missing stage {self.stage}; {similar}"
        )


class StageText(RecordAssertion, frozen=True, tag="stage_text"):
    """The visible text of the stage, or of any stage, contains this text."""

    contains: str
    stage: str | None = None
    title_fields: ClassVar[tuple[str, ...]] = ("stage",)

    def evaluate(self, context: CheckContext) -> AssertionResult:
        texts = [
            stage.get("visible_text") or ""
            for stage in self.items(context, "stages")
            if self.stage in {None, stage.get("node_id")}
        ]
        where = f"stage {self.stage}" if self.stage else "any stage"
        message = f'visible text of {where} does not contain "{self.contains}"'
        if not texts:
            message = f"missing stage {self.stage}" if self.stage else "the run has no stages"
        ok = any(self.contains in text for text in texts)
        return AssertionResult(ok, self.contains, message=message)


class QuestionAsked(RecordAssertion, frozen=True, tag="question_asked"):
    """A question to the user contains this text."""

    contains: str

    def evaluate(self, context: CheckContext) -> AssertionResult:
        prompts = [str(q.get("prompt") or "") for q in self.items(context, "hitl_questions")]
        ok = any(self.contains in prompt for prompt in prompts)
        message = f'no question to the user contains "{self.contains}"'
        return AssertionResult(ok, self.contains, prompts, message)


# --- Tools


class RecordedTools(RecordAssertion, frozen=True, tag="recorded_tools"):
    """The record has a call of each of these tools."""

    expected: str | list[str]
    title_fields: ClassVar[tuple[str, ...]] = ("expected",)

    @property
    def names(self) -> list[str]:
        """The names of the tools."""
        return [self.expected] if isinstance(self.expected, str) else self.expected

    def called(self, context: CheckContext) -> list[str]:
        """Return the tools that the record has calls of."""
        return [str(tool.get("tool_name")) for tool in self.items(context, "tool_recordings")]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        called = self.called(context)
        missing = [name for name in self.names if name not in called]
        message = f"never called: {', '.join(missing)}; called: {', '.join(called) or 'no tool'}"
        return AssertionResult(not missing, self.names, called, message)


class NoRecordedTools(RecordedTools, frozen=True, tag="no_recorded_tools"):
    """The record has calls of tools, and none of these."""

    def evaluate(self, context: CheckContext) -> AssertionResult:
        called = self.called(context)
        if not called:
            raise NoData("the run called no tool")
        forbidden = [name for name in self.names if name in called]
        message = f"called: {', '.join(forbidden)}"
        return AssertionResult(not forbidden, self.names, called, message)


class SideEffectLevel(RecordAssertion, frozen=True, tag="side_effect_level"):
    """The side effects of the run went no further than this level of its policy."""

    expected: Level
    title_fields: ClassVar[tuple[str, ...]] = ("expected",)

    def evaluate(self, context: CheckContext) -> AssertionResult:
        level = resolve_pointer(context.record, "/policy/side_effect_level", None)
        if level is None:
            raise NoData("the run record has no policy.side_effect_level")
        require_known("unknown side effect level", level, SIDE_EFFECT_LEVELS)
        order = SIDE_EFFECT_LEVELS.index
        message = f"side effect level {level} exceeds {self.expected}"
        return AssertionResult(order(level) <= order(self.expected), self.expected, level, message)


# --- Values


class RecordOutput(RecordAssertion, frozen=True, tag="record_output"):
    """The output of the run compares so with the expected value, or contains a text."""

    op: Operator | UnsetType = UNSET
    expected: Any = UNSET
    contains: str | UnsetType = UNSET
    value_fields: ClassVar[tuple[str, ...]] = ("expected",)

    def __post_init__(self) -> None:
        super().__post_init__()
        problem = comparison_problem(self)
        if problem:
            raise ValueError(problem)

    def evaluate(self, context: CheckContext) -> AssertionResult:
        actual = context.require("record").get("output")
        if actual is None:
            raise NoData("the run has no output")
        if self.contains is UNSET:
            return compare_values(self.op or "eq", actual, self.expected, "output")
        text = actual if isinstance(actual, str) else render_value(actual, None)
        message = f'the output does not contain "{self.contains}": {excerpt(text, MAX_SHOWN)}'
        return AssertionResult(holds_value(actual, self.contains), self.contains, text, message)


class RecordValue(RecordOutput, frozen=True, kw_only=True, tag="record_value"):
    """The value at a JSON Pointer compares so with the expected one, or contains it."""

    path: str
    title_fields: ClassVar[tuple[str, ...]] = ("path",)
    value_fields: ClassVar[tuple[str, ...]] = ("expected", "path")  # "" is the whole record

    def __post_init__(self) -> None:
        parse_pointer(self.path)
        super().__post_init__()
        if not self.path and self.op == "exists":
            raise ValueError("`path` is the whole record, which always exists")

    def evaluate(self, context: CheckContext) -> AssertionResult:
        actual = resolve_pointer(context.record, self.path)
        name = self.path or "the record"
        if self.contains is not UNSET:
            return compare_values("contains", actual, self.contains, name)
        return compare_values(self.op or "eq", actual, self.expected, name)


def comparison_problem(check: RecordOutput) -> str:
    """Return why a comparison would check nothing, or ignore a field; empty if it does not."""
    op, expected = check.op or "eq", check.expected
    if check.contains is not UNSET:
        given = [name for name in ("op", "expected") if getattr(check, name) is not UNSET]
        return f"`{given[0]}` has no effect beside `contains`" if given else ""
    if op == "exists":
        ok = expected is UNSET or isinstance(expected, bool)
        return "" if ok else "the operator exists takes true or false"
    if op == "is-json":
        ok = isinstance(expected, bool) or (isinstance(expected, dict) and expected != {})
        if ok and not isinstance(expected, bool):
            compile_validator(cast("dict[str, Any]", expected), "expected")
        return "" if ok else "the operator is-json takes true, false or a JSON schema"
    if expected is UNSET:
        return f"expected `contains`, or `expected` for the operator {op}"
    if op in TEXT_OPERATORS and expected in ("", [], {}):
        return f"`expected` is empty and would check nothing with the operator {op}"
    if op in {"lt", "le", "gt", "ge"} and isinstance(expected, float):
        return "" if math.isfinite(expected) else f"`expected` is {expected}, which is no limit"
    if op in {"matches", "not-matches"}:
        if not isinstance(expected, str):
            return f"the operator {op} takes a regular expression"
        compile_check(expected, "expected")  # one that is found in every text
    return ""


def holds_value(actual: Any, expected: Any) -> bool:
    """Return whether a value contains another one.

    A text is searched in all texts, keys and numbers at any depth; a number in all texts. Any value
    is contained in a list or an object that has an equal one at any depth.
    """
    if isinstance(actual, dict):
        fields = cast("dict[str, Any]", actual)
        return any(holds_value(key, expected) for key in fields) or _has(fields.values(), expected)
    if isinstance(actual, (list, tuple)):
        return _has(cast("list[Any]", actual), expected)
    is_number = isinstance(expected, (int, float)) and not isinstance(expected, bool)
    if isinstance(actual, str) and (is_number or isinstance(expected, str)):
        return str(expected) in actual
    return (
        actual is not None and isinstance(expected, str) and expected in render_value(actual, None)
    )


def _has(values: Iterable[Any], expected: Any) -> bool:
    return any(values_equal(value, expected) or holds_value(value, expected) for value in values)


TEXT_OPERATORS = {"in", "contains", "not-contains", "matches", "not-matches"}
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": values_equal,
    "ne": lambda actual, expected: not values_equal(actual, expected),
    "lt": lambda actual, expected: actual < expected,
    "le": lambda actual, expected: actual <= expected,
    "gt": lambda actual, expected: actual > expected,
    "ge": lambda actual, expected: actual >= expected,
    "in": lambda actual, expected: actual in expected,
    "contains": holds_value,
    "not-contains": lambda actual, expected: (
        isinstance(actual, (str, list, dict)) and not holds_value(actual, expected)
    ),
    "matches": lambda actual, expected: (
        isinstance(actual, str) and compile_pattern(expected, "expected").search(actual) is not None
    ),
    "not-matches": lambda actual, expected: (
        isinstance(actual, str) and compile_pattern(expected, "expected").search(actual) is None
    ),
}


def compare_values(operator: str, actual: Any, expected: Any, name: str) -> AssertionResult:
    """Return the result of one comparison; a missing value passes only `exists = false`."""
    if operator == "exists":
        wanted = expected is not False
        message = f"{name} is {render_value(actual, MAX_SHOWN)}"
        return AssertionResult((actual is not MISSING) is wanted, wanted, message=message)
    if actual is MISSING:
        return AssertionResult(False, expected, message=f"{name} is missing")
    if operator == "is-json":
        return _check_json(actual, expected, name)
    try:
        ok = OPERATORS[operator](actual, expected)
    except TypeError:  # a text and a number have no order
        ok = False
    shown = render_value(cast("object", expected), MAX_SHOWN)
    message = f"{name}: expected {operator} {shown}, got {render_value(actual, MAX_SHOWN)}"
    return AssertionResult(ok, expected, actual, message)


def _check_json(actual: Any, expected: Any, name: str) -> AssertionResult:
    """Return whether a value, or the text of one, is JSON: any, none, or what a schema allows."""
    shown = render_value(actual, MAX_SHOWN)
    try:
        value = msgspec.json.decode(actual) if isinstance(actual, str) else actual
    except msgspec.DecodeError as error:
        message = f"{name} is not JSON: {error}: {shown}"
        return AssertionResult(expected is False, expected, actual, message)
    if isinstance(expected, bool):
        return AssertionResult(expected, expected, actual, f"{name} is JSON: {shown}")
    errors = compile_validator(expected, "expected")(value)
    rules = [f"/{'/'.join(map(str, error.path))}: {error.message}" for error in errors]
    message = f"{name} is not what the schema allows: {'; '.join(rules)}"
    return AssertionResult(not errors, expected, actual, message)
