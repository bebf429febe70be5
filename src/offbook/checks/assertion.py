"""Assertions: parsed strictly from dicts, evaluated on a context to verdicts.

`ASSERTIONS` is the one table of them. Python, scenario files, eval packs and MCP use it; a format
with its own names maps them to it. A kind declares its fields, the facts that it `needs`
(without them the verdict is *no data*), and what would check nothing, which is refused when the
assertion is read.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, cast

import msgspec

from offbook.capability import load
from offbook.checks.context import (
    NEEDS,
    NOT_ENDED,
    CheckContext,
    NoData,
    PublishedTopics,
    Requirement,
    Termination,
)
from offbook.errors import OffbookError, UsageError, did_you_mean
from offbook.options import explain_invalid
from offbook.trace.agent_output import truncate_texts
from offbook.trace.events import Verdict
from offbook.trace.matching import compile_check

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.trace.matching import AlignedRow

# A verdict is an event of the trace: it quotes a file or an output, it does not copy it.
MAX_TEXT = 20_000
PATTERN_FIELDS = ("pattern", "payload_pattern")


class Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The base of assertions, audit rules and budgets: it refuses what would check nothing.

    An empty text matches everything, an empty list forbids nothing, and an infinite or negative
    limit is never met or always.
    """

    # The fields with a value to compare with, which may be empty or any number.
    value_fields: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        refuse_vacuous(self, self.value_fields)


def refuse_vacuous(check: msgspec.Struct, value_fields: tuple[str, ...] = ()) -> None:
    """Raise a ValueError if a field of a check would make it check nothing.

    A field that has its default was not written, so it is left alone.
    """
    for field in _fields_of(type(check)):
        value = getattr(check, field.name)
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        if field.name not in value_fields and value != default and value in ("", [], (), {}):
            raise ValueError(f"`{field.encode_name}` is empty and would check nothing")
        if isinstance(value, (list, tuple)) and "" in cast("list[object]", value):
            raise ValueError(f"`{field.encode_name}` has an empty entry")
    refuse_limits(check, value_fields)


_fields_of = cache(msgspec.structs.fields)


MAX_NUMBER = sys.float_info.max


def refuse_limits(limits: msgspec.Struct, value_fields: tuple[str, ...] = ()) -> None:
    """Raise a ValueError for a number that is infinite, not a number, or negative."""
    # As a tuple: a struct of a pack has dozens of fields, and thousands of cases.
    for field, value in zip(limits.__struct_fields__, msgspec.structs.astuple(limits), strict=True):
        if isinstance(value, (int, float)) and field not in value_fields:
            if not abs(value) <= MAX_NUMBER:  # also false if it is not a number
                raise ValueError(f"`{field}` must be a finite number, got {value}")
            if value < 0:
                raise ValueError(f"`{field}` must not be negative, got {value}")


class AssertionResult(msgspec.Struct, frozen=True):
    """The result of an assertion; `rows` are rendered as a table if it failed."""

    ok: bool
    expected: Any = None
    actual: Any = None
    message: str = ""
    context: dict[str, Any] = {}
    rows: Sequence[AlignedRow] = ()


class Assertion(Check, frozen=True):
    """One condition on a run.

    To add a kind, subclass it with a `tag` (the `type` that users write), implement `evaluate`,
    and list the class in `ASSERTIONS`.
    """

    # The evidence that it reads: `has_trace` (a trace, and the folder of the run) or `record`.
    reads: ClassVar[str] = "has_trace"
    # The facts without which there is no data: names of `NEEDS`.
    needs: ClassVar[tuple[str, ...]] = ()
    # The fields that are part of the title.
    title_fields: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in PATTERN_FIELDS:
            if pattern := getattr(self, field, None):
                compile_check(pattern, f"{self.__struct_config__.tag}.{field}")

    def requires(self) -> Iterable[Requirement]:
        """Return the collectors that `evaluate` reads, so that the trace is read once for all."""
        return [(collector, ()) for need in self.needs for collector in NEEDS[need].collectors]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        """Evaluate the condition; raise `NoData` if there is nothing to examine."""
        raise NotImplementedError

    @property
    def title(self) -> str:
        """The type and the main fields, as reports name the assertion."""
        values = (getattr(self, name, None) for name in self.title_fields)
        return " ".join([str(self.__struct_config__.tag), *(str(v) for v in values if v)])

    def judge(self, context: CheckContext) -> Verdict:
        """Return the verdict; an error of the check itself is an `error`, not a `fail`."""
        try:
            for need in (self.reads, *self.needs):
                context.require(need)
            result = self.evaluate(context)
        except NoData as reason:
            return Verdict(self.title, "no_data", f"no data: {reason}")
        except OffbookError as error:
            return Verdict(self.title, "error", str(error))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            # Traces come from other tools, too: the data of an event can have any shape.
            return Verdict(self.title, "error", f"the trace has a malformed event: {error!r}")
        except (OSError, RuntimeError) as error:
            # The files are the agent's: it can make anything that cannot be read.
            return Verdict(self.title, "error", f"cannot be checked: {error}")
        message, extra = result.message, result.context
        if result.rows and not result.ok:
            from offbook.trace.matching import render_rows  # for failures only

            table = render_rows(result.rows)
            heading = message if message.endswith("?") else f"{message}:"
            # The table is part of the message for people and a list of lines for programs.
            message = "\n".join([heading, *table])
            extra = {**extra, "diff": table}
        message, expected, actual, extra = truncate_texts(
            [message, result.expected, result.actual, extra], MAX_TEXT
        )
        # A pass has no message: reports would show it as a remark.
        if result.ok:
            return Verdict(self.title, "pass", "", expected, actual, extra)
        message = message or f"expected {expected!r}, got {actual!r}"
        return Verdict(self.title, "fail", message, expected, actual, extra)


