"""The registry of assertions, and the functions that parse and evaluate a list of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.capability import load
from offbook.checks.assertion import Assertion
from offbook.checks.collectors import PublishedTopics, Termination
from offbook.checks.context import NOT_ENDED
from offbook.errors import UsageError, did_you_mean
from offbook.files import explain_invalid
from offbook.trace.events import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.checks.context import CheckContext

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
