"""Assertions: parsed strictly from dicts, evaluated on a context to verdicts.

`Assertion` is the base of all kinds, and `ASSERTIONS` the table of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

import msgspec

from offbook.capability import load
from offbook.checks.collectors import PublishedTopics, Termination
from offbook.checks.context import NOT_ENDED, CheckContext, NoData, Requirement
from offbook.errors import OffbookError, UsageError, did_you_mean
from offbook.files import explain_invalid
from offbook.trace.agent_output import truncate_texts
from offbook.trace.events import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.checks.alignment import AlignedRow

# A verdict is an event of the trace: it quotes a file or an output, it does not copy it.
MAX_TEXT = 20_000


class AssertionResult(msgspec.Struct, frozen=True):
    """The result of an assertion; `rows` are rendered as a table if it failed."""

    ok: bool
    expected: Any = None
    actual: Any = None
    message: str = ""
    context: dict[str, Any] = {}
    rows: Sequence[AlignedRow] = ()


class Assertion(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One condition on a run.

    To add a kind, subclass it with a `tag` (the `type` that users write), implement `evaluate`,
    and list the class in `ASSERTIONS`.
    """

    # The fields that are part of the title.
    title_fields: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            if getattr(self, field) == "":
                # An empty pattern matches every text, and an empty topic no event.
                raise ValueError(f"`{field}` is empty and would check nothing")

    def requires(self) -> Iterable[Requirement]:
        """Return the collectors that `evaluate` reads, so that the trace is read once for all."""
        return ()

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
            from offbook.checks.alignment import render_rows  # for failures only

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


class CountAssertion(Assertion, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A condition on a number: at least one of `min`, `max` and `exact` is required."""

    min: int | None = None
    max: int | None = None
    exact: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min is None and self.max is None and self.exact is None:
            raise ValueError("expected min, max or exact")
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


def require(value: Any, message: str) -> Any:
    """Return the value, or raise `NoData` if it is None."""
    if value is None:
        raise NoData(message)
    return value


def require_items(values: list[str], field: str) -> list[str]:
    """Return the list, or raise an error if it is empty: an empty one would always pass."""
    if not values:
        raise UsageError(f"{field} is empty and would always pass")
    return values


# --- The kinds of assertions, and lists of them

# Classes by the `type` that users write, in the order of the documentation. A module is imported
# when one of its assertions is used.
ASSERTIONS = {
    "exit_code": "offbook.checks.run_assertions:ExitCode",
    "termination_reason": "offbook.checks.loop_assertions:TerminationReason",
    "iterations": "offbook.checks.loop_assertions:Iterations",
    "duration": "offbook.checks.run_assertions:Duration",
    "cost_within": "offbook.checks.run_assertions:CostWithin",
    "file_exists": "offbook.checks.file_assertions:FileExists",
    "file_contains": "offbook.checks.file_assertions:FileContains",
    "file_not_contains": "offbook.checks.file_assertions:FileNotContains",
    "scratchpad_contains": "offbook.checks.file_assertions:ScratchpadContains",
    "snapshot_matches": "offbook.checks.file_assertions:SnapshotMatches",
    "event_occurred": "offbook.checks.loop_assertions:EventOccurred",
    "event_sequence": "offbook.checks.loop_assertions:EventSequence",
    "event_count": "offbook.checks.loop_assertions:EventCount",
    "no_event": "offbook.checks.loop_assertions:NoEvent",
    "hat_sequence": "offbook.checks.loop_assertions:HatSequence",
    "hat_transition": "offbook.checks.loop_assertions:HatTransition",
    "iteration_count": "offbook.checks.loop_assertions:IterationCount",
    "stdout_contains": "offbook.checks.run_assertions:StdoutContains",
    "stderr_contains": "offbook.checks.run_assertions:StderrContains",
    "tool_sequence": "offbook.checks.tool_assertions:ToolSequence",
    "tool_called": "offbook.checks.tool_assertions:ToolCalled",
    "tool_never": "offbook.checks.tool_assertions:ToolNever",
    "tool_before": "offbook.checks.tool_assertions:ToolBefore",
    "tool_status": "offbook.checks.tool_assertions:ToolStatus",
}


def assertion_class(name: str) -> type[Assertion]:
    """Return the class of a `type`."""
    return load(ASSERTIONS[name])


def parse_assertion(raw: object, where: str = "") -> Assertion:
    """Return the assertion that a user or an agent wrote as a dict.

    >>> parse_assertion({"type": "exit_code", "expected": 0})
    ExitCode(expected=0)
    """
    if isinstance(raw, Assertion):
        return raw
    if not isinstance(raw, Mapping):
        raise UsageError(f"expected an assertion as a dict, got {type(raw).__name__}", where=where)
    fields = dict(cast("Mapping[str, Any]", raw))
    name = fields.pop("type", None)
    if not isinstance(name, str) or name not in ASSERTIONS:
        message = f"unknown assertion type {name!r}" if name else "an assertion needs a type"
        raise UsageError(message, where=where, hint=did_you_mean(str(name), ASSERTIONS))
    kind = assertion_class(name)
    try:
        return msgspec.convert(fields | {"type": name}, kind)
    except msgspec.ValidationError as error:
        problem, location, hint = explain_invalid(error, kind)
        known = kind.__struct_encode_fields__
        # A misspelled field is more often the cause than a wrong value or a missing field.
        unknown = [key for key in fields if key not in known]
        if unknown:
            hint = did_you_mean(unknown[0], known)
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
    valid = [item for item in parsed if isinstance(item, Assertion)]
    required = [requirement for item in valid for requirement in item.requires()]
    # Always collected: a trace that is broken or has no end is noticed whatever is asserted.
    context.collect([(Termination, ()), (PublishedTopics, ()), *required])
    # Of a run that was killed, nothing is known: what was not seen may have been about to happen.
    killed = NOT_ENDED if context.unfinished else ""
    return [
        item
        if isinstance(item, Verdict)
        else Verdict(item.title, "no_data", killed)
        if killed
        else item.judge(context)
        for item in parsed
    ]