class CountAssertion(Assertion, frozen=True):
    """A condition on a number: at least one of `min`, `max` and `exact` is required."""

    min: int | None = None
    max: int | None = None
    exact: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max is None and self.exact is None:
            if self.min is None:
                raise ValueError("expected min, max or exact")
            if self.min == 0:
                raise ValueError("min 0 alone would always pass")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is greater than max {self.max}")

    def compare(self, actual: int, context: dict[str, Any] | None = None) -> AssertionResult:
        """Return whether a number is within the bounds."""
        bounds = {k: v for k in ("min", "max", "exact") if (v := getattr(self, k)) is not None}
        ok = (
            (self.exact is None or actual == self.exact)
            and (self.min is None or actual >= self.min)
            and (self.max is None or actual <= self.max)
        )
        return AssertionResult(ok, bounds, actual, context=context or {})


# --- The kinds of assertions, and lists of them

# Classes by the `type` that users write, in the order of the documentation. A module is imported
# when one of its assertions is used.
RUN_ASSERTIONS = {
    "exit_code": "offbook.checks.run_assertions:ExitCode",
    "termination_reason": "offbook.checks.run_assertions:TerminationReason",
    "iterations": "offbook.checks.run_assertions:Iterations",
    "duration": "offbook.checks.run_assertions:Duration",
    "cost_within": "offbook.checks.run_assertions:CostWithin",
    "model_calls": "offbook.checks.run_assertions:ModelCalls",
    "file_exists": "offbook.checks.run_assertions:FileExists",
    "file_contains": "offbook.checks.run_assertions:FileContains",
    "file_not_contains": "offbook.checks.run_assertions:FileNotContains",
    "scratchpad_contains": "offbook.checks.run_assertions:ScratchpadContains",
    "snapshot_matches": "offbook.checks.run_assertions:SnapshotMatches",
    "event_occurred": "offbook.checks.run_assertions:EventOccurred",
    "event_sequence": "offbook.checks.run_assertions:EventSequence",
    "event_count": "offbook.checks.run_assertions:EventCount",
    "no_event": "offbook.checks.run_assertions:NoEvent",
    "hat_sequence": "offbook.checks.run_assertions:HatSequence",
    "hat_transition": "offbook.checks.run_assertions:HatTransition",
    "iteration_count": "offbook.checks.run_assertions:IterationCount",
    "stdout_contains": "offbook.checks.run_assertions:StdoutContains",
    "stderr_contains": "offbook.checks.run_assertions:StderrContains",
    "tool_sequence": "offbook.checks.tool_assertions:ToolSequence",
    "tool_called": "offbook.checks.tool_assertions:ToolCalled",
    "tool_never": "offbook.checks.tool_assertions:ToolNever",
    "tool_before": "offbook.checks.tool_assertions:ToolBefore",
    "tool_status": "offbook.checks.tool_assertions:ToolStatus",
}
# On the run record of an eval case: a JSON file that may come from another tool.
RECORD_ASSERTIONS = {
    "record_status": "offbook.checks.record_assertions:RecordStatus",
    "record_output": "offbook.checks.record_assertions:RecordOutput",
    "record_value": "offbook.checks.record_assertions:RecordValue",
    "stage_status": "offbook.checks.record_assertions:StageStatus",
    "stage_text": "offbook.checks.record_assertions:StageText",
    "question_asked": "offbook.checks.record_assertions:QuestionAsked",
    "recorded_tools": "offbook.checks.record_assertions:RecordedTools",
    "no_recorded_tools": "offbook.checks.record_assertions:NoRecordedTools",
    "side_effect_level": "offbook.checks.record_assertions:SideEffectLevel",
}
ASSERTIONS = RUN_ASSERTIONS | RECORD_ASSERTIONS
# On the transcript of an audit, by the `rule` of a policy.
AUDIT_RULES = {
    "stuck": "offbook.checks.audit:StuckRule",
    "repeated_read": "offbook.checks.audit:RepeatedReadRule",
    "bad_wait": "offbook.checks.audit:BadWaitRule",
    "approval": "offbook.checks.audit:ApprovalRule",
    "forbidden": "offbook.checks.audit:ForbiddenRule",
    "structured_output": "offbook.checks.audit:StructuredOutputRule",
    "plan_approval": "offbook.checks.audit:PlanApprovalRule",
    "verification": "offbook.checks.audit:VerificationRule",
    "complete": "offbook.checks.audit:CompleteRule",
    "steps": "offbook.checks.audit:StepOrderRule",
    "budget": "offbook.checks.audit:BudgetRule",
}


def assertion_class(name: str) -> type[Assertion]:
    """Return the class of a `type`."""
    return load(ASSERTIONS[name])


def parse_assertion(
    raw: object, where: str = "", table: Mapping[str, str] = ASSERTIONS, key: str = "type"
) -> Assertion:
    """Return the assertion that a user or an agent wrote as a dict; `key` has its kind.

    >>> parse_assertion({"type": "exit_code", "expected": 0})
    ExitCode(expected=0)
    """
    if isinstance(raw, Assertion):
        return raw
    if not isinstance(raw, Mapping):
        raise UsageError(f"expected an assertion as a dict, got {type(raw).__name__}", where=where)
    fields = dict(cast("Mapping[str, Any]", raw))
    name = fields.pop(key, None)
    if not isinstance(name, str) or name not in table:
        noun = "assertion type" if key == "type" else key
        message = f"unknown {noun} {name!r}" if name else f"an assertion needs a {key}"
        raise UsageError(message, where=where, hint=did_you_mean(str(name), table))
    kind: type[Assertion] = load(table[name])
    try:
        return msgspec.convert(fields | ({"type": name} if key == "type" else {}), kind)
    except UsageError as error:
        # The place of a pattern begins with the type.
        at = error.where.removeprefix(name)
        what = f"{name}{at if at.startswith('.') else at and f': {at}'}: {error.what}"
        raise UsageError(what, where=where, hint=error.hint) from error
    except msgspec.ValidationError as error:
        problem, location, hint = explain_invalid(error, kind)
        known = kind.__struct_encode_fields__
        # A misspelled field is more often the cause than a wrong value or a missing field.
        unknown = [key for key in fields if key not in known]
        if unknown:
            hint = did_you_mean(str(unknown[0]), known)  # a key of YAML may be of any type
        problem = f"{problem} (at {location})" if location != "$" else problem
        hint = hint or f"{name} takes {', '.join(known)}"
        raise UsageError(f"{name}: {problem}", where=where, hint=hint) from error


def evaluate_all(assertions: Iterable[object], context: CheckContext) -> list[Verdict]:
    """Evaluate all assertions in order; an invalid one becomes an `error` verdict."""
    parsed: list[Assertion | Verdict] = []
    for number, raw in enumerate(assertions, 1):
        try:
            parsed.append(parse_assertion(raw, f"assertion {number}"))
        except UsageError as error:
            name = str(cast("dict[str, Any]", raw).get("type")) if isinstance(raw, dict) else "?"
            parsed.append(Verdict(name, "error", str(error)))
    killed = ""
    others = [item for item in parsed if isinstance(item, Assertion) and item.reads != "has_trace"]
    if not parsed or len(others) < len(parsed):
        valid = [item for item in parsed if isinstance(item, Assertion)]
        required = [requirement for item in valid for requirement in item.requires()]
        # Always collected: a trace that is broken or has no end is noticed whatever is asserted.
        context.collect([(Termination, ()), (PublishedTopics, ()), *required])
        # Of a run that was killed, nothing is known: what was not seen may have been about to
        # happen.
        killed = NOT_ENDED if context.unfinished else ""
    return [
        item
        if isinstance(item, Verdict)
        else Verdict(item.title, "no_data", killed)
        if killed and item.reads == "has_trace"
        else item.judge(context)
        for item in parsed
    ]
